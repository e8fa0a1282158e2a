"""Seconds of every solver on the stored problems and on a deep chain of blocks.

    python benchmarks/solvers.py [--slow] [--repeat N] [--problem NAME …] [--solver NAME …]

`--slow` adds the runs that take from ten seconds to minutes (CBC on the larger problems). The last columns say how many
times faster `auto` is than the others.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from chain_of_blocks import chain_of_blocks

from alpa_explore.intra_op.ilp.enumerated_ilp import solve_enumerated
from alpa_explore.intra_op.iopddl.files import read_problem
from alpa_explore.intra_op.problem.sharding_problem import ShardingProblem
from alpa_explore.intra_op.solve import SOLVERS, solve

PROBLEMS = Path(__file__).parent.parent / "tests" / "problems"
ALPA = "alpa-cbc"
"""PuLP with CBC on the links as Alpa's code has them (≤, binary e)."""
SLOW_FOR_CBC = ("t7", "t36r", "block_16x8", "r200x8", "gpt2_8x8", "llama2_8x8", "r1000x12", "24 blocks")
SLOW = {
    ALPA: SLOW_FOR_CBC,
    "cbc": SLOW_FOR_CBC,
    "highs": ("llama2_8x8", "r1000x12", "24 blocks"),
    "highs-direct": ("llama2_8x8", "r1000x12", "24 blocks"),
    "ilp": ("r1000x12", "24 blocks"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--slow", action="store_true")
    parser.add_argument("--repeat", type=int, default=3, help="the least of this many runs is shown, for runs < 1 s")
    parser.add_argument("--problem", nargs="*")
    parser.add_argument("--solver", nargs="*", default=[*SOLVERS, ALPA])
    options = parser.parse_args()
    problems: dict[str, ShardingProblem] = {}
    for path in sorted(PROBLEMS.glob("*.json.gz"), key=lambda p: p.stat().st_size):
        file = read_problem(path)
        if file.memory is None:
            problems[path.name.split(".")[0]] = file.problem
    problems["24 blocks"] = chain_of_blocks(24)
    chosen = {name: p for name, p in problems.items() if not options.problem or name in options.problem}
    print(f"{'problem':<12}{'nodes':>7}{'most':>6}" + "".join(f"{s:>14}" for s in options.solver) + "  objective")
    for name, problem in chosen.items():
        print(f"{name:<12}{len(problem.node_costs):>7}{max(map(len, problem.node_costs)):>6}", end="", flush=True)
        objectives, taken = set(), {}
        for solver in options.solver:
            if name in SLOW.get(solver, ()) and not options.slow:
                print(f"{'–':>14}", end="")
                continue
            seconds, objective = _time(problem, solver, options.repeat)
            objectives.add(f"{objective:.9g}")
            taken[solver] = seconds
            print(f"{seconds:>12.3f} s", end="", flush=True)
        ratios = [f"{s} ×{taken[s] / taken['auto']:,.0f}" for s in taken if s != "auto"] if "auto" in taken else []
        print("  " + " ≠ ".join(sorted(objectives)), *ratios, sep="  ")


def _time(problem: ShardingProblem, solver: str, repeat: int) -> tuple[float, float]:
    least = float("inf")
    for _ in range(repeat):
        if solver == ALPA:
            solution = solve_enumerated(problem, backend="cbc", alpa_form=True)
        else:
            solution = solve(problem, solver)
        least = min(least, solution.seconds)
        if solution.seconds > 1:
            break
    return least, solution.objective


if __name__ == "__main__":
    main()
