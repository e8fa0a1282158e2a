"""Where a value is freed: behind its last use in a task, or in the backward task where that reads it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from alpa_explore.programs.instruction import Free, Instruction
from alpa_explore.schedules.task import Action


def with_frees(
    tasks: Mapping[Action, Sequence[Instruction]], lasting: set[int], results: set[int]
) -> dict[Action, list[Instruction]]:
    """The tasks of one rank with Free instructions. `results` of the forward task live until the backward task."""
    needed = needed_before(tasks[Action.BACKWARD]) - lasting
    kept = needed | (results - lasting)
    found = {
        Action.FORWARD: _freed(tasks[Action.FORWARD], lasting | kept),
        Action.BACKWARD: _freed(tasks[Action.BACKWARD], lasting),
        Action.UPDATE: _freed(tasks[Action.UPDATE], lasting),
    }
    unread = kept - needed
    if unread:
        found[Action.BACKWARD].insert(0, Free(values=tuple(sorted(unread))))
    return found


def needed_before(instructions: Sequence[Instruction]) -> set[int]:
    """Values that are read before they are written."""
    written: set[int] = set()
    needed: set[int] = set()
    for instruction in instructions:
        needed |= set(instruction.reads) - written
        written |= set(instruction.writes)
    return needed


def _freed(instructions: Sequence[Instruction], kept: set[int]) -> list[Instruction]:
    last: dict[int, int] = {}
    for place, instruction in enumerate(instructions):
        for value in (*instruction.reads, *instruction.writes):
            last[value] = place
    dying: dict[int, list[int]] = {}
    for value, place in last.items():
        if value not in kept:
            dying.setdefault(place, []).append(value)
    found: list[Instruction] = []
    for place, instruction in enumerate(instructions):
        found.append(instruction)
        if place in dying:
            found.append(Free(values=tuple(dying[place])))
    return found
