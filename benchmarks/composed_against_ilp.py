"""Composition against one PuLP ILP for every stage: the same objectives, the same plan, the same T.

    python benchmarks/composed_against_ilp.py                                  the models of RUNS
    python benchmarks/composed_against_ilp.py gpt-1.3b --checkpoint FILE       one of them; resume from FILE

For every distinct (layer range × logical mesh) that a pipeline could have, Eq. 1 at the plan's B is solved once by
composition (by `auto` where composition does not apply) and once as the plain ILP in PuLP with HiGHS (`highs`).
The plan of the ILPs is the pipeline DP over their objectives. Where the choice of an ILP overflows a stage of that
pipeline, the ILP is solved again within the memory, and the DP runs again, until all stages fit. Then no other pipeline
is better, because its stages are at least as slow within memory as without a limit. That plan is compared with the
planner's. Every ILP is written to the checkpoint when it is done, under a digest of the problem's numbers.

Measured: gpt-1.3b 38 stages, largest difference 1.8e-14, T 50.085484 s; wide-resnet-1b 70 stages, 5.3e-15, T 49.236139
s; moe-2.4b 95 stages, 1.4e-14, T 12.914453 s; llama-3.2-1b 27 stages, 4.3e-15, T 120.415833 s; mixtral-tiny 4 stages,
6.7e-16, T 0.048927 s; the same plan each time. The ILPs took 72, 17, 697, 121 and 9 s of CPU. (On devices with
host time the objectives stay equal and T differs, as Eq. 1 knows no host.)
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import numpy as np

from alpa_explore.cluster import Cluster, LogicalMesh, logical_meshes, submeshes
from alpa_explore.cost.model import CostModel
from alpa_explore.inter_op.pipeline_dp import pipeline_dp
from alpa_explore.intra_op.composition.block_subproblem import Price
from alpa_explore.intra_op.composition.chain import chain_of
from alpa_explore.intra_op.composition.compose import Composer
from alpa_explore.intra_op.ilp.enumerated_ilp import solve_enumerated
from alpa_explore.intra_op.problem.sharding_problem import ShardingProblem
from alpa_explore.intra_op.solve import solve
from alpa_explore.intra_op.stage.build_problem import build_stage_problem
from alpa_explore.intra_op.stage.layered_graph import assign_layers
from alpa_explore.intra_op.stage.stage_graph import slice_stages
from alpa_explore.intra_op.stage.stage_problem import StageProblem
from alpa_explore.layering import cluster_operators
from alpa_explore.planner import interface
from alpa_explore.planner.microbatch_graph import microbatch_graph
from alpa_explore.search.stages.stage_problems import feasible_stages

RUNS = {
    "gpt-1.3b": ("1x4:v100", 128, 6),
    "moe-2.4b": ("1x8:v100", 128, 8),
    "wide-resnet-1b": ("1x4:v100", 24, 8),
    "llama-3.2-1b": ("1x8:v100", 128, 4),
    "mixtral-tiny": ("1x4:v100", 8, 2),
}
"""Model -> cluster, B and layers."""
SAME = 1e-6
"""Relative difference that counts as equal: HiGHS accepts a variable as integral within 1e-6."""


class Ilps:
    """Eq. 1 in PuLP with HiGHS, from the checkpoint where it holds the answer: (objective, choices)."""

    def __init__(self, checkpoint: Path) -> None:
        self.checkpoint, self.solved, self.seconds = checkpoint, 0, 0.0
        lines = checkpoint.read_text().splitlines() if checkpoint.exists() else []
        self.entries = {entry["key"]: entry for entry in map(json.loads, lines)}

    def __call__(
        self, problem: ShardingProblem, stage: StageProblem, held: int, limit: int | None
    ) -> tuple[float, tuple[int, ...]]:
        key = sha256(repr((content(problem), limit and (held, limit))).encode()).hexdigest()
        if key not in self.entries:
            started = time.process_time()
            memory = None if limit is None else stage.memory_limit(held, limit)
            solution = solve_enumerated(problem, memory=memory)
            entry = {
                "key": key,
                "objective": solution.objective,
                "choices": solution.choices,
                "variables": solution.variables,
                "seconds": time.process_time() - started,
            }
            self.entries[key] = entry
            with self.checkpoint.open("a") as file:
                file.write(json.dumps(entry) + "\n")
        entry = self.entries[key]
        self.solved, self.seconds = self.solved + 1, self.seconds + entry["seconds"]
        return entry["objective"], tuple(entry["choices"])


def content(problem: ShardingProblem) -> str:
    """Digest of the numbers of a problem."""
    digest = sha256()
    for part in (problem.node_costs, problem.edges, problem.edge_costs):
        for array in part:
            digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def compare(name: str, ilps: Ilps) -> bool:
    text, b, layers = RUNS[name]
    cluster = Cluster.parse(text)
    graph = microbatch_graph(name, b)
    started = time.process_time()
    plan = interface.plan(graph, cluster, num_microbatches=b, num_layers=layers, scheduler="serial", cache=False)
    took = time.process_time() - started
    layered = assign_layers(graph, cluster_operators(graph, layers).layer_of_forward)
    stage_of, chain = slice_stages(layered), chain_of(layered)
    all_submeshes = submeshes(cluster)
    cells: dict[tuple[int, int, int], list[tuple[str, LogicalMesh]]] = {}
    distinct: dict[LogicalMesh, dict[str, tuple[int, int]]] = {}
    for first, last, submesh in feasible_stages(layers, all_submeshes, cluster.devices):
        for mesh in logical_meshes(cluster, all_submeshes[submesh]):
            squeezed, key = mesh.squeezed(), stage_of(first, last).structure_key
            cells.setdefault((first, last, submesh), []).append((key, squeezed))
            distinct.setdefault(squeezed, {}).setdefault(key, (first, last))
    count = sum(map(len, distinct.values()))
    print(f"{name} on {text}, B = {b}, {layers} layers: planned in {took:.0f} s, {count} distinct stages", flush=True)
    models = {mesh: CostModel(cluster.device, mesh) for mesh in distinct}
    price = Price(1 / b, 0.0, 1)
    optimum: dict[tuple[str, LogicalMesh], float] = {}
    peak_of: dict[tuple[str, LogicalMesh], Callable[[int], float]] = {}
    worst, by_composition = 0.0, 0
    for mesh, ranges in distinct.items():
        (composed,) = Composer(chain, stage_of, models[mesh]).solve(list(ranges.values()), [price])
        for key, (first, last) in ranges.items():
            problem = build_stage_problem(stage_of(first, last), models[mesh])
            priced = problem.at(**price._asdict())
            choice = composed.get((first, last))
            by_composition += choice is not None
            objective, choices = ilps(priced, problem, 0, None)
            worst = max(worst, abs((solve(priced).objective if choice is None else choice.cost) / objective - 1))
            optimum[key, mesh], totals = objective, problem.totals(choices)
            peak_of[key, mesh] = totals.peak_bytes
        print(f"  {mesh}: {len(ranges)} stages, largest difference so far {worst:.1e}", flush=True)
    memory, within = cluster.device.memory_bytes, dict[tuple[str, LogicalMesh, int], float]()

    def seconds(key: str, mesh: LogicalMesh, held: int) -> float:
        return within.get((key, mesh, held), optimum[key, mesh])

    while True:
        table = np.full((layers, layers + 1, len(all_submeshes), layers), np.inf)
        for (first, last, submesh), stages in cells.items():
            for place in range(1, layers + 1):
                least = min(seconds(key, mesh, min(place, b)) for key, mesh in stages)
                table[first, last + 1, submesh, place - 1] = least
        pipeline = pipeline_dp(table, [s.devices for s in all_submeshes], cluster.devices, b)
        overflowing = [
            (key, mesh, held)
            for i, (first, end, submesh) in enumerate(pipeline.stages)
            for held in [min(len(pipeline.stages) - i, b)]
            for key, mesh in cells[first, end - 1, submesh]
            if (key, mesh, held) not in within and peak_of[key, mesh](held) > memory
        ]
        for key, mesh, held in overflowing:
            first, last = distinct[mesh][key]
            problem = build_stage_problem(stage_of(first, last), models[mesh])
            within[key, mesh, held] = ilps(problem.at(**price._asdict()), problem, held, memory)[0]
        if not overflowing:
            break
    planned = [(s.layers[0], s.layers[1] + 1, s.submesh) for s in plan.stages]
    by_ilps = [
        (first, end, (all_submeshes[p].nodes, all_submeshes[p].devices_per_node)) for first, end, p in pipeline.stages
    ]
    apart = abs(plan.predicted.iteration_seconds / pipeline.total_seconds - 1) if pipeline.feasible else math.inf
    same = planned == by_ilps
    print(
        f"  {count} stages compared ({by_composition} composed, the others solved alone): largest relative difference "
        f"{worst:.1e}; {len(within)} more within memory\n"
        f"  same plan: {same} ({by_ilps}); T {pipeline.total_seconds:.6f} s, "
        f"relative difference {apart:.1e}\n  {ilps.solved} ILPs, {ilps.seconds:.0f} s of CPU for them",
        flush=True,
    )
    return same and worst <= SAME and apart <= SAME


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=list(RUNS), help=f"of {', '.join(RUNS)}")
    parser.add_argument("--checkpoint", type=Path, default=Path("composed_against_ilp.jsonl"))
    options = parser.parse_args()
    differ = [name for name in options.models or RUNS if not compare(name, Ilps(options.checkpoint))]
    if differ:
        raise SystemExit(f"Not the same: {', '.join(differ)}")


if __name__ == "__main__":
    main()
