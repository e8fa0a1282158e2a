"""Which operators compute in a lower precision, and what is cast for them, in the tiny models of every architecture."""

from collections import Counter

import pytest

import alpa_explore as ax
from alpa_explore.errors import OptionError
from alpa_explore.graph import Phase, TrainingGraph
from alpa_explore.graph.counts import is_matrix_product
from alpa_explore.graph.linear_layers import LinearLayer, linear_layers
from alpa_explore.graph.low_precision import in_low_precision
from alpa_explore.models.catalog import build
from alpa_explore.planner.microbatch_graph import microbatch_graph

LLAMA = {"attention.q", "attention.k", "attention.v", "attention.projection", "mlp.gate", "mlp.up", "mlp.down"}
ATTENTION = {"attention.q", "attention.k", "attention.v", "attention.projection"}


def place(graph: TrainingGraph, index: int) -> str:
    """'mlp.up' of 'h.3.mlp.up'."""
    parts = graph.operators[index].module.split(".")
    return ".".join(parts[2:] if len(parts) > 1 and parts[1].isdecimal() else parts)


@pytest.mark.sweep(kept=2, in_turn=True)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "blocks", "routers"),
    [
        ("llama-tiny", LLAMA, set()),
        ("gpt-tiny", {"attention.qkv", "attention.projection", "mlp.up", "mlp.down"}, set()),
        ("mixtral-tiny", {*ATTENTION, "mlp"}, {"mlp.gate.router"}),
        ("qwen3-moe-tiny", {*ATTENTION, "mlp"}, {"mlp.gate.router"}),
        ("gpt-oss-tiny", {*ATTENTION, "mlp"}, {"mlp.gate.router"}),
        ("moe-tiny", {"attention.qkv", "attention.projection", "mlp.up", "mlp.down", "experts"}, {"experts"}),
        ("vit-tiny", {*ATTENTION, "mlp.up", "mlp.down"}, set()),
    ],
)
def test_linear_layers_are_those_of_blocks_the_head_and_routers(name: str, blocks: set[str], routers: set[str]) -> None:
    graph = microbatch_graph(name, 8)
    found = linear_layers(graph)
    of_part = {part: {place(graph, o) for o, p in found.items() if p is part} for part in LinearLayer}
    assert of_part[LinearLayer.BLOCK] == blocks
    assert of_part[LinearLayer.ROUTER] == routers
    assert sum(part is LinearLayer.HEAD for part in found.values()) == 1
    low = in_low_precision(graph, "mxfp8", heads=False)
    marked = {place(graph, o.index) for o in low.operators if o.low and o.phase is Phase.FORWARD}
    assert marked == blocks
    # All products of a linear layer: one forward, two backward (experts have one operator for both).
    for o in low.operators:
        if o.phase is Phase.BACKWARD and is_matrix_product(o.kind):
            assert o.forward is not None
            assert (o.low is None) == (low.operators[o.forward].low is None)


@pytest.mark.slow
def test_a_tensor_is_cast_once_for_all_that_read_it() -> None:
    """q, k and v read one tensor, gate and up another; both backward products of a layer read one gradient."""
    graph = microbatch_graph("llama-tiny", 8)
    low = in_low_precision(graph, "fp8-delayed", heads=False)
    shares = Counter((o.phase, place(graph, o.index), round(1 / o.low.share)) for o in low.operators if o.low)
    readers = {"attention.q": 3, "attention.k": 3, "attention.v": 3, "mlp.gate": 2, "mlp.up": 2}
    assert shares == {
        **{(Phase.FORWARD, at, readers.get(at, 1)): 4 for at in LLAMA},
        **{(Phase.BACKWARD, at, 2): 8 for at in LLAMA},
    }
    casts = sum(after.launches - before.launches for before, after in zip(graph.operators, low.operators, strict=True))
    assert casts == 4 * (4 + 7)
    for o in low.operators:
        if o.low is not None:
            kind = graph.tensors[o.inputs[o.low.operand]]
            made = graph.operators[kind.producer].phase if kind.producer is not None else None
            assert made is o.phase


@pytest.mark.slow
def test_the_head_is_lowered_where_the_software_says_so() -> None:
    graph = microbatch_graph("llama-tiny", 8)
    kept, lowered = (in_low_precision(graph, "mxfp8", heads=heads) for heads in (False, True))
    marks = [sum(o.low is not None for o in g.operators) for g in (kept, lowered)]
    assert marks[1] == marks[0] + 3


@pytest.mark.slow
def test_a_weight_that_kernels_do_not_take_keeps_its_dtype() -> None:
    """The key projection of deepseek-tiny has 16 + 8 columns."""
    graph = microbatch_graph("deepseek-tiny", 8)
    low = in_low_precision(graph, "mxfp8", heads=False)
    assert linear_layers(graph)[next(o.index for o in graph.operators if o.module.endswith("kv_down") and o.flops)]
    assert not any(o.low for o in low.operators if o.module.endswith("attention.kv_down"))
    assert any(o.low for o in low.operators if o.module.endswith("attention.kv_up"))


@pytest.mark.slow
def test_nothing_else_of_the_graph_changes() -> None:
    graph = microbatch_graph("mixtral-tiny", 8)
    low = in_low_precision(graph, "nvfp4", heads=False)
    assert low.tensors == graph.tensors
    assert [(o.kind, o.flops, o.bytes_accessed) for o in low.operators] == [
        (o.kind, o.flops, o.bytes_accessed) for o in graph.operators
    ]
    with pytest.raises(OptionError, match="one of products"):
        ax.capture(*build("mlp-tiny", 4), precision="fp8")
