"""Predicted against measured seconds of an iteration across two emulated hosts, at several bandwidths of their link.

    sudo python benchmarks/across_hosts.py [--rates 50 200 1000] [--steps 8] [--json FILE]

Two network namespaces on a switch are the hosts, `tc` limits what each sends (Mbit/s), a Dask worker is on each. At
every bandwidth the hosts are attached and their links measured (`ax.attach`), which makes the cluster that the plans
are made and priced for. The device is calibrated once, on one worker, and then refitted to two data-parallel runs at
the first bandwidth (`recalibrate`): kernels take longer inside a program than alone. The plans divide gpt-tiny in
different ways, with 2 to 8 microbatches, all with the same samples an iteration; those of the refit have other numbers
of microbatches. Every one is launched on the workers and its median step, without the first, compared with the
simulated iteration. Printed: a row for each plan and bandwidth, and for each bandwidth Kendall's tau of the ranking,
the mean error, and the mean error without one common factor. It needs root; run it on an idle machine.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from statistics import fmean, median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import alpa_explore as ax
from alpa_explore.accuracy.scores import kendall_tau
from alpa_explore.attached.attach import Attached, attach
from alpa_explore.attached.cluster_of import calibrate
from alpa_explore.calibration.from_run import recalibrate
from alpa_explore.cluster import Cluster, Device
from alpa_explore.errors import AlpaExploreError
from alpa_explore.plans.plan import Plan
from alpa_explore.plans.report.text import render_table
from alpa_explore.runtime.launch import launch
from alpa_explore.runtime.measured import load_measured
from tests.hosts.hosts import Hosts, missing

MODEL, LAYERS = "gpt-tiny", 4
MICROBATCHES = (2, 4, 8)
KINDS: tuple[tuple[str, dict[str, int]], ...] = (
    ("data-parallel", {}),
    ("zero-3", {}),
    ("megatron", {"tp": 2, "dp": 1, "pp": 1}),
)
FITTED_MICROBATCHES = (1, 16)
"""Of the two runs to which the device is refitted: the smallest and the largest kernels, and none of those scored."""
CUTS = ((1,), (2,), (3,))
"""First layers of the second stage: an even cut, and two uneven ones."""


def plans(cluster: Cluster) -> Iterator[tuple[str, Plan]]:
    """(name, plan)."""
    shape: dict[str, Any] = {"num_layers": LAYERS, "precision": "float32"}
    for count, (kind, degrees) in product(MICROBATCHES, KINDS):
        name = " ".join([kind, *(f"{k}{v}" for k, v in degrees.items())])
        yield f"{name}, B = {count}", ax.baseline(MODEL, cluster, kind, num_microbatches=count, **shape, **degrees)
    for count, cuts in product(MICROBATCHES, CUTS):
        pipeline = ax.PipelineOptions(cuts=cuts, num_stages=2)
        name = f"2 stages of {cuts[0]} and {LAYERS - cuts[0]} layers, B = {count}"
        yield name, ax.plan(MODEL, cluster, num_microbatches=count, pipeline=pipeline, **shape)


def attached(scheduler: str, *, first: bool) -> Cluster:
    """The cluster of the hosts, one device each, with their links as measured now."""
    nodes: Attached = attach(scheduler, allow_remote=True)
    if first:
        calibrate(scheduler, nodes.hosts[0], 1, shapes=False, allow_remote=True)
    cluster = nodes.cluster(1)
    between = cluster.between_nodes
    print(
        f"measured: {between.bandwidth * 8 / 1e6:.0f} Mbit/s, {between.latency_seconds * 1e6:.0f} µs", file=sys.stderr
    )
    return replace(cluster, device=replace(cluster.device, memory_bytes=2**33))  # the same at every bandwidth


def refitted(scheduler: str, cluster: Cluster, folder: Path) -> Device:
    """The device with its figures refitted to two runs."""
    folders = []
    for count in FITTED_MICROBATCHES:
        plan = ax.baseline(
            MODEL, cluster, "data-parallel", num_microbatches=count, num_layers=LAYERS, precision="float32"
        )
        folders.append(folder / f"fitted-{count}")
        launch(plan, "dask", scheduler=scheduler, steps=8, folder=folders[-1], device="cpu").result()
    found = recalibrate(folders)
    print(f"refitted: {found.after.device.launch_seconds * 1e6:.0f} µs a kernel", file=sys.stderr)
    return found.after.device


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rates", type=int, nargs="+", default=[50, 200, 1000], metavar="MBIT")
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if reason := missing():
        sys.exit(reason)
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as temporary, Hosts(2) as hosts:
        os.environ["ALPA_EXPLORE_CALIBRATIONS"] = f"{temporary}/calibrations"
        scheduler = hosts.dask()
        for number, rate in enumerate(options.rates):
            for host in range(2):
                hosts.limit(host, f"{rate}mbit")
            cluster = attached(scheduler, first=number == 0)
            if number == 0:
                device = refitted(scheduler, cluster, Path(temporary))
            cluster = replace(cluster, device=device)
            for place, (name, plan) in enumerate(plans(cluster)):
                folder = Path(temporary) / f"{rate}-{place}"
                try:
                    launch(plan, "dask", scheduler=scheduler, steps=options.steps, folder=folder, device="cpu").result()
                except AlpaExploreError as error:
                    print(f"{name}: {error}", file=sys.stderr, flush=True)
                    continue
                measured = load_measured(folder)
                row = {
                    "mbit": rate,
                    "plan": name,
                    "predicted_seconds": measured.predicted_iteration_seconds,
                    "measured_seconds": measured.measured_iteration_seconds,
                }
                row["ratio"] = row["measured_seconds"] / row["predicted_seconds"]
                rows.append(row)
                print(
                    f"{rate} Mbit/s, {name}: predicted {row['predicted_seconds']:.3f} s, measured "
                    f"{row['measured_seconds']:.3f} s",
                    file=sys.stderr,
                    flush=True,
                )
    print(render_table(rows))
    scores = {f"{rate} Mbit/s": score([r for r in rows if r["mbit"] == rate]) for rate in options.rates}
    scores["all"] = score(rows)
    print()
    print(render_table([{"link": name, **figures} for name, figures in scores.items()]))
    if options.json:
        options.json.write_text(json.dumps({"scores": scores, "rows": rows}, indent=1))


def score(rows: list[dict[str, Any]]) -> dict[str, float | None]:
    """How well the predictions fit."""
    if not rows:
        return {"plans": 0}
    ratios = [row["ratio"] for row in rows]
    factor = median(ratios)
    return {
        "plans": len(rows),
        "kendall_tau": kendall_tau([r["predicted_seconds"] for r in rows], [r["measured_seconds"] for r in rows]),
        "mean_error": fmean(abs(1 / ratio - 1) for ratio in ratios),
        "common_factor": factor,
        "mean_error_without_it": fmean(abs(factor / ratio - 1) for ratio in ratios),
    }


if __name__ == "__main__":
    main()
