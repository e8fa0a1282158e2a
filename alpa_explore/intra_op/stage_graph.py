"""One stage of the graph: the operators of a run of layers, what comes in, what goes out, which weights it owns."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import sha256
from itertools import combinations_with_replacement

import numpy as np
from numpy.typing import NDArray

from alpa_explore.graph import Phase, TensorKind
from alpa_explore.intra_op.layered_graph import UPDATE_LAYER, LayeredGraph
from alpa_explore.sharding.wish import SpecWish


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

    def without_wishes(self, operators: Collection[int] | None = None) -> StageGraph:
        """The same stage with nothing wished of these operators, or of anything."""
        left, stored = dict(self.layered.wishes), self.layered.stored_wishes
        for operator in tuple(left) if operators is None else operators:
            left.pop(operator, None)
        if operators is None:
            stored = {}
        key = f"{self.structure_key} with the wishes of {sorted(left)} and {sorted(stored)} alone"
        return replace(self, layered=replace(self.layered, wishes=left, stored_wishes=stored), structure_key=key)


def received_bytes(layered: LayeredGraph) -> dict[tuple[int, int], float]:
    """What other stages send to layers first..last for a microbatch, as a stage: activations from earlier ones,
    gradients from later ones. Of several views of one storage the largest is sent."""
    graph, layers = layered.graph, range(layered.num_layers)
    first, last = np.arange(layered.num_layers)[:, None], np.arange(layered.num_layers)[None, :]
    sent: dict[int, NDArray[np.int64]] = {}
    for tensor, readers in graph.readers.items():
        producer = graph.tensors[tensor].producer
        made = UPDATE_LAYER if producer is None else layered.layer_of[producer]
        read = {layered.layer_of[r] for r in readers} - {UPDATE_LAYER, made}
        if made == UPDATE_LAYER or not read:
            continue
        received = np.logical_or.reduce([(first <= layer) & (layer <= last) for layer in sorted(read)])
        here = np.where(received & ~((first <= made) & (made <= last)), graph.tensors[tensor].bytes, 0)
        base = layered.storage[tensor]
        sent[base] = np.maximum(sent[base], here) if base in sent else here
    total = sum(sent.values(), np.zeros((layered.num_layers, layered.num_layers), dtype=np.int64))
    return {(i, j): float(total[i, j]) for i, j in combinations_with_replacement(layers, 2)}


def slice_stages(layered: LayeredGraph, *, layers_apart: bool = True) -> StageSlicer:
    """A function (first layer, last layer) -> StageGraph that shares its preparation between all ranges.

    `layers_apart`: stages that are divided into layers in other ways differ in their keys.
    """
    return StageSlicer(layered, layers_apart)


class StageSlicer:
    """What `slice_stages` makes."""

    def __init__(self, layered: LayeredGraph, layers_apart: bool) -> None:
        self.layered, self.layers_apart, graph = layered, layers_apart, layered.graph
        self._by_layer: list[list[int]] = [[] for _ in range(layered.num_layers)]
        for operator in graph.operators:
            if operator.phase is not Phase.UPDATE:
                self._by_layer[layered.layer_of[operator.index]].append(operator.index)
        # A number and a digest stand for long signatures: ranges overlap, and hashing the same text again would
        # dominate.
        numbers: dict[object, int] = {}
        names: list[str] = []
        self._name_of: list[str] = []
        for operator, signature in zip(graph.operators, graph.signatures, strict=True):
            wished = _asked(layered.wishes.get(operator.index, ()))
            rest = operator.phase, operator.index in layered.recomputed, layered.uses[operator.index], wished
            number = numbers.setdefault((id(signature), *rest), len(names))
            if number == len(names):
                names.append(sha256(repr((signature, *rest)).encode()).hexdigest())
            self._name_of.append(names[number])
        self._parameter_at = {p.tensor: i for i, p in enumerate(graph.parameters)}
        self._shapes = [repr((t.shape, t.dtype, t.kind.value)) for t in graph.tensors]
        # First and last layer that reads a tensor; beyond all layers where that is the user (the loss).
        self._read_in: dict[int, tuple[int, int]] = {}
        for tensor, readers in graph.readers.items():
            layers = [layered.layer_of[r] for r in readers if graph.operators[r].phase is not Phase.UPDATE]
            if layers:
                self._read_in[tensor] = min(layers), max(layers)
        self._read_in[graph.loss] = 0, layered.num_layers
        self._stages: dict[tuple[object, ...], StageGraph] = {}

    def __call__(self, first: int, last: int) -> StageGraph:
        """The stage of these layers."""
        if (first, last) not in self._stages:
            self._stages[first, last] = self._stage(first, last, self._operators(first, last))
        return self._stages[first, last]

    def beside(self, first: int, last: int, *inner: tuple[int, int]) -> StageGraph:
        """Some layers (begin, end) of the stage of first..last, and of its other operators those that touch what they
        touch, or what is added to the same gradient. What those read of others comes from outside."""
        key = (first, last, *inner)
        if key not in self._stages:
            graph = self.layered.graph
            own = {o for begin, end in inner for o in self._operators(begin, end)}
            touched = {t for o in own for t in (*graph.operators[o].inputs, *graph.operators[o].outputs)}
            for grads in self._gradients:
                if not touched.isdisjoint(grads):
                    touched |= grads
            near = (
                o for o in self._operators(first, last)
                if o in own or not touched.isdisjoint((*graph.operators[o].inputs, *graph.operators[o].outputs))
            )  # fmt: skip
            self._stages[key] = self._stage(first, last, tuple(near))
        return self._stages[key]

    @cached_property
    def _gradients(self) -> list[frozenset[int]]:
        """Tensors of which a gradient is the sum, where they are several."""
        return [frozenset(grads) for grads in self.layered.contributions if len(grads) > 1]

    def _operators(self, first: int, last: int) -> tuple[int, ...]:
        return tuple(sorted(o for layer in range(first, last + 1) for o in self._by_layer[layer]))

    def _stage(self, first: int, last: int, operators: tuple[int, ...]) -> StageGraph:
        layered, graph = self.layered, self.layered.graph
        here, touched = set(operators), set[int]()
        sources: dict[int, None] = {}
        parameters: dict[int, None] = {}
        sinks = set()
        for index in operators:
            operator = graph.operators[index]
            touched.update(operator.inputs, operator.outputs)
            for tensor in operator.inputs:
                if graph.tensors[tensor].producer in here:
                    continue
                if graph.tensors[tensor].kind is TensorKind.PARAMETER and tensor in self._parameter_at:
                    parameters[self._parameter_at[tensor]] = None
                else:
                    sources[tensor] = None
            for tensor in operator.outputs:
                low, high = self._read_in.get(tensor, (first, last))
                if low < first or high > last:
                    sinks.add(tensor)
        held = {t for layer in range(first, last + 1) for t in layered.held[layer]}
        if len(operators) < sum(len(self._by_layer[layer]) for layer in range(first, last + 1)):
            held &= touched
        found = StageGraph(
            layered=layered, first=first, last=last, operators=operators, sources=tuple(sources),
            parameters=tuple(sorted(parameters)), sinks=frozenset(sinks), held=tuple(sorted(held)), structure_key="",
        )  # fmt: skip
        return replace(found, structure_key=self._key(found))

    def _key(self, stage: StageGraph) -> str:
        layered, graph = self.layered, self.layered.graph
        # A tensor's number is its place in the order in which tensors are first met.
        number = _Numbers()
        here = set(stage.operators)
        digest = sha256()
        digest.update(repr([(number[t], self._shapes[t]) for t in stage.sources]).encode())
        for position in stage.parameters:
            parameter = graph.parameters[position]
            grads = [t for t in layered.contributions[position] if graph.tensors[t].producer in here]
            digest.update(
                repr((number[parameter.tensor], self._shapes[parameter.tensor], [number[t] for t in grads],
                      parameter.state_bytes_per_element, self._name_of[parameter.update],
                      *_asked(layered.stored_wishes.get(position, ())))).encode()
            )  # fmt: skip
        rows = []
        for index in stage.operators:
            operator = graph.operators[index]
            inputs, outputs = [number[t] for t in operator.inputs], [number[t] for t in operator.outputs]
            layer = layered.layer_of[index] - stage.first if self.layers_apart else ""
            rows.append(f"{self._name_of[index]}{inputs}{outputs}{layer}")
        digest.update("".join(rows).encode())
        digest.update(repr((sorted(number[t] for t in stage.sinks), sorted(number[t] for t in stage.held))).encode())
        # Storage decides the workspace.
        digest.update(repr(sorted((number[t], number[layered.storage[t]]) for t in list(number))).encode())
        return digest.hexdigest()


def _asked(wishes: Sequence[SpecWish]) -> tuple[tuple[str, str], ...]:
    """Wishes without the name of what they are of."""
    return tuple((wish.kind.value, wish.spec) for wish in wishes)


class _Numbers(dict[int, int]):
    """A number for whatever is asked for, counted up."""

    def __missing__(self, key: int) -> int:
        self[key] = found = len(self)
        return found
