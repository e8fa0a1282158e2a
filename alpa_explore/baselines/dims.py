"""What the dims of a language model's tensors are: samples, positions of the sequence, entries of the residual stream.

The dims of the token embedding are known: its indices are [samples, positions], its rows the residual stream. A split
that divides two dims together (`sharding.splits`) says that they are the same, so labels spread over the graph, forward
and backward alike. A view that merges samples and positions makes *rows*, and one that takes rows apart gives both
back. All other dims (of an MLP's inner layer, heads, vocabulary, experts) have no label: they are those that tensor
parallelism divides.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from typing import TypeAlias

from alpa_explore.graph import Operator, Tensor, TensorKind, TrainingGraph
from alpa_explore.sharding.splits import splits_for
from alpa_explore.sharding.strategy import Split


class Label(enum.Enum):
    """The meaning of a dim."""

    SAMPLES = "samples"
    POSITIONS = "positions"
    ROWS = "rows"
    """Samples and positions in one dim."""
    RESIDUAL = "residual stream"


Dim: TypeAlias = tuple[int, int]
"""(tensor of the graph, dim)."""
DimLabels: TypeAlias = Mapping[Dim, Label]


def dim_labels(graph: TrainingGraph) -> DimLabels:
    """The labels of the dims of `graph`; dims without one are left out.

    Without a token embedding the floating inputs of three dims are taken as [samples, positions, residual stream]; a
    graph without such inputs has no labels.
    """
    labels: dict[Dim, Label] = {}
    together, merged = _relations(graph)
    waiting = list(_known(graph).items())
    sizes = {(graph.tensors[t].shape[d], label) for (t, d), label in waiting}
    while waiting:
        dim, label = waiting.pop()
        if labels.setdefault(dim, label) is not label or dim not in together:
            continue
        waiting += [(other, label) for other in together.pop(dim) if other not in labels]
        for parts, whole in merged.pop(dim, ()):
            if label is Label.ROWS:
                # Rows of other samples and positions (patches, beams) are taken apart differently.
                given = [(graph.tensors[t].shape[d], one) for (t, d), one in zip(parts, _PARTS, strict=True)]
                if set(given) <= sizes:
                    waiting += [(p, one) for p, one in zip(parts, _PARTS, strict=True) if p not in labels]
            elif tuple(labels.get(p) for p in parts) == _PARTS and whole not in labels:
                waiting.append((whole, Label.ROWS))
            else:
                merged.setdefault(dim, []).append((parts, whole))
    return labels


_PARTS = (Label.SAMPLES, Label.POSITIONS)


def _known(graph: TrainingGraph) -> dict[Dim, Label]:
    """The dims whose meaning the operators say."""
    known: dict[Dim, Label] = {}
    parameters = {p.tensor for p in graph.parameters}
    for operator in graph.operators:
        if operator.kind != "aten.embedding.default" or _cast_from(graph, operator.inputs[0]) not in parameters:
            continue
        indices, made = operator.inputs[1], operator.outputs[0]
        if graph.from_inputs(indices):
            if len(graph.tensors[indices].shape) != 2:
                continue
            known |= {(indices, 0): Label.SAMPLES, (indices, 1): Label.POSITIONS}
        else:  # learned positions
            known[operator.inputs[0], 0] = Label.POSITIONS
        known[made, len(graph.tensors[made].shape) - 1] = Label.RESIDUAL
    if not known:
        for tensor in graph.tensors:
            if tensor.kind is TensorKind.INPUT and len(tensor.shape) == 3 and tensor.dtype.startswith(("float", "bfl")):
                known |= dict(zip(((tensor.index, d) for d in range(3)), (*_PARTS, Label.RESIDUAL), strict=True))
    return known


def _cast_from(graph: TrainingGraph, tensor: int) -> int:
    """The tensor of which `tensor` is a copy in another dtype, or itself."""
    producer = graph.tensors[tensor].producer
    if producer is None or graph.operators[producer].kind != "aten._to_copy.default":
        return tensor
    return _cast_from(graph, graph.operators[producer].inputs[0])


_NORMS = (
    "aten.native_layer_norm.default",
    "aten.native_layer_norm_backward.default",
    "alpa_explore.rms_norm.default",
    "alpa_explore.rms_norm_backward.default",
)
"""Operators that keep their last dim but cannot be divided along it, so that no split says that it is the same."""
_Merged: TypeAlias = tuple[tuple[Dim, Dim], Dim]
"""(the two dims, the dim that has the entries of both)."""


def _relations(graph: TrainingGraph) -> tuple[dict[Dim, set[Dim]], dict[Dim, list[_Merged]]]:
    """(dims that are the same by dim, the merges that a dim takes part in)."""
    together: dict[Dim, set[Dim]] = {}
    merged: dict[Dim, list[_Merged]] = {}
    known_splits: dict[int, tuple[Split, ...]] = {}
    for operator, signature in zip(graph.operators, graph.signatures, strict=True):
        if id(signature) not in known_splits:
            known_splits[id(signature)] = splits_for(operator, graph.tensors).splits
        for split in known_splits[id(signature)]:
            pairs = zip((*operator.inputs, *operator.outputs), (*split.inputs, *split.outputs), strict=True)
            same = {(t, p) for t, p in pairs if p >= 0}
            if len({graph.tensors[t].shape[d] for t, d in same}) == 1:
                for dim in same:
                    together.setdefault(dim, set()).update(same - {dim})
        if operator.kind in _NORMS:
            tensors = [t for t in (*operator.inputs, *operator.outputs) if graph.tensors[t].shape]
            sizes = {graph.tensors[operator.outputs[0]].shape[-1]} - {1}
            same = {(t, d) for t in tensors if graph.tensors[t].shape[d := len(graph.tensors[t].shape) - 1] in sizes}
            for dim in same:
                together.setdefault(dim, set()).update(same - {dim})
        for parts, whole in _merges(operator, graph.tensors):
            for dim in (*parts, whole):
                together.setdefault(dim, set())
                merged.setdefault(dim, []).append((parts, whole))
    return together, merged


def _merges(operator: Operator, tensors: tuple[Tensor, ...]) -> Iterator[_Merged]:
    """Leading dims that a view merges to one, or the other way round."""
    if operator.kind not in ("aten.view.default", "aten._unsafe_view.default", "aten.reshape.default"):
        return
    source, target = operator.inputs[0], operator.outputs[0]
    for a, b in ((source, target), (target, source)):
        two, one = tensors[a].shape, tensors[b].shape
        if len(two) > 1 and one and two[0] * two[1] == one[0] and two[0] > 1 < two[1]:
            yield ((a, 0), (a, 1)), (b, 0)
