"""Coverage of the operators of whole models, and of operators without a rule."""

from pathlib import Path

import pytest
import torch

import alpa_explore as ax
from alpa_explore.graph import TrainingGraph
from alpa_explore.sharding.rules import RULES
from alpa_explore.sharding.splits import KindCoverage, splits_for, with_discovered_splits
from tests.one_layer import OneLayer


class Odd(OneLayer):
    """One operator of each kind of coverage: products by rule, hypot by discovery, a sampled one not at all."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.hypot(self.layer(x), torch.ones(()))
        return (y + torch.poisson(torch.ones_like(y))).sum()


@pytest.fixture(scope="module")
def graph() -> TrainingGraph:
    return ax.capture(Odd(8, 16), torch.randn(4, 8))


@pytest.fixture(scope="module")
def records(graph: TrainingGraph) -> tuple[KindCoverage, ...]:
    return ax.coverage(graph)


def test_every_operator_is_counted_once(graph: TrainingGraph, records: tuple[KindCoverage, ...]) -> None:
    assert sum(r.count for r in records) == len(graph.operators)
    assert sum(r.flops for r in records) == sum(o.flops for o in graph.operators)
    assert sum(r.flops_share for r in records) == pytest.approx(1)
    assert {r.kind for r in records} == {o.kind for o in graph.operators}


def test_a_rule_that_is_entered_later_is_used(graph: TrainingGraph, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = with_discovered_splits(graph)
    operator = next(o for o in graph.operators if splits_for(o, graph.tensors).how != "rule")
    monkeypatch.setitem(RULES, operator.kind, lambda operator, inputs, outputs: ())  # type: ignore[arg-type]  # a dict
    assert splits_for(operator, graph.tensors).how == "rule"


def test_replicated_operators_come_first(records: tuple[KindCoverage, ...]) -> None:
    order = [r.how for r in records]
    assert order == sorted(order, key=("replicated", "discovered", "rule").index)
    assert set(order) == {"replicated", "discovered", "rule"}


def test_each_kind_has_its_coverage_and_reason(records: tuple[KindCoverage, ...]) -> None:
    by_kind = {r.kind: r for r in records}
    assert by_kind["aten.hypot.default"].how == "discovered"
    assert by_kind["aten.hypot.default"].factors == ("dim0", "dim1")
    assert by_kind["aten.poisson.default"].reason == "it draws random numbers"
    assert all((r.how == "replicated") == bool(r.reason) for r in records)


def test_a_plan_names_the_operators_that_are_replicated(graph: TrainingGraph) -> None:
    plan = ax.plan(graph, "1x2:v100", num_microbatches=2, num_layers=1, cache=False, scheduler="serial")
    warnings = [w for w in plan.warnings if "replicated" in w]
    assert len(warnings) == 1
    assert "aten.poisson.default" in warnings[0]
    assert "it draws random numbers" in warnings[0]


def test_a_plan_from_a_file_divides_its_operators_as_it_did(graph: TrainingGraph, tmp_path: Path) -> None:
    plan = ax.baseline(graph, "1x2:v100", "data-parallel", num_microbatches=2)
    plan.save(tmp_path / "odd.plan.json")
    again = ax.rebuild(ax.load_plan(tmp_path / "odd.plan.json"), graph)
    (stage,) = plan.stages
    assert again.details is not None
    assert again.details.operators(stage.layers, again.candidate_of(stage)) == stage.operators
    assert {o.strategy for o in stage.operators if "hypot" in o.op} == {"dim0"}


@torch.library.custom_op("alpa_explore_tests::halve", mutates_args=())
def halve(x: torch.Tensor) -> torch.Tensor:
    """Registered in this process alone."""
    return x / 2


halve.register_fake(torch.empty_like)
halve.register_autograd(lambda context, gradient: halve(gradient))


class Halving(OneLayer):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return halve(self.layer(x)).sum()


@pytest.mark.distributed
def test_workers_without_an_operator_divide_it_as_this_process_does() -> None:
    graph = ax.capture(Halving(8, 16), torch.randn(4, 8))
    assert {r.kind for r in ax.coverage(graph) if r.how == "discovered"} == {"alpa_explore_tests.halve.default"}
    plans = [
        ax.plan(graph, "1x2:v100", num_microbatches=2, num_layers=1, cache=False, scheduler=scheduler)
        for scheduler in ("serial", "processes")
    ]
    assert plans[0].predicted == plans[1].predicted
    assert [o.strategy for s in plans[0].stages for o in s.operators] == [
        o.strategy for s in plans[1].stages for o in s.operators
    ]
