"""Prices of products in a lower precision: the kernel at the lower peak, and a share of the casts of what it reads."""

import numpy as np
import pytest

from alpa_explore.cluster import Cluster, LogicalMesh
from alpa_explore.cluster.precisions import RECIPES
from alpa_explore.cost.compute import kernels_seconds
from alpa_explore.cost.kernels import Kernel, KernelKind
from alpa_explore.cost.model import CostModel
from alpa_explore.graph import TrainingGraph
from alpa_explore.graph.low_precision import in_low_precision
from alpa_explore.models.configs import DecoderConfig
from alpa_explore.models.factory import make_inputs, make_module
from alpa_explore.planner.microbatch_graph import microbatch_graph
from alpa_explore.tracing.capture import capture
from tests.cost.test_routed_experts import F, M, graph_of

DEVICE = Cluster.parse("1x8:b200").device
BYTES = {"fp8-delayed": 2 + 2, "fp8-current": 2 + 2 + 2, "mxfp8": 2 + 2 * 33 / 32, "nvfp4": 2 + 2 + 2 * 9 / 16}
"""A cast of an element of bfloat16: read once or twice, written twice, each copy with its scales."""


def mesh(devices: int) -> LogicalMesh:
    return LogicalMesh((devices,), (4e11,), (2e-6,)).squeezed()


def seconds(*kernels: Kernel) -> float:
    return float(kernels_seconds(DEVICE, kernels).sum())


def cast(size: float) -> Kernel:
    return Kernel(flops=1.0, bytes_accessed=size, dtype="bfloat16", matrix=False)


@pytest.fixture(scope="module")
def llama() -> TrainingGraph:
    """Two blocks of Llama 3 8B at one sample of 8192 tokens."""
    config = DecoderConfig(layers=2, hidden=4096, heads=32, kv_heads=8, vocabulary=512, sequence=8192, ffn=14336)
    return capture(make_module(config, "meta", 0), make_inputs(config, 1, "meta", 0), precision="bfloat16")


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_product_takes_the_lower_peak_and_the_casts(llama: TrainingGraph, recipe: str) -> None:
    """The up projection, one of two that read its input."""
    graph = in_low_precision(llama, recipe, heads=False)
    up = next(o for o in graph.operators if o.module.endswith("h.1.mlp.up") and o.low)
    m, n, k = 8192, 14336, 4096
    product = Kernel(
        flops=2.0 * m * n * k,
        bytes_accessed=2.0 * (m * k + k * n + m * n),
        dtype=RECIPES[recipe].dtype,
        matrix=True,
        kind=KernelKind.PRODUCT,
        sizes=(1, m, n, k),
    )
    alone = CostModel(DEVICE, mesh(1)).operator(graph, up.index)
    assert alone.seconds.tolist() == [pytest.approx(seconds(product) + seconds(cast(BYTES[recipe] * m * k)) / 2)]
    # Divided over two devices, each casts what it holds: half of the rows, or half of k, or all of them.
    halves = CostModel(DEVICE, mesh(2)).operator(graph, up.index)
    for strategy, found in zip(halves.strategies, halves.seconds, strict=True):
        (factor,) = strategy.factors
        sizes = {"m": (1, m // 2, n, k), "n": (1, m, n // 2, k), "k": (1, m, n, k // 2)}[factor]
        _, rows, columns, depth = sizes
        local = Kernel(
            flops=product.flops / 2,
            bytes_accessed=2.0 * (rows * depth + depth * columns + rows * columns),
            dtype=product.dtype,
            matrix=True,
            kind=product.kind,
            sizes=sizes,
        )
        assert found == pytest.approx(seconds(local) + seconds(cast(BYTES[recipe] * rows * depth)) / 2)


def test_experts_cast_the_inputs_of_both_products() -> None:
    tokens, experts, chosen = 4096, 8, 2
    graph = graph_of(tokens, experts)
    low = in_low_precision(graph, "mxfp8", heads=False)
    assert low.operators[0].launches == graph.operators[0].launches + 2
    model = CostModel(DEVICE, mesh(1))
    before, after = (model.operator(g, 0).seconds[0] for g in (graph, low))
    rows = tokens * chosen
    casts = 2 * seconds(cast(BYTES["mxfp8"] * rows * (M + F) / 2))
    assert after - casts < 0.62 * before
    # Busy devices compute and cast more rows.
    two = CostModel(Cluster.parse("1x8:b200", expert_imbalance=1.5).device, mesh(2)).operator(low, 0)
    even = CostModel(DEVICE, mesh(2)).operator(low, 0)
    by_factor = {s.factors: place for place, s in enumerate(even.strategies)}
    place = by_factor["experts",]
    assert two.seconds[place] > 1.4 * even.seconds[place]


@pytest.mark.slow
def test_without_a_recipe_nothing_changes() -> None:
    graph = microbatch_graph("llama-tiny", 8)
    model = CostModel(DEVICE, mesh(2))
    kept = [model.operator(graph, o.index).seconds for o in graph.forward_operators]
    low = in_low_precision(graph, "mxfp8", heads=False)
    for o, before in zip(graph.forward_operators, kept, strict=True):
        if low.operators[o.index].low is None:
            assert np.array_equal(model.operator(low, o.index).seconds, before)
