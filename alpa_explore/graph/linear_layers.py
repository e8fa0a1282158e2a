"""Which matrix products are linear layers, by what they read and by what reads them; no names of modules count.

A linear layer is a product with a weight, or routed experts. The heads are those behind which no other product comes:
logits, predictions. A router is one whose result, before any other product, is compared with `topk` or its like.
Attention and its scores are products without a weight.
"""

import enum
from collections.abc import Mapping

from alpa_explore.graph.counts import PRODUCTS, ROUTED, VIEWS, is_matrix_product, packet
from alpa_explore.graph.graph import TrainingGraph
from alpa_explore.graph.operator import Operator, Phase
from alpa_explore.graph.tensor import TensorKind

_COPIES = frozenset({"aten._to_copy", "aten.clone"})
_CHOICES = frozenset({"aten.topk", "aten.sort", "aten.argmax", "aten.max"})


class LinearLayer(enum.Enum):
    """What a product with a weight is for."""

    BLOCK = "block"
    HEAD = "head"
    ROUTER = "router"


def linear_layers(graph: TrainingGraph) -> Mapping[int, LinearLayer]:
    """For each forward operator that is a linear layer, its part in the model."""
    weights, chosen, followed = weight_tensors(graph), set[int](), set[int]()
    for operator in reversed(graph.forward_operators):
        readers = [
            graph.operators[r]
            for tensor in operator.outputs
            for r in graph.readers.get(tensor, ())
            if graph.operators[r].phase is Phase.FORWARD
        ]
        if any(packet(r.kind) in _CHOICES or (r.index in chosen and not is_matrix_product(r.kind)) for r in readers):
            chosen.add(operator.index)
        if any(is_matrix_product(r.kind) or r.index in followed for r in readers):
            followed.add(operator.index)
    return {
        o.index: LinearLayer.BLOCK
        if packet(o.kind) in ROUTED
        else LinearLayer.HEAD
        if o.index not in followed
        else LinearLayer.ROUTER
        if o.index in chosen
        else LinearLayer.BLOCK
        for o in graph.forward_operators
        if _is_linear(o, weights)
    }


def weight_tensors(graph: TrainingGraph) -> frozenset[int]:
    """The parameters and frozen weights, with their views and copies in other dtypes."""
    weights = {p.tensor for p in graph.parameters}
    weights |= {t.index for t in graph.tensors if t.kind in (TensorKind.FROZEN, TensorKind.BUFFER) and len(t.shape) > 1}
    for operator in graph.operators:
        if packet(operator.kind) in VIEWS | _COPIES and operator.inputs and operator.inputs[0] in weights:
            weights |= set(operator.outputs)
    return frozenset(weights)


def _is_linear(operator: Operator, weights: frozenset[int]) -> bool:
    name = packet(operator.kind)
    if name in ROUTED:
        return True
    if name not in PRODUCTS:
        return False
    return any(tensor in weights for tensor in operator.inputs[-2:])
