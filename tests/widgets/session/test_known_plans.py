"""Plans that are made again are taken from memory; all that a plan depends on is in the key."""

import threading
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from alpa_explore_widgets.session.backend import KnownPlans

from alpa_explore.cluster import Cluster
from alpa_explore.errors import CancelledError
from alpa_explore.graph import TrainingGraph
from alpa_explore.inter_op.options import PipelineOptions
from alpa_explore.planner.interface import plan
from alpa_explore.planner.microbatch_graph import microbatch_graph
from alpa_explore.plans.plan import Plan

CLUSTER = Cluster.parse("1x2:v100")


@pytest.fixture(scope="module")
def graph() -> TrainingGraph:
    return microbatch_graph("mlp-tiny", 8, store=None)


@dataclass
class Planner:
    """Counts the calls; the plans of all are of the same kind."""

    made: list[dict[str, Any]] = field(default_factory=list)
    known: KnownPlans = field(default_factory=lambda: KnownPlans(3))

    def __call__(self, graph: TrainingGraph, cluster: Cluster, **options: Any) -> Plan:
        self.made.append(options)
        return plan(graph, cluster, num_layers=2, scheduler="serial", cache=False, **options)

    def ask(self, graph: TrainingGraph, cluster: Cluster = CLUSTER, **options: Any) -> Plan:
        return self.known.plan(self, graph, cluster, reports={"cancel": threading.Event()}, **options)


def test_the_same_question_is_answered_from_memory(graph: TrainingGraph) -> None:
    planner = Planner()
    first = planner.ask(graph, num_microbatches=8)
    again = planner.ask(microbatch_graph("mlp-tiny", 8, store=None), num_microbatches=8)
    assert len(planner.made) == 1
    assert again == replace(first, statistics=again.statistics)
    assert again.statistics.cached_solves == first.statistics.distinct_solves > 0
    assert again.costs is first.costs


def test_any_other_question_is_planned(graph: TrainingGraph) -> None:
    planner = Planner()
    planner.ask(graph, num_microbatches=8)
    planner.ask(graph, num_microbatches=16)
    planner.ask(graph, num_microbatches=8, pipeline=PipelineOptions(schedule="gpipe"))
    planner.ask(graph, CLUSTER.with_changes(memory_bytes=2**33), num_microbatches=8)
    planner.ask(microbatch_graph("mlp-tiny", 4, store=None), num_microbatches=8)
    assert len(planner.made) == 5


def test_those_that_were_used_last_are_kept(graph: TrainingGraph) -> None:
    planner = Planner()
    for b in (1, 2, 4, 1, 8, 1, 2):
        planner.ask(graph, num_microbatches=b)
    assert [options["num_microbatches"] for options in planner.made] == [1, 2, 4, 8, 2]


def test_what_fails_or_is_cancelled_is_not_kept(graph: TrainingGraph) -> None:
    planner, cancel = Planner(), threading.Event()
    cancel.set()
    for _ in range(2):
        with pytest.raises(CancelledError):
            planner.known.plan(planner, graph, CLUSTER, reports={"cancel": cancel}, num_microbatches=8)
    planner.ask(graph, num_microbatches=8)
    assert len(planner.made) == 3
