"""`alpa-explore solve FILE`: solve a sharding problem in the IOPDDL format with a solver of your choice."""

from __future__ import annotations

import argparse
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn

from alpa_explore import units
from alpa_explore.cli.output import print_json

if TYPE_CHECKING:
    from alpa_explore.intra_op.problem.solution import ShardingSolution
    from alpa_explore.iopddl.files import ProblemFile

COMMAND = """solve  solve a sharding problem from a file
    Solve a sharding problem in the format of the ASPLOS 2025 contest (IOPDDL), with its memory limit if it has one.
    The solution is evaluated again from the file alone before it is printed.
file FILE  a .json or .json.gz file
--solver NAME (= auto)  auto (default), elimination, ilp, highs or cbc
--time-limit SECONDS (float)  stop after so many seconds, with the start and the reading of the file, with the best
    solution so far (with a memory limit, problems of more than three million costs stop after a minute where none is
    given)
--best-so-far  with a memory limit: Ctrl-C or SIGTERM prints the best solution found so far
--json  print JSON, with the choice of every node"""

EVALUATION_SECONDS = 3e-6
"""Time for a node or an edge when an answer is evaluated, printed and the process ends. Set by hand."""
MOST_SLOWDOWN = 10.0
"""By how much that time is stretched at most on a loaded machine. Set by hand."""
LONGEST_START_SECONDS = 30.0
"""A process that is said to be older was not started for this command. Set by hand."""


def run(options: argparse.Namespace) -> int:
    """Solve, check, print; exit code 1 when the problem is infeasible."""
    started = time.perf_counter() - _age_seconds()
    from alpa_explore.intra_op.problem.solution import Status
    from alpa_explore.intra_op.solve import solve
    from alpa_explore.iopddl.files import read_document, read_problem
    from alpa_explore.iopddl.reasons import why_infeasible
    from alpa_explore.iopddl.search import solve_within
    from alpa_explore.iopddl.tuning import LEAST_LIMIT_SECONDS

    _check_time_to_read(options.file, options.time_limit, started)
    data = read_document(options.file)
    file = read_problem(options.file, data)
    remaining = _remaining(options.time_limit, started, file)
    if file.memory is None:
        solution = solve(file.problem, options.solver, remaining)
    else:
        with _kept_when_stopped(wanted=options.best_so_far):
            solution = solve_within(
                file.problem, file.memory, options.solver, remaining, keep_when_interrupted=options.best_so_far
            )
    answer: dict[str, Any] = {
        "file": options.file,
        "name": file.problem.name,
        "nodes": len(file.problem.node_costs),
        "edges": len(file.problem.edges),
        "solver": options.solver,
        "status": solution.status.name.lower(),
        "advice": solution.status.value,
        "seconds": solution.seconds,
        "objective": None,
        "bound": None,
        "gap": None,
        "variables": solution.variables,
        "constraints": solution.constraints,
        "peak_usage": None,
        "usage_limit": None if file.memory is None else file.memory.limit,
        "choices": None,
    }
    if solution.status is Status.INFEASIBLE:
        seconds = options.time_limit and max(options.time_limit - (time.perf_counter() - started), 0.0)
        answer |= why_infeasible(file.problem, file.memory, LEAST_LIMIT_SECONDS if seconds is None else seconds)
    else:
        answer |= _evaluated(options.file, data, solution, limited=file.memory is not None)
    if options.json:
        print_json(answer)
    else:
        print(_report(answer))
    return 1 if solution.status is Status.INFEASIBLE else 0


@contextmanager
def _kept_when_stopped(*, wanted: bool) -> Iterator[None]:
    """Where `wanted`: SIGTERM is Ctrl-C in the block. After the first of them, and after the block, neither does
    anything, so that the answer is found and written whole."""
    if not wanted or threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def handle(handler: Callable[[int, object], None]) -> None:
        for number in before:
            signal.signal(number, handler)

    def nothing(_signal: int, _frame: object) -> None:
        """In place of SIG_IGN: Python complains about a signal that is ignored only after it came."""

    def stop(_signal: int, _frame: object) -> NoReturn:
        handle(nothing)
        raise KeyboardInterrupt

    handle(stop)
    try:
        yield
    except BaseException:
        for number, handler in before.items():
            signal.signal(number, handler)
        raise
    handle(nothing)


def _age_seconds() -> float:
    """Seconds since this process was started: longer than its time of the processor where the machine is loaded.

    Where the system does not say (or nonsense, as some sandboxes do), the time of the processor.
    """
    used = time.process_time()
    try:
        with open("/proc/self/stat") as file:
            ticks = int(file.read().rpartition(")")[2].split()[19])
        age = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, AttributeError):
        return used
    return age if used <= age <= LONGEST_START_SECONDS else used


def _check_time_to_read(path: str, time_limit: float | None, started: float) -> None:
    """Raise SolverError where the time limit would pass while the file is read."""
    from alpa_explore.errors import SolverError
    from alpa_explore.iopddl.files import reading_seconds

    used, reading = time.perf_counter() - started, reading_seconds(path)
    if time_limit is not None and 0 < time_limit < used + reading:
        raise SolverError(
            "The time limit is too short to read the file",
            found=f"about {units.seconds(used + reading)} to start and to read it, {time_limit:g} s allowed",
            remedy="Give it more time.",
        )


def _remaining(time_limit: float | None, started: float, file: ProblemFile) -> float | None:
    """Seconds left for the solver: without the start, the reading, and the evaluation of the answer.

    Raises SolverError when none are left.
    """
    from alpa_explore.errors import SolverError

    if time_limit is None or not time_limit > 0:
        return time_limit  # the solver says what is wrong with it
    # The answer is evaluated by Python alone, entry after entry.
    closing = EVALUATION_SECONDS * (len(file.problem.node_costs) + len(file.problem.edges))
    used = time.perf_counter() - started
    # A loaded machine is as slow at the end as it was so far.
    closing *= min(max(used / max(time.process_time(), 1e-3), 1.0), MOST_SLOWDOWN)
    if used + closing >= time_limit:
        raise SolverError(
            "The time limit was reached before the search began",
            found=f"{units.seconds(used)} to start and to read the file, {time_limit:g} s allowed",
            remedy="Give it more time.",
        )
    return time_limit - used - closing


def _evaluated(path: str, data: dict[str, Any], solution: ShardingSolution, *, limited: bool) -> dict[str, Any]:
    """The objective, bound and choices of a solution, evaluated from the file alone. SolverError if they disagree."""
    from alpa_explore.errors import SolverError
    from alpa_explore.intra_op.problem.solution import Status
    from alpa_explore.iopddl.evaluator import evaluate_file

    evaluation = evaluate_file(path, solution.choices, data)
    agrees = abs(evaluation.cost - solution.objective) <= 1e-6 * abs(solution.objective)
    if not (evaluation.legal and evaluation.fits and agrees):
        raise SolverError(
            "The solution does not agree with the file", found=f"{evaluation}", remedy="Please report this problem."
        )
    return {
        "objective": evaluation.cost,
        # The sum from the file is exact where its numbers are whole.
        "bound": evaluation.cost if solution.status is Status.OPTIMAL else solution.bound,
        "gap": solution.gap,
        "choices": list(solution.choices),
        "peak_usage": evaluation.peak if limited else None,
    }


def _report(answer: dict[str, Any]) -> str:
    lines = [f"{answer['name']}: {answer['nodes']:,} nodes, {answer['edges']:,} edges"]
    if answer["objective"] is not None:
        lines.append(f"objective {answer['objective']:,.10g}, bound {answer['bound']:,.10g}, gap {answer['gap']:.2%}")
    if answer["peak_usage"] is not None:
        lines.append(f"peak usage {answer['peak_usage']:,.0f} of {answer['usage_limit']:,.0f}")
    lines.append(f"{answer['advice']} Solver '{answer['solver']}', {units.seconds(answer['seconds'])}.")
    return "\n".join(lines)
