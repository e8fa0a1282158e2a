"""Plans of long causal sequences: in zig-zag order from the inputs on where that is faster."""

from functools import cache

import pytest

import alpa_explore as ax
from alpa_explore.errors import OptionError
from alpa_explore.graph import TrainingGraph
from alpa_explore.models.configs import DecoderConfig
from alpa_explore.models.factory import make_inputs, make_module
from alpa_explore.plans.planned_stage import PlannedOperators
from alpa_explore.plans.rebuild import rebuild
from alpa_explore.plans.report.summary import plan_report
from alpa_explore.programs.lowering.lower import lower
from alpa_explore.sharding.rules.attention import HEAVY


@cache
def small() -> TrainingGraph:
    """A sample of 32k tokens in two blocks: with three heads, two devices share the sequence, or nothing."""
    config = DecoderConfig(layers=2, hidden=768, heads=3, kv_heads=3, vocabulary=2048, sequence=32768, ffn=2048)
    return ax.capture(make_module(config, "meta", 0), make_inputs(config, 1, "meta", 0), precision="bfloat16")


@cache
def plan(zigzag: int | None) -> ax.Plan:
    return ax.plan(small(), "1x2:h100", num_microbatches=4, num_layers=2, zigzag=zigzag, pipeline=ONE_STAGE)


ONE_STAGE = ax.PipelineOptions(num_stages=1)


@pytest.mark.slow
def test_the_faster_order_is_taken() -> None:
    natural, ordered, chosen = plan(1), plan(2), plan(None)
    assert (natural.model.zigzag, ordered.model.zigzag, chosen.model.zigzag) == (1, 2, 2)
    assert ordered.predicted.iteration_seconds < natural.predicted.iteration_seconds
    assert chosen.predicted == ordered.predicted
    assert "sequences in zig-zag order for 2 devices" in plan_report(chosen)
    assert "zig-zag order" not in plan_report(natural)


def test_the_operators_of_some_kinds_are_described_as_among_all() -> None:
    (stage,) = plan(1).stages
    assert isinstance(stage.operators, PlannedOperators)
    attention = stage.operators.of(HEAVY)
    assert len(attention) == 4, "forward and backward of two blocks"
    assert attention == tuple(operator for operator in stage.operators if operator.op in HEAVY)


def test_a_file_of_the_plan_keeps_the_order(tmp_path) -> None:
    plan(None).save(tmp_path / "a.plan.json")
    read = ax.load_plan(tmp_path / "a.plan.json")
    # The model was captured in natural order, as its owner will capture it again.
    assert [s.tasks for s in lower(rebuild(read, small())).stages] == [s.tasks for s in lower(plan(None)).stages]


@pytest.mark.slow
def test_a_catalogue_model_is_captured_again_in_its_order(tmp_path) -> None:
    made = ax.plan("llama-tiny", "1x2:cpu", num_microbatches=2, global_batch=4, zigzag=4, cache=False)
    made.save(tmp_path / "a.plan.json")
    read = rebuild(ax.load_plan(tmp_path / "a.plan.json"))
    assert read.details is not None
    assert (read.model.zigzag, read.details.graph.content_key) == (4, made.model.content_key)


def test_another_delta_keeps_the_order() -> None:
    assert ax.replan(plan(2), delta=1.0).model.zigzag == 2


@pytest.mark.parametrize(("zigzag", "found"), [(0, "zigzag must be .*: 0"), (True, "True"), (3, "for 3 devices")])
def test_orders_that_cannot_be_are_refused(zigzag, found) -> None:
    with pytest.raises(OptionError, match=found):
        ax.plan(small(), "1x2:h100", num_microbatches=4, num_layers=2, zigzag=zigzag)
