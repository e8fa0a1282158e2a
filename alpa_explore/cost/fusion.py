"""Fusion: pointwise operators and reductions that run as one kernel, as compilers and hand-written kernels do.

A group is a set of fusible operators of one layer and phase that are connected by tensors, and between which no
operator runs that cannot be fused: no tensor leaves the group and comes back. It reads each tensor from outside once,
and writes only what is read outside; all other tensors stay in registers. It is one launch.

The result is a graph whose operators have the bytes and launches that they have in their group, so everything that
prices operators needs no other knowledge of fusion. Resharding a tensor inside a group costs the collective alone; that
it must then be stored is not counted.

Projections of one input (queries, keys and values; gate and up) are one product in some software.

Megatron-LM and nanotron hold the weights of such layers as one matrix. The graph of a model that holds them apart keeps
its operators, and each costs its share of the joined product (`Operator.joined`); of the kernels that the host
launches, the first member has them all. The gradient of the input is one product as well, so the sums of its parts
vanish.

Joined are products with a weight that belong to modules with one parent, or to one module, and read the same tensor.
Routers stay by themselves.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256

from alpa_explore.graph import Operator, Phase, Ref, TrainingGraph
from alpa_explore.graph.counts import LINEAR_ALGEBRA, VIEWS, is_matrix_product, is_view, packet
from alpa_explore.graph.linear_layers import LinearLayer, linear_layers, weight_tensors
from alpa_explore.graph.operator import FusedKernel, Joined, mapped
from alpa_explore.sharding.rules.products import RESAMPLING_BACKWARD

NEVER_FUSED = frozenset(
    {
        "aten._cdist_backward",
        "aten._cdist_forward",
        "aten._fft_c2c",
        "aten._fft_c2r",
        "aten._fft_r2c",
        "aten._scaled_mm",
        "aten.cumsum",
        "aten.cumprod",
        "aten.embedding_dense_backward",
        "aten.grid_sampler_2d_backward",
        "aten.grid_sampler_3d",
        "aten.grid_sampler_3d_backward",
        "aten.index_add",
        "aten.index_put",
        "aten.max_pool2d_with_indices",
        "aten.max_pool2d_with_indices_backward",
        "aten.max_pool3d_with_indices",
        "aten.max_pool3d_with_indices_backward",
        "aten.scatter",
        "aten.scatter_add",
        "aten.scatter_reduce",
        "aten.sort",
        "aten.topk",
        *LINEAR_ALGEBRA,
        *(f"aten.{name}" for name in RESAMPLING_BACKWARD.split()),
    }
)
"""Operators, beside matrix products and attention, that run as kernels of their own."""
_FUSIBLE = frozenset({"alpa_explore.rms_norm", "alpa_explore.rms_norm_backward"})
"""Kinds beside those of ATen that compilers fuse: written in pointwise operators and reductions of rows."""
_REDUCTIONS = frozenset({"aten.sum", "aten.mean", "aten.amax", "aten.var_mean"})


def fuse(graph: TrainingGraph, layer_of: Sequence[int], *, named: bool = False) -> TrainingGraph:
    """`graph` with the bytes and launches of fused kernels; `layer_of` has the layer of each operator. Where they are
    `named`, operators say which kernel they are part of, so that its time can be measured."""
    group_of = kernel_groups(graph, layer_of)
    view_of = _view_sources(graph)
    readers = _readers(graph, view_of)
    seen: set[tuple[int, int]] = set()
    launched: set[int] = set()
    members: dict[int, list[int]] = defaultdict(list)
    written_by: dict[int, list[int]] = defaultdict(list)
    operators = []
    for operator in graph.operators:
        group = group_of[operator.index]
        if group is None:
            operators.append(operator)
            continue
        read = 0
        for tensor in dict.fromkeys(operator.inputs):
            base = view_of[tensor]
            producer = graph.tensors[base].producer
            inside = producer is not None and group_of[producer] == group
            if not inside and (group, base) not in seen:
                seen.add((group, base))
                read += graph.tensors[tensor].bytes
        stored = [t for t in operator.outputs if t == graph.loss or any(group_of[r] != group for r in readers[t])]
        members[group].append(operator.index)
        written_by[group] += stored
        written = sum(graph.tensors[t].bytes for t in stored)
        operators.append(
            replace(
                operator,
                bytes_accessed=min(read + written, operator.bytes_accessed),
                launches=int(group not in launched),
                stored=bool(stored),
            )
        )
        launched.add(group)
    for group, parts in members.items() if named else ():
        moved = sum(operators[i].bytes_accessed for i in parts)
        kernel = _named(graph, layer_of, parts, tuple(written_by[group]), moved)
        for index in parts:
            operators[index] = replace(operators[index], fused=kernel)
    return replace(graph, operators=tuple(operators))


def _named(
    graph: TrainingGraph, layer_of: Sequence[int], parts: Sequence[int], written: tuple[int, ...], moved: int
) -> FusedKernel:
    inside = set(parts)
    waiting = [(index, tensor) for index in parts for tensor in graph.operators[index].inputs]
    while waiting:
        index, tensor = waiting.pop()
        producer = graph.tensors[tensor].producer
        if producer in inside or producer is None or not is_view(graph.operators[producer].kind):
            continue
        if layer_of[producer] == layer_of[index]:  # else another stage may hold what it is a view of
            inside.add(producer)
            waiting += [(producer, read) for read in graph.operators[producer].inputs]
    operators = [graph.operators[index] for index in sorted(inside)]
    made = [tensor for operator in operators for tensor in operator.outputs]
    read = tuple(dict.fromkeys(t for operator in operators for t in operator.inputs if t not in set(made)))
    number = {tensor: place for place, tensor in enumerate((*read, *made))}

    def numbered(part: object) -> object:
        return number[part.tensor] if isinstance(part, Ref) else (type(part).__name__, part)

    told = [
        *((o.kind, mapped(o.arguments, numbered), mapped(o.keywords, numbered)) for o in operators),
        [(graph.tensors[t].shape, graph.tensors[t].dtype) for t in number],
        [number[t] for t in written],
    ]
    return FusedKernel(
        name=sha256(repr(told).encode()).hexdigest()[:12],
        bytes=moved,
        operators=tuple(sorted(inside)),
        inputs=read,
        outputs=written,
    )


def is_fusible(operator: Operator, graph: TrainingGraph) -> bool:
    """Whether a compiler may fuse the operator with its neighbours."""
    kind = operator.kind
    if operator.phase is Phase.UPDATE or is_view(kind) or is_matrix_product(kind) or packet(kind) in NEVER_FUSED:
        return False
    known = kind.startswith("aten.") or packet(kind) in _FUSIBLE
    if not known or not operator.bytes_accessed or not operator.outputs:
        return False
    return packet(kind) not in _REDUCTIONS or _keeps_rows(operator, graph)


def _keeps_rows(operator: Operator, graph: TrainingGraph) -> bool:
    """Whether a reduction is over trailing dims: the sum of a bias gradient, over tokens, is a kernel of its own."""
    rank = len(graph.tensors[operator.inputs[0]].shape)
    given = operator.arguments[1] if len(operator.arguments) > 1 else None
    if not isinstance(given, tuple) or not given:
        return True  # of all elements
    dims = {d % rank for d in given if isinstance(d, int)} if rank else set()
    return dims == set(range(rank - len(dims), rank))


def kernel_groups(graph: TrainingGraph, layer_of: Sequence[int]) -> list[int | None]:
    """For each operator the number of its group; None where it is not fused."""
    depth = [0] * len(graph.operators)
    fusible = [is_fusible(o, graph) for o in graph.operators]
    parent = list(range(len(graph.operators)))

    def root(index: int) -> int:
        while parent[index] != index:
            parent[index] = parent[parent[index]]
            index = parent[index]
        return index

    for operator in graph.operators:
        index = operator.index
        producers = [p for t in operator.inputs if (p := graph.tensors[t].producer) is not None]
        transparent = [fusible[p] or is_view(graph.operators[p].kind) for p in producers]
        # An operator that cannot be fused lies between two depths, so groups of one depth cannot depend on each other
        # through it.
        depth[index] = max((depth[p] + (not t) for p, t in zip(producers, transparent, strict=True)), default=0)
        if not fusible[index]:
            continue
        for tensor in operator.inputs:
            source = producer_behind_views(graph, tensor)
            if source is None or not fusible[source]:
                continue
            other = graph.operators[source]
            if (other.phase, layer_of[source], depth[source]) == (operator.phase, layer_of[index], depth[index]):
                parent[root(source)] = root(index)
    return [root(i) if fusible[i] else None for i in range(len(parent))]


def producer_behind_views(graph: TrainingGraph, tensor: int) -> int | None:
    """The operator that computed a tensor, views skipped; None for a tensor from outside."""
    while (producer := graph.tensors[tensor].producer) is not None and is_view(graph.operators[producer].kind):
        tensor = graph.operators[producer].inputs[0]
    return producer


def _view_sources(graph: TrainingGraph) -> list[int]:
    """For each tensor the tensor of which it is a view; itself otherwise."""
    source = list(range(len(graph.tensors)))
    for operator in graph.operators:
        if is_view(operator.kind):
            for tensor in operator.outputs:
                source[tensor] = source[operator.inputs[0]]
    return source


def _readers(graph: TrainingGraph, view_of: Sequence[int]) -> list[list[int]]:
    """For each tensor the operators, other than views, that read it or a view of it."""
    readers: list[list[int]] = [[] for _ in graph.tensors]
    for operator in graph.operators:
        if not is_view(operator.kind):
            for tensor in operator.inputs:
                readers[view_of[tensor]].append(operator.index)
    return readers


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
