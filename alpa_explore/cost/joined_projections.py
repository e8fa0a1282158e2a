"""Marks the projections of one input that software computes as one product: queries, keys and values; gate and up.

Megatron-LM and nanotron hold the weights of such layers as one matrix. The graph of a model that holds them apart keeps
its operators, and each costs its share of the joined product (`Operator.joined`); of the kernels that the host
launches, the first member has them all. The gradient of the input is one product as well, so the sums of its parts
vanish.

Joined are products with a weight that belong to modules with one parent, or to one module, and read the same tensor.
Routers stay by themselves.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

from alpa_explore.graph import TrainingGraph
from alpa_explore.graph.counts import VIEWS, packet
from alpa_explore.graph.linear_layers import LinearLayer, linear_layers, weight_tensors
from alpa_explore.graph.operator import Joined, Operator

_SIMPLE = ("aten.mm", "aten.addmm")
_ROWS, _COLUMNS, _DEPTH = range(1, 4)
"""Places among (count, m, n, k) of a product."""


def join_projections(graph: TrainingGraph) -> TrainingGraph:
    """`graph` with the members of joined products marked."""
    weights, operators = weight_tensors(graph), list(graph.operators)
    backward: dict[int, list[Operator]] = defaultdict(list)
    for operator in graph.operators:
        if operator.forward is not None and packet(operator.kind) in _SIMPLE:
            backward[operator.forward].append(operator)
    for members in _groups(graph, weights):
        widths = [graph.tensors[o.outputs[0]].shape[1] for o in members]
        read = _behind_views(graph, members[0].inputs[-2])
        parts: set[int] = set()
        for number, (member, width) in enumerate(zip(members, widths, strict=True)):
            share, first = width / sum(widths), int(number == 0)
            operators[member.index] = replace(member, joined=Joined(_COLUMNS, share), launches=member.launches * first)
            for made in backward[member.index]:
                left, right = made.inputs[-2:]
                if {left, right} & weights:
                    place = _DEPTH
                    parts.add(made.outputs[0])
                else:
                    place = _COLUMNS if _behind_views(graph, left) == read else _ROWS
                operators[made.index] = replace(made, joined=Joined(place, share), launches=made.launches * first)
        for index in _sums(graph, parts):
            operators[index] = replace(operators[index], flops=0, bytes_accessed=0, launches=0)
    return replace(graph, operators=tuple(operators))


def _groups(graph: TrainingGraph, weights: frozenset[int]) -> list[list[Operator]]:
    """The members of each joined product, two or more."""
    found: dict[tuple[int, str], list[Operator]] = defaultdict(list)
    for index, part in linear_layers(graph).items():
        operator = graph.operators[index]
        if part is LinearLayer.BLOCK and packet(operator.kind) in _SIMPLE and operator.inputs[-1] in weights:
            parent = operator.module.rpartition(".")[0]
            found[_behind_views(graph, operator.inputs[-2]), parent].append(operator)
    return [members for members in found.values() if len(members) > 1]


def _sums(graph: TrainingGraph, parts: set[int]) -> list[int]:
    """The operators that do nothing but add gradients of the joined products' input to one another."""
    sums, known = [], set(parts)
    for operator in graph.operators:
        if operator.forward is None or not operator.inputs:
            continue
        inside = known.issuperset(operator.inputs)
        if inside and packet(operator.kind) in VIEWS:
            known |= set(operator.outputs)
        elif inside and packet(operator.kind) == "aten.add" and len(operator.inputs) == 2:
            known |= set(operator.outputs)
            sums.append(operator.index)
    return sums


def _behind_views(graph: TrainingGraph, tensor: int) -> int:
    producer = graph.tensors[tensor].producer
    if producer is None or packet(graph.operators[producer].kind) not in VIEWS:
        return tensor
    return _behind_views(graph, graph.operators[producer].inputs[0])
