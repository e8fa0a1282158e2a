"""One stage of the graph: the operators of a run of layers, its inputs and outputs, and the weights it reads."""

from __future__ import annotations

import threading
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import sha256
from itertools import combinations_with_replacement

import numpy as np

from alpa_explore.graph import Phase, TensorKind
from alpa_explore.intra_op.stage.layered_graph import UPDATE_LAYER, LayeredGraph
from alpa_explore.intra_op.stage.recomputation import LAYERS, NONE
from alpa_explore.intra_op.stage.segments import KEPT
from alpa_explore.numerics.arrays import Flags, Ints
from alpa_explore.sharding.spec_constraint import SpecConstraint


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StageGraph:
    """A run of layers, with everything about the rest of the graph on which its sharding problem depends."""

    layered: LayeredGraph
    first: int
    last: int
    """Inclusive."""
    operators: tuple[int, ...]
    """Forward, then backward operators, in graph order."""
    sources: tuple[int, ...]
    """Tensors produced outside: inputs, buffers, activations of earlier stages, gradients of later ones."""
    parameters: tuple[int, ...]
    """Positions in `graph.parameters` of the weights that the stage reads, or computes a gradient of: a cut between a
    weight's transpose and the product that reads it leaves the gradient in a stage that never reads the weight."""
    sinks: frozenset[int]
    """Tensors that the stage produces and another stage reads, and the loss: they leave without a pending sum."""
    held: tuple[int, ...]
    """Storage tensors held for the backward pass."""
    launches: tuple[int, int]
    """Kernels that the host launches for a microbatch: of forward operators, those that are recomputed twice, and of
    backward operators."""
    structure_key: str
    """Equal keys mean equal sharding problems; names do not count."""

    def without_constraints(self, operators: Collection[int] | None = None) -> StageGraph:
        """The same stage without the spec constraints of these operators, by default without any."""
        remaining, stored = dict(self.layered.spec_constraints), self.layered.stored_constraints
        for operator in tuple(remaining) if operators is None else operators:
            remaining.pop(operator, None)
        if operators is None:
            stored = {}
        key = f"{self.structure_key} with the spec constraints of {sorted(remaining)} and {sorted(stored)} alone"
        return replace(
            self,
            layered=replace(self.layered, spec_constraints=remaining, stored_constraints=stored),
            structure_key=key,
        )


def received_bytes(layered: LayeredGraph) -> dict[tuple[int, int], float]:
    """(first, last) -> bytes that a stage of these layers receives per microbatch: activations of earlier stages and
    gradients of later ones. Of several views of one storage the largest is sent."""
    graph, layers = layered.graph, range(layered.num_layers)
    first, last = np.arange(layered.num_layers)[:, None], np.arange(layered.num_layers)[None, :]
    sent: dict[int, Ints] = {}
    for tensor, readers in graph.readers.items():
        producer = graph.tensors[tensor].producer
        source = UPDATE_LAYER if producer is None else layered.layer_of[producer]
        targets = {layered.layer_of[r] for r in readers} - {UPDATE_LAYER, source}
        if source == UPDATE_LAYER or not targets:
            continue
        read = np.logical_or.reduce([(first <= layer) & (layer <= last) for layer in sorted(targets)])
        received = np.where(read & ~((first <= source) & (source <= last)), graph.tensors[tensor].bytes, 0)
        base = layered.storage[tensor]
        sent[base] = np.maximum(sent[base], received) if base in sent else received
    total = sum(sent.values(), np.zeros((layered.num_layers, layered.num_layers), dtype=np.int64))
    return {(i, j): float(total[i, j]) for i, j in combinations_with_replacement(layers, 2)}


def slice_stages(layered: LayeredGraph, *, layers_apart: bool = True) -> StageSlicer:
    """A function (first layer, last layer) -> StageGraph; all ranges share its preparation.

    `layers_apart`: the structure key also depends on where the layers of the stage begin and end.
    """
    return StageSlicer(layered, layers_apart)


class StageSlicer:
    """Cuts stages out of a layered graph; made by `slice_stages`."""

    def __init__(self, layered: LayeredGraph, layers_apart: bool) -> None:
        self.layered, self.layers_apart, graph = layered, layers_apart, layered.graph
        self._by_layer: list[list[int]] = [[] for _ in range(layered.num_layers)]
        for operator in graph.operators:
            if operator.phase is not Phase.UPDATE:
                self._by_layer[layered.layer_of[operator.index]].append(operator.index)
        # Long signatures are hashed once: ranges overlap, and hashing the same text again would dominate.
        numbers: dict[object, int] = {}
        self._digests: list[bytes] = []
        """For each distinct signature, a digest of everything but the tensors that the operator reads and writes."""
        self._digest_of: list[int] = []
        for operator, signature in zip(graph.operators, graph.signatures, strict=True):
            constraints = _anonymous(layered.spec_constraints.get(operator.index, ()))
            index = operator.index
            marks = index in layered.recomputed, index in layered.tables
            rest = operator.phase.value, *marks, layered.uses[index], constraints
            products = [graph.signatures[p] for p in layered.products[index] if p is not None]
            number = numbers.setdefault((id(signature), *rest, *map(id, products)), len(numbers))
            if number == len(self._digests):
                self._digests.append(sha256(repr((signature, *rest, *products)).encode()).digest())
            self._digest_of.append(number)
        self._parameter_at = {p.tensor: i for i, p in enumerate(graph.parameters)}
        # First and last layer that reads a tensor; the user reads the loss, beyond the last layer.
        self._read_in: dict[int, tuple[int, int]] = {}
        for tensor, readers in graph.readers.items():
            layers = [layered.layer_of[r] for r in readers if graph.operators[r].phase is not Phase.UPDATE]
            if layers:
                self._read_in[tensor] = min(layers), max(layers)
        self._read_in[graph.loss] = 0, layered.num_layers
        self._gradients_apart = self._computed_apart()
        self._rows = _Rows.of(layered)
        self._stages: dict[tuple[object, ...], StageGraph] = {}
        self._lock = threading.Lock()
        """Tasks on meshes ask for the same stages at the same time: the second one waits for the first."""

    def __call__(self, first: int, last: int) -> StageGraph:
        """The stage of these layers."""
        with self._lock:
            if (first, last) not in self._stages:
                self._stages[first, last] = self._stage(first, last, self._operators(first, last))
            return self._stages[first, last]

    def beside(self, first: int, last: int, *inner: tuple[int, int]) -> StageGraph:
        """The stage of first..last reduced to the layer ranges `inner` (begin, end) and the operators next to them.

        These are the operators that read or write a tensor of the inner operators, or a term of the same gradient.
        Their other inputs become sources.
        """
        key = (first, last, *inner)
        with self._lock:
            if key not in self._stages:
                self._stages[key] = self._stage(first, last, self._beside(first, last, inner))
            return self._stages[key]

    def _beside(self, first: int, last: int, inner: Sequence[tuple[int, int]]) -> tuple[int, ...]:
        """The operators of `beside`."""
        graph = self.layered.graph
        inner_operators = {o for begin, end in inner for o in self._operators(begin, end)}
        touched = {t for o in inner_operators for t in (*graph.operators[o].inputs, *graph.operators[o].outputs)}
        for together, grads in self._gradients:
            if not touched.isdisjoint(together):
                touched |= grads
        return tuple(
            o
            for o in self._operators(first, last)
            if o in inner_operators or not touched.isdisjoint((*graph.operators[o].inputs, *graph.operators[o].outputs))
        )

    @cached_property
    def _gradients(self) -> list[tuple[frozenset[int], frozenset[int]]]:
        """(tensors, terms of a gradient): whoever touches one of the tensors is beside all that make a term. They are
        the terms where there are several, and the weight where several layers read it or make a term."""
        graph, layer_of = self.layered.graph, self.layered.layer_of
        gradients = []
        for parameter, grads in zip(graph.parameters, self.layered.contributions, strict=True):
            makers = (graph.tensors[t].producer for t in grads)
            users = {*graph.readers.get(parameter.tensor, ()), *(maker for maker in makers if maker is not None)}
            spread = len({layer_of[user] for user in users} - {UPDATE_LAYER}) > 1
            if spread or len(grads) > 1:
                gradients.append((frozenset((*grads, parameter.tensor) if spread else grads), frozenset(grads)))
        return gradients

    def _computed_apart(self) -> list[tuple[int, list[int]]]:
        """(parameter, producers of its gradient) of the parameters of which a layer computes a gradient that does not
        read the weight."""
        graph, layer_of = self.layered.graph, self.layered.layer_of
        apart = []
        for position, parameter in enumerate(graph.parameters):
            reading = {layer_of[reader] for reader in graph.readers.get(parameter.tensor, ())}
            made = [graph.tensors[t].producer for t in self.layered.contributions[position]]
            producers = [p for p in made if p is not None]
            if not {layer_of[p] for p in producers} <= reading:
                apart.append((position, producers))
        return apart

    def _operators(self, first: int, last: int) -> tuple[int, ...]:
        return tuple(sorted(o for layer in range(first, last + 1) for o in self._by_layer[layer]))

    def _shape(self, index: int) -> tuple[object, ...]:
        tensor = self.layered.graph.tensors[index]
        return tensor.shape, tensor.dtype, tensor.kind.value

    def _stage(self, first: int, last: int, operators: tuple[int, ...]) -> StageGraph:
        layered, graph = self.layered, self.layered.graph
        own, touched = set(operators), set[int]()
        sources: dict[int, None] = {}
        parameters: dict[int, None] = {}
        sinks = set()
        launches = [0, 0]
        for index in operators:
            operator = graph.operators[index]
            if operator.flops or operator.bytes_accessed:
                launches[operator.phase is Phase.BACKWARD] += operator.launches * (1 + (index in layered.recomputed))
            touched.update(operator.inputs, operator.outputs)
            for tensor in operator.inputs:
                if graph.tensors[tensor].producer in own:
                    continue
                if graph.tensors[tensor].kind is TensorKind.PARAMETER and tensor in self._parameter_at:
                    parameters[self._parameter_at[tensor]] = None
                else:
                    sources[tensor] = None
            for tensor in operator.outputs:
                low, high = self._read_in.get(tensor, (first, last))
                if low < first or high > last:
                    sinks.add(tensor)
        for position, producers in self._gradients_apart:
            if not own.isdisjoint(producers) and position not in parameters:
                parameters[position] = None
        held = {t for layer in range(first, last + 1) for t in layered.held[layer]}
        if len(operators) < sum(len(self._by_layer[layer]) for layer in range(first, last + 1)):
            held &= touched
        stage = StageGraph(
            layered=layered,
            first=first,
            last=last,
            operators=operators,
            sources=tuple(sources),
            parameters=tuple(sorted(parameters)),
            sinks=frozenset(sinks),
            held=tuple(sorted(held)),
            launches=(launches[0], launches[1]),
            structure_key="",
        )
        return replace(stage, structure_key=self._key(stage))

    def _key(self, stage: StageGraph) -> str:
        layered, graph, rows = self.layered, self.layered.graph, self._rows
        own, operators = set(stage.operators), np.array(stage.operators, dtype=np.int64)
        weight_tensors: list[int] = []
        description: list[object] = [
            len(stage.sources),
            len(operators),
            len(stage.sinks),
            len(stage.held),
            self.layers_apart,
        ]
        description += map(self._shape, stage.sources)
        for position in stage.parameters:
            parameter = graph.parameters[position]
            grads = [t for t in layered.contributions[position] if graph.tensors[t].producer in own]
            weight_tensors += [parameter.tensor, *grads]
            update = self._digests[self._digest_of[parameter.update]]
            constraints = layered.stored_constraints.get(position, ())
            state = parameter.state_bytes_per_element
            description.append((self._shape(parameter.tensor), len(grads), state, update, _anonymous(constraints)))
        # Tensors are numbered in the order in which they first occur.
        occurring = np.concatenate([[*stage.sources, *weight_tensors], rows.touched(operators), stage.held]).astype(
            np.int64
        )
        _, first = _numbers(occurring, len(graph.tensors))
        # The workspace depends on which tensors share storage.
        occurring = np.concatenate([occurring, rows.storage[occurring[first]]])
        numbers, _ = _numbers(occurring, len(graph.tensors))
        number_of = np.empty(len(graph.tensors), dtype=np.int64)
        number_of[occurring] = numbers
        digest = sha256(repr((description, sorted(number_of[list(stage.sinks)].tolist()))).encode())
        digest.update(numbers.tobytes() + rows.counts[operators].tobytes())
        if self.layers_apart:
            digest.update((rows.layers[operators] - stage.first).tobytes())
        if layered.recomputation.name not in (NONE, LAYERS):  # the workspace depends on where segments begin
            segments = [s for o in stage.operators if (s := layered.segment_of[o]) != KEPT]
            digest.update(_numbers(np.array(segments, dtype=np.int64), max(segments, default=0) + 1)[0].tobytes())
        digest.update(b"".join([self._digests[self._digest_of[o]] for o in stage.operators]))
        return digest.hexdigest()


def _anonymous(spec_constraints: Sequence[SpecConstraint]) -> tuple[tuple[str, str], ...]:
    """Spec constraints without the name of the operator or weight they constrain."""
    return tuple((constraint.kind.value, constraint.spec) for constraint in spec_constraints)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Rows:
    """The inputs and outputs of all operators, as arrays."""

    tensors: Ints
    """Inputs and outputs of one operator after the other."""
    begins: Ints
    """For each operator the position of its first tensor in `tensors`."""
    counts: Ints
    """[operators, 2]: inputs and outputs."""
    layers: Ints
    storage: Ints

    @classmethod
    def of(cls, layered: LayeredGraph) -> _Rows:
        """The rows of all operators of a graph."""
        operators = layered.graph.operators
        counts = np.array([(len(o.inputs), len(o.outputs)) for o in operators], dtype=np.int64).reshape(-1, 2)
        return cls(
            tensors=np.array([t for o in operators for t in (*o.inputs, *o.outputs)], dtype=np.int64),
            counts=counts,
            begins=counts.sum(axis=1).cumsum() - counts.sum(axis=1),
            layers=np.array(layered.layer_of, dtype=np.int64),
            storage=np.array(layered.storage, dtype=np.int64),
        )

    def touched(self, operators: Ints) -> Ints:
        """The inputs and outputs of these operators, in order."""
        lengths = self.counts[operators].sum(axis=1)
        shift = self.begins[operators] - (lengths.cumsum() - lengths)
        tensors: Ints = self.tensors[np.repeat(shift, lengths) + np.arange(lengths.sum())]
        return tensors


def _numbers(values: Ints, count: int) -> tuple[Ints, Flags]:
    """For each of `values` (below `count`) how many other values first occur before it, and whether it first occurs
    here."""
    places = np.arange(len(values))
    first_place = np.empty(count, dtype=np.int64)
    first_place[values[::-1]] = places[::-1]  # of several assignments the last one stays
    first = first_place[values] == places
    return (first.cumsum() - 1)[first_place[values]], first
