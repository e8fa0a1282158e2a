"""How much each tuning constant matters: every numeric constant of a `tuning.py` halved and doubled.

    python benchmarks/tuning_constants.py [--room intra_op.bounds …] [--constant MESSAGE_ROUNDS …] [--json FILE]

Prints for each constant the CPU time of a fixed workload with the constant halved and doubled, over that with the
constant as it is (mean of the runs before and after, all in one process), and by how much the answers change. Solver
rooms solve the stored problems; rooms of the planner plan GPT-350M on 4 devices of 6 GiB, and replan it
for another delta. Ratios within about 5 % of 1 are noise. Constants that are no
numbers (tuples of prices, limits with several fields) are left out.
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import alpa_explore as ax
from alpa_explore.intra_op.solve import solve
from alpa_explore.intra_op.solve_limited import solve_limited
from alpa_explore.iopddl.files import read_problem
from alpa_explore.planner.microbatch_graph import microbatch_graph

PROBLEMS = Path(__file__).parents[1] / "tests" / "problems"
UNLIMITED = ("block_16x8", "gpt2_8x8", "llama2_8x8", "t36r", "r200x8", "r1000x12")
LIMITED = ("iopddl_b", "iopddl_g")
SOLVER_ROOMS = ("intra_op", "intra_op.bounds", "intra_op.elimination", "intra_op.memory")
PLANNER_ROOMS = (
    "intra_op.composition",
    "intra_op.composition.contraction",
    "intra_op.composition.within_memory",
    "pricing",
    "search",
)
FACTORS = (0.5, 2.0)
MEMORY_BYTES = 6 * 2**30
"""Of a device: the fastest choices of the long stages do not fit."""


class Solving:
    """The stored problems, without and with their memory limits."""

    def __init__(self) -> None:
        self.files = {name: read_problem(PROBLEMS / f"{name}.json.gz") for name in {*UNLIMITED, *LIMITED}}

    def __call__(self) -> list[float]:
        """Their objectives."""
        answers = [solve(self.files[name].problem).objective for name in UNLIMITED]
        for name in LIMITED:
            file = self.files[name]
            assert file.memory is not None, f"{name} has a limit"
            answers.append(solve_limited(file.problem, file.memory, time_limit_seconds=60.0).objective)
        return answers


class Planning:
    """A model whose fastest stages overflow the devices."""

    def __init__(self) -> None:
        self.graph = microbatch_graph("gpt-350m", 64)
        self.cluster = ax.Cluster.parse("1x4:v100", memory_bytes=MEMORY_BYTES)

    def __call__(self) -> list[float]:
        """T of its plan, and of the plan with another delta."""
        plan = ax.plan(self.graph, self.cluster, num_microbatches=64, num_layers=4, scheduler="serial", cache=False)
        other = ax.replan(plan, delta=0.1, scheduler="serial", cache=False)
        return [plan.predicted.iteration_seconds, other.predicted.iteration_seconds]


@contextmanager
def changed(room: str, name: str, value: object) -> Iterator[None]:
    """The constant with another value, also where it was imported by name."""
    tuning = importlib.import_module(f"alpa_explore.{room}.tuning")
    before = getattr(tuning, name)
    holders = [m for m in list(sys.modules.values()) if m.__name__.startswith("alpa_explore") and name in vars(m)]
    holders = [m for m in holders if vars(m)[name] is before]
    for module in holders:
        setattr(module, name, value)
    try:
        yield
    finally:
        for module in holders:
            setattr(module, name, before)


def constants(room: str) -> dict[str, float]:
    """The numeric constants of a room."""
    tuning = importlib.import_module(f"alpa_explore.{room}.tuning")
    return {n: v for n, v in vars(tuning).items() if n.isupper() and type(v) in (int, float) and math.isfinite(v)}


def scaled(value: float, factor: float) -> float:
    """A whole number stays one, of 1 or more."""
    return max(1, round(value * factor)) if isinstance(value, int) else value * factor


def timed(work: Callable[[], list[float]]) -> tuple[float, list[float]]:
    """CPU seconds and answers."""
    start = time.process_time()
    answers = work()
    return time.process_time() - start, answers


def measure(room: str, work: Callable[[], list[float]], names: list[str]) -> Iterator[dict[str, object]]:
    """A row for each constant of the room."""
    before, answers = timed(work)
    for name, value in constants(room).items():
        if names and name not in names:
            continue
        row: dict[str, object] = {"room": room, "constant": name, "value": value}
        for factor, label in zip(FACTORS, ("halved", "doubled"), strict=True):
            with changed(room, name, scaled(value, factor)):
                try:
                    seconds, changed_answers = timed(work)
                except Exception as error:  # a value that does not work is a result, too
                    print(f"{room} {name} {label}: {type(error).__name__}: {error}", file=sys.stderr)
                    seconds, changed_answers = math.nan, answers
            after, _ = timed(work)
            row[f"{label}_time"] = seconds / ((before + after) / 2)
            row[f"{label}_change"] = max(abs(a / b - 1) for a, b in zip(changed_answers, answers, strict=True))
            before = after
        yield row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--room", nargs="*", default=[*SOLVER_ROOMS, *PLANNER_ROOMS])
    parser.add_argument("--constant", nargs="*", default=[], help="only these")
    parser.add_argument("--json", type=Path, help="write the rows there, too")
    options = parser.parse_args()
    rows = []
    print(f"{'room':34}{'constant':30}{'value':>10}{'halved':>9}{'change':>10}{'doubled':>9}{'change':>10}")
    for rooms, make in ((SOLVER_ROOMS, Solving), (PLANNER_ROOMS, Planning)):
        chosen = [room for room in rooms if room in options.room]
        if not chosen:
            continue
        work = make()
        work()  # compiles
        for room in chosen:
            for row in measure(room, work, options.constant):
                rows.append(row)
                print(
                    f"{row['room']:34}{row['constant']:30}{row['value']:10.4g}{row['halved_time']:9.2f}"
                    f"{row['halved_change']:10.1e}{row['doubled_time']:9.2f}{row['doubled_change']:10.1e}",
                    flush=True,
                )
                if options.json:
                    options.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
