"""A graph whose sequences are in zig-zag order from its inputs on: context parallelism then permutes nothing.

Megatron-LM brings the tokens of a batch into this order, so that every device of a context group has as much of a
causal mask as any other. Here the graph is rewritten. From the attention operators on, every tensor with a dim of
positions is found, up to the first operators that do not treat positions alike and to the inputs. What they make is
brought into zig-zag order by an operator (`tracing.zigzag`): tokens, labels, tables of rotary positions. Attention is
told the order; all operators between work as before, and a loss over all tokens is the same.

That an operator treats positions alike follows from its sharding rule: where every single entry of a dim may be on a
device of its own that runs the operator unchanged, any order of that dim will do.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace

from alpa_explore.arguments import checked
from alpa_explore.errors import OptionError
from alpa_explore.graph import Operator, Phase, Ref, Tensor, TensorKind, TrainingGraph, verify
from alpa_explore.graph.counts import ATTENTION, attention_options, packet
from alpa_explore.sharding.splits import splits_for

_RESHAPES = frozenset(
    {"aten.view", "aten._unsafe_view", "aten.reshape", "aten.squeeze", "aten.unsqueeze", "aten.alias", "aten.detach"}
)
"""Operators that keep the order of all entries."""
_UNIFORM = frozenset({"aten.new_zeros", "aten.new_ones", "aten.new_full", "aten.new_empty"})
"""Operators that take nothing from their input but its dtype."""
_POSITIONS = 2
"""Dim of queries, keys, values and outputs."""
_ROWS_OF_A_TABLE = "vocabulary"
"""The factor under which a device runs another form of a look-up."""


@checked("graph", "parts")
def in_zigzag_order(graph: TrainingGraph, parts: int) -> TrainingGraph:
    """`graph` with its sequences in zig-zag order for `parts` devices; itself where they are, or for one.

    Loss and gradients are those of `graph` but for rounding. OptionError where attention is not causal over one
    sequence, has a mask or dropout, where 2 · parts does not divide the sequence, and where something else than
    attention and the sources depends on positions.
    """
    if parts == graph.zigzag:
        return graph
    if graph.zigzag > 1:
        raise _refused(f"they are in the order for {graph.zigzag} devices, not for {parts}")
    length = _sequence(graph, parts)
    strides = _strides(graph, length)
    inside = _inside(graph, strides)
    ordered: list[int] = []
    for tensor in strides:
        readers = graph.readers.get(tensor, ())
        outside = [reader for reader in readers if reader not in inside]
        if graph.tensors[tensor].producer not in inside:
            ordered += [tensor] * (len(outside) < len(readers))
        elif outside:
            raise _refused(f"{graph.operators[outside[0]].name} depends on the order of {graph.tensors[tensor].name}")
    for tensor in ordered:
        producer = graph.tensors[tensor].producer
        if producer is not None and graph.operators[producer].phase is not Phase.FORWARD:
            raise _refused(f"{graph.operators[producer].name} in the backward pass depends on positions")
        if graph.tensors[tensor].kind is TensorKind.PARAMETER:
            raise _refused(f"the parameter {graph.tensors[tensor].name} has a dim of positions")
    dims = {}
    for tensor in ordered:
        found = _dim(graph.tensors[tensor], strides[tensor], length)
        if found is None or graph.tensors[tensor].shape[found[0]] != length:
            raise _refused(f"the positions of {graph.tensors[tensor].name} share a dim with something else")
        dims[tensor] = found[0]
    return verify(_rewritten(graph, dims, inside, parts))


def _sequence(graph: TrainingGraph, parts: int) -> int:
    """The positions of all attention."""
    lengths = set()
    for operator in graph.operators:
        if not _is_attention(operator):
            continue
        options, backward = attention_options(operator.kind, operator.arguments), operator.phase is Phase.BACKWARD
        query, key = (graph.tensors[t] for t in operator.inputs[backward : 2 + backward])
        lengths |= {query.shape[_POSITIONS], key.shape[_POSITIONS]}
        masked = isinstance(operator.arguments[3 + backward], Ref)
        if options.causal is not True or masked or options.seed is not None or options.chunks:
            raise _refused(f"{operator.name} is not causal, or has a mask, dropout or an order of its own")
    if len(lengths) != 1:
        raise _refused(f"attention over sequences of {sorted(lengths)} positions" if lengths else "no fused attention")
    length = lengths.pop()
    if length % (2 * parts):
        raise OptionError(
            "Zig-zag order needs a sequence of 2 chunks for each device",
            found=f"{length:,} positions for {parts} devices",
            remedy=f"Choose a sequence that {2 * parts} divides.",
        )
    return length


def _strides(graph: TrainingGraph, length: int) -> dict[int, int]:
    """For each tensor with a dim of positions: how many entries, row by row, lie between neighbouring positions."""
    touching: dict[int, list[Operator]] = {}
    for operator in graph.operators:
        for tensor in (*operator.inputs, *operator.outputs):
            touching.setdefault(tensor, []).append(operator)
    strides: dict[int, int] = {}
    waiting = []
    for operator in graph.operators:
        if _is_attention(operator):
            for tensor, stride in _of_operator(graph, operator, {}, length):
                strides[tensor] = stride
                waiting.append(tensor)
    while waiting:
        for operator in touching[waiting.pop()]:
            for tensor, stride in _of_operator(graph, operator, strides, length):
                if tensor not in strides:
                    strides[tensor] = stride
                    waiting.append(tensor)
                elif strides[tensor] != stride:
                    raise _refused(f"{operator.name} meets two dims of positions")
    return strides


def _of_operator(
    graph: TrainingGraph, operator: Operator, strides: Mapping[int, int], length: int
) -> Iterator[tuple[int, int]]:
    """(tensor, stride) of all tensors of an operator, new ones among them, that follow from those with a stride; none
    where the operator does not treat positions alike."""
    tensors = [*operator.inputs, *operator.outputs]
    if operator.phase is Phase.UPDATE:
        return
    if _is_attention(operator):
        for tensor in tensors:
            shape = graph.tensors[tensor].shape
            if len(shape) > 2:
                yield tensor, math.prod(shape[_POSITIONS + 1 :])
        return
    if packet(operator.kind) in _UNIFORM:
        yield from ((t, strides[t]) for t in tensors if t in strides)
        return
    known = [(place, strides[t]) for place, t in enumerate(tensors) if t in strides]
    if packet(operator.kind) in _RESHAPES:
        for tensor in tensors:
            if _dim(graph.tensors[tensor], known[0][1], length) is not None:
                yield tensor, known[0][1]
        return
    for place, stride in known:
        found = _dim(graph.tensors[tensors[place]], stride, length)
        split = None if found is None else _split(graph, operator, place, found[0])
        if found is None or split is None:
            return
        size = graph.tensors[tensors[place]].shape[found[0]]
        for tensor, dim in zip(tensors, split, strict=True):
            if dim < 0:
                continue
            shape = graph.tensors[tensor].shape
            if shape[dim] != size:
                return
            if stride_of_tensor := found[1] * math.prod(shape[dim + 1 :]):  # 0: it has no entries, and no order
                yield tensor, stride_of_tensor


def _split(graph: TrainingGraph, operator: Operator, place: int, dim: int) -> tuple[int, ...] | None:
    """For each tensor of an operator its dim (or −1, …) that goes with `dim` of the one at `place`; None where the
    operator does not treat the entries of that dim alike."""
    coverage = splits_for(operator, graph.tensors)
    if coverage.how != "rule" or _is_attention(operator):
        return None
    tensors = (*operator.inputs, *operator.outputs)
    size = graph.tensors[tensors[place]].shape[dim]
    for split in coverage.splits:
        dims = (*split.inputs, *split.outputs)
        if dims[place] == dim and split.size == size and split.factor != _ROWS_OF_A_TABLE:
            return dims
    return None


def _dim(tensor: Tensor, stride: int, length: int) -> tuple[int, int] | None:
    """(dim in which the positions are, entries of that dim between neighbouring positions); None where they are not
    within one dim."""
    within = 1
    for dim in range(len(tensor.shape) - 1, -1, -1):
        size = tensor.shape[dim]
        if stride % within == 0 and size % (length * (stride // within)) == 0 and stride // within < size:
            return dim, stride // within
        within *= size
    return None


def _inside(graph: TrainingGraph, strides: Mapping[int, int]) -> frozenset[int]:
    """Operators all of whose tensors with positions go together: those that run in the new order."""
    length = next(graph.tensors[o.inputs[0]].shape[_POSITIONS] for o in graph.operators if _is_attention(o))
    inside = set()
    for operator in graph.operators:
        known = {t for t in (*operator.inputs, *operator.outputs) if t in strides}
        if not known:
            continue
        follow = dict(_of_operator(graph, operator, {t: strides[t] for t in known}, length))
        if known <= set(follow):
            inside.add(operator.index)
    return frozenset(inside)


def _rewritten(graph: TrainingGraph, dims: Mapping[int, int], inside: frozenset[int], parts: int) -> TrainingGraph:
    """The graph with an operator that orders each tensor of `dims` along that dim, before its first reader."""
    tensors = list(graph.tensors)
    operators: list[Operator] = []
    number: dict[int, int] = {}
    instead: dict[int, int] = {}
    first: dict[int, list[int]] = defaultdict(list)
    for tensor in dims:
        first[min(inside.intersection(graph.readers[tensor]))].append(tensor)

    def of(part: object) -> object:
        return Ref(instead.get(part.tensor, part.tensor)) if isinstance(part, Ref) else part

    for operator in graph.operators:
        for tensor in first.get(operator.index, ()):
            source = graph.tensors[tensor]
            made = replace(
                source, index=len(tensors), name=f"{source.name}_zigzag", kind=TensorKind.VALUE, producer=len(operators)
            )
            tensors.append(made)
            operators.append(
                Operator(
                    index=len(operators),
                    name=f"zigzag_{source.name}",
                    kind="alpa_explore.zigzag.default",
                    phase=Phase.FORWARD,
                    inputs=(tensor,),
                    outputs=(made.index,),
                    arguments=(Ref(tensor), dims[tensor], 2 * parts),
                    bytes_accessed=2 * source.bytes,
                    module=operator.module,
                )
            )
            instead[tensor] = made.index
        number[operator.index] = len(operators)
        changed = operator
        if operator.index in inside:
            changed = operator.mapped(of)
            arguments = changed.arguments
            if _is_attention(operator):
                options = attention_options(operator.kind, arguments)._replace(chunks=2 * parts)
                arguments = (*arguments[: ATTENTION[packet(operator.kind)]], *options.given(options.first))
            changed = replace(changed, arguments=arguments, inputs=tuple(instead.get(t, t) for t in operator.inputs))
        forward = None if operator.forward is None else number[operator.forward]
        operators.append(replace(changed, index=len(operators), forward=forward))
        for tensor in operator.outputs:
            tensors[tensor] = replace(tensors[tensor], producer=len(operators) - 1)
    parameters = tuple(replace(p, update=number[p.update]) for p in graph.parameters)
    return replace(graph, tensors=tuple(tensors), operators=tuple(operators), parameters=parameters, zigzag=parts)


def _is_attention(operator: Operator) -> bool:
    return packet(operator.kind) in ATTENTION


def _refused(found: str) -> OptionError:
    return OptionError(
        "The sequences of this model cannot be brought into zig-zag order",
        found=found,
        remedy="Leave the order as it is: the ring then changes it inside each attention.",
    )
