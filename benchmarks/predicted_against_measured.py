"""Predicted against measured seconds of an iteration on the CPU of this machine: one model, several dozen plans.

    python benchmarks/predicted_against_measured.py [--model gpt-tiny] [--ranks 2] [--steps 20] [--json FILE]

The device is measured first (matrix products, memory, collectives between as many processes as the plans have ranks,
one core each). Then every plan is launched, and its median step is compared with the simulated iteration. All plans
train on the same number of samples per iteration. Printed: a row for each plan, Kendall's tau of the ranking, the mean
error, and the mean error after one common factor is removed from all predictions.

Then the device is fitted (`alpa-explore calibrate --from-run`) to the runs with the B in FITTED, and the other plans,
whose microbatches have other sizes, are predicted with the fitted device: tau and errors of those alone, before and
after. Run it on an idle machine: where other work shares the cores, the same plan takes 0.2 s in one run and 0.4 s in
another.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from statistics import fmean, median
from typing import Any

import alpa_explore as ax
from alpa_explore.accuracy.scores import kendall_tau
from alpa_explore.calibration.device_file import device_file
from alpa_explore.calibration.from_run import recalibrate
from alpa_explore.calibration.microbenchmarks import measure
from alpa_explore.errors import AlpaExploreError
from alpa_explore.plans.plan import Plan
from alpa_explore.plans.report.text import render_table
from alpa_explore.runtime.launch import launch
from alpa_explore.runtime.measured import load_measured

MICROBATCHES = (1, 2, 4, 8)
FITTED = (1, 4)
"""The B of the runs that the device is fitted to."""


def plans(model: str, cluster: str, layers: int, ranks: int) -> Iterator[tuple[str, Plan]]:
    """(name, plan): the baselines and the automatic plan for each B."""
    kinds: list[tuple[str, dict[str, int]]] = [("data-parallel", {}), ("zero-3", {}), ("inter-only", {})]
    for tp, pp in product(range(1, ranks + 1), repeat=2):
        if ranks % (tp * pp) == 0 and tp > 1:
            kinds.append(("megatron", {"tp": tp, "dp": ranks // (tp * pp), "pp": pp}))
    for count in MICROBATCHES:
        for kind, degrees in kinds:
            name = " ".join([kind, *(f"{k}{v}" for k, v in degrees.items())])
            plan = ax.baseline(
                model, cluster, kind, num_microbatches=count, num_layers=layers, precision="float32", **degrees
            )
            yield f"{name}, B = {count}", plan
        yield (
            f"automatic, B = {count}",
            ax.plan(model, cluster, num_microbatches=count, num_layers=layers, precision="float32"),
        )


def calibrated(ranks: int, folder: Path) -> str:
    """Measures this machine; returns the name of a cluster made of it."""
    measurements = measure(kind="cpu", ranks=ranks)
    path = folder / "cpu.json"
    path.write_text(json.dumps(device_file(measurements, name="measured")))
    return f"1x{ranks}:{path}"


def run(plan: Plan, steps: int, folder: Path) -> tuple[float, float]:
    """Seconds of an iteration, (predicted, measured)."""
    launch(plan, steps=steps, folder=folder, device="cpu").result()
    measured = load_measured(folder)
    return measured.predicted_iteration_seconds, measured.measured_iteration_seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="gpt-tiny")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--ranks", type=int, default=min(os.cpu_count() or 1, 4))
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        cluster = calibrated(options.ranks, folder)
        for number, (name, plan) in enumerate(plans(options.model, cluster, options.layers, options.ranks)):
            try:
                predicted, measured = run(plan, options.steps, folder / str(number))
            except AlpaExploreError as error:
                print(f"{name}: {error}", file=sys.stderr, flush=True)
                continue
            rows.append(
                {
                    "plan": name,
                    "stages": len(plan.stages),
                    "num_microbatches": plan.options.num_microbatches,
                    "predicted_seconds": predicted,
                    "measured_seconds": measured,
                    "ratio": measured / predicted,
                    "folder": folder / str(number),
                }
            )
            print(f"{name}: predicted {predicted:.3f} s, measured {measured:.3f} s", file=sys.stderr, flush=True)
        fitted = fit_and_predict(rows)
    shown = [{k: v for k, v in row.items() if k != "folder"} for row in rows]
    print(render_table(sorted(shown, key=lambda row: float(row["measured_seconds"]))))
    scores = {"all runs": score(rows, "predicted_seconds"), **fitted}
    for name, figures in scores.items():
        print(f"\n{name}")
        print("\n".join(f"  {key}: {value:.3g}" for key, value in figures.items() if value is not None))
    if options.json:
        options.json.write_text(json.dumps({**scores, "rows": shown}, indent=1))


def score(rows: list[dict[str, Any]], which: str) -> dict[str, float | None]:
    """How well the column `which` predicts the measured seconds."""
    ratios = [row["measured_seconds"] / row[which] for row in rows]
    factor = median(ratios)
    return {
        "plans": len(rows),
        "kendall_tau": kendall_tau([r[which] for r in rows], [r["measured_seconds"] for r in rows]),
        "mean_error": fmean(abs(1 / ratio - 1) for ratio in ratios),
        "common_factor": factor,
        "mean_error_without_it": fmean(abs(factor / ratio - 1) for ratio in ratios),
    }


def fit_and_predict(rows: list[dict[str, Any]]) -> dict[str, dict[str, float | None]]:
    """Fits the device to some of the runs and predicts the others."""
    fitted = [row for row in rows if row["num_microbatches"] in FITTED]
    others = [row for row in rows if row["num_microbatches"] not in FITTED]
    cluster = recalibrate([row["folder"] for row in fitted]).after
    for row in rows:
        row["fitted_seconds"] = load_measured(row["folder"], cluster).predicted_iteration_seconds
    return {
        "runs that were not fitted, before": score(others, "predicted_seconds"),
        "runs that were not fitted, after": score(others, "fitted_seconds"),
        "runs that were fitted, after": score(fitted, "fitted_seconds"),
    }


if __name__ == "__main__":
    main()
