"""A program as text: the instructions of a rank, line by line."""

from collections.abc import Iterator

from alpa_explore.graph import TrainingGraph
from alpa_explore.programs.program import (
    Accumulate,
    Assign,
    Box,
    Collective,
    Compute,
    Count,
    Free,
    Instruction,
    Load,
    Optimize,
    Program,
    Receive,
    Send,
    Slice,
)
from alpa_explore.schedules.task import LETTERS
from alpa_explore.sharding.local.steps import Reduction


def rank_lines(program: Program, rank: int) -> Iterator[str]:
    """The instructions of a rank, one line each, task by task."""
    for number, stage in enumerate(program.stages):
        if rank not in stage.ranks:
            continue
        for lasting in stage.lasting[rank]:
            tensor, what = program.graph.tensors[lasting.tensor], "zero, the sum of" if lasting.zero else ""
            yield f"lasting  %{lasting.value} = {' '.join(filter(None, (what, tensor.name)))} {_box(lasting.box)}"
        for action, of_ranks in stage.tasks.items():
            letter = f"{number}{LETTERS[action]}"
            yield from (f"{letter:7}  {instruction_line(instruction, program.graph)}" for instruction in of_ranks[rank])


def instruction_line(instruction: Instruction, graph: TrainingGraph) -> str:
    """'%5 = aten.mm.default(%3, %4)  # mm_2'; %n is a value."""
    match instruction:
        case Load():
            return f"%{instruction.target} = load {graph.tensors[instruction.tensor].name} {_box(instruction.box)}"
        case Count():
            return f"%{instruction.target} = count targets of {graph.operators[instruction.loss].name}"
        case Compute():
            written = ", ".join(f"%{value}" for value in instruction.operator.outputs)
            read = ", ".join(f"%{value}" for value in instruction.operator.inputs)
            drawn = "" if instruction.seed is None else f"  seed {instruction.seed}"
            return f"{written} = {instruction.operator.kind}({read}){drawn}  # {instruction.operator.name}"
        case Collective():
            dims = "".join(
                f" {name} {dim}"
                for name, dim in (("join", instruction.joined), ("cut", instruction.cut))
                if dim is not None
            )
            ranks = ", ".join(map(str, instruction.ranks))
            kind = instruction.kind.value
            if instruction.reduction is not Reduction.SUM:
                kind += f" ({instruction.reduction.value})"
            order = f" order {', '.join(map(str, instruction.order))}" if instruction.order else ""
            sizes = f" rows %{instruction.sizes[0]}, %{instruction.sizes[1]}" if instruction.sizes else ""
            return f"%{instruction.target} = {kind} %{instruction.source} of ranks {ranks}{dims}{order}{sizes}"
        case Slice():
            piece = f"piece {instruction.piece} of {instruction.pieces}"
            return f"%{instruction.target} = %{instruction.source} {piece} of dim {instruction.dim}"
        case Send():
            sent = f"%{instruction.source} {_box(instruction.box)}"
            return f"send {sent} to rank {instruction.to}, message {instruction.message}"
        case Receive():
            pieces = "; ".join(f"{_box(box)} of rank {source}" for source, box in instruction.pieces)
            return f"%{instruction.target} = receive {list(instruction.shape)}: {pieces}, message {instruction.message}"
        case Accumulate():
            return f"%{instruction.target} += %{instruction.source}"
        case Optimize():
            updated = f"{graph.parameters[instruction.parameter].name} {_box(instruction.box)}"
            read = f"%{instruction.weight}, %{instruction.gradient}"
            return f"%{instruction.target} = {instruction.kind}({read})  # {updated}"
        case Assign():
            return f"%{instruction.target} = %{instruction.source}"
        case Free():
            return "free " + ", ".join(f"%{value}" for value in instruction.values)


def _box(box: Box) -> str:
    return "[" + ", ".join(f"{start}:{stop}" for start, stop in box) + "]"
