"""What is recomputed and held for each kind of recomputation, against closed forms of a Llama block."""

import functools
from collections import Counter

import pytest

from alpa_explore.cluster import Cluster, Submesh, logical_mesh
from alpa_explore.cost.model import CostModel
from alpa_explore.graph import Phase
from alpa_explore.graph.counts import is_matrix_product, packet
from alpa_explore.intra_op.solve import solve
from alpa_explore.intra_op.stage.build_problem import build_stage_problem
from alpa_explore.intra_op.stage.layered_graph import assign_layers
from alpa_explore.intra_op.stage.recomputation import Recomputation
from alpa_explore.intra_op.stage.segments import KEPT
from alpa_explore.intra_op.stage.stage_graph import slice_stages
from alpa_explore.layering import cluster_operators, manual_layers
from alpa_explore.layering.blocks import OUTSIDE, blocks_of
from alpa_explore.planner.microbatch_graph import microbatch_graph

BLOCKS, SAMPLES, TOKENS, WIDTH, KEYS, INNER, HEADS = 4, 8, 32, 64, 32, 128, 8
ROWS = SAMPLES * TOKENS
NORMS = 2 * (2 * ROWS * WIDTH + 4 * ROWS)
"""Bytes of the outputs of a block's two norms (bfloat16) and their statistics (float32)."""
ACTIVATIONS = 2 * (2 * ROWS * INNER)
"""silu(gate), and silu(gate) × up."""
CORE = 2 * ROWS * WIDTH + 4 * SAMPLES * HEADS * TOKENS
"""The output of attention, and the logarithms of its sums."""
FEED_FORWARD = 2 * (2 * ROWS * INNER) + ACTIVATIONS
"""gate and up, and what is made of them."""
REST = 2 * ROWS * (WIDTH + 2 * KEYS) + 2 * ROWS * WIDTH
"""q, k, v; the residual stream between the halves of the block."""
SAVED = {
    "norms": NORMS + ACTIVATIONS,
    "attention": CORE,
    "mlp": FEED_FORWARD,
    "norms+attention": NORMS + ACTIVATIONS + CORE,
    "full": NORMS + CORE + FEED_FORWARD + REST,
}
AGAIN = {"norms": (0, 0), "attention": (0, 1), "mlp": (2, 0), "norms+attention": (0, 1), "full": (6, 1)}
"""Matrix products of a block that run again, and attention. Nothing reads what the last product makes."""


captured = functools.cache(microbatch_graph)


@pytest.fixture(scope="module")
def llama():
    return captured("llama-tiny", SAMPLES)


def layered_as(graph, name, layers=1):
    places = cluster_operators(graph, layers, delta=2.0).layer_of_forward
    return assign_layers(graph, places, Recomputation.parse(name, layers))


def held_bytes(layered):
    return sum(layered.graph.tensors[t].bytes for of_layer in layered.held for t in of_layer)


def totals(layered):
    cluster = Cluster.parse("1x1:h100")
    mesh = logical_mesh(cluster, Submesh(1, 1), (1, 1)).squeezed()
    stage = slice_stages(layered)(0, layered.num_layers - 1)
    problem = build_stage_problem(stage, CostModel(cluster.device, mesh))
    return problem, problem.totals(solve(problem.at(inverse_b=1, memory_price=0, microbatches_held=1)).choices)


@pytest.mark.parametrize("kind", SAVED)
def test_each_kind_saves_what_its_tensors_take_and_repeats_its_products(llama, kind):
    nothing, layered = layered_as(llama, "none"), layered_as(llama, kind)
    assert held_bytes(nothing) - held_bytes(layered) == BLOCKS * SAVED[kind]
    products = Counter(packet(llama.operators[o].kind) for o in layered.recomputed)
    assert (products["aten.mm"], products["alpa_explore.attention"]) == tuple(BLOCKS * n for n in AGAIN[kind])
    (first, free), (problem, spent) = totals(nothing), totals(layered)
    assert free.activation_bytes - spent.activation_bytes == BLOCKS * SAVED[kind]
    again = sum(float(problem.model.operator(llama, o).seconds[0]) for o in layered.recomputed)
    assert spent.microbatch_seconds - free.microbatch_seconds == pytest.approx(again, rel=1e-9)
    assert first.stage.launches == (*problem.stage.launches[:2], 0)
    assert problem.stage.launches[2] > 0


def test_half_recomputes_every_second_block_as_full_does_all(llama):
    blocks, full, half = blocks_of(llama), layered_as(llama, "full"), layered_as(llama, "half")
    assert half.recomputed == {o for o in full.recomputed if blocks[o] % 2 == 0}
    saved = [held_bytes(layered_as(llama, "none")) - held_bytes(layered) for layered in (half, full)]
    assert saved == [BLOCKS // 2 * SAVED["full"], BLOCKS * SAVED["full"]]


@pytest.mark.parametrize("boundaries", [("h.2",), ("h.1", "h.2", "h.3")])
def test_blocks_do_not_depend_on_the_number_of_layers(llama, boundaries):
    one = layered_as(llama, "full")
    several = assign_layers(llama, manual_layers(llama, boundaries).layer_of_forward, Recomputation("full"))
    assert several.recomputed == one.recomputed
    assert len({several.segment_of[o] for o in several.recomputed}) == BLOCKS
    assert held_bytes(several) >= held_bytes(one), "where a layer ends, what enters it is held"


def test_the_workspace_of_blocks_is_that_of_one_and_of_layers_that_of_all(llama):
    full, layers, none = (totals(layered_as(llama, name))[1] for name in ("full", "layers", "none"))
    assert layers.workspace_bytes > full.workspace_bytes + 2 * SAVED["full"]
    assert full.peak_bytes(1) < layers.peak_bytes(1) < none.peak_bytes(1) + SAVED["full"]
    assert full.peak_bytes(4) < none.peak_bytes(4)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gpt-tiny", "deepseek-tiny", "wide-resnet-tiny"])
@pytest.mark.parametrize("kind", ["norms", "mlp", "half", "full"])
def test_everything_that_is_read_backward_is_held_or_computed_again_from_what_is(name, kind):
    """A walk through the backward pass with what is held and nothing else."""
    graph = captured(name, 4)
    layered = layered_as(graph, kind, 3)
    for layer in range(layered.num_layers):
        there = set(layered.held[layer])
        done: set[int] = set()
        for operator in graph.operators:
            if operator.phase is not Phase.BACKWARD or layered.layer_of[operator.index] != layer:
                continue
            for segment in layered.waits.get(operator.index, ()):
                if segment not in done:
                    done.add(segment)
                    for o in sorted(layered.recomputed):
                        if layered.segment_of[o] == segment:
                            assert all(known(layered, t, there) for t in graph.operators[o].inputs)
                            there.update(graph.operators[o].outputs)
            assert all(known(layered, t, there) for t in operator.inputs)


def known(layered, tensor, there):
    producer = layered.graph.tensors[tensor].producer
    base = layered.graph.tensors[layered.storage[tensor]]
    lasting = base.producer is None and base.kind.value != "input"
    if producer is None or layered.graph.operators[producer].phase is not Phase.FORWARD:
        return base.index in there or lasting or producer is not None
    return tensor in there or base.index in there or lasting


@pytest.mark.slow
def test_blocks_of_a_model_are_its_repeated_modules():
    numbers = blocks_of(microbatch_graph("moe-tiny", 4))
    assert set(numbers) == {OUTSIDE, 0, 1, 2, 3}
    assert numbers[0] == numbers[-1] == OUTSIDE
    assert list(dict.fromkeys(n for n in numbers if n != OUTSIDE)) == [0, 1, 2, 3]
    assert set(blocks_of(captured("mlp-tiny", 4))) == {OUTSIDE}


def test_without_blocks_a_layer_is_a_segment():
    graph = captured("mlp-tiny", 4)
    full, layers = layered_as(graph, "full", 2), layered_as(graph, "layers", 2)
    assert full.recomputed == layers.recomputed
    assert full.held == layers.held
    assert [s == KEPT for s in full.segment_of] == [s == KEPT for s in layers.segment_of]
    assert sum(is_matrix_product(graph.operators[o].kind) for o in full.recomputed) > 0
