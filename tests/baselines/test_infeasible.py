"""What a baseline that does not fit needs, by its error: more than there is, under every schedule."""

from __future__ import annotations

import pytest

import alpa_explore as ax
from alpa_explore.cluster import Cluster
from alpa_explore.errors import InfeasiblePlanError, OptionError
from alpa_explore.planner.microbatch_graph import microbatch_graph

DEGREES = {"tp": 1, "dp": 1, "pp": 2}


def asked(cluster: Cluster, chunks: int, b: int = 8) -> ax.Plan:
    graph = microbatch_graph("gpt-tiny", b, global_batch=8 * b)
    return ax.baseline(graph, cluster, "megatron", num_microbatches=b, chunks=chunks, **DEGREES)


@pytest.mark.slow
@pytest.mark.parametrize("chunks", [1, 2])
def test_what_is_needed_is_what_the_stage_holds_under_its_schedule(chunks: int) -> None:
    """A stage of an interleaved schedule holds microbatches of all its parts, more than its place from the end."""
    cluster = Cluster.parse("1x2:v100")
    plan = asked(cluster, chunks)
    peak = max(stage.peak_bytes for stage in plan.stages)
    least = min(stage.weight_bytes + stage.workspace_bytes for stage in plan.stages)
    assert least < peak
    with pytest.raises(InfeasiblePlanError) as caught:
        asked(cluster.with_changes(memory_bytes=int(0.98 * peak)), chunks)
    # The stage is refused as a whole; the plan counts what it runs in turn, which is a few kB more.
    assert caught.value.over_bytes == pytest.approx(0.02 * peak, rel=0.03)
    need, _, there = caught.value.found.partition(" need ")[2].partition(" of ")
    assert float(need.split()[0]) > float(there.split()[0])


@pytest.mark.slow
def test_a_schedule_that_does_not_exist_for_these_microbatches_is_no_lack_of_memory() -> None:
    with pytest.raises(OptionError, match="does not exist"):
        asked(Cluster.parse("1x2:v100"), chunks=2, b=7)
