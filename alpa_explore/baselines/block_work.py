"""The work of the parts of a model on a mesh whose axes have roles, from its captured graph.

The graph of a model with a few blocks, one or more of each kind, is cut into embedding, blocks, and head (with the
loss). Its strategies are the fastest that the roles permit, as in every baseline. A model of any number of blocks
consists of copies of these.
"""

from __future__ import annotations

import enum
import math
from collections import Counter
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import numpy as np

from alpa_explore.baselines.layout import RECOMPUTED
from alpa_explore.baselines.roles import Role, permitted_problem
from alpa_explore.cluster import Device, LogicalMesh, Software
from alpa_explore.cost.kernels import Kernel
from alpa_explore.cost.model import CostModel
from alpa_explore.cost.work import CollectiveCall, PartWork, PassWork, Recomputed, in_sequence
from alpa_explore.errors import OptionError
from alpa_explore.graph import Phase, TrainingGraph
from alpa_explore.graph.counts import ROUTED, packet
from alpa_explore.intra_op.problem.sharding_problem import unrestricted_choices
from alpa_explore.intra_op.solve import solve
from alpa_explore.intra_op.stage.build_problem import build_stage_problem
from alpa_explore.intra_op.stage.layered_graph import UPDATE_LAYER, LayeredGraph, assign_layers
from alpa_explore.intra_op.stage.liveness import Intervals, workspace_intervals
from alpa_explore.intra_op.stage.recomputation import NONE, Recomputation
from alpa_explore.intra_op.stage.stage_graph import StageGraph, slice_stages
from alpa_explore.intra_op.stage.stage_problem import NodeKind, StageProblem
from alpa_explore.sharding.reshard import StepKind
from alpa_explore.sharding.strategy import Strategy


class Counted(enum.Enum):
    """Which operators of a graph are counted: layers of experts may be divided among devices in another way than the
    rest, and then are read from a graph of their own."""

    ALL = "all"
    EXPERTS = "experts"
    """Layers of routed experts with their routers, without shared experts."""
    OTHERS = "others"


@dataclass(frozen=True, slots=True, kw_only=True)
class CapturedBlocks:
    """The blocks in the graph of a model with a few of them."""

    paths: tuple[str, ...]
    """Of their modules."""
    examples: tuple[int, ...]
    """For each kind of blocks the place of the one that stands for it. It is the first of the model only where no other
    is of its kind: the input of the first needs no sum of gradients."""

    @classmethod
    def of_period(cls, period: int) -> CapturedBlocks:
        """Those of a catalogue model with two periods of so many unlike blocks."""
        return cls(paths=tuple(f"h.{n}" for n in range(2 * period)), examples=tuple(range(period, 2 * period)))


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderWork:
    """The work of one microbatch of a model on one device."""

    embedding: PartWork
    blocks: tuple[PartWork, ...]
    """A block of each kind."""
    head: PartWork
    tied_parameters: float
    """Of the embedding, those that the head reads too."""
    dtype: str
    """Of weights and activations."""
    boundary_bytes: float
    """The activation between two blocks. `decoder_work` counts all samples of its graph; in a layout it is what the
    devices have that share each product."""

    @property
    def parts(self) -> tuple[PartWork, ...]:
        """Embedding, a block of each kind, head."""
        return (self.embedding, *self.blocks, self.head)


def decoder_work(
    graph: TrainingGraph,
    device: Device,
    mesh: LogicalMesh,
    roles: Sequence[Role],
    *,
    blocks: CapturedBlocks,
    counted: Counted = Counted.ALL,
) -> DecoderWork:
    """The work of a model on one device of `mesh`, whose axes have these roles. OptionError where the blocks of the
    model are not found, or nothing is legal.
    """
    parts, of_blocks = parts_of(graph, blocks)
    head = max(parts)
    between = sorted({*parts} - {0, *of_blocks, head})
    stages = _stages(graph, parts, device.software)
    layered = stages["none"].layered
    model, used = CostModel(device, mesh.squeezed()), tuple(roles[axis] for axis in mesh.axes)
    problem = build_stage_problem(stages["none"], model)
    permitted, kept = permitted_problem(problem, used)
    solution = solve(permitted)
    if not solution.choices:
        raise OptionError(
            "The layout has no legal sharding",
            found=f"{graph.name} on a mesh of {mesh}",
            remedy="Give degrees that divide the heads and the width of the model.",
        )
    reader = _Reader(problem, unrestricted_choices(kept, solution.choices), counted, stages)
    works = reader.parts()
    return DecoderWork(
        embedding=works[0],
        blocks=tuple(works[of_blocks[number]] for number in blocks.examples),
        head=in_sequence(*(works[part] for part in (*between, head))),
        tied_parameters=reader.read_in(0, head),
        dtype=graph.precision,
        boundary_bytes=_boundary_bytes(layered, of_blocks),
    )


def _stages(graph: TrainingGraph, parts: tuple[int, ...], software: Software) -> dict[str, StageGraph]:
    """All parts as one stage, for each kind of recomputation; where blocks have nothing of a kind, as without."""

    def of(recomputation: str) -> StageGraph:
        layered = assign_layers(graph, parts, Recomputation(recomputation), software=software)
        return slice_stages(layered)(0, max(parts))

    plain, stages = of(NONE), dict[str, StageGraph]()
    for kind, name in RECOMPUTED.items():
        try:
            stages[kind] = plain if name == NONE else of(name)
        except OptionError:
            stages[kind] = plain
    return stages


def _boundary_bytes(layered: LayeredGraph, of_blocks: Sequence[int]) -> float:
    """Most bytes of what one block and those behind it read of the activations before it."""
    graph, most = layered.graph, 0
    for part in sorted(of_blocks)[1:]:
        behind = (o for o in graph.forward_operators if layered.layer_of[o.index] >= part)
        read = {t for o in behind for t in o.inputs}
        made = [(t, p) for t in read if (p := graph.tensors[t].producer) is not None and p not in layered.tables]
        stored = {layered.storage[t] for t, producer in made if layered.layer_of[producer] < part}
        most = max(most, sum(graph.tensors[t].bytes for t in stored))
    return float(most)


def parts_of(graph: TrainingGraph, blocks: CapturedBlocks) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """(for each forward operator the part that it belongs to, for each of the blocks its part), in the order of the
    model: first what is before the blocks, then each block and what is between two lists of them, and last the head.
    OptionError where the blocks are not found one after the other."""
    found = [next((p for p in blocks.paths if f"{o.module}.".startswith(f"{p}.")), "") for o in graph.forward_operators]
    runs = [path for path, _ in groupby(filter(None, found))]
    if sorted(runs) != sorted(blocks.paths) or found[-1]:
        raise OptionError(
            "The blocks of the model do not run one after the other, each once",
            found=f"{graph.name}: {', '.join(runs[:6]) or 'none of them runs'}",
            remedy="Plan the model with `alpa-explore plan`, which needs no blocks.",
        )
    last = {path: place for place, path in enumerate(found)}
    parts, part, left = list[int](), 0, list(runs)
    for place, path in enumerate(found):
        if left and path == left[0]:
            current, part = left.pop(0), part + 1
        elif part and place == last[current] + 1 and not path and (not left or _list_of(left[0]) != _list_of(current)):
            part += 1
        parts.append(part)
    return tuple(parts), tuple(parts[last[path]] for path in blocks.paths)


def _list_of(block: str) -> str:
    """The path of the list in which a block is."""
    return block.rpartition(".")[0]


def _expert_operators(graph: TrainingGraph) -> frozenset[int]:
    """The operators of layers of experts of a model of the catalogue."""
    layers = {o.module for o in graph.forward_operators if packet(o.kind) in ROUTED}
    inside = tuple(f"{layer}." for layer in layers)
    shared = tuple(f"{layer}.shared." for layer in layers)
    return frozenset(
        o.index for o in graph.operators if f"{o.module}.".startswith(inside) and not f"{o.module}.".startswith(shared)
    )


class _Reader:
    """Reads the work of each part from a stage problem and the choice of every node."""

    def __init__(
        self, problem: StageProblem, choices: tuple[int, ...], counted: Counted, stages: Mapping[str, StageGraph]
    ) -> None:
        self.problem, self.choices, self.stages = problem, choices, stages
        self.layered, self.graph, self.model = problem.stage.layered, problem.stage.layered.graph, problem.model
        routed = _expert_operators(self.graph) if counted is not Counted.ALL else frozenset()
        self._left_out = frozenset(
            o.index
            for o in self.graph.operators
            if counted is not Counted.ALL and (o.index in routed) is (counted is Counted.OTHERS)
        )
        self._kernels: dict[int, tuple[Kernel, ...]] = {}
        """Operator -> its kernel, and those that it needs beside it."""
        self._calls: list[tuple[CollectiveCall, int | None, int]] = []
        """With the operators beside which they run, and those that they are for."""
        self._local = problem.local_bytes(choices)
        """Tensor -> bytes on one device, 0 of what is not counted."""
        self._local |= {t: 0.0 for index in self._left_out for t in self.graph.operators[index].outputs}
        self._elements, self._of_experts, self._tensors = np.zeros((3, self.layered.num_layers))

    def parts(self) -> tuple[PartWork, ...]:
        """The work of all parts."""
        for node, choice in zip(self.problem.nodes, self.choices, strict=True):
            if node.priced is not None and node.kind is NodeKind.OPERATOR and node.subject not in self._left_out:
                self._add_operator(node.subject, node.priced.strategies[choice])
            elif node.kind is NodeKind.SOURCE:
                _, local = self.model.specs(self.graph.tensors[node.subject], partial=False)
                self._local[node.subject] = float(local[choice])
            elif node.kind is NodeKind.WEIGHT:
                self._add_weight(node.subject, float(node.weight_bytes[choice]))
        for number in range(len(self.problem.edges)):
            self._add_edge(number)
        return tuple(self._part(i) for i in range(self.layered.num_layers))

    def read_in(self, *parts: int) -> float:
        """Trainable elements on one device that each of these parts reads."""
        readers = {
            p.tensor: {self.layered.layer_of[o] for o in self.graph.readers[p.tensor]} for p in self.graph.parameters
        }
        read = (self.graph.tensors[t] for t, places in readers.items() if places.issuperset(parts))
        return sum(self._local.get(t.index, 0.0) / t.bytes * t.elements for t in read)

    def _add_operator(self, index: int, strategy: Strategy) -> None:
        operator = self.graph.operators[index]
        kernel = self.model.kernel(operator, self.graph.tensors, strategy)
        if not kernel.is_view:
            self._kernels[index] = (kernel, *self.model.others(operator, self.graph.tensors, strategy))
        for axis, exchanges in enumerate(strategy.exchanges):
            for exchange in exchanges:
                if exchange.is_number:
                    continue
                call = CollectiveCall(
                    kind=exchange.kind,
                    bytes=self.model.sent_bytes(exchange, strategy),
                    **self._group(axis),
                    copies=exchange.copies,
                )
                self._calls.append((call, index if exchange.beside else None, index))

    def _add_weight(self, position: int, local_bytes: float) -> None:
        tensor = self.graph.tensors[self.graph.parameters[position].tensor]
        reading = [o for o in self.graph.readers[tensor.index] if self.layered.layer_of[o] != UPDATE_LAYER]
        if self._left_out.issuperset(reading):
            return
        readers = {self.layered.layer_of[o] for o in reading}
        self._local[tensor.index] = local_bytes
        routed = any(packet(self.graph.operators[o].kind) in ROUTED for o in self.graph.readers[tensor.index])
        elements = self._of_experts if routed else self._elements
        elements[min(readers)] += local_bytes / tensor.bytes * tensor.elements
        self._tensors[min(readers)] += 1

    def _add_edge(self, number: int) -> None:
        edge = self.problem.edges[number]
        b = self.problem.nodes[edge.b]
        producer = self.graph.tensors[edge.tensor].producer
        if edge.each_iteration or b.kind is not NodeKind.OPERATOR or {b.subject, producer} & self._left_out:
            return
        table = self.model.reshard(self.graph.tensors[edge.tensor])
        source = table.specs[int(edge.source_specs[self.choices[edge.a]])]
        target = table.specs[int(edge.target_specs[self.choices[edge.b]])]
        made_by = None if producer is None else self.layered.products[producer][0]
        product = self.layered.products[b.subject][1] if made_by is None else made_by
        if product is not None and packet(self.graph.operators[product].kind) in ROUTED:
            product = None  # as in `intra_op.stage.overlap`
        whole = self.graph.tensors[edge.tensor].bytes
        for step, _ in table.path(source, target):
            if step.kind is StepKind.SLICE:
                continue
            held = max(table.shares[table.index[step.source]], table.shares[table.index[step.target]])
            call = CollectiveCall(kind=step.kind, bytes=float(whole * held), **self._group(step.axis))
            self._calls.append((call, product, b.subject))

    def _group(self, axis: int) -> dict[str, int]:
        """The devices along an axis of the mesh."""
        shape = self.model.mesh.shape
        return {"ranks": shape[axis], "stride": math.prod(shape[axis + 1 :])}

    def _part(self, part: int) -> PartWork:
        return PartWork(
            forward=self._pass(part, Phase.FORWARD),
            backward=self._pass(part, Phase.BACKWARD),
            recomputed={
                kind: Recomputed(
                    again=self._pass(part, Phase.FORWARD, stage.layered.recomputed),
                    held_bytes=sum(self._local.get(t, 0.0) for t in self._held(stage.layered, part)),
                    workspace_bytes=self._workspace(workspace_intervals(stage), part),
                )
                for kind, stage in self.stages.items()
            },
            parameters=float(self._elements[part]),
            expert_parameters=float(self._of_experts[part]),
            parameter_tensors=int(self._tensors[part]),
        )

    def _pass(self, part: int, phase: Phase, among: Container[int] | None = None) -> PassWork:
        """One pass of a part, or what `among` some operators it has."""

        def counts(index: int) -> bool:
            in_pass = self.layered.layer_of[index] == part and self.graph.operators[index].phase is phase
            return in_pass and (among is None or index in among)

        kernels, place = list[Kernel](), dict[int | None, int]()
        for index in filter(counts, self._kernels):
            place[index] = len(kernels)
            kernels += self._kernels[index]
        operators = [self.graph.operators[index] for index in place if index is not None]
        calls = ((call, product) for call, product, reader in self._calls if counts(reader))
        return PassWork(
            kernels=tuple(kernels),
            collectives=tuple(replace(call, beside=place.get(product, -1)) for call, product in calls),
            launches=sum(o.launches for o in operators),
            expert_layers=sum(packet(o.kind) in ROUTED for o in operators),
        )

    def _held(self, layered: LayeredGraph, part: int) -> set[int]:
        """What a part holds; tables, and what several blocks hold of the embedding's tensors, are there once, with the
        embedding."""
        count = Counter(t for held in layered.held[1:-1] for t in held)
        makers = {t: self.graph.tensors[t].producer for t in count}
        shared = {
            t
            for t, producer in makers.items()
            if producer in layered.tables or (count[t] > 1 and producer is not None and layered.layer_of[producer] == 0)
        }
        return {*layered.held[part]} | shared if part == 0 else {*layered.held[part]} - shared

    def _workspace(self, intervals: Intervals, part: int) -> float:
        """Workspace of what the operators of a part make."""
        made = [
            (producer := self.graph.tensors[t].producer) is not None and self.layered.layer_of[producer] == part
            for t in intervals.tensors
        ]
        sizes = [self._local.get(t, 0.0) if m else 0.0 for t, m in zip(intervals.tensors, made, strict=True)]
        return float(intervals.workspace(np.array([sizes]))[0])
