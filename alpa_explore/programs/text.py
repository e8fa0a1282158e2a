"""A program for people: a row for each rank and stage, and the instructions of a rank as lines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from alpa_explore.graph import TrainingGraph
from alpa_explore.programs.execution.live_bytes import LiveBytes
from alpa_explore.programs.instruction import (
    Accumulate,
    Box,
    Collective,
    Compute,
    Count,
    Free,
    Instruction,
    Load,
    Optimize,
    Receive,
    Send,
    Slice,
    Store,
)
from alpa_explore.programs.program import Program
from alpa_explore.schedules.task import LETTERS

COUNTED = (Compute, Collective, Send, Receive, Accumulate, Optimize, Free)


def program_rows(program: Program, live: Mapping[int, LiveBytes]) -> list[dict[str, Any]]:
    """What each rank does in each of its stages: instructions by kind and by task, and the bytes of the rank."""
    rows = []
    for number, stage in enumerate(program.stages):
        for rank in stage.ranks:
            tasks = {LETTERS[action]: len(own[rank]) for action, own in stage.tasks.items()}
            kinds = Counter(type(one) for own in stage.tasks.values() for one in own[rank])
            rows.append(
                {
                    "stage": number,
                    "rank": rank,
                    "instructions": sum(tasks.values()),
                    **{kind.__name__.lower(): kinds[kind] for kind in COUNTED},
                    "tasks": tasks,
                    "lasting_bytes": live[rank].lasting_bytes,
                    "peak_bytes": live[rank].peak_bytes,
                    "optimizer_bytes": live[rank].optimizer_bytes,
                }
            )
    return rows


def rank_lines(program: Program, rank: int) -> Iterator[str]:
    """The instructions of a rank, task by task, a line each."""
    for number, stage in enumerate(program.stages):
        if rank not in stage.ranks:
            continue
        for one in stage.lasting[rank]:
            tensor, what = program.graph.tensors[one.tensor], "zero, the sum of" if one.zero else ""
            yield f"lasting  %{one.value} = {' '.join(filter(None, (what, tensor.name)))} {_box(one.box)}"
        for action, own in stage.tasks.items():
            letter = f"{number}{LETTERS[action]}"
            yield from (f"{letter:7}  {instruction_line(one, program.graph)}" for one in own[rank])


def instruction_line(one: Instruction, graph: TrainingGraph) -> str:
    """'%5 = aten.mm.default(%3, %4)  # mm_2'; %n is a value."""
    match one:
        case Load():
            return f"%{one.target} = load {graph.tensors[one.tensor].name} {_box(one.box)}"
        case Count():
            return f"%{one.target} = count targets of {graph.operators[one.loss].name}"
        case Compute():
            made = ", ".join(f"%{value}" for value in one.operator.outputs)
            read = ", ".join(f"%{value}" for value in one.operator.inputs)
            drawn = "" if one.seed is None else f"  seed {one.seed}"
            return f"{made} = {one.operator.kind}({read}){drawn}  # {one.operator.name}"
        case Collective():
            dims = "".join(
                f" {name} {dim}" for name, dim in (("join", one.joined), ("cut", one.cut)) if dim is not None
            )
            return f"%{one.target} = {one.kind.value} %{one.source} of ranks {_list(one.ranks)}{dims}"
        case Slice():
            return f"%{one.target} = %{one.source} piece {one.piece} of {one.pieces} of dim {one.dim}"
        case Send():
            return f"send %{one.source} {_box(one.box)} to rank {one.to}, message {one.message}"
        case Receive():
            pieces = "; ".join(f"{_box(box)} of rank {source}" for source, box in one.pieces)
            return f"%{one.target} = receive {list(one.shape)}: {pieces}, message {one.message}"
        case Accumulate():
            return f"%{one.target} += %{one.source}"
        case Optimize():
            name = graph.parameters[one.parameter].name
            return f"%{one.target} = {one.kind}(%{one.weight}, %{one.gradient})  # {name} {_box(one.box)}"
        case Store():
            return f"%{one.target} = %{one.source}"
        case Free():
            return "free " + ", ".join(f"%{value}" for value in one.values)


def _box(box: Box) -> str:
    return "[" + ", ".join(f"{start}:{stop}" for start, stop in box) + "]"


def _list(ranks: tuple[int, ...]) -> str:
    return ", ".join(map(str, ranks))
