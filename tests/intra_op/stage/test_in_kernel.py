"""What fused kernels compute again in the backward pass is not held."""

import pytest

from alpa_explore.cluster import Cluster
from alpa_explore.intra_op.stage.layered_graph import assign_layers
from alpa_explore.intra_op.stage.liveness import workspace_intervals
from alpa_explore.intra_op.stage.recomputation import Recomputation
from alpa_explore.intra_op.stage.stage_graph import slice_stages
from tests.programs.cases import Case


def layered(name, cluster="1x1:h100", recomputation=None):
    graph = Case(name, num_layers=1).graph
    return assign_layers(
        graph, (0,) * len(graph.forward_operators), recomputation, software=Cluster.parse(cluster).software
    )


def kinds(layered, tensors):
    graph = layered.graph
    return sorted(graph.operators[graph.tensors[t].producer].kind.split(".")[1] for t in tensors)


@pytest.mark.slow
@pytest.mark.parametrize("blocks", [1, 2])
def test_the_activation_inside_swiglu_is_not_held(blocks) -> None:
    """The backward pass of `silu(gate) * up` needs gate and up, and the product with `down` what enters it."""
    fused, eager = (layered(f"llama of {blocks}", c) for c in ("1x1:h100", "1x1:h100@eager"))
    assert kinds(fused, fused.in_kernel) == ["silu"] * blocks
    assert eager.in_kernel == frozenset()
    assert "silu" not in kinds(fused, [t for t in fused.held[0] if fused.graph.tensors[t].producer is not None])
    assert set(fused.held[0]) == set(eager.held[0]) - fused.in_kernel


def test_it_is_not_in_the_workspace_of_the_backward_pass_either() -> None:
    made = layered("llama of 1")
    (tensor,) = made.in_kernel
    intervals = workspace_intervals(slice_stages(made)(0, 0))
    last = len(made.graph.forward_operators)
    assert all(end < last for t, end in zip(intervals.tensors, intervals.ends, strict=True) if t == tensor)


def test_an_activation_that_a_product_reads_is_held() -> None:
    made = layered("gpt of 1")
    assert "gelu" in kinds(made, [t for t in made.held[0] if made.graph.tensors[t].producer is not None])
    assert made.in_kernel == frozenset()


def test_with_the_feed_forward_part_computed_again_nothing_is_left_to_the_kernel() -> None:
    made = layered("llama of 1", recomputation=Recomputation.parse("mlp"))
    assert "silu" not in kinds(made, made.in_kernel)
