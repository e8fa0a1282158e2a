"""Marks the operators that software computes in a lower precision: linear layers and experts, in both passes.

Attention, routers and everything that is no product keep their dtype, and heads unless the software lowers them too, as
in Transformer Engine; so do products with a weight of which a side is no multiple of 16, which its FP8 kernels do not
take (rows are padded). A tensor is cast once in each pass for all products that read it: its input for the forward pass
and the gradient of its weight, the gradient of its result for the backward pass. Weights are cast once an iteration,
which is not counted.
"""

from collections import Counter
from dataclasses import replace

from alpa_explore.graph.counts import PRODUCTS, ROUTED, VIEWS, packet
from alpa_explore.graph.graph import TrainingGraph
from alpa_explore.graph.linear_layers import LinearLayer, linear_layers, weight_tensors
from alpa_explore.graph.operator import LowPrecision, Operator, Phase

ALIGNED = 16


def in_low_precision(graph: TrainingGraph, recipe: str, *, heads: bool) -> TrainingGraph:
    """`graph` with the operators marked (`Operator.low`) that compute in `recipe`; `heads`: those of heads too. The
    first product that reads a cast tensor has the launch of the cast."""
    weights = weight_tensors(graph)
    lowered = {
        index
        for index, part in linear_layers(graph).items()
        if (part is LinearLayer.BLOCK or (heads and part is LinearLayer.HEAD))
        and _is_aligned(graph, graph.operators[index], weights)
    }
    operands: dict[int, int] = {}
    for operator in graph.operators:
        if operator.phase is not Phase.UPDATE and (operator.index in lowered or operator.forward in lowered):
            operand = _operand(graph, operator, weights)
            if operand is not None:
                operands[operator.index] = operand
    roots = {index: _root(graph, graph.operators[index].inputs[operand]) for index, operand in operands.items()}
    readers = Counter((root, packet(graph.operators[i].kind) in ROUTED) for i, root in roots.items())
    cast: set[tuple[int, bool]] = set()
    operators = list(graph.operators)
    for index, operand in operands.items():
        operator = operators[index]
        routed = packet(operator.kind) in ROUTED
        key = roots[index], routed
        casts = 2 if routed else int(key not in cast)  # of experts the inputs of both products
        cast.add(key)
        low = LowPrecision(recipe=recipe, operand=operand, share=1.0 if routed else 1.0 / readers[key])
        operators[index] = replace(operator, low=low, launches=operator.launches + casts)
    return replace(graph, operators=tuple(operators))


def _is_aligned(graph: TrainingGraph, operator: Operator, weights: frozenset[int]) -> bool:
    """Whether the sides of the weights of a linear layer are multiples of `ALIGNED`."""
    shapes = [graph.tensors[t].shape for t in operator.inputs if t in weights]
    if packet(operator.kind) in ROUTED:
        shapes = [shape for shape in shapes if len(shape) == 3]  # no biases
    return not any(size % ALIGNED for shape in shapes if len(shape) > 1 for size in shape[-2:])


def _operand(graph: TrainingGraph, operator: Operator, weights: frozenset[int]) -> int | None:
    """Which input of a product or of experts is cast: the activation, or the gradient; None for other operators."""
    name = packet(operator.kind)
    if name in ROUTED:
        return 0
    if name not in PRODUCTS:
        return None
    left, right = operator.inputs[-2:]
    first = len(operator.inputs) - 2
    if left in weights or right in weights:
        return None if left in weights and right in weights else first + (left in weights)
    made = [graph.tensors[_root(graph, tensor)].producer for tensor in (left, right)]
    backward = [p is not None and graph.operators[p].phase is Phase.BACKWARD for p in made]
    return first + (not backward[0] and backward[1])


def _root(graph: TrainingGraph, tensor: int) -> int:
    """The tensor of which `tensor` is a view, or itself."""
    producer = graph.tensors[tensor].producer
    if producer is None or packet(graph.operators[producer].kind) not in VIEWS:
        return tensor
    return _root(graph, graph.operators[producer].inputs[0])
