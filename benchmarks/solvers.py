"""Seconds of every solver on the sharding problems of tests/problems and on a deep chain of blocks.

    python benchmarks/solvers.py [--slow] [--repeat N] [--problem NAME …] [--solver NAME …]

`--slow` adds the runs that take from ten seconds to minutes (CBC on the larger problems). The last columns are the
speed-ups of `auto` over the other solvers. All objectives of a row must agree.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from chain_of_blocks import chain_of_blocks

from alpa_explore.intra_op.ilp.enumerated_ilp import solve_enumerated
from alpa_explore.intra_op.problem.sharding_problem import ShardingProblem
from alpa_explore.intra_op.solve import SOLVERS, solve
from alpa_explore.iopddl.files import read_problem

PROBLEMS = Path(__file__).parent.parent / "tests" / "problems"
ALPA = "alpa-cbc"
"""PuLP with CBC, with the edge constraints of Alpa's code (inequalities, binary edge variables)."""
SLOW_FOR_CBC = ("t7", "t36r", "block_16x8", "r200x8", "gpt2_8x8", "llama2_8x8", "r1000x12", "24 blocks")
SLOW = {
    ALPA: SLOW_FOR_CBC,
    "cbc": SLOW_FOR_CBC,
    "highs": ("llama2_8x8", "r1000x12", "24 blocks"),
    "ilp": ("r1000x12", "24 blocks"),
}
"""Solver -> problems that it is run on only with --slow."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--slow", action="store_true")
    parser.add_argument(
        "--repeat", type=int, default=3, help="show the fastest of this many runs, where a run takes less than 1 s"
    )
    parser.add_argument("--problem", nargs="*")
    parser.add_argument("--solver", nargs="*", default=[*SOLVERS, ALPA])
    options = parser.parse_args()
    problems: dict[str, ShardingProblem] = {}
    for path in sorted(PROBLEMS.glob("*.json.gz"), key=lambda p: p.stat().st_size):
        file = read_problem(path)
        if file.memory is None:
            problems[path.name.split(".")[0]] = file.problem
    problems["24 blocks"] = chain_of_blocks(24)
    selected = {name: p for name, p in problems.items() if not options.problem or name in options.problem}
    print(f"{'problem':<12}{'nodes':>7}{'most':>6}" + "".join(f"{s:>14}" for s in options.solver) + "  objective")
    for name, problem in selected.items():
        print(f"{name:<12}{len(problem.node_costs):>7}{max(map(len, problem.node_costs)):>6}", end="", flush=True)
        objectives, solver_seconds = set(), {}
        for solver in options.solver:
            if name in SLOW.get(solver, ()) and not options.slow:
                print(f"{'–':>14}", end="")
                continue
            seconds, objective = _time(problem, solver, options.repeat)
            objectives.add(f"{objective:.9g}")
            solver_seconds[solver] = seconds
            print(f"{seconds:>12.3f} s", end="", flush=True)
        ratios = (
            [f"{s} ×{solver_seconds[s] / solver_seconds['auto']:,.0f}" for s in solver_seconds if s != "auto"]
            if "auto" in solver_seconds
            else []
        )
        print("  " + " ≠ ".join(sorted(objectives)), *ratios, sep="  ")


def _time(problem: ShardingProblem, solver: str, repeat: int) -> tuple[float, float]:
    fastest = float("inf")
    for _ in range(repeat):
        if solver == ALPA:
            solution = solve_enumerated(problem, backend="cbc", alpa_form=True)
        else:
            solution = solve(problem, solver)
        fastest = min(fastest, solution.seconds)
        if solution.seconds > 1:
            break
    return fastest, solution.objective


if __name__ == "__main__":
    main()
