"""Seconds of planning: cold, warm, with a new B in a new process and in the same one, and with a new delta (lazily
priced, and with all stages priced).

    python benchmarks/planning.py [--model gpt-39b] [--cluster 8x8:v100] [-B 1024] [--layers 16] [--deltas 0.5 0.1]

Also prints the seconds of each pass. The cold run, the warm run and that of half as many microbatches of the same size
are processes of their own, as a user starts them; the cold one begins with an empty cache. The new B and the new delta
are replanned in Python, where the graph is captured already. Seconds depend on the machine; compare the ratios to the
cold run between machines.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import alpa_explore as ax
from alpa_explore.execution.progress import Progress
from alpa_explore.models.catalog import entry, microbatch_size
from alpa_explore.planner.microbatch_graph import microbatch_graph


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="gpt-39b")
    parser.add_argument("--cluster", default="8x8:v100")
    parser.add_argument("-B", "--num-microbatches", type=int, default=1024)
    parser.add_argument("--layers", type=int, default=16)
    parser.add_argument("--deltas", type=float, nargs=2, default=(0.5, 0.1), help="delta of the plan, and the new one")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["ALPA_EXPLORE_CACHE"] = folder
        cold = command(options, "cold")
        command(options, "warm", cold)
        command(options, "new B, new process", cold, options.num_microbatches // 2)
        in_python(options, cold)


def command(options: argparse.Namespace, name: str, cold: float | None = None, b: int | None = None) -> float:
    """Wall-clock seconds of `alpa-explore plan`, start of the interpreter included; with another B where one is given,
    and microbatches of the same size."""
    asked, b = options.num_microbatches, b or options.num_microbatches
    samples = microbatch_size(entry(options.model), asked)
    begun = time.perf_counter()
    done = subprocess.run(
        [
            str(Path(sys.executable).with_name("alpa-explore")),
            "plan",
            options.model,
            "--cluster",
            options.cluster,
            "-B",
            str(b),
            "--global-batch",
            str(b * samples),
            "--layers",
            str(options.layers),
            "--delta",
            str(options.deltas[0]),
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    seconds = time.perf_counter() - begun
    show(name, seconds, cold)
    print("    " + next(line for line in done.stdout.splitlines() if line.startswith("Time by pass")))
    # The last progress line of every pass of stage pricing has its number of tasks and its seconds.
    for line in done.stderr.splitlines():
        if "100 %" in line:
            print("    " + line)
    return seconds


def in_python(options: argparse.Namespace, cold: float) -> None:
    """A new B and a new delta, given the graph and the first plan."""
    graph = microbatch_graph(options.model, options.num_microbatches)
    common = {"num_microbatches": options.num_microbatches, "num_layers": options.layers}
    plan = ax.plan(graph, options.cluster, delta=options.deltas[0], **common)
    ax.replan(plan, num_microbatches=options.num_microbatches // 2)
    begun = time.perf_counter()
    ax.replan(plan, num_microbatches=options.num_microbatches // 4)
    show("new B", time.perf_counter() - begun, cold)
    begun = time.perf_counter()
    replanned = ax.replan(plan, delta=options.deltas[1])
    show(f"new delta {options.deltas[1]:g}", time.perf_counter() - begun, cold)
    priced = (
        "the same layers" if replanned.layers == plan.layers else f"other layers, {len(replanned.costs.candidates)} of"
    )
    print(f"    {priced} {len(plan.costs.candidates)} stages priced, T {replanned.predicted.iteration_seconds:.5g} s")
    print("    " + ", ".join(f"{name} {seconds:.2f} s" for name, seconds in replanned.statistics.seconds))
    passes: dict[str, Progress] = {}
    begun = time.perf_counter()
    fully_priced = ax.plan(
        graph, options.cluster, delta=options.deltas[1], progress=lambda p: passes.update({p.pass_name: p}), **common
    )
    show("  all stages", time.perf_counter() - begun, cold)
    for name, last in passes.items():
        print(f"    {name}: {last.total} tasks, {last.elapsed_seconds:.1f} s")
    print(f"    T {fully_priced.predicted.iteration_seconds:.5g} s")


def show(name: str, seconds: float, cold: float | None) -> None:
    """Print one line."""
    ratio = "" if cold is None else f"  {seconds / cold:.4f} of cold"
    print(f"{name:18} {seconds:8.3f} s{ratio}", flush=True)


if __name__ == "__main__":
    main()
