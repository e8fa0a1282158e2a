"""What of a model decides on its layouts, read from the graph of one sample with one block of each kind."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from alpa_explore.baselines.block_work import CapturedBlocks, parts_of
from alpa_explore.graph import Operator, TrainingGraph
from alpa_explore.graph.counts import (
    LINEAR_SCANS,
    RECURRENCES,
    ROUTED,
    attention_options,
    is_matrix_product,
    matrix_shapes,
    packet,
)
from alpa_explore.graph.loops import SCAN
from alpa_explore.uniform_layouts.stages import Sizes

_ATTENTION, _SOFTMAX = "alpa_explore.attention", "aten._softmax"
_IN_ORDER = frozenset({SCAN, "aten.convolution", *RECURRENCES, *LINEAR_SCANS})
"""Operators in which a position needs those before it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Structure(Sizes):
    """A model whose layouts can be priced."""

    kinds: tuple[int, ...]
    """The kind of every block, in order."""
    captured: CapturedBlocks
    """The blocks in the graphs that are captured for it."""
    widths: tuple[int, ...]
    """What each device of a tensor-parallel group has an equal part of: heads, width of an MLP or expert, hidden."""
    tokens: int
    """Of a sample; 1 where it is an image."""
    positions: int
    """Of a sample, in what a block hands on: tokens, or patches and pixels of an image."""
    experts: int
    """Routed experts of a block; 1 where there are none."""
    flops: float
    """Model FLOPs of training on a sample, without recomputation: 6 a multiply-add; attention is counted whole (not
    halved for causality), as in Megatron's formula (Narayanan et al., arXiv 2104.04473, appendix)."""
    spelled_out: bool
    """Whether attention is two products and a softmax, whose scores are held."""
    is_chain: bool
    """Whether a block needs of earlier ones what the one before it made alone, so that stages send no more; not in an
    encoder with a decoder."""
    divides_sequences: bool
    """Whether devices can share a sequence: positions see each other in attention alone."""


def structure_of(graph: TrainingGraph, kinds: tuple[int, ...], captured: CapturedBlocks) -> Structure:
    """The structure of a model from the graph of one sample. OptionError where its blocks do not run one after the
    other."""
    parts, of_blocks = parts_of(graph, captured)
    examples = [of_blocks[place] for place in captured.examples]
    operators = list(zip(graph.forward_operators, parts, strict=True))
    inside = [o for o, part in operators if part in of_blocks]
    names = {packet(o.kind) for o in inside}
    part_of: dict[int | None, int] = {o.index: part for o, part in operators}
    counts = Counter(kinds)
    times = {part: counts[kind] for kind, part in enumerate(examples)}
    times |= dict.fromkeys(set(parts) - set(of_blocks), 1)
    queries = [_shapes(graph, o)[0] for o in inside if packet(o.kind) == _ATTENTION]
    keys = [_shapes(graph, o)[1] for o in inside if packet(o.kind) == _ATTENTION]
    scores = [graph.tensors[o.outputs[0]].shape for o in inside if packet(o.kind) == _SOFTMAX]
    spelled_out = not queries and any(len(shape) == 4 for shape in scores)
    if spelled_out:
        queries = keys = [shape for shape in scores if len(shape) == 4]
    routed = [matrix_shapes(packet(o.kind), _shapes(graph, o), o.arguments) for o in inside if packet(o.kind) in ROUTED]
    hidden, positions = _handed_on(graph, operators)
    wide = [max(width) for part in of_blocks if (width := [*_inner_widths(graph, operators, part, hidden)])]
    of_experts = [_other(matrices[-1][1:], hidden) for matrices in routed]
    heads = [shape[1] for shape in queries]
    return Structure(
        layers=len(kinds),
        hidden=hidden,
        heads=max(heads, default=0),
        kv_heads=max((shape[1] for shape in keys), default=0),
        ffn=max(of_experts or wide, default=hidden),
        vocabulary=max(
            (graph.tensors[p.tensor].shape[0] for p in graph.parameters if _is_table(graph, p.tensor)), default=0
        ),
        kinds=kinds,
        captured=captured,
        widths=tuple(sorted({hidden, *wide, *of_experts, *heads})),
        tokens=graph.tokens // graph.samples,
        positions=positions,
        experts=math.gcd(*(matrices[0][0] for matrices in routed)) or 1,
        flops=3.0 * sum(_flops(o) * times.get(part, 0) for o, part in operators),
        spelled_out=spelled_out,
        is_chain=all(
            part_of.get(graph.tensors[t].producer, 0) in (0, part - 1, part)
            for o, part in operators
            if part in of_blocks
            for t in o.inputs
        ),
        divides_sequences=bool(queries) and not names & _IN_ORDER,
    )


def _shapes(graph: TrainingGraph, operator: Operator) -> list[tuple[int, ...]]:
    return [graph.tensors[t].shape for t in operator.inputs]


def _flops(operator: Operator) -> int:
    """Of the products of an operator; of causal attention as if nothing were masked by the diagonal."""
    name = packet(operator.kind)
    if name == _ATTENTION:
        return operator.flops * (2 if attention_options(name, operator.arguments).causal else 1)
    counted = is_matrix_product(operator.kind) or name in LINEAR_SCANS or operator.kind == SCAN
    return operator.flops if counted else 0


def _handed_on(graph: TrainingGraph, operators: list[tuple[Operator, int]]) -> tuple[int, int]:
    """(width, positions) of what blocks hand on: the shape that most parts read of the part before."""
    part_of = {o.index: part for o, part in operators}
    read = {
        (part, graph.tensors[t].shape)
        for o, part in operators
        for t in o.inputs
        if part > 1 and (p := graph.tensors[t].producer) is not None and part_of.get(p) == part - 1
    }
    counts = Counter(shape for _, shape in read if shape)
    shape = max(counts, key=lambda shape: (counts[shape], math.prod(shape)), default=(1,))
    hidden = shape[1] if len(shape) == 4 else shape[-1]  # an image has its channels second
    return hidden, math.prod(shape) // hidden


def _inner_widths(graph: TrainingGraph, operators: list[tuple[Operator, int]], part: int, hidden: int) -> Iterator[int]:
    """The sizes between which the matrices of a part go, apart from the width of what it hands on."""
    parameters = {p.tensor for p in graph.parameters}
    read = {t for o, own in operators if own == part for t in o.inputs if t in parameters}
    for shape in (graph.tensors[t].shape for t in read):
        if len(shape) == 2 and hidden in shape:
            yield _other(shape, hidden)


def _other(shape: tuple[int, ...], hidden: int) -> int:
    """The side of a matrix that is not the width of what blocks hand on."""
    return shape[1] if shape[0] == hidden else shape[0]


def _is_table(graph: TrainingGraph, tensor: int) -> bool:
    readers = (graph.operators[o].kind for o in graph.readers.get(tensor, ()))
    return len(graph.tensors[tensor].shape) == 2 and "aten.embedding.default" in readers
