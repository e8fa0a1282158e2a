"""Plans whose linear layers are priced in a lower precision."""

from dataclasses import replace
from functools import cache

import pytest

import alpa_explore as ax
from alpa_explore.errors import AlpaExploreError
from alpa_explore.graph import TrainingGraph
from alpa_explore.models.catalog import build
from alpa_explore.models.configs import DecoderConfig
from alpa_explore.models.factory import make_inputs, make_module
from alpa_explore.plans.rebuild import rebuild
from alpa_explore.plans.report.headline import headline
from alpa_explore.plans.report.summary import plan_report


@cache
def small() -> TrainingGraph:
    """Two blocks with the sizes of Llama 3.2 1B, and a small vocabulary."""
    config = DecoderConfig(layers=2, hidden=2048, heads=32, kv_heads=8, vocabulary=2048, sequence=4096, ffn=8192)
    inputs = make_inputs(config, 2, "meta", 0)
    return ax.capture(make_module(config, "meta", 0), inputs, precision="bfloat16")


@pytest.fixture(scope="module")
def plans() -> dict[str, ax.Plan]:
    """By precision."""
    return {
        name: ax.plan(small(), "1x2:b200", num_microbatches=4, num_layers=2, delta=2.0, precision=name)
        for name in ("bf16", "fp8", "nvfp4")
    }


def test_a_lower_precision_is_faster_with_the_same_memory(plans) -> None:
    times = [
        plans[name].predicted.iteration_seconds - plans[name].overhead_seconds for name in ("nvfp4", "fp8", "bf16")
    ]
    assert times == sorted(times)
    assert times[0] < 0.9 * times[-1]
    assert {plan.model.precision for plan in plans.values()} == {"bfloat16"}


def test_the_report_says_what_is_priced_what_runs_and_of_which_peak(plans) -> None:
    text = plan_report(plans["nvfp4"])
    assert "bfloat16, linear layers priced in NVFP4" in text
    assert "`launch` and `verify` run them in bfloat16" in text
    assert "of its bfloat16 peak" in text
    flops = next(f for f in headline(plans["nvfp4"]) if f.name == "FLOP/s of a device")
    assert flops.why.startswith(f"{flops.beside.split(' of ')[0]} of 2.25 PFLOP/s in bfloat16 (MFU), not of the 9 P")
    assert "NVFP4" not in plan_report(plans["bf16"])


def test_a_plan_file_keeps_it(plans, tmp_path) -> None:
    plans["fp8"].save(tmp_path / "a.plan.json")
    read = ax.load_plan(tmp_path / "a.plan.json")
    assert read.cluster == plans["fp8"].cluster
    assert read.cluster.software.low_precision == "fp8-delayed"
    again, kept = rebuild(read, small()).details, plans["fp8"].details
    assert again is not None
    assert kept is not None
    for stage in plans["fp8"].stages:
        mesh = plans["fp8"].candidate_of(stage).logical_mesh
        choices = kept.choices[stage.solution_key]
        assert again.choices[stage.solution_key] == choices
        costs = [
            d.problem(stage.layers, mesh).at(inverse_b=0.25, memory_price=0.0, microbatches_held=1).evaluate(choices)
            for d in (kept, again)
        ]
        assert costs[0] == costs[1]


def test_another_delta_is_priced_in_the_same_precision(plans) -> None:
    other = ax.replan(plans["fp8"], delta=1.5)
    assert other.cluster.software.low_precision == "fp8-delayed"
    assert other.predicted.iteration_seconds == pytest.approx(plans["fp8"].predicted.iteration_seconds, rel=0.02)


def test_a_captured_graph_keeps_the_dtype_of_its_tensors() -> None:
    graph = ax.capture(*build("mlp-tiny", 16), precision="float32")
    plan = ax.plan(graph, "1x2:h100", num_microbatches=2, num_layers=1, precision="fp8")
    assert plan.model.precision == "float32"
    module, inputs = build("mlp-tiny", 16, device="cpu")
    made = ax.interpret(ax.lower(plan), module, [inputs, inputs])
    whole = ax.plan(graph, "1x2:h100", num_microbatches=2, num_layers=1)
    assert made.losses == pytest.approx(ax.interpret(ax.lower(whole), module, [inputs, inputs]).losses)


def test_a_baseline_takes_it_too() -> None:
    options = {"num_microbatches": 4, "tp": 2, "dp": 1, "pp": 1, "num_layers": 2, "delta": 2.0}
    times = [
        ax.baseline(small(), "1x2:h100", "megatron", precision=p, **options).predicted.iteration_seconds
        for p in ("bf16", "fp8")
    ]
    assert times[1] < times[0]
    with pytest.raises(AlpaExploreError, match="nearest that it has: fp8"):
        ax.baseline(small(), "1x2:h100", "megatron", precision="mxfp8", **options)


@pytest.mark.slow
def test_b_auto_takes_it_too() -> None:
    plan = ax.plan("llama-tiny", "1x1:h100", num_microbatches="auto", global_batch=2, num_layers=1, precision="fp8")
    assert plan.cluster.software.low_precision == "fp8-delayed"
    assert replace(plan.cluster.device, software=plan.cluster.software) == plan.cluster.device
