"""One stage of the graph: the operators of a run of layers, what comes in, what goes out, which weights it owns."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from functools import cache
from hashlib import sha256

from alpa_explore.graph import Phase, TensorKind
from alpa_explore.graph.signature import operator_signature
from alpa_explore.intra_op.layered_graph import LayeredGraph


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StageGraph:
    """A run of layers, with everything that its sharding problem needs to know of the rest of the graph."""

    layered: LayeredGraph
    first: int
    last: int
    """Inclusive."""
    operators: tuple[int, ...]
    """Forward, then backward operators, in graph order."""
    sources: tuple[int, ...]
    """Tensors that come from outside: inputs, buffers, activations of earlier stages, gradients of later ones."""
    parameters: tuple[int, ...]
    """Positions in `graph.parameters` of the weights read here."""
    sinks: frozenset[int]
    """Tensors made here and read by another stage (and the loss): they leave without a pending sum."""
    held: tuple[int, ...]
    """Storage tensors held for the backward pass."""
    structure_key: str
    """Equal for two stages whose sharding problems are equal."""

    @property
    def received_bytes(self) -> int:
        """What other stages send for a microbatch: activations from earlier ones, gradients from later ones. Of
        several views of one storage the largest is sent."""
        tensors = self.layered.graph.tensors
        sent: dict[int, int] = {}
        for tensor in self.sources:
            if tensors[tensor].producer is not None:
                base = self.layered.storage[tensor]
                sent[base] = max(sent.get(base, 0), tensors[tensor].bytes)
        return sum(sent.values())

    def without_wishes(self, operators: Collection[int] | None = None) -> StageGraph:
        """The same stage with nothing wished of these operators, or of any."""
        left = {} if operators is None else {o: w for o, w in self.layered.wishes.items() if o not in operators}
        key = f"{self.structure_key} with the wishes of {sorted(left)} alone"
        return replace(self, layered=replace(self.layered, wishes=left), structure_key=key)


def slice_stages(layered: LayeredGraph) -> Callable[[int, int], StageGraph]:
    """A function (first layer, last layer) -> StageGraph that shares its preparation between all ranges."""
    graph = layered.graph
    by_layer: list[list[int]] = [[] for _ in range(layered.num_layers)]
    for operator in graph.operators:
        if operator.phase is not Phase.UPDATE:
            by_layer[layered.layer_of[operator.index]].append(operator.index)
    # Interned small numbers stand for long signatures: ranges overlap, and hashing the same text again would dominate.
    signatures: dict[object, int] = {}
    signature_of = [
        signatures.setdefault(
            (
                operator_signature(o, graph.tensors),
                o.phase,
                o.index in layered.recomputed,
                layered.uses[o.index],
                tuple((wish.kind, wish.spec) for wish in layered.wishes.get(o.index, ())),
            ),
            len(signatures),
        )
        for o in graph.operators
    ]
    names = [sha256(repr(s).encode()).hexdigest() for s in signatures]
    parameter_at = {p.tensor: i for i, p in enumerate(graph.parameters)}
    shapes = [repr((t.shape, t.dtype, t.kind.value)) for t in graph.tensors]
    # First and last layer that reads a tensor; beyond all layers where that is the user (the loss).
    read_in: dict[int, tuple[int, int]] = {}
    for tensor, readers in graph.readers.items():
        layers = [layered.layer_of[r] for r in readers if graph.operators[r].phase is not Phase.UPDATE]
        if layers:
            read_in[tensor] = min(layers), max(layers)
    read_in[graph.loss] = 0, layered.num_layers

    @cache
    def stage(first: int, last: int) -> StageGraph:
        operators = tuple(sorted(o for layer in range(first, last + 1) for o in by_layer[layer]))
        here = set(operators)
        sources: dict[int, None] = {}
        parameters: dict[int, None] = {}
        sinks = set()
        for index in operators:
            operator = graph.operators[index]
            for tensor in operator.inputs:
                if graph.tensors[tensor].producer in here:
                    continue
                if graph.tensors[tensor].kind is TensorKind.PARAMETER and tensor in parameter_at:
                    parameters[parameter_at[tensor]] = None
                else:
                    sources[tensor] = None
            for tensor in operator.outputs:
                low, high = read_in.get(tensor, (first, last))
                if low < first or high > last:
                    sinks.add(tensor)
        held = tuple(sorted({t for layer in range(first, last + 1) for t in layered.held[layer]}))
        return StageGraph(
            layered=layered, first=first, last=last, operators=operators, sources=tuple(sources),
            parameters=tuple(sorted(parameters)), sinks=frozenset(sinks), held=held,
            structure_key=key(operators, tuple(sources), tuple(sorted(parameters)), sinks, held, first),
        )  # fmt: skip

    def key(
        operators: tuple[int, ...], sources: tuple[int, ...], parameters: tuple[int, ...], sinks: set[int],
        held: tuple[int, ...], first: int,
    ) -> str:  # fmt: skip
        # A tensor's number is its place in the order in which tensors are first met.
        number = _Numbers()
        here = set(operators)
        digest = sha256()
        digest.update(repr([(number[t], shapes[t]) for t in sources]).encode())
        for position in parameters:
            parameter = graph.parameters[position]
            grads = [t for t in layered.contributions[position] if graph.tensors[t].producer in here]
            digest.update(
                repr((number[parameter.tensor], shapes[parameter.tensor], [number[t] for t in grads],
                      parameter.state_bytes_per_element, names[signature_of[parameter.update]])).encode()
            )  # fmt: skip
        rows = []
        for index in operators:
            operator = graph.operators[index]
            inputs, outputs = [number[t] for t in operator.inputs], [number[t] for t in operator.outputs]
            rows.append(f"{names[signature_of[index]]}{inputs}{outputs}{layered.layer_of[index] - first}")
        digest.update("".join(rows).encode())
        digest.update(repr((sorted(number[t] for t in sinks), sorted(number[t] for t in held))).encode())
        # Storage decides the workspace.
        digest.update(repr(sorted((number[t], number[layered.storage[t]]) for t in list(number))).encode())
        return digest.hexdigest()

    return stage


class _Numbers(dict[int, int]):
    """A number for whatever is asked for, counted up."""

    def __missing__(self, key: int) -> int:
        self[key] = found = len(self)
        return found
