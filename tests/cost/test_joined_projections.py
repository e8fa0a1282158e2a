"""Projections of one input that run as one product cost what the fused layer of the same model costs."""

from collections import Counter
from dataclasses import replace

import pytest

from alpa_explore.baselines.block_work import CapturedBlocks, decoder_work
from alpa_explore.baselines.roles import Role
from alpa_explore.cluster import Cluster, LogicalMesh
from alpa_explore.cost.compute import kernels_seconds
from alpa_explore.cost.fusion import join_projections
from alpa_explore.graph import TrainingGraph
from alpa_explore.models.configs import DecoderConfig, ExpertsConfig
from alpa_explore.validation.run_price import captured_graph

H100 = Cluster.parse("1x8:h100", software="megatron").device
APART = DecoderConfig(hidden=4096, layers=2, heads=32, kv_heads=8, ffn=14336, vocabulary=1024, sequence=2048)


def products(graph: TrainingGraph, path: str) -> Counter[tuple[str, int, float]]:
    """(phase, place, share) of the joined products of a module, by how often they occur."""
    joined = [o for o in graph.operators if o.module.startswith(path) and o.joined is not None]
    return Counter((o.phase.value, o.joined.place, round(o.joined.share, 4)) for o in joined)


@pytest.mark.slow
@pytest.mark.parametrize("tensor", [1, 4])
def test_a_block_whose_projections_are_joined_costs_what_the_fused_one_does(tensor: int) -> None:
    """So do its collectives: the gradients of the input are one sum. A fused layer moves somewhat less memory: the
    rotary positions of queries and keys are one kernel."""
    mesh, role = LogicalMesh((tensor,), (4e11,), (2e-6,)), [Role.TENSOR_SEQUENCE]
    alone = replace(H100, software=replace(H100.software, joins_projections=False))
    joined = decoder_work(
        captured_graph(APART, 1, "bfloat16"), H100, mesh, role, blocks=CapturedBlocks.of_period(1)
    ).blocks[0]
    graph = captured_graph(replace(APART, fused_projections=True), 1, "bfloat16")
    fused = decoder_work(graph, alone, mesh, role, blocks=CapturedBlocks.of_period(1)).blocks[0]
    for mine, theirs in ((joined.forward, fused.forward), (joined.backward, fused.backward)):
        assert kernels_seconds(H100, mine.kernels).sum() == pytest.approx(
            kernels_seconds(H100, theirs.kernels).sum(), rel=0.03
        )
        assert sum(k.flops for k in mine.kernels if k.matrix) == sum(k.flops for k in theirs.kernels if k.matrix)
        assert mine.launches == pytest.approx(theirs.launches, abs=2)
        assert Counter((c.kind, c.bytes) for c in mine.collectives) == Counter(
            (c.kind, c.bytes) for c in theirs.collectives
        )
    assert joined.recomputed["none"].held_bytes == fused.recomputed["none"].held_bytes


def test_members_are_projections_of_one_module_and_never_the_router() -> None:
    """4 heads of queries and 2 of keys: shares of 1/2, 1/4, 1/4; gate and up: halves; the router reads the same tensor
    as the gate and the up projection of the shared expert."""
    config = DecoderConfig(
        family="test",
        hidden=64,
        layers=2,
        heads=4,
        kv_heads=2,
        head=16,
        vocabulary=128,
        sequence=16,
        experts=ExpertsConfig(count=4, chosen=2, ffn=64, shared=1),
    )
    graph = captured_graph(config, 1, "bfloat16")
    marked = join_projections(graph)
    assert products(marked, "h.1.attention") == {
        **{("forward", 2, 0.5): 1, ("forward", 2, 0.25): 2},
        **{("backward", 3, 0.5): 1, ("backward", 3, 0.25): 2},  # of the input: k is the sum of the widths
        **{("backward", 1, 0.5): 1, ("backward", 1, 0.25): 2},  # of the weights: [n, samples] × [samples, k]
    }
    assert sum(products(marked, "h.1.mlp.shared").values()) == 6
    assert not products(marked, "h.1.mlp.gate")
    before, after = (sum(o.launches for o in g.operators if o.module.startswith("h.1")) for g in (graph, marked))
    # Queries, keys and values are one launch of three kinds, and their two sums none; gate and up likewise, one sum.
    assert before - after == 3 * 2 + 2 + 3 * 1 + 1
