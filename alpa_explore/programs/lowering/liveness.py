"""Insert Free instructions: a value is freed after its last use, in the last task of a microbatch that reads it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from alpa_explore.programs.instruction import Free, Instruction
from alpa_explore.schedules.task import ONCE_AN_ITERATION, Action


def with_frees(
    tasks: Mapping[Action, Sequence[Instruction]], lasting: set[int], results: set[int]
) -> dict[Action, list[Instruction]]:
    """The tasks of one rank, in order, with Free instructions.

    Values in `results` (the loss) live from the first task, the forward one, until the second.
    """
    per_microbatch = [action for action in tasks if action not in ONCE_AN_ITERATION]
    forward, backward = per_microbatch[:2]
    freed: dict[Action, list[Instruction]] = {}
    for chain in (per_microbatch, [action for action in tasks if action in ONCE_AN_ITERATION]):
        needed: set[int] = set()
        for action in reversed(chain):
            kept = needed | (results - lasting if action is forward else set())
            freed[action] = _freed(tasks[action], lasting | kept)
            if kept - needed:
                freed[backward].insert(0, Free(values=tuple(sorted(kept - needed))))
            written = {value for instruction in tasks[action] for value in instruction.writes}
            needed = (needed - written) | (needed_before(tasks[action]) - lasting)
    return {action: freed[action] for action in tasks}


def needed_before(instructions: Sequence[Instruction]) -> set[int]:
    """The values that instructions read before they write them."""
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
    with_frees: list[Instruction] = []
    for place, instruction in enumerate(instructions):
        with_frees.append(instruction)
        if place in dying:
            with_frees.append(Free(values=tuple(dying[place])))
    return with_frees
