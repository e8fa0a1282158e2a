"""One table of what the explorer computes, how long it takes, and how long others take for the same, in one run.

    python benchmarks/summary.py [--only WORD …] [--json FILE]

A row is a piece of work with a checked result: where two methods are compared, the run ends with an error unless they
agree. Both run in this process one after the other, or as commands of their own where a row says so. The last column
is the seconds of the other over ours, and means more than either on a busy machine. The other files of this folder
measure each row in detail. About five minutes on two cores.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numba
import numpy as np
from inter_op import recurrence, synthetic_table
from layering import instance
from solvers import PROBLEMS

import alpa_explore as ax
from alpa_explore.cluster import Cluster, logical_meshes, submeshes
from alpa_explore.cost.model import CostModel
from alpa_explore.inter_op.pipeline_dp import pipeline_dp
from alpa_explore.intra_op.composition.block_subproblem import Price
from alpa_explore.intra_op.composition.chain import chain_of
from alpa_explore.intra_op.composition.compose import Composer
from alpa_explore.intra_op.ilp.enumerated_ilp import solve_enumerated
from alpa_explore.intra_op.solve import solve
from alpa_explore.intra_op.stage.build_problem import build_stage_problem
from alpa_explore.intra_op.stage.layered_graph import assign_layers
from alpa_explore.intra_op.stage.stage_graph import slice_stages
from alpa_explore.iopddl.files import read_problem
from alpa_explore.layering import cluster_operators
from alpa_explore.layering.dp import solve as layers_of
from alpa_explore.layering.reference import solve_reference
from alpa_explore.models.catalog import entry
from alpa_explore.models.factory import make_inputs, make_module
from alpa_explore.planner.microbatch_graph import microbatch_graph
from alpa_explore.tracing.capture import capture
from alpa_explore.tracing.catalogue import unrolled

AGREEMENT = 1e-6
"""Relative difference of two objectives: HiGHS ends within this gap."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """A piece of work, our seconds, and another method with its seconds."""

    work: str
    seconds: float
    peer: str
    peer_seconds: float
    estimated: bool = False
    """True where the other method ran on a sample, and its seconds are scaled up."""

    def line(self) -> str:
        """The row of the table."""
        about = "~" if self.estimated else ""
        return (
            f"| {self.work} | {self.seconds:.3g} | {self.peer} | {about}{self.peer_seconds:,.3g} "
            f"| {about}{self.peer_seconds / self.seconds:,.2g} |"
        )


def sharding() -> Iterator[Row]:
    """One sharding problem to proven optimality."""
    for name, peers in {
        "gpt2_8x8": {"HiGHS, Eq. 1 in PuLP": lambda p: solve(p, "highs")},
        "t2": {"CBC, Alpa's constraints": lambda p: solve_enumerated(p, backend="cbc", alpa_form=True)},
    }.items():
        problem = read_problem(PROBLEMS / f"{name}.json.gz").problem
        solve(problem)
        ours = solve(problem)
        for peer, method in peers.items():
            other = method(problem)
            _agree(ours.objective, other.objective)
            yield Row(
                work=f"Sharding of {name}, {len(problem.node_costs)} nodes, proven",
                seconds=ours.seconds,
                peer=peer,
                peer_seconds=other.seconds,
            )


def ranges() -> Iterator[Row]:
    """The optima of all layer ranges on one mesh."""
    microbatches, layers = 1024, 16
    graph = microbatch_graph("gpt-39b", microbatches)
    layered = assign_layers(graph, cluster_operators(graph, layers).layer_of_forward)
    stage_of = slice_stages(layered)
    cluster = Cluster.parse("8x8:v100")
    mesh = next(m for s in submeshes(cluster) for m in logical_meshes(cluster, s) if tuple(m.shape) == (8, 8))
    model, price = CostModel(cluster.device, mesh.squeezed()), Price(1 / microbatches, 0.0, 1)
    keys = {(a, b): stage_of(a, b).structure_key for a in range(layers) for b in range(a, layers)}
    distinct = list({key: r for r, key in reversed(keys.items())}.values())

    def problem_of(r: tuple[int, int]) -> Any:
        return build_stage_problem(stage_of(*r), model).at(**price._asdict())

    solve(problem_of((0, 0)))
    begun = time.perf_counter()
    (composed,) = Composer(chain_of(layered), stage_of, model).solve(distinct, [price])
    seconds = time.perf_counter() - begun
    found = {r: best.cost for r, best in composed.items() if best is not None}
    work = f"All {len(found)} distinct layer ranges of GPT-39B on an 8×8 mesh"
    begun = time.perf_counter()
    nodes = {}
    for r, cost in found.items():
        problem = problem_of(r)
        nodes[r] = len(problem.node_costs)
        _agree(solve(problem).objective, cost)
    yield Row(work=work, seconds=seconds, peer="one by one, our solver", peer_seconds=time.perf_counter() - begun)
    sample = min(found, key=lambda r: abs(r[1] - r[0] - 2))
    begun = time.perf_counter()
    _agree(solve(problem_of(sample), "highs").objective, found[sample])
    each = (time.perf_counter() - begun) / nodes[sample]
    yield Row(
        work=work, seconds=seconds, peer="one ILP each, HiGHS", peer_seconds=each * sum(nodes.values()), estimated=True
    )


def pipeline() -> Iterator[Row]:
    """The pipeline DP over t_max."""
    layers, microbatches, devices = 16, 1024, 64
    latency, devices_of = synthetic_table(layers, 8, 8, tight=True)
    compiled = numba.njit(recurrence)
    pipeline_dp(latency, devices_of, devices, microbatches)
    compiled(latency, np.ones(1), devices_of, devices, microbatches)
    begun = time.perf_counter()
    result = pipeline_dp(latency, devices_of, devices, microbatches)
    seconds = time.perf_counter() - begun
    begun = time.perf_counter()
    total, _ = compiled(latency, result.candidates, devices_of, devices, microbatches)
    _agree(total, result.total_seconds)
    yield Row(
        work="Pipeline DP over t_max, 16 layers, 8×8 devices, B 1024",
        seconds=seconds,
        peer="Eq. 3 loop for loop, numba",
        peer_seconds=time.perf_counter() - begun,
    )


def layers() -> Iterator[Row]:
    """Operators to layers."""
    flops, crossings = instance(300)
    array = np.array(flops, dtype=np.int64)
    ours, seconds = _timed(lambda: layers_of(array, crossings, 16, 0.5, received=False))
    expected, peer_seconds = _timed(lambda: solve_reference(flops, crossings, 16, 0.5, received=False))
    if expected != (ours.objective_bytes, ours.cuts):
        raise SystemExit("The two layerings differ.")
    yield Row(
        work="Layers of 300 operators (Eq. 6)", seconds=seconds, peer="Eq. 6 in Python", peer_seconds=peer_seconds
    )


def captures() -> Iterator[Row]:
    """The graph of a deep model."""
    known = entry("llama-3-70b")

    def whole(config: Any) -> Any:
        return capture(make_module(config, "meta", 0), make_inputs(config, 1, "meta", 0), name=known.name)

    capture(make_module(known.config.with_periods(1), "meta", 0), make_inputs(known.config, 1, "meta", 0))
    few, seconds = _timed(lambda: unrolled(known.config, whole))
    every, peer_seconds = _timed(lambda: whole(known.config))
    if few != every:
        raise SystemExit("The unrolled graph is not that of the whole model.")
    yield Row(
        work="Training graph of Llama-3-70B, 80 blocks",
        seconds=seconds,
        peer="all blocks traced",
        peer_seconds=peer_seconds,
    )


def plans() -> Iterator[Row]:
    """Plans of a model, as commands and in Python."""
    request = ["gpt-2.6b", "--cluster", "2x4:v100", "-B", "64", "--layers", "8"]
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {"ALPA_EXPLORE_CACHE": folder}
        cold, warm = (_timed(lambda: _command(request, environment))[1] for _ in range(2))
    yield Row(
        work="The same plan again, as a command", seconds=warm, peer="gpt-2.6b, 2x4:v100, cold", peer_seconds=cold
    )
    plan = ax.plan("gpt-2.6b", "2x4:v100", num_microbatches=64, num_layers=8, delta=0.5, cache=False)
    ax.replan(plan, num_microbatches=32)
    _, seconds = _timed(lambda: ax.replan(plan, num_microbatches=16))
    yield Row(work="Another B, in Python", seconds=seconds, peer="gpt-2.6b, 2x4:v100, cold", peer_seconds=cold)
    _, seconds = _timed(lambda: ax.replan(plan, delta=0.1))
    yield Row(work="Another delta, in Python", seconds=seconds, peer="gpt-2.6b, 2x4:v100, cold", peer_seconds=cold)


def _command(request: list[str], environment: dict[str, str]) -> None:
    program = str(Path(sys.executable).with_name("alpa-explore"))
    subprocess.run([program, "plan", *request], env=environment, capture_output=True, check=True)


def _timed(function: Callable[[], Any]) -> tuple[Any, float]:
    begun = time.perf_counter()
    return function(), time.perf_counter() - begun


def _agree(ours: float, other: float) -> None:
    if abs(ours - other) > AGREEMENT * abs(other):
        raise SystemExit(f"Two methods disagree: {ours:.9g} and {other:.9g}.")


PARTS = {f.__name__: f for f in (sharding, ranges, pipeline, layers, captures, plans)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--only", nargs="*", choices=list(PARTS), default=list(PARTS), metavar="PART", help=", ".join(PARTS)
    )
    parser.add_argument("--json", metavar="FILE", help="write the rows there")
    options = parser.parse_args()
    print("| work | ours, s | beside it | its s | ratio |\n|---|---:|---|---:|---:|")
    rows = []
    for part in options.only:
        for row in PARTS[part]():
            print(row.line(), flush=True)
            rows.append(asdict(row))
    if options.json:
        Path(options.json).write_text(json.dumps(rows, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
