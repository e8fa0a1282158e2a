"""Check statically that a program can run. The cost grows with the number of instructions, not of microbatches.

- Every value is written before it is read, not read after it is freed, and freed before its microbatch ends.
- Every message that is sent is received, with boxes of the same shape.
- The ranks of a collective reach it in the same order, so that no task deadlocks: each task is simulated on all of its
  ranks with instructions that only wait. Deadlocks between tasks are excluded by `simulate.check` of schedules: what
  a task receives is sent by a task that precedes it. The updates of all stages are simulated as one task.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter

from alpa_explore.errors import ProgramError
from alpa_explore.programs.program import Box, Collective, Free, Instruction, Program, Receive, Send, StageProgram
from alpa_explore.schedules.simulator.simulate import check as check_schedule
from alpa_explore.schedules.task import LETTERS, ONCE_AN_ITERATION, Action

_REMEDY = "The program was changed after it was lowered, or lowering is wrong: lower the plan again, and report it."
_COMMON = attrgetter("kind", "reduction", "ranks", "target", "joined", "cut", "order")
"""What a collective is to all of its ranks."""
_Message = tuple[int, int, int, tuple[int, ...]]
"""(sender, receiver, message, extents of the box)."""


def check(program: Program) -> None:
    """Raise ProgramError, naming rank, task and value, where one of the above does not hold, or ScheduleError."""
    check_schedule(program.schedule)
    for number, stage in enumerate(program.stages):
        for rank in stage.ranks:
            _values(stage, rank, f"stage {number}, rank {rank}")
    for once, where in ((False, "forward and backward tasks"), (True, "update tasks")):
        of_tasks = ((rank, i) for rank, (_, a), i in program.instructions() if (a in ONCE_AN_ITERATION) is once)
        _messages(of_tasks, where)
    for number, stage in enumerate(program.stages):
        for action in [a for a in stage.tasks if a not in ONCE_AN_ITERATION]:
            _meet(stage.tasks[action], f"stage {number}, {LETTERS[action]}", waiting_for_mail=False)
    together = {
        rank: tuple(
            instruction
            for task in program.updates(rank)
            for instruction in program.stages[task.stage].tasks[task.action][rank]
        )
        for rank in program.ranks
    }
    _meet(together, "update", waiting_for_mail=True)


def _values(stage: StageProgram, rank: int, where: str) -> None:
    lasting = {lasting.value for lasting in stage.lasting[rank]}
    held: set[int] = set()
    last_of_microbatch = [action for action in stage.tasks if action not in ONCE_AN_ITERATION][-1]
    last = list(stage.tasks)[-1]
    for action in stage.tasks:
        for place, instruction in enumerate(stage.tasks[action][rank]):
            at = f"{where}, {LETTERS[action]} instruction {place} ({type(instruction).__name__})"
            missing = set(instruction.reads) - held - lasting
            if missing:
                raise ProgramError(
                    "A value is read that is not there", found=f"value {min(missing)} in {at}", remedy=_REMEDY
                )
            if isinstance(instruction, Free):
                if lasting & set(instruction.values) or len(set(instruction.values)) < len(instruction.values):
                    raise ProgramError("A value is freed that is needed later", found=at, remedy=_REMEDY)
                held -= set(instruction.values)
            held |= set(instruction.writes) - lasting
        if action is Action.FORWARD and stage.loss is not None and stage.loss not in held:
            raise ProgramError("The loss is freed too early", found=f"value {stage.loss} in {where}", remedy=_REMEDY)
        if action in (last_of_microbatch, last) and held:
            raise ProgramError(
                "Values are never freed", found=f"{len(held)} after {LETTERS[action]} in {where}", remedy=_REMEDY
            )


def _messages(instructions: Iterable[tuple[int, Instruction]], where: str) -> None:
    sent: Counter[_Message] = Counter()
    awaited: Counter[_Message] = Counter()
    for rank, instruction in instructions:
        if isinstance(instruction, Send):
            sent[rank, instruction.to, instruction.message, _extents(instruction.box)] += 1
        if isinstance(instruction, Receive):
            awaited.update((source, rank, instruction.message, _extents(box)) for source, box in instruction.pieces)
    for surplus, verb in ((sent - awaited, "is sent and not received"), (awaited - sent, "is awaited and not sent")):
        if surplus:
            source, target, message, extents = next(iter(surplus))
            raise ProgramError(
                f"A message {verb}",
                found=f"message {message} of {list(extents)} from rank {source} to {target}, in {where}"
                + (f" ({len(surplus) - 1} more)" if len(surplus) > 1 else ""),
                remedy=_REMEDY,
            )


def _extents(box: Box) -> tuple[int, ...]:
    return tuple(stop - start for start, stop in box)


def _meet(tasks: Mapping[int, Sequence[Instruction]], where: str, *, waiting_for_mail: bool) -> None:
    """Simulate a task on all of its ranks. Collectives wait for their ranks, and receives for their messages where
    `waiting_for_mail`. ProgramError on a deadlock."""
    place = dict.fromkeys(tasks, 0)
    sent: set[tuple[int, int, int]] = set()
    arrived: dict[tuple[object, ...], set[int]] = {}
    moved = True
    while moved:
        moved = False
        for rank, instructions in tasks.items():
            while place[rank] < len(instructions):
                instruction = instructions[place[rank]]
                if isinstance(instruction, Collective):
                    key = _COMMON(instruction)
                    arrived.setdefault(key, set()).add(rank)
                    if arrived[key] != set(instruction.ranks):
                        break
                elif isinstance(instruction, Send):
                    sent.add((rank, instruction.to, instruction.message))
                elif (
                    waiting_for_mail
                    and isinstance(instruction, Receive)
                    and any((source, rank, instruction.message) not in sent for source, _ in instruction.pieces)
                ):
                    break
                place[rank] += 1
                moved = True
    stuck = [rank for rank in tasks if place[rank] < len(tasks[rank])]
    if stuck:
        shown = "; ".join(f"rank {rank} at {_named(tasks[rank][place[rank]])}" for rank in stuck[:4])
        raise ProgramError("Ranks wait for each other", found=f"{where}: {shown}", remedy=_REMEDY)


def _named(instruction: Instruction) -> str:
    if isinstance(instruction, Collective):
        return f"{instruction.kind.value} of value {instruction.source} with ranks {instruction.ranks}"
    return type(instruction).__name__ + (
        f" of message {instruction.message}" if isinstance(instruction, Receive) else ""
    )
