"""All layer ranges of GPT-39B on one 8×8 logical mesh: composed, solved one by one, and as plain ILPs (a sample).

    python benchmarks/ranges.py [--model gpt-39b] [--layers 16] [--cluster 8x8:v100] [--samples 3]

The planner composes the ranges block by block, and solves those that are not chains by themselves. The ILP is Eq. 1 in
PuLP with HiGHS (`highs`). Its seconds for ranges outside the sample are estimated in proportion to their nodes,
which favours the ILP.
"""

from __future__ import annotations

import argparse
import time

from alpa_explore.cluster import Cluster, logical_meshes, submeshes
from alpa_explore.cost.model import CostModel
from alpa_explore.intra_op.composition.block_subproblem import Price
from alpa_explore.intra_op.composition.chain import chain_of
from alpa_explore.intra_op.composition.compose import Composer
from alpa_explore.intra_op.solve import solve
from alpa_explore.intra_op.stage.build_problem import build_stage_problem
from alpa_explore.intra_op.stage.layered_graph import assign_layers
from alpa_explore.intra_op.stage.stage_graph import slice_stages
from alpa_explore.layering import cluster_operators
from alpa_explore.planner.microbatch_graph import microbatch_graph


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="gpt-39b")
    parser.add_argument("--layers", type=int, default=16)
    parser.add_argument("--cluster", default="8x8:v100")
    parser.add_argument("--microbatches", type=int, default=1024)
    parser.add_argument("--samples", type=int, default=3)
    options = parser.parse_args()
    start = time.perf_counter()
    graph = microbatch_graph(options.model, options.microbatches)
    print(f"capture {time.perf_counter() - start:.2f} s, {len(graph.operators):,} operators")
    start = time.perf_counter()
    layered = assign_layers(graph, cluster_operators(graph, options.layers).layer_of_forward)
    stage_of = slice_stages(layered)
    ranges = [(a, b) for a in range(options.layers) for b in range(a, options.layers)]
    keys = {r: stage_of(*r).structure_key for r in ranges}
    print(f"layering and structure keys {time.perf_counter() - start:.2f} s")
    cluster = Cluster.parse(options.cluster)
    whole = (cluster.nodes, cluster.devices_per_node)
    mesh = next(m for s in submeshes(cluster) for m in logical_meshes(cluster, s) if tuple(m.shape) == whole)
    model = CostModel(cluster.device, mesh.squeezed())

    price = Price(1 / options.microbatches, 0.0, 1)

    def problem_of(r: tuple[int, int]):
        return build_stage_problem(stage_of(*r), model).at(**price._asdict())

    distinct = list({key: r for r, key in reversed(keys.items())}.values())
    solve(problem_of((0, 0)))  # kernels are compiled before the clock starts
    start = time.perf_counter()
    composer = Composer(chain_of(layered), stage_of, model)
    (composed,) = composer.solve(distinct, [price])
    seconds = time.perf_counter() - start
    print(f"{len(composed)} of {len(distinct)} distinct ranges on mesh {mesh} composed: {seconds:.2f} s with building")
    objective = {keys[r]: best.cost for r, best in composed.items() if best is not None}
    for r in distinct:
        if keys[r] not in objective:
            objective[keys[r]] = solve(problem_of(r)).objective
    planner_seconds = time.perf_counter() - start
    start = time.perf_counter()
    nodes: dict[tuple[int, int], int] = {}
    worst = 0.0
    for r in distinct:
        problem = problem_of(r)
        nodes[r] = len(problem.node_costs)
        worst = max(worst, abs(solve(problem).objective / objective[keys[r]] - 1))
    one_by_one = time.perf_counter() - start
    print(f"each distinct range by itself, with `auto`: {one_by_one:.2f} s; largest difference {worst:.1e}")
    print(f"{len(ranges)} ranges, {len(objective)} distinct: {planner_seconds:.2f} s with building")
    for r in ranges:
        nodes.setdefault(r, next(nodes[s] for s in ranges if s in nodes and keys[s] == keys[r]))
    spent = counted = 0.0
    for r in [(k, k + 2 * k) for k in range(1, options.samples + 1)]:
        start = time.perf_counter()
        solution = solve(problem_of(r), "highs")
        seconds = time.perf_counter() - start
        agrees = abs(solution.objective - objective[keys[r]]) <= 1e-6 * solution.objective
        print(f"  one ILP for layers {r[0]}–{r[1]}: {seconds:.1f} s, {nodes[r]:,} nodes, same objective: {agrees}")
        spent, counted = spent + seconds, counted + nodes[r]
    all_ilps = spent / counted * sum(nodes.values())
    print(f"one ILP each: about {all_ilps:,.0f} s, {all_ilps / planner_seconds:,.0f} times as long")


if __name__ == "__main__":
    main()
