"""Seconds of the pipeline DP beside a numba transcription of the paper's recurrence, which must give the same T.

    python benchmarks/inter_op.py [--large] [--json FILE]

The latency tables are synthetic: layers of uneven weight, stages that gain from more devices with diminishing returns,
and memory limits under which the first stages of a deep pipeline cannot be large. Where the transcription would take
minutes, a sample of the t_max candidates that it would evaluate is timed, the optimal one included, and scaled up.
Also the seconds of another B: the latency table from the stage costs of a plan, and the DP.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from alpa_explore.cluster import Cluster, logical_meshes, submeshes
from alpa_explore.inter_op.pipeline_dp import pipeline_dp
from alpa_explore.pricing.stage_costs import StageCandidate, StageCosts

CASES = [(8, 1, 8), (16, 8, 8), (32, 8, 8), (32, 16, 8), (32, 32, 8), (32, 64, 8)]
"""(layers, nodes, devices per node) of the comparison with the transcription."""
MICROBATCHES = (1, 32, 1024)
REPLANNED = [(16, 8, 8), (32, 8, 8), (32, 64, 8)]
"""(layers, nodes, devices per node) whose B is changed."""
NEW_B = 48


def synthetic_table(layers: int, nodes: int, per_node: int, *, tight: bool, seed: int = 0) -> tuple[NDArray, NDArray]:
    """(latency [L, L + 1, M, L], devices_of [M]) for the submesh shapes of a cluster."""
    rng = np.random.default_rng(seed)
    devices_of = np.array([1 << k for k in range(per_node.bit_length())] + [per_node * n for n in range(2, nodes + 1)])
    weight = rng.uniform(0.7, 1.3, layers) * 0.01
    latency = np.full((layers, layers + 1, len(devices_of), layers), np.inf)
    held = np.arange(1, layers + 1)
    budget = 14 * layers / (nodes * per_node)
    for k in range(layers):
        for i in range(k + 1, layers + 1):
            for shape, devices in enumerate(devices_of):
                seconds = weight[k:i].sum() / devices**0.93 * rng.uniform(1, 1.1)
                if not tight:
                    latency[k, i, shape] = seconds
                    continue
                used = (i - k) / devices * (6 + held)
                # Over the limit, a slower choice that halves the memory; over twice the limit, none.
                latency[k, i, shape] = np.where(
                    used <= budget, seconds, np.where(used <= 2 * budget, 1.2 * seconds, np.inf)
                )
    return latency, devices_of


def recurrence(latency, candidates, devices_of, total_devices, num_microbatches):
    """The t_max enumeration and the recurrence of Eq. 3 (Alpa, §5.1), loop for loop; compiled by numba below."""
    layers, _, shapes, places = latency.shape
    best = np.inf
    evaluated = 0
    for t_max in candidates:
        if (num_microbatches - 1) * t_max >= best:
            break
        evaluated += 1
        table = np.full((places + 1, layers + 1, total_devices + 1), np.inf)
        table[0, layers, 0] = 0.0
        for s in range(1, places + 1):
            for k in range(layers - 1, -1, -1):
                for d in range(1, total_devices + 1):
                    for i in range(k + 1, layers + 1):
                        for shape in range(shapes):
                            if devices_of[shape] > d:
                                continue
                            seconds = latency[k, i, shape, s - 1]
                            if seconds > t_max:
                                continue
                            rest = table[s - 1, i, d - devices_of[shape]]
                            if rest != np.inf:
                                table[s, k, d] = min(table[s, k, d], seconds + rest)
        for s in range(1, places + 1):
            if table[s, 0, total_devices] != np.inf:
                best = min(best, table[s, 0, total_devices] + (num_microbatches - 1) * t_max)
    return best, evaluated


def measure(function: Callable[[], object], least_seconds: float = 0.2) -> tuple[float, object]:
    """(median seconds, last value) of a function that is called until `least_seconds` have passed."""
    times: list[float] = []
    value: object = None
    while sum(times) < least_seconds:
        start = time.perf_counter()
        value = function()
        times.append(time.perf_counter() - start)
    return sorted(times)[len(times) // 2], value


def stage_costs(latency: NDArray, cluster: Cluster) -> StageCosts:
    """Stage costs with candidates for every logical mesh of each cell, as a plan keeps them for another B."""
    shapes = submeshes(cluster)
    candidates = {}
    for first, last in itertools.combinations_with_replacement(range(len(latency)), 2):
        for place, submesh in enumerate(shapes):
            seconds = float(latency[first, last + 1, place].min())
            candidates[first, last, place] = tuple(
                StageCandidate(
                    logical_mesh=mesh,
                    microbatch_seconds=seconds * (1 + 0.03 * n),
                    iteration_seconds=seconds / (1 + n),
                    weight_bytes=8e9 * (last - first + 1) / submesh.devices,
                    activation_bytes=1e8 / (1 + n),
                    workspace_bytes=1e8,
                    solution_key="",
                )
                for mesh in logical_meshes(cluster, submesh)
                for n in range(3)
            )
    return StageCosts(
        num_layers=len(latency),
        submeshes=shapes,
        device_memory_bytes=cluster.device.memory_bytes,
        candidates=candidates,
    )


def compare_with_transcription(large: bool) -> list[dict[str, Any]]:
    """Time both on every case, check that T is equal, and print a line for each; `large` runs L=32 on 8×8 in full."""
    transcription = numba.njit(recurrence)
    rows: list[dict[str, Any]] = []
    print("  L  cluster  memory     B candidates evaluated       ms  numba ms ratio   (~: from a sample of candidates)")
    for layers, nodes, per_node in CASES:
        for tight in (False, True):
            latency, devices_of = synthetic_table(layers, nodes, per_node, tight=tight)
            devices = nodes * per_node
            for microbatches in MICROBATCHES:
                ours = partial(pipeline_dp, latency, devices_of, devices, microbatches)
                if not rows:
                    ours()  # compiles, or loads compiled code
                    transcription(latency, np.ones(1), devices_of, devices, microbatches)
                seconds, result = measure(ours)
                row = {
                    "layers": layers,
                    "cluster": f"{nodes}x{per_node}",
                    "memory_binds": tight,
                    "B": microbatches,
                    "candidates": len(result.candidates),
                    "evaluations": result.evaluations,
                    "seconds": seconds,
                    "total_seconds": result.total_seconds,
                    "stages": len(result.stages),
                }
                in_full = layers <= 16 or (large and nodes == 8 and microbatches == 1024)
                waiting = (microbatches - 1) * result.candidates
                needed = result.candidates[waiting < result.total_seconds]
                checked = needed if in_full else needed[len(needed) // 4 :: max(1, len(needed) // 2)]
                checked = np.unique(np.append(checked, result.t_max_seconds))
                start = time.perf_counter()
                expected, evaluated = transcription(latency, checked, devices_of, devices, microbatches)
                row["numba_seconds"] = (time.perf_counter() - start) * (1 if in_full else len(needed) / evaluated)
                row["numba_sampled"] = not in_full
                row["ratio"] = row["numba_seconds"] / seconds
                assert expected == result.total_seconds, "not the T of the transcription"
                rows.append(row)
                print(
                    f"{layers:>3} {row['cluster']:>8} {'binds' if tight else 'free':>7} {microbatches:>5} "
                    f"{row['candidates']:>10} {row['evaluations']:>9} {1e3 * seconds:>8.1f} "
                    f"{'' if in_full else '~'}{1e3 * row['numba_seconds']:.1f} {row['ratio']:.0f}x",
                    flush=True,
                )
    return rows


def time_new_b() -> list[dict[str, Any]]:
    """Time the latency table and the DP for another B, from stage costs, and print a line for each case."""
    rows: list[dict[str, Any]] = []
    print("\nAnother B, from the stage costs that a plan keeps: the table and the DP")
    for layers, nodes, per_node in REPLANNED:
        latency, _ = synthetic_table(layers, nodes, per_node, tight=False)
        cluster = Cluster.parse(f"{nodes}x{per_node}:v100")
        costs = stage_costs(latency, cluster)
        costs.latency_table(1)  # the first evaluation builds the arrays of candidates
        table_seconds, table = measure(partial(costs.latency_table, NEW_B))
        devices = [m.devices for m in costs.submeshes]
        seconds, _ = measure(partial(pipeline_dp, table, devices, cluster.devices, NEW_B))
        count = sum(map(len, costs.candidates.values()))
        rows.append(
            {
                "layers": layers,
                "cluster": f"{nodes}x{per_node}",
                "stage_candidates": count,
                "B": NEW_B,
                "table_seconds": table_seconds,
                "seconds": seconds,
            }
        )
        print(
            f"{layers:>3} {nodes}x{per_node} {count:>8} candidates: {1e3 * table_seconds:.1f} + {1e3 * seconds:.1f} ms"
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--large", action="store_true", help="also L=32 on 8×8, B=1024 against numba (a minute)")
    parser.add_argument("--json", metavar="FILE", help="write the rows there")
    options = parser.parse_args()
    rows = [*compare_with_transcription(options.large), *time_new_b()]
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(rows, file, indent=1)


if __name__ == "__main__":
    main()
