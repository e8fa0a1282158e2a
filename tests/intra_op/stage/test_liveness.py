"""The intervals of a stage's workspace, against a walk through its operators one by one."""

import pytest

from alpa_explore.cluster import Cluster
from alpa_explore.graph import Phase
from alpa_explore.intra_op.stage.layered_graph import assign_layers
from alpa_explore.intra_op.stage.liveness import workspace_intervals
from alpa_explore.intra_op.stage.recomputation import Recomputation
from alpa_explore.intra_op.stage.stage_graph import slice_stages
from tests.programs.cases import Case

LAYERS = 3


def walked(stage):
    """{(tensor, start, end)} of the storage tensors that the stage makes and does not hold."""
    layered, graph = stage.layered, stage.layered.graph
    segments = {}
    for index in stage.operators:
        if index in layered.recomputed:
            segments.setdefault(layered.segment_of[index], []).append(index)
    order = []
    for index in stage.operators:
        if graph.operators[index].phase is Phase.BACKWARD:
            for segment in layered.waits.get(index, ()):
                order += segments.pop(segment, [])
        order.append(index)
    alive, ended = {}, []
    for step, index in enumerate(order):
        operator = graph.operators[index]
        for tensor in operator.outputs:
            base = layered.storage[tensor]
            if base in stage.held or graph.tensors[base].producer is None or not operator.stored:
                continue
            if tensor == base and base in alive:
                ended.append((base, *alive.pop(base)))
            alive[base] = (alive.get(base, (step,))[0], step)
        for tensor in operator.inputs:
            base = layered.storage[tensor]
            in_kernel = base in layered.in_kernel and operator.phase is Phase.BACKWARD
            if base in alive and not in_kernel:
                alive[base] = (alive[base][0], step)
    return ended + [(tensor, *span) for tensor, span in alive.items()]


@pytest.mark.slow
@pytest.mark.parametrize("recomputation", [None, "mlp", "norms+attention", "half", "full"])
@pytest.mark.parametrize("name", ["gpt of 2", "tied llama of 2"])
@pytest.mark.parametrize("cluster", ["1x1:h100", "1x1:v100"])
def test_intervals_are_those_of_a_walk_through_the_operators(name, cluster, recomputation) -> None:
    case = Case(name, num_layers=LAYERS)
    kind = recomputation and Recomputation.parse(recomputation, LAYERS)
    layered = assign_layers(case.graph, case.layer_of_forward, kind, software=Cluster.parse(cluster).software)
    assert bool(layered.recomputed) == (recomputation is not None)
    stage_of = slice_stages(layered)
    again = 0
    for first in range(LAYERS):
        for last in range(first, LAYERS):
            intervals = workspace_intervals(stage_of(first, last))
            found = list(zip(intervals.tensors, intervals.starts.tolist(), intervals.ends.tolist(), strict=True))
            assert found == walked(stage_of(first, last))
            again += len(found) - len(set(intervals.tensors))
    assert bool(again) == (recomputation is not None), "what is recomputed is alive twice"
