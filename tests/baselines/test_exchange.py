"""Baselines whose devices share a sequence: the exchange that was asked for, also after the plan was a file."""

import pytest

import alpa_explore as ax
from alpa_explore.errors import OptionError
from alpa_explore.plans.rebuild import rebuild
from alpa_explore.plans.report.parallelism import parallelism_lines
from alpa_explore.programs.lowering.lower import lower
from tests.programs.cases import captured


@pytest.fixture(scope="module")
def graph():
    return captured("llama of 1", 1, 0, ())[0]


def planned(graph, exchange, devices=4, **degrees):
    return ax.baseline(
        graph, f"1x{devices}:cpu", "megatron", num_microbatches=1, num_layers=1, exchange=exchange, **degrees
    )


def strategies(plan):
    return {o.strategy for stage in plan.stages for o in stage.operators if "attention" in o.op}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("exchange", "said"),
    [("ring", "ring"), ("ring-zigzag", "ring, zig-zag"), ("all-gather", "all-gather"), ("ulysses", "Ulysses")],
)
def test_a_file_of_the_plan_keeps_the_exchange_that_was_asked_for(graph, exchange, said, tmp_path) -> None:
    """Those of rings, and of gathered keys, have the same specs; and the software of the file must offer them."""
    plan = planned(graph, exchange, cp=4, dp=1)
    assert plan.options.baseline == f"megatron (tp 1, cp 4, dp 1, pp 1, {exchange})"
    (line,) = parallelism_lines(plan)
    assert line.startswith(f"context parallel ({said}")
    plan.save(tmp_path / "a.plan.json")
    read = ax.load_plan(tmp_path / "a.plan.json")
    assert strategies(read) == strategies(plan)
    assert len(strategies(plan)) == 1
    assert [s.tasks for s in lower(rebuild(read, graph)).stages] == [s.tasks for s in lower(plan).stages]


def test_heads_can_be_divided_beside_it(graph) -> None:
    assert strategies(planned(graph, "ulysses", cp=2, tp=2)) == {"ulysses·heads"}


@pytest.mark.parametrize(
    ("exchange", "degrees", "message"),
    [
        ("rings", {"cp": 2}, "Unknown exchange: 'rings'"),
        ("ring", {"tp": 4}, "exchange=ring without cp"),
        ("ring", {"cp": 1}, "exchange=ring without cp"),
        ("ulysses", {"cp": 8, "devices": 8}, "exchange=ulysses with cp=8.* heads of keys"),
    ],
)
def test_an_exchange_that_cannot_be_is_refused(graph, exchange, degrees, message) -> None:
    with pytest.raises(OptionError, match=message):
        planned(graph, exchange, **degrees)
