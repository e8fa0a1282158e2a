"""The closed forms of a block against a captured graph, published FLOPs, and counts of rows by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from alpa_explore.baselines.block_work import decoder_work
from alpa_explore.baselines.roles import Role
from alpa_explore.cluster import Cluster, LogicalMesh
from alpa_explore.cluster.group import device_group
from alpa_explore.cost.blocks.block import Division, block_part, parts_in_sequence
from alpa_explore.cost.blocks.casts import in_low_precision, lowered
from alpa_explore.cost.blocks.ring import in_ring
from alpa_explore.cost.blocks.shapes import AttentionShape, BlockShape, ExpertsShape
from alpa_explore.cost.group_collectives import group_seconds, rows_seconds
from alpa_explore.cost.kernels import Kernel, KernelKind
from alpa_explore.cost.work import CONTEXT, EXPERTS, TENSOR, PassWork
from alpa_explore.models.configs import LlamaConfig
from alpa_explore.sharding.reshard import StepKind
from alpa_explore.uniform_layouts.pricing.layout_pricer import LayoutPricer
from alpa_explore.uniform_layouts.pricing.requests import ModelKey

H100 = Cluster.parse("4x8:h100", software="megatron")
ATTENTION = AttentionShape(heads=32, kv_heads=8, head=128, value_head=128)
DENSE = BlockShape(hidden=4096, attention=ATTENTION, ffn=14336)
ROUTED = BlockShape(hidden=4096, attention=ATTENTION, experts=ExpertsShape(experts=64, topk=4, ffn=1024))


def flops(work: PassWork) -> float:
    return sum(kernel.flops for kernel in work.kernels if kernel.matrix)


def moved(work: PassWork) -> float:
    return sum(kernel.bytes_accessed for kernel in work.kernels if not kernel.matrix)


@pytest.mark.slow
@pytest.mark.parametrize("tensor", [1, 2])
def test_a_dense_block_is_that_of_a_captured_graph(tensor: int) -> None:
    config = LlamaConfig(
        hidden=4096,
        layers=2,
        heads=32,
        kv_heads=8,
        ffn=14336,
        vocabulary=1024,
        sequence=2048,
        fused_projections=True,
    )
    graph = LayoutPricer().model(ModelKey(config=config, micro_batch=1, dtype="bfloat16")).graph
    mesh = LogicalMesh((tensor,), (4e11,), (2e-6,))
    captured = decoder_work(graph, H100.device, mesh, [(TENSOR, Role.TENSOR_SEQUENCE)]).block
    closed = block_part(DENSE, Division(samples=1, length=2048, tensor=tensor))
    for mine, theirs in ((closed.forward, captured.forward), (closed.backward, captured.backward)):
        assert flops(mine) == pytest.approx(flops(theirs), rel=1e-3)
        assert moved(mine) == pytest.approx(moved(theirs), rel=0.1)
        assert mine.launches == pytest.approx(theirs.launches, abs=3)
        assert sorted((c.kind.value, c.bytes) for c in mine.collectives) == sorted(
            (c.kind.value, c.bytes) for c in theirs.collectives
        )
    assert closed.parameters == captured.parameters


def test_latent_attention_has_the_parameters_of_deepseek_v3() -> None:
    """config.json of deepseek-ai/DeepSeek-V3: q 7168 × 1536 × 24576, kv 7168 × 576, 512 × 32768, out 16384 × 7168."""
    latent = AttentionShape(
        heads=128, kv_heads=128, head=192, value_head=128, query_rank=1536, key_rank=512, rotary_head=64
    )
    expected = 7168 * 1536 + 1536 * 24576 + 7168 * 576 + 512 * 32768 + 16384 * 7168
    assert latent.products(7168) == expected
    part = block_part(BlockShape(hidden=7168, attention=latent, ffn=18432), Division(samples=1, length=4096))
    linear = sum(k.flops for k in part.forward.kernels if k.kind is KernelKind.PRODUCT)
    assert linear == 2 * 4096 * (expected + 3 * 7168 * 18432)


def test_a_window_leaves_what_a_mask_of_that_width_leaves() -> None:
    narrow = replace(ATTENTION, window=128)
    place = np.arange(1024)
    seen = np.clip(place + 0.5, None, 128).sum()
    assert narrow.scores(1024, 1024) == pytest.approx(seen, rel=1e-3)
    assert ATTENTION.scores(512, 1024) == 1024**2 / 2 / 2, "a device of two has half of the area of all"


@pytest.mark.parametrize(("expert", "tensor"), [(1, 1), (8, 1), (8, 2)])
def test_rows_of_experts_are_those_of_their_tokens(expert: int, tensor: int) -> None:
    part = block_part(ROUTED, Division(samples=2, length=2048, tensor=tensor, expert=expert))
    own = 2 * 2048 // tensor
    for work, products in ((part.forward, 2), (part.backward, 4)):
        grouped = [k for k in work.kernels if k.kind is KernelKind.GROUPED_PRODUCT]
        assert len(grouped) == products
        assert sum(k.flops for k in grouped) == products / 2 * 2 * own * 4 * 3 * 4096 * 1024
        assert {k.sizes[0] for k in grouped} == {64 // expert}
        sent = [c for c in work.collectives if c.axis == EXPERTS]
        assert [c.bytes for c in sent] == ([2.0 * own * 4 * 4096] * 2 if expert > 1 else [])
        assert work.expert_layers == 1
    assert part.expert_parameters == 3 * 4096 * 1024 * 64 // expert
    routers = [k for k in part.forward.kernels if k.keeps_dtype]
    assert [k.sizes for k in routers] == [(1, own, 64, 4096)]


def test_a_matrix_of_experts_divided_by_two_has_the_rows_of_both_devices() -> None:
    whole, halved = (
        block_part(ROUTED, Division(samples=1, length=2048, tensor=2, expert=4, expert_tensor=n)) for n in (1, 2)
    )
    assert flops(whole.forward) == flops(halved.forward)
    assert halved.expert_parameters == whole.expert_parameters / 2


def test_grouped_products_fill_the_device_together() -> None:
    """Many small products at once are faster than one after the other, and as fast as one large product of all rows
    but for their share of its rate."""
    from alpa_explore.cost.compute import compute_seconds

    def product(kind: KernelKind, count: int, m: int) -> Kernel:
        sizes = (count, m, 2048, 4096)
        return Kernel(
            flops=2.0 * math.prod(sizes), bytes_accessed=1.0, dtype="bfloat16", matrix=True, kind=kind, sizes=sizes
        )

    device, figures = H100.device, H100.device.kernels
    one = compute_seconds(device, product(KernelKind.PRODUCT, 1, 256))
    together = compute_seconds(device, product(KernelKind.GROUPED_PRODUCT, 32, 256))
    large = compute_seconds(device, product(KernelKind.PRODUCT, 1, 32 * 256))
    assert together * figures.grouped_share < 0.6 * 32 * one
    assert together == pytest.approx(large / figures.grouped_share, rel=0.03)


def test_a_ring_has_the_work_of_its_share_and_passes_keys_and_values_by() -> None:
    """Two devices with half of the positions each: attention of half of the whole sequence's area."""
    whole = block_part(DENSE, Division(samples=1, length=2048))
    half = block_part(DENSE, Division(samples=1, length=1024))
    ringed = in_ring(half, 2, 2 * 8 * 128 * 2048)
    closed = block_part(DENSE, Division(samples=1, length=1024, context=2))
    for mine in (ringed, closed):
        assert 2 * flops(mine.forward) == pytest.approx(flops(whole.forward))
        forward, backward = (
            [c.bytes for c in work.collectives if c.axis == CONTEXT] for work in (mine.forward, mine.backward)
        )
        assert forward == [2.0 * 2 * 8 * 128 * 2048]
        assert backward == [2 * forward[0]]
    attention = [k for k in closed.forward.kernels if k.kind is KernelKind.ATTENTION]
    assert [k.sizes for k in attention] == [k.sizes for k in ringed.forward.kernels if k.kind is KernelKind.ATTENTION]


def test_rows_of_a_token_for_one_node_cross_the_network_once() -> None:
    """The expected number of other nodes that k experts, drawn evenly, are on."""
    group = device_group(H100, 32, 1)
    fast = replace(group, inside_bandwidth=1e18, wait_seconds=0.0, hop_seconds=0.0, hop_inside_seconds=0.0)
    drawn = np.random.default_rng(0).integers(0, 4, size=(20000, 8))
    others = np.array([len(set(row) - {0}) for row in drawn.tolist()]).mean()
    each = rows_seconds(8e6, fast, 1) / (8 * 3 / 4)
    assert rows_seconds(8e6, fast, 8) / each == pytest.approx(others, rel=0.01)
    assert rows_seconds(8e6, fast, 1) == pytest.approx(0.75 * 8e6 / (fast.network_bandwidth / 8))
    assert rows_seconds(8e6, device_group(H100, 8, 1), 8) == group_seconds(
        StepKind.ALL_TO_ALL, 8e6, device_group(H100, 8, 1)
    )


def test_low_precision_is_for_linear_layers_and_experts_alone() -> None:
    part = parts_in_sequence(*(block_part(s, Division(samples=1, length=512, expert=4)) for s in (DENSE, ROUTED)))
    forward, backward = in_low_precision(part.forward, part.backward, "mxfp8")
    for before, after in ((part.forward, forward), (part.backward, backward)):
        assert flops(after) == flops(before)
        for kernel in after.kernels:
            assert (kernel.dtype == "float8_e4m3fn") == lowered(kernel)
        left = {k.kind for k in after.kernels if k.matrix and k.dtype == "bfloat16"}
        assert left <= {KernelKind.ATTENTION, KernelKind.ATTENTION_BACKWARD, KernelKind.PRODUCT}
        assert [k.keeps_dtype for k in after.kernels if k.kind is KernelKind.PRODUCT and k.dtype == "bfloat16"]
        # Every input of a product is read once in two bytes, and written in one byte in two orders.
        assert moved(after) > moved(before)
