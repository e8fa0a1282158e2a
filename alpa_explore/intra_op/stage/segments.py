"""Segments: runs of forward operators that the backward pass computes again together, and what is held then.

A segment is a block, the connected operators of a block that a part of it names (`recomputation`), or a layer. A layer
never needs what another one recomputes: where a layer ends inside a block, so does the segment. A model without blocks
has layers in their place. What stands outside the blocks (embedding, last norm, head and loss) is not computed again.

What enters a segment is held, and of its tensors those that anything but the backward pass of its own block reads. A
part of a block whose inputs would take as much memory as it saves is not recomputed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from alpa_explore.cost.fusion import is_fusible
from alpa_explore.errors import OptionError
from alpa_explore.graph import GIVEN_KINDS, Operator, Phase, Ref, TensorKind, TrainingGraph
from alpa_explore.graph.counts import is_matrix_product, is_view, packet
from alpa_explore.graph.spelled_out import spelled_out_attention
from alpa_explore.intra_op.stage.recomputation import CHECKPOINTS, HALF, LAYERS, NONE, Recomputation
from alpa_explore.layering.blocks import OUTSIDE, blocks_with_paths

KEPT = -1
"""The segment of an operator that is in none."""
_HELD_KINDS = (TensorKind.INPUT, TensorKind.VALUE, TensorKind.RETURNED, TensorKind.ROUTED)
"""Kinds of storage that can be held for the backward pass; weights and buffers are there anyway."""
_THERE = (TensorKind.PARAMETER, *GIVEN_KINDS)
_RESULT = -1
"""In place of the number of an argument: the result."""
_COPIES = frozenset({"aten.clone", "aten._to_copy"})
_SAVED_UNREAD: dict[str, tuple[int, ...]] = {
    "aten.gather": (0,),
    "aten.index_add": (3,),
    "aten.index_copy": (3,),
    "aten._fft_r2c": (0,),
    "aten.scatter_reduce": (0, 3, _RESULT),
}
"""Kind -> the arguments that autograd saves whole, though its derivative asks for their shape alone, or for a sum or a
mean not at all (`derivatives.yaml` of PyTorch 2.13)."""
_DRAWS = frozenset({"aten.native_dropout", "aten.bernoulli", "aten.rand_like"})
"""Their mask takes less memory than what they read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """What is computed again, and what is held."""

    segment_of: tuple[int, ...]
    """For each operator the segment with which it is computed again; KEPT where it runs once."""
    recomputed: frozenset[int]
    held: tuple[tuple[int, ...], ...]
    """For each layer the (storage) tensors held from its forward to its backward pass, ascending."""
    waits: Mapping[int, tuple[int, ...]]
    """Backward operator -> the segments that must have been computed again before it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Places:
    """Where operators are: a unit is a block inside a layer."""

    layer_of: Sequence[int]
    unit_of: Sequence[int]
    """For each operator; a backward operator is in the unit of its forward operator. KEPT outside of blocks."""
    segment_of: Sequence[int]
    """For each operator; KEPT for those that run once, and for all backward operators."""


def hold(
    graph: TrainingGraph,
    layer_of: Sequence[int],
    storage: Sequence[int],
    recomputation: Recomputation,
    *,
    whole: bool = False,
    plain: bool = False,
) -> Held:
    """What a graph with these layers holds; with `whole` blocks and layers are computed again to their end, with
    `plain` it holds what a loop in plain PyTorch does. OptionError where it has no part of the kind that is named."""
    places = _places(graph, layer_of, recomputation)
    if recomputation.parts:
        places = _worth_it(graph, storage, places)
    most = _recomputed(graph, storage, places, [set()] * (max(layer_of) + 1))
    recomputed = _recomputed(graph, storage, places, _held(graph, storage, places, most))
    if whole and not recomputation.parts:
        recomputed = frozenset(i for i, segment in enumerate(places.segment_of) if segment != KEPT)
    held = _held(graph, storage, places, recomputed)
    if plain:
        for tensor in _held_by_pytorch(graph):
            base = graph.tensors[storage[tensor]]
            if base.kind in _HELD_KINDS and base.producer is not None and base.producer not in recomputed:
                held[layer_of[base.producer]].add(base.index)
    return Held(
        segment_of=tuple(s if i in recomputed else KEPT for i, s in enumerate(places.segment_of)),
        recomputed=recomputed,
        held=tuple(tuple(sorted(tensors)) for tensors in held),
        waits=_waits(graph, places, recomputed, recomputation),
    )


def _places(graph: TrainingGraph, layer_of: Sequence[int], recomputation: Recomputation) -> _Places:
    if recomputation.name in (NONE, LAYERS):
        chosen = set(recomputation.layers)
        segments = [k if o.phase is Phase.FORWARD and k in chosen else KEPT for o, k in _with(graph, layer_of)]
        return _Places(layer_of=layer_of, unit_of=layer_of, segment_of=segments)
    blocks = _checkpointed(graph) if recomputation.name == CHECKPOINTS else blocks_with_paths(graph)
    if all(block == OUTSIDE for block, _ in blocks):
        blocks = tuple((layer_of[o.index], "") for o in graph.forward_operators)
    numbers: dict[tuple[int, int], int] = {}
    unit_of = []
    for operator, layer in _with(graph, layer_of):
        at = operator.index if operator.phase is Phase.FORWARD else operator.forward
        block = OUTSIDE if at is None or operator.phase is Phase.UPDATE else blocks[at][0]
        unit_of.append(KEPT if block == OUTSIDE else numbers.setdefault((block, layer), len(numbers)))
    if not recomputation.parts:
        skipped = 2 if recomputation.name == HALF else 1
        segments = [
            unit if o.phase is Phase.FORWARD and unit != KEPT and blocks[o.index][0] % skipped == 0 else KEPT
            for o, unit in _with(graph, unit_of)
        ]
        return _Places(layer_of=layer_of, unit_of=unit_of, segment_of=segments)
    chosen = set()
    for part in recomputation.parts:
        of_part = {i for i in _PARTS[part](graph, [path for _, path in blocks]) if unit_of[i] != KEPT}
        if not of_part:
            raise _without(graph, part)
        chosen |= of_part
    chosen = {i for i in _with_views(graph, chosen) if unit_of[i] != KEPT}
    return _Places(layer_of=layer_of, unit_of=unit_of, segment_of=_connected(graph, unit_of, chosen))


def _with(graph: TrainingGraph, numbers: Sequence[int]) -> Iterator[tuple[Operator, int]]:
    return zip(graph.operators, numbers, strict=True)


def _without(graph: TrainingGraph, part: str) -> OptionError:
    return OptionError(
        f"The model has nothing to recompute under '{part}'",
        found=f"no {_CALLED[part]} in the blocks of {graph.name}",
        remedy="Give 'full', which recomputes blocks whatever they hold, or 'auto'.",
    )


def _checkpointed(graph: TrainingGraph) -> tuple[tuple[int, str], ...]:
    """For each forward operator the region that the model checkpoints, in place of its block. OptionError where it has
    none."""
    if not graph.checkpoints:
        raise OptionError(
            "The model does not recompute anything itself",
            found=f"no call of torch.utils.checkpoint in {graph.name}",
            remedy="Give another kind, or checkpoint modules of the model, and capture it again.",
        )
    region_of = {path: number for number, region in enumerate(graph.checkpoints) for path in region}

    def place(module: str) -> tuple[int, str]:
        parts = module.split(".")
        prefixes = (".".join(parts[:n]) for n in range(1, len(parts) + 1))
        return next(((region_of[path], path) for path in prefixes if path in region_of), (OUTSIDE, ""))

    return tuple(place(operator.module) for operator in graph.forward_operators)


def _cheap(graph: TrainingGraph, paths: Sequence[str]) -> set[int]:
    """Norms, activations, casts and other pointwise operators, except residual additions: their backward pass reads
    nothing, so nothing is saved by computing them again."""
    del paths
    cheap = set()
    for operator in graph.forward_operators:
        if is_fusible(operator, graph) and packet(operator.kind) not in _DRAWS:
            shapes = {graph.tensors[t].shape for t in operator.inputs}
            residual = packet(operator.kind) == "aten.add" and len(operator.inputs) == 2 and len(shapes) == 1
            if not residual:
                cheap.add(operator.index)
    return cheap


def _attention(graph: TrainingGraph, paths: Sequence[str]) -> set[int]:
    """The fused operators of attention, or what lies between the products that spell it out, and copies of the
    result."""
    del paths
    members = {o.index for o in graph.forward_operators if packet(o.kind) == "alpa_explore.attention"}
    members |= {i for found in spelled_out_attention(graph) for i in found.operators}
    for operator in graph.forward_operators:
        # A copy of the result in another order of dims would be held in its place.
        if packet(operator.kind) in _COPIES or is_view(operator.kind):
            producer = graph.tensors[operator.inputs[0]].producer
            if producer in members:
                members.add(operator.index)
    return members


def _mlp(graph: TrainingGraph, paths: Sequence[str]) -> set[int]:
    """The operators of the modules in a block that hold matrix products but no attention."""
    attention = _attention(graph, paths)
    below: dict[str, list[tuple[Operator, tuple[str, ...]]]] = defaultdict(list)
    for operator, path in zip(graph.forward_operators, paths, strict=True):
        inside = operator.module.removeprefix(path).strip(".") if path else operator.module
        below[path].append((operator, tuple(inside.split(".")) if inside else ()))
    return {i for operators in below.values() for i in _feed_forward(operators, attention)}


def _feed_forward(operators: Sequence[tuple[Operator, tuple[str, ...]]], attention: set[int]) -> set[int]:
    """Of the operators of one block, with their modules inside it."""
    depth = 0
    while True:
        modules: dict[tuple[str, ...], list[Operator]] = defaultdict(list)
        for operator, inside in operators:
            if len(inside) > depth:
                modules[inside[: depth + 1]].append(operator)
        working = [of for of in modules.values() if any(is_matrix_product(o.kind) for o in of)]
        if len(working) != 1:
            break
        depth += 1  # a module around the whole block
    return {o.index for of in working if not any(o.index in attention for o in of) for o in of}


_CALLED = {
    "norms": "norm, activation or other pointwise operator",
    "attention": "attention",
    "mlp": "module with matrix products beside attention",
}
_PARTS = {"norms": _cheap, "attention": _attention, "mlp": _mlp}


def _with_views(graph: TrainingGraph, chosen: set[int]) -> set[int]:
    """`chosen` with the views of what they make, and with what runs in the same kernel and is never stored."""
    chosen = set(chosen)
    for operator in reversed(graph.forward_operators):
        if operator.index in chosen:
            made = (graph.tensors[t].producer for t in operator.inputs)
            chosen |= {p for p in made if p is not None and not graph.operators[p].stored}
    for operator in graph.forward_operators:
        if is_view(operator.kind) and graph.tensors[operator.inputs[0]].producer in chosen:
            chosen.add(operator.index)
    return chosen


def _connected(graph: TrainingGraph, unit_of: Sequence[int], chosen: set[int]) -> list[int]:
    """The segments of the chosen operators: those of one unit that tensors connect."""
    parent = {i: i for i in chosen}

    def root(index: int) -> int:
        while parent[index] != index:
            parent[index] = parent[parent[index]]
            index = parent[index]
        return index

    for index in sorted(chosen):
        for tensor in graph.operators[index].inputs:
            producer = graph.tensors[tensor].producer
            if producer in chosen and producer is not None and unit_of[producer] == unit_of[index]:
                parent[root(index)] = root(producer)
    numbers: dict[int, int] = {}
    return [numbers.setdefault(root(i), len(numbers)) if i in chosen else KEPT for i in range(len(graph.operators))]


def _worth_it(graph: TrainingGraph, storage: Sequence[int], places: _Places) -> _Places:
    """The segments without those that save no memory."""
    members: dict[int, list[int]] = defaultdict(list)
    for index, segment in enumerate(places.segment_of):
        if segment != KEPT:
            members[segment].append(index)
    readers: dict[int, set[int]] = defaultdict(set)
    """(Storage) tensor -> the operators of the forward and backward pass that read it or a view of it."""
    for operator in graph.operators:
        if operator.phase is not Phase.UPDATE:
            for tensor in operator.inputs:
                readers[storage[tensor]].add(operator.index)
    dropped = {s for s, operators in members.items() if not _saves(graph, storage, places, readers, set(operators))}
    return replace(places, segment_of=[KEPT if s in dropped else s for s in places.segment_of])


def _saves(
    graph: TrainingGraph, storage: Sequence[int], places: _Places, readers: Mapping[int, set[int]], segment: set[int]
) -> bool:
    """Whether the tensors that need not be held take more memory than those that must be held instead."""
    backward = Phase.BACKWARD
    unit = places.unit_of[min(segment)]

    def held_anyway(tensor: int) -> bool:
        """Read by the backward pass of another block, or by what is recomputed elsewhere."""
        return any(
            places.unit_of[r] != unit
            if graph.operators[r].phase is backward
            else r not in segment and places.segment_of[r] != KEPT
            for r in readers[tensor]
        )

    saved, entering = 0, set()
    for index in segment:
        for tensor in graph.operators[index].outputs:
            read = any(graph.operators[r].phase is backward for r in readers[tensor])
            if storage[tensor] == tensor and read and not held_anyway(tensor):
                saved += graph.tensors[tensor].bytes
        entering |= {storage[t] for t in graph.operators[index].inputs}
    added = sum(
        graph.tensors[t].bytes
        for t in entering
        if graph.tensors[t].producer not in segment
        and graph.tensors[t].kind in _HELD_KINDS
        and not any(graph.operators[r].phase is backward for r in readers[t])
        and not held_anyway(t)
    )
    return saved > added


def _held(graph: TrainingGraph, storage: Sequence[int], places: _Places, recomputed: frozenset[int]) -> list[set[int]]:
    """For each layer the storage tensors that backward and recomputed operators read and that is not
    computed again for them."""
    held: list[set[int]] = [set() for _ in range(max(places.layer_of) + 1)]
    written = {one.value for one in graph.written}  # they are in the buffer
    for operator in graph.operators:
        backward = operator.phase is Phase.BACKWARD
        if not backward and operator.index not in recomputed:
            continue
        for tensor in operator.inputs:
            kind, producer = graph.tensors[tensor].kind, graph.tensors[tensor].producer
            made_forward = producer is not None and graph.operators[producer].phase is Phase.FORWARD
            base = graph.tensors[storage[tensor]]
            if not (kind is TensorKind.INPUT or made_forward) or base.kind not in _HELD_KINDS or tensor in written:
                continue
            if producer not in recomputed or not _of_own(places, operator, producer, backward):
                held[places.layer_of[operator.index]].add(base.index)
    return held


def _held_by_pytorch(graph: TrainingGraph) -> Iterator[int]:
    """What a loop in plain PyTorch holds beside what the backward pass reads: what the model returns, and what
    autograd saves unread."""
    for operator in graph.operators:
        yield from (t for t in operator.outputs if graph.tensors[t].kind is TensorKind.RETURNED)
        yield from saved_unread(graph, operator)


def saved_unread(graph: TrainingGraph, operator: Operator) -> Iterator[int]:
    """What autograd saves for the node to which a backward operator belongs, and no kernel of it need read."""
    if operator.phase is not Phase.BACKWARD or operator.forward is None:
        return
    forward = graph.operators[operator.forward]
    for place in _SAVED_UNREAD.get(packet(forward.kind), ()):
        saved = Ref(forward.outputs[0]) if place == _RESULT else forward.arguments[place]
        assert isinstance(saved, Ref), "an operator of tensors"
        yield saved.tensor


def _of_own(places: _Places, reader: Operator, producer: int | None, backward: bool) -> bool:
    """Whether what `producer` makes may be computed again for `reader`."""
    if producer is None or (segment := places.segment_of[producer]) == KEPT:
        return False
    if backward:
        return places.unit_of[producer] == places.unit_of[reader.index]
    return segment == places.segment_of[reader.index]


def _recomputed(
    graph: TrainingGraph, storage: Sequence[int], places: _Places, held: Sequence[set[int]]
) -> frozenset[int]:
    """The operators of segments on which backward operators of their own blocks depend, directly or through others of
    the segment, up to what is `held` anyway."""
    recomputed: set[int] = set()
    for operator in graph.operators:
        if operator.phase is not Phase.BACKWARD:
            continue
        waiting = [(operator, t) for t in operator.inputs]
        while waiting:
            reader, tensor = waiting.pop()
            producer = graph.tensors[tensor].producer
            if producer is None or producer in recomputed:
                continue
            if not _of_own(places, reader, producer, reader is operator):
                continue
            base = graph.tensors[storage[tensor]].producer
            own = base is not None and places.segment_of[base] == places.segment_of[producer]
            if own and storage[tensor] in held[places.layer_of[producer]]:
                continue
            recomputed.add(producer)
            waiting.extend((graph.operators[producer], t) for t in graph.operators[producer].inputs)
    return frozenset(recomputed)


def _waits(
    graph: TrainingGraph, places: _Places, recomputed: frozenset[int], recomputation: Recomputation
) -> dict[int, tuple[int, ...]]:
    """Backward operator -> the segments that must have run again before it."""
    waits: dict[int, tuple[int, ...]] = {}
    for operator in graph.operators:
        if operator.phase is not Phase.BACKWARD:
            continue
        if recomputation.name == LAYERS:  # as in Alpa: a layer runs again when its backward pass begins
            waits[operator.index] = (places.layer_of[operator.index],)
            continue
        made = {graph.tensors[t].producer for t in operator.inputs} & recomputed
        own = {places.segment_of[p] for p in made if p is not None and _of_own(places, operator, p, True)}
        if own:
            waits[operator.index] = tuple(sorted(own))
    return waits


def recomputed_in_kernel(
    graph: TrainingGraph,
    layer_of: Sequence[int],
    storage: Sequence[int],
    held: Sequence[Sequence[int]],
    recomputed: Collection[int],
    *,
    chains: bool = False,
) -> dict[int, int | None]:
    """Of the (storage) tensors that the layers hold, those that need not be held, with the tensor that is held in their
    place, if any; `recomputed` are the forward operators that run again, which are kernels of their own.

    Fused kernels of the backward pass compute such a tensor again from what is held, as in SwiGLU: its kernel reads the
    gate and computes the activation again. It is pointwise in one tensor that is held, and only fused kernels of its
    own layer read it in the backward pass. With `chains` it may be computed from several tensors that are there:
    weights, what is held, and what is computed again in this way. That is what torch.compile's partitioner finds, which
    recomputes no tensor that a product reads, and no sum that is a quarter of what it sums, or less; of a tensor and
    its copy in a wider dtype, as the float32 copy that a norm spelled out reads, it holds the narrower. It costs no
    traffic: the bytes of the kernels are as they are without.
    """
    all_held = {t for of_layer in held for t in of_layer}
    readers: dict[int, set[int]] = defaultdict(set)
    for operator in graph.operators:
        if not is_view(operator.kind) and (operator.phase is Phase.BACKWARD or operator.index in recomputed):
            for base in {storage[t] for t in operator.inputs}:
                readers[base].add(operator.index)
    again: set[int] = set()
    """Tensors that fused kernels can compute from what is there."""
    dropped: dict[int, int | None] = {}
    for operator in graph.forward_operators:
        read = {storage[t] for t in operator.inputs}
        if not read or len(operator.outputs) > 1 or not is_fusible(operator, graph):
            continue
        tensor, narrower = storage[operator.outputs[0]], None
        in_kernels = tensor in all_held and all(
            graph.operators[r].phase is Phase.BACKWARD
            and is_fusible(graph.operators[r], graph)
            and layer_of[r] == layer_of[operator.index]
            for r in readers[tensor]
        )
        if chains:
            there = all(t in again or t in all_held or graph.tensors[t].kind in _THERE for t in read)
            there &= 4 * graph.tensors[operator.outputs[0]].bytes >= sum(
                graph.tensors[t].bytes for t in operator.inputs
            )
            if not there and in_kernels and packet(operator.kind) == "aten._to_copy":
                (source,) = read
                is_stored = graph.tensors[source].kind in _HELD_KINDS and source not in dropped
                if is_stored and graph.tensors[source].bytes < graph.tensors[tensor].bytes:
                    there, narrower = True, source
                    all_held.add(source)
        else:
            there = len(operator.inputs) == 1 and read <= all_held
        if there:
            again.add(tensor)
            if in_kernels:
                dropped[tensor] = narrower
    return dropped
