"""One stage of the graph: the operators of a run of layers, its inputs and outputs, and the weights it reads."""

from __future__ import annotations

import enum
import threading
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from hashlib import sha256
from itertools import chain, combinations_with_replacement
from typing import Any

import numpy as np
from numpy.typing import NDArray

from alpa_explore.graph import GIVEN_KINDS, Phase, TensorKind
from alpa_explore.graph.blocks import block_number
from alpa_explore.intra_op.stage import tuning
from alpa_explore.intra_op.stage.layered_graph import UPDATE_LAYER, LayeredGraph
from alpa_explore.intra_op.stage.recomputation import LAYERS, NONE
from alpa_explore.intra_op.stage.segments import KEPT
from alpa_explore.numerics.arrays import Flags, Ints, entries_of_runs, starts
from alpa_explore.sharding.spec_constraint import SpecConstraint


class Holding(enum.Enum):
    """How long a stage holds a tensor that comes from outside."""

    LASTING = "from step to step"
    """Frozen weights, buffers, constants."""
    EACH_MICROBATCH = "once for each microbatch in flight"
    """Inputs, and what the backward pass reads."""
    PASSING = "while its readers run"


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
    launches: tuple[int, int, int]
    """Kernels that the host launches for a microbatch: of forward operators, of backward operators, and of forward
    operators that are computed again."""
    structure_key: str
    """Equal keys mean equal sharding problems; names do not count."""
    memo: dict[str, Any] = field(default_factory=dict)
    """What was found of the stage and does not depend on sizes; the same in graphs that differ in sizes alone."""

    @property
    def blocks(self) -> int:
        """Numbered blocks of which it has weights, or its layers, where these are more."""
        found = {self.layered.block_of_parameter[position] for position in self.parameters} - {None}
        return max(len(found), self.last - self.first + 1)

    def holdings(self) -> dict[int, Holding]:
        """How long the stage holds each of its sources. A view whose storage it does not receive is held as that."""
        held, sources = set(self.held), set(self.sources)
        holdings = {}
        for tensor in self.sources:
            kind, base = self.layered.graph.tensors[tensor].kind, self.layered.storage[tensor]
            if kind in GIVEN_KINDS:
                holdings[tensor] = Holding.LASTING
            elif kind is TensorKind.INPUT or tensor in held or (base in held and base not in sources):
                holdings[tensor] = Holding.EACH_MICROBATCH
            else:
                holdings[tensor] = Holding.PASSING
        return holdings

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
    """Cuts stages out of a layered graph; made by `slice_stages`. Graphs that differ in sizes alone, as those of
    microbatches of different sizes, are cut once."""

    def __init__(self, layered: LayeredGraph, layers_apart: bool) -> None:
        self.layered, graph = layered, layered.graph
        rows = _Rows.of(layered)
        self._cutter = _cutter(_Form(_form(layered, rows), layers_apart, layered, rows))
        # Long signatures are hashed once: ranges overlap, and hashing the same text again would dominate.
        numbers: dict[object, int] = {}
        digests: list[bytes] = []
        digest_of: list[int] = []
        for operator, signature in zip(graph.operators, graph.signatures, strict=True):
            constraints = _anonymous(layered.spec_constraints.get(operator.index, ()))
            index = operator.index
            marks = index in layered.recomputed, index in layered.tables
            rest = operator.phase.value, *marks, layered.uses[index], constraints
            products = [graph.signatures[p] for p in layered.products[index] if p is not None]
            number = numbers.setdefault((id(signature), *rest, *map(id, products)), len(numbers))
            if number == len(digests):
                digests.append(sha256(repr((signature, *rest, *products)).encode()).digest())
            digest_of.append(number)
        self._digests = np.frombuffer(b"".join(digests), dtype=np.uint8).reshape(len(digests), -1)[digest_of]
        """For each operator a digest of everything but the tensors that it reads and writes [operators, bytes]."""
        self._shapes = _digests((t.shape, t.dtype, t.kind.value) for t in graph.tensors)
        """For each tensor."""
        self._parameters = _digests(
            (
                self._shapes[p.tensor].tobytes(),
                p.state_bytes_per_element,
                self._digests[p.update].tobytes(),
                _anonymous(layered.stored_constraints.get(position, ())),
            )
            for position, p in enumerate(graph.parameters)
        )
        self._stages: dict[tuple[object, ...], StageGraph] = {}
        self._lock = threading.Lock()
        """Tasks on meshes ask for the same stages at the same time: the second one waits for the first."""

    def __call__(self, first: int, last: int, *inner: tuple[int, int]) -> StageGraph:
        """The stage of these layers, or of first..last reduced to the layer ranges `inner` (begin, end) and the
        operators next to them.

        These are the operators that read or write a tensor of the inner operators, or a term of the same gradient.
        Their other inputs become sources.
        """
        key = (first, last, *inner)
        with self._lock:
            if key not in self._stages:
                cut = self._cutter.cut(first, last, *inner)
                digest = sha256(cut.structure_key.encode())
                for digests, of in (
                    (self._shapes, cut.sources),
                    (self._parameters, cut.parameters),
                    (self._digests, cut.operators),
                ):
                    digest.update(digests[np.array(of, dtype=np.int64)].tobytes())
                self._stages[key] = replace(cut, layered=self.layered, structure_key=digest.hexdigest())
            return self._stages[key]


@dataclass(frozen=True)
class _Form:
    """A layered graph, of which only the digest of all but sizes counts."""

    digest: bytes
    layers_apart: bool
    layered: LayeredGraph = field(compare=False)
    rows: _Rows = field(compare=False)


def _form(layered: LayeredGraph, rows: _Rows) -> bytes:
    """A digest of all that stages follow from but the sizes of tensors and the figures of operators; where kernels are
    compiled, which write in place of what has their size, with the tensors that are equally large."""
    graph = layered.graph
    digest = sha256()
    for values in (rows.tensors, rows.counts, rows.launches, rows.layers, rows.storage, rows.producer, rows.parameter):
        digest.update(repr(values.shape).encode() + values.tobytes())
    operators = [
        (o.kind, o.phase.value, o.forward, o.bytes_accessed > 0, o.unfused and o.unfused.workspaces)
        for o in graph.operators
    ]
    kernels: list[object] = []
    if layered.returns_together:
        kernels += [(o.fused and o.fused.operators, block_number(o.module)) for o in graph.operators]
        numbers: dict[float, int] = {}
        kernels += [numbers.setdefault(tensor.bytes, len(numbers)) for tensor in graph.tensors]
    marked = layered.recomputed, layered.in_kernel, layered.unstored, layered.tables, layered.returned
    marks = [sorted(each) for each in marked]
    computed_from = sorted((t, layered.computed_from.get(t)) for t in layered.unstored | layered.in_kernel)
    weights = [(p.tensor, p.gradient, p.update) for p in graph.parameters]
    segments = layered.recomputation, layered.segment_of, sorted(layered.waits.items())
    rest = graph.loss, layered.held, layered.contributions, layered.returns_together
    digest.update(repr((operators, kernels, marks, computed_from, weights, segments, rest)).encode())
    return digest.digest()


_DIGEST_BYTES = sha256().digest_size


def _digests(described: Iterable[tuple[object, ...]]) -> NDArray[np.uint8]:
    """A digest of each description [descriptions, bytes]."""
    known: dict[tuple[object, ...], bytes] = {}
    rows = []
    for one in described:
        if one not in known:
            known[one] = sha256(repr(one).encode()).digest()
        rows.append(known[one])
    return np.frombuffer(b"".join(rows), dtype=np.uint8).reshape(-1, _DIGEST_BYTES)


class _Cutter:
    """Cuts stages whose structure key leaves out sizes."""

    def __init__(self, form: _Form) -> None:
        layered, graph = form.layered, form.layered.graph
        self.layered, self.layers_apart, self._rows = layered, form.layers_apart, form.rows
        self._by_layer: list[list[int]] = [[] for _ in range(layered.num_layers)]
        for operator in graph.operators:
            if operator.phase is not Phase.UPDATE:
                self._by_layer[layered.layer_of[operator.index]].append(operator.index)
        self._held = [np.array(held, dtype=np.int64) for held in layered.held]
        # First and last layer that reads a tensor; the user reads the loss, beyond the last layer.
        self._read_in: Ints = np.tile(np.array([[layered.num_layers], [-1]], dtype=np.int64), len(graph.tensors))
        for tensor, readers in graph.readers.items():
            layers = [layered.layer_of[r] for r in readers if graph.operators[r].phase is not Phase.UPDATE]
            if layers:
                self._read_in[:, tensor] = min(layers), max(layers)
        self._read_in[:, graph.loss] = 0, layered.num_layers
        self._gradients_apart = self._computed_apart()
        self._cuts: dict[tuple[object, ...], StageGraph] = {}
        self._lock = threading.Lock()

    def cut(self, first: int, last: int, *inner: tuple[int, int]) -> StageGraph:
        """As `StageSlicer`."""
        key = (first, last, *inner)
        with self._lock:
            if key not in self._cuts:
                operators = self._beside(first, last, inner) if inner else self._operators(first, last)
                self._cuts[key] = self._stage(first, last, operators)
            return self._cuts[key]

    def _beside(self, first: int, last: int, inner: Sequence[tuple[int, int]]) -> tuple[int, ...]:
        """The operators next to `inner`, and those inside."""
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
        layered, gradients = self.layered, []
        for parameter, grads, users in zip(
            layered.graph.parameters, layered.contributions, layered.parameter_users, strict=True
        ):
            spread = len({layered.layer_of[user] for user in users}) > 1
            if spread or len(grads) > 1:
                gradients.append((frozenset((*grads, parameter.tensor) if spread else grads), frozenset(grads)))
        return gradients

    def _computed_apart(self) -> list[tuple[int, Ints]]:
        """(parameter, producers of its gradient) of the parameters of which a layer computes a gradient that does not
        read the weight."""
        graph, layer_of = self.layered.graph, self.layered.layer_of
        apart = []
        for position, parameter in enumerate(graph.parameters):
            reading = {layer_of[reader] for reader in graph.readers.get(parameter.tensor, ())}
            producers = self.layered.gradient_makers[position]
            if not {layer_of[p] for p in producers} <= reading:
                apart.append((position, np.array(sorted(producers), dtype=np.int64)))
        return apart

    def _operators(self, first: int, last: int) -> tuple[int, ...]:
        return tuple(sorted(chain.from_iterable(self._by_layer[first : last + 1])))

    def _stage(self, first: int, last: int, operators: tuple[int, ...]) -> StageGraph:
        layered, rows = self.layered, self._rows
        numbers = np.array(operators, dtype=np.int64)
        own = np.zeros(len(layered.graph.operators), dtype=np.bool_)
        own[numbers] = True
        tensors, reads = rows.touched(numbers)
        read, written = tensors[reads], tensors[~reads]
        producer = rows.producer[read]
        sources = read[~(own[producer] & (producer >= 0))]
        sources = sources[np.sort(np.unique(sources, return_index=True)[1])]  # in the order of their first readers
        parameter = rows.parameter[sources]
        parameters = set(parameter[parameter >= 0].tolist())
        for position, producers in self._gradients_apart:
            if position not in parameters and own[producers].any():
                parameters.add(position)
        first_read, last_read = self._read_in[:, written]
        held = np.unique(np.concatenate(self._held[first : last + 1]))
        if len(operators) < sum(map(len, self._by_layer[first : last + 1])):
            held = held[np.isin(held, np.concatenate([tensors, rows.storage[tensors]]))]  # of a view its storage
        forward, backward, again = rows.launches[numbers].sum(axis=0).tolist()
        stage = StageGraph(
            layered=layered,
            first=first,
            last=last,
            operators=operators,
            sources=tuple(sources[parameter < 0].tolist()),
            parameters=tuple(sorted(parameters)),
            sinks=frozenset(written[(first_read < first) | (last_read > last)].tolist()),
            held=tuple(held.tolist()),
            launches=(forward, backward, again),
            structure_key="",
        )
        return replace(stage, structure_key=self._key(stage, numbers, own))

    def _key(self, stage: StageGraph, operators: Ints, own: Flags) -> str:
        """The structure key of a stage with these operators, which are the `own` ones of all, but for sizes."""
        layered, graph, rows = self.layered, self.layered.graph, self._rows
        weight_tensors: list[int] = []
        counts = [len(stage.sources), len(operators), len(stage.sinks), len(stage.held), int(self.layers_apart)]
        for position in stage.parameters:
            grads = [t for t in layered.contributions[position] if (p := rows.producer[t]) >= 0 and own[p]]
            weight_tensors += [graph.parameters[position].tensor, *grads]
            counts.append(len(grads))
        # Tensors are numbered in the order in which they first occur.
        occurring = np.concatenate([[*stage.sources, *weight_tensors], rows.touched(operators)[0], stage.held]).astype(
            np.int64
        )
        _, first = _numbers(occurring, len(graph.tensors))
        # The workspace depends on which tensors share storage.
        occurring = np.concatenate([occurring, rows.storage[occurring[first]]])
        numbers, _ = _numbers(occurring, len(graph.tensors))
        number_of = np.empty(len(graph.tensors), dtype=np.int64)
        number_of[occurring] = numbers
        sinks = np.sort(number_of[list(stage.sinks)]).tolist()
        returned = sorted(number_of[t] for t in layered.returned if (p := rows.producer[t]) >= 0 and own[p])
        digest = sha256(f"{counts} {sinks} {returned}".encode())
        digest.update(numbers.tobytes() + rows.counts[operators].tobytes())
        if self.layers_apart:
            digest.update((rows.layers[operators] - stage.first).tobytes())
        if layered.recomputation.name not in (NONE, LAYERS):  # the workspace depends on where segments begin
            segments = [s for o in stage.operators if (s := layered.segment_of[o]) != KEPT]
            digest.update(_numbers(np.array(segments, dtype=np.int64), max(segments, default=0) + 1)[0].tobytes())
        return digest.hexdigest()


_cutter = lru_cache(maxsize=tuning.KEPT_CUTTERS)(_Cutter)


def _anonymous(spec_constraints: Sequence[SpecConstraint]) -> tuple[tuple[str, str], ...]:
    """Spec constraints without the name of the operator or weight they constrain."""
    return tuple((constraint.kind.value, constraint.spec) for constraint in spec_constraints)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Rows:
    """The inputs and outputs of all operators, as arrays."""

    tensors: Ints
    """Inputs and outputs of one operator after the other."""
    reads: Flags
    """Which of `tensors` are inputs."""
    begins: Ints
    """For each operator the position of its first tensor in `tensors`."""
    counts: Ints
    """[operators, 2]: inputs and outputs."""
    launches: Ints
    """[operators, 3]: kernels launched in the forward pass, in the backward pass, and again there."""
    layers: Ints
    storage: Ints
    producer: Ints
    """For each tensor the operator that writes it; -1 for none."""
    parameter: Ints
    """For each tensor that is a weight its position in `graph.parameters`; -1 for others."""

    @classmethod
    def of(cls, layered: LayeredGraph) -> _Rows:
        """The rows of all operators of a graph."""
        graph, operators = layered.graph, layered.graph.operators
        counts = np.array([(len(o.inputs), len(o.outputs)) for o in operators], dtype=np.int64).reshape(-1, 2)
        launches: Ints = np.zeros((len(operators), 3), dtype=np.int64)
        for o in operators:
            if o.flops or o.bytes_accessed:
                launches[o.index, int(o.phase is Phase.BACKWARD)] = o.launches
                launches[o.index, 2] = o.launches * (o.index in layered.recomputed)
        parameter: Ints = np.full(len(graph.tensors), -1, dtype=np.int64)
        for position, p in enumerate(graph.parameters):
            if graph.tensors[p.tensor].kind is TensorKind.PARAMETER:
                parameter[p.tensor] = position
        producers = [-1 if t.producer is None else t.producer for t in graph.tensors]
        return cls(
            tensors=np.array([t for o in operators for t in (*o.inputs, *o.outputs)], dtype=np.int64),
            reads=np.repeat(np.tile([True, False], len(operators)), counts.ravel()),
            counts=counts,
            begins=starts(counts.sum(axis=1)),
            launches=launches,
            layers=np.array(layered.layer_of, dtype=np.int64),
            storage=np.array(layered.storage, dtype=np.int64),
            producer=np.array(producers, dtype=np.int64),
            parameter=parameter,
        )

    def touched(self, operators: Ints) -> tuple[Ints, Flags]:
        """The inputs and outputs of these operators, in order, and which of them are inputs."""
        places = entries_of_runs(self.begins[operators], self.counts[operators].sum(axis=1))
        return self.tensors[places], self.reads[places]


def _numbers(values: Ints, count: int) -> tuple[Ints, Flags]:
    """For each of `values` (below `count`) how many other values first occur before it, and whether it first occurs
    here."""
    places = np.arange(len(values))
    first_place = np.empty(count, dtype=np.int64)
    first_place[values[::-1]] = places[::-1]  # of several assignments the last one stays
    first = first_place[values] == places
    return (first.cumsum() - 1)[first_place[values]], first
