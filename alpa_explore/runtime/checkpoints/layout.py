"""Which rank holds, and which one writes, each box of the state of a run.

All ranks know this from the program, so that replicas are written once without a word between ranks. Of the ranks that
hold a box, the one with the fewest bytes so far writes it. Where several stages hold a weight, the first one writes it,
and the first of those that update it writes its optimizer state.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import TypeAlias

from alpa_explore.graph import TrainingGraph
from alpa_explore.programs.execution.optimizer_step import state_kinds
from alpa_explore.programs.program import Box, Lasting, Optimize, Program
from alpa_explore.runtime.checkpoints.description import OPTIMIZER_STATE, torch_dtype

NamedBox: TypeAlias = tuple[str, Box]
"""(name of a parameter or buffer, box)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """What one rank writes."""

    weights: tuple[tuple[int, Lasting], ...]
    """(stage, weight or buffer)."""
    optimizers: tuple[tuple[int, Optimize], ...]
    """(stage, step whose state is written)."""
    counters: frozenset[int]
    """Parameters of which this rank also writes the state that is not divided: the number of steps."""


def weights_of(program: Program, rank: int) -> Iterator[tuple[int, Lasting]]:
    """(stage, value) of the weights and buffers that a rank holds."""
    for number, stage in enumerate(program.stages):
        for lasting in stage.lasting.get(rank, ()):
            if not lasting.zero:
                yield number, lasting


def optimizers_of(program: Program, rank: int) -> Iterator[tuple[int, Optimize]]:
    """(stage, optimizer step) of a rank; the state of the step is of the same box as the step."""
    for _, (number, _), instruction in program.instructions(rank):
        if isinstance(instruction, Optimize):
            yield number, instruction


def parameter_name(graph: TrainingGraph, optimize: Optimize) -> str:
    """The name of the parameter that a step updates."""
    return graph.tensors[graph.parameters[optimize.parameter].tensor].name


def model_tensors(program: Program) -> dict[str, tuple[tuple[int, ...], str]]:
    """Name -> (shape, dtype) of all parameters and buffers."""
    tensors = program.graph.tensors
    held = {lasting.tensor for rank in program.ranks for _, lasting in weights_of(program, rank)}
    return {tensors[t].name: (tuple(tensors[t].shape), tensors[t].dtype) for t in held}


def optimizer_tensors(program: Program) -> dict[str, tuple[tuple[int, ...], str]]:
    """Name -> (shape, dtype) of the optimizer state of all parameters, after a step."""
    graph = program.graph
    found: dict[str, tuple[tuple[int, ...], str]] = {}
    for parameter in graph.parameters:
        tensor, kind = graph.tensors[parameter.tensor], graph.operators[parameter.update].kind
        for name, (divided, dtype) in state_kinds(kind, torch_dtype(tensor.dtype)).items():
            shape = tuple(tensor.shape) if divided else ()
            found[f"{OPTIMIZER_STATE}{tensor.name}.{name}"] = shape, str(dtype).removeprefix("torch.")
    return found


def shares(program: Program) -> dict[int, Share]:
    """What each rank writes; the program has the instructions of all ranks."""
    tensors, parameters = program.graph.tensors, program.graph.parameters
    holders: dict[tuple[str, int, Box], list[tuple[int, int, Lasting | Optimize]]] = {}
    """(which, tensor, box) -> (stage, rank, what it holds)."""
    for rank in program.ranks:
        for stage, lasting in weights_of(program, rank):
            holders.setdefault(("weight", lasting.tensor, lasting.box), []).append((stage, rank, lasting))
        for stage, step in optimizers_of(program, rank):
            holders.setdefault(("state", parameters[step.parameter].tensor, step.box), []).append((stage, rank, step))
    first: dict[tuple[str, int], int] = {}
    for (which, tensor, _), held in holders.items():
        earliest = min(stage for stage, _, _ in held)
        first[which, tensor] = min(first.get((which, tensor), earliest), earliest)
    bytes_of: dict[int, int] = dict.fromkeys(program.ranks, 0)
    weights: dict[int, list[tuple[int, Lasting]]] = {rank: [] for rank in program.ranks}
    optimizers: dict[int, list[tuple[int, Optimize]]] = {rank: [] for rank in program.ranks}
    counted: dict[int, int] = {}
    for (which, tensor, box), held in holders.items():
        able = [entry for entry in held if entry[0] == first[which, tensor]]
        if not able:
            continue
        stage, rank, what = min(able, key=lambda entry: bytes_of[entry[1]])
        bytes_of[rank] += prod(b - a for a, b in box) * torch_dtype(tensors[tensor].dtype).itemsize
        if isinstance(what, Lasting):
            weights[rank].append((stage, what))
        else:
            optimizers[rank].append((stage, what))
            counted.setdefault(what.parameter, rank)
    return {
        rank: Share(
            weights=tuple(weights[rank]),
            optimizers=tuple(optimizers[rank]),
            counters=frozenset(p for p, r in counted.items() if r == rank),
        )
        for rank in program.ranks
    }


def needed_boxes(program: Program, rank: int) -> tuple[list[NamedBox], list[NamedBox]]:
    """What a rank reads on resume: weights and buffers, and parameters whose optimizer state it reads."""
    steps = [(parameter_name(program.graph, step), step.box) for _, step in optimizers_of(program, rank)]
    held = [(program.graph.tensors[lasting.tensor].name, lasting.box) for _, lasting in weights_of(program, rank)]
    return [*held, *steps], steps
