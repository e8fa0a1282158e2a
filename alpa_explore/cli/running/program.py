"""`alpa-explore program PLAN`: lower a plan to instructions for every rank and check them; nothing is run."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from alpa_explore.cli.options import ALLOW_IMPORT, PLAN_FILE
from alpa_explore.cli.output import answer
from alpa_explore.plans.report.text import render_table
from alpa_explore.schedules.task import LETTERS
from alpa_explore.units import printable

if TYPE_CHECKING:
    from alpa_explore.programs.program import Program

COMMAND = f"""program  lower a plan to instructions for every rank
    Lower a plan file to instructions for every rank and check them: sends are received, ranks do not deadlock, no
    value is read after it is freed. Peak bytes are those of all values, without the optimizer state. Nothing is run.
{PLAN_FILE}
--schedule NAME  1f1b, gpipe, eager-1f1b or zb-h1; interleaved-1f1b, zb-v, v-half, v-min, dualpipe-v and dualpipe only
    of a plan made for it (default: the plan's)
--rank R (int)  print the instructions of rank R
{ALLOW_IMPORT}
--json  print JSON"""

_COLUMNS = "stage rank instructions compute collective send receive free lasting_bytes peak_bytes optimizer_bytes"
_COUNTED = "compute collective send receive accumulate optimize free".split()
"""The kinds of instructions that a row counts."""


def run(options: argparse.Namespace) -> int:
    """Lower, check, print."""
    from alpa_explore.errors import OptionError
    from alpa_explore.plans.plan import load_plan
    from alpa_explore.plans.rebuild import rebuild
    from alpa_explore.programs.check import check
    from alpa_explore.programs.execution.rehearsal import live_bytes
    from alpa_explore.programs.lowering.lower import lower
    from alpa_explore.programs.text import rank_lines

    program = lower(rebuild(load_plan(options.file), allow_import=options.allow_import), options.schedule)
    check(program)
    if options.rank is not None:
        if options.rank not in program.ranks:
            raise OptionError(
                "There is no such rank", found=f"--rank {options.rank}", remedy=f"Give one of 0 to {program.ranks[-1]}."
            )
        lines = [printable(line) for line in rank_lines(program, options.rank)]
        return answer(options, lines, lambda: "\n".join(lines))
    live = live_bytes(program)
    rows = [_row(program, live, stage, rank) for stage, of in enumerate(program.stages) for rank in of.ranks]
    schedule = program.schedule
    checked = (
        f"{program.instruction_count:,} instructions for {len(program.ranks)} ranks under"
        f" {schedule.name}, checked: sends are received, no rank waits for ever, values are freed once."
    )
    value = {
        "schedule": schedule.name,
        "num_microbatches": schedule.num_microbatches,
        "checked": True,
        "instructions": program.instruction_count,
        "stages": rows,
        "ranks": {rank: asdict(of_rank) for rank, of_rank in live.items()},
    }
    return answer(options, value, lambda: f"{render_table(rows, _COLUMNS)}\n\n{checked}")


def _row(program: Program, live: Mapping[int, Any], number: int, rank: int) -> dict[str, Any]:
    """The number of instructions of a rank in a stage, by kind and by task, and the memory of the rank."""
    of_tasks = {LETTERS[action]: of_ranks[rank] for action, of_ranks in program.stages[number].tasks.items()}
    kinds = Counter(type(i).__name__.lower() for instructions in of_tasks.values() for i in instructions)
    return {
        "stage": number,
        "rank": rank,
        "instructions": kinds.total(),
        **{kind: kinds[kind] for kind in _COUNTED},
        "tasks": {letter: len(instructions) for letter, instructions in of_tasks.items()},
        **asdict(live[rank]),
    }
