"""The work of runs from captured graphs: experts that are divided in another way than the rest, and what a boundary
has."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from alpa_explore.baselines.block_work import CapturedBlocks, Counted, DecoderWork
from alpa_explore.baselines.layout import Layout
from alpa_explore.cluster import Cluster
from alpa_explore.cost.kernels import KernelKind
from alpa_explore.cost.work import PassWork, in_sequence
from alpa_explore.models.configs import DecoderConfig, ExpertsConfig
from alpa_explore.uniform_layouts.works import ModelKey, own_work
from alpa_explore.validation.run_price import CapturedModel, RunRequest, captured_graph, work_of
from alpa_explore.validation.runs.machines import Machine

HIDDEN, POSITIONS, EXPERTS, CHOSEN, FFN = 256, 128, 8, 2, 128
CONFIG = DecoderConfig(
    family="test",
    hidden=HIDDEN,
    layers=2,
    heads=4,
    kv_heads=2,
    head=64,
    vocabulary=512,
    sequence=POSITIONS,
    experts=ExpertsConfig(count=EXPERTS, chosen=CHOSEN, ffn=FFN, shared=1),
)
CLUSTER = Cluster.parse("1x8:h100", software="megatron")


def run(tensor: int, expert: int, expert_tensor: int, context: int = 1) -> RunRequest:
    return RunRequest(
        key=ModelKey(config=CONFIG, micro_batch=1, dtype="bfloat16", routed=True),
        on=Machine(cluster=CLUSTER),
        cluster=CLUSTER,
        layout=Layout(
            tensor=tensor,
            data=8 // tensor // context,
            context=context,
            expert=expert,
            expert_tensor=expert_tensor,
            microbatches=4,
            zero_stage=1,
        ),
        parts=((1, 2, 1),),
        recompute=("none",),
        counts_reserve=True,
    )


def work(asked: RunRequest, samples: int = 1) -> DecoderWork:
    key = ModelKey(config=CONFIG, micro_batch=samples, dtype="bfloat16", routed=True)
    return work_of(CapturedModel(key), asked)


def flops(of: PassWork) -> float:
    return sum(kernel.flops for kernel in of.kernels if kernel.matrix)


@pytest.mark.parametrize("degrees", [(2, 1, 1), (4, 1, 2), (2, 2, 1)])
def test_experts_and_the_rest_together_are_the_whole(degrees: tuple[int, int, int]) -> None:
    graph = captured_graph(CONFIG, degrees[0], "bfloat16")
    whole, experts, others = (
        own_work(graph, CLUSTER, degrees, CapturedBlocks.of_period(1), counted=counted).blocks[0]
        for counted in (Counted.ALL, Counted.EXPERTS, Counted.OTHERS)
    )
    joined = in_sequence(others, experts)
    for mine, theirs in ((joined.forward, whole.forward), (joined.backward, whole.backward)):
        assert Counter(mine.kernels) == Counter(theirs.kernels)
        assert (mine.launches, mine.expert_layers) == (theirs.launches, theirs.expert_layers)
    assert joined.parameters == whole.parameters
    assert experts.expert_parameters == whole.expert_parameters == 3 * HIDDEN * FFN * EXPERTS / degrees[0] / degrees[2]
    assert others.expert_parameters == 0
    assert {k: r.held_bytes for k, r in joined.recomputed.items()} == pytest.approx(
        {k: r.held_bytes for k, r in whole.recomputed.items()}
    )


@pytest.mark.parametrize(
    ("tensor", "expert", "expert_tensor"), [(1, 1, 1), (1, 4, 1), (2, 4, 2), (2, 4, 1), (4, 2, 1), (4, 4, 2)]
)
def test_rows_of_experts_are_those_of_their_tokens(tensor: int, expert: int, expert_tensor: int) -> None:
    """Devices that share other products have tokens of their own where experts are not divided as those are."""
    block = work(run(tensor, expert, expert_tensor), samples=2).blocks[0]
    rows = 2 * POSITIONS * CHOSEN // tensor
    for of, products in ((block.forward, 1), (block.backward, 2)):
        (grouped,) = [k for k in of.kernels if k.kind is KernelKind.GROUPED_PRODUCT]
        assert grouped.flops == products * 2 * rows * 3 * HIDDEN * FFN
        assert grouped.sizes[0] == EXPERTS // expert
        sent = [c for c in of.collectives if c.copies]
        assert [(c.bytes, c.ranks, c.stride) for c in sent] == (
            [(2.0 * rows * HIDDEN, expert, expert_tensor)] * 2 if expert > 1 else []
        )
    assert block.expert_parameters == 3 * HIDDEN * FFN * EXPERTS / expert / expert_tensor


def test_other_products_do_not_depend_on_how_experts_are_divided() -> None:
    one, two = (work(run(4, expert, 1)).blocks[0] for expert in (1, 8))
    products = [[k for k in of.forward.kernels if k.kind is KernelKind.PRODUCT] for of in (one, two)]
    attention = [[k for k in of.forward.kernels if k.kind is KernelKind.ATTENTION] for of in (one, two)]
    assert products[0] == products[1]
    assert attention[0] == attention[1]


@pytest.mark.parametrize(("expert", "context"), [(4, 1), (1, 2), (2, 2)])
def test_a_boundary_has_the_samples_of_one_device(expert: int, context: int) -> None:
    """However many devices share the experts of the graph from which its size is read."""
    assert work(run(1, expert, 1, context)).boundary_bytes == 2.0 * POSITIONS * HIDDEN / context


def test_a_dense_block_is_of_a_kind_of_its_own_where_not_every_block_has_experts() -> None:
    """Llama 4 Maverick: every second block has experts."""
    assert CONFIG.experts is not None
    every = replace(CONFIG, layers=4, ffn=512, experts=replace(CONFIG.experts, every=2))
    key = ModelKey(config=every, micro_batch=1, dtype="bfloat16", period=2, routed=True)
    dense, routed = (block.forward for block in work_of(CapturedModel(key), run(1, 1, 1)).blocks)
    alone = work(run(1, 1, 1)).blocks[0].forward
    assert (dense.expert_layers, routed.expert_layers, alone.expert_layers) == (0, 1, 1)
    assert flops(routed) == flops(alone)
    attention = 2 * POSITIONS * (2 * HIDDEN * HIDDEN + 2 * HIDDEN * 128) + 4 * POSITIONS * POSITIONS * HIDDEN // 2
    assert flops(dense) == attention + 2 * POSITIONS * 3 * HIDDEN * 512
