"""Twenty models on the CPU of this machine: predicted by curves and by measured kernels, run, compared.

    PYTHONPATH=. python benchmarks/on_cpu.py [NAME …] [--processes 1 2 4] [--minutes 10] [--store]

Curves are those of one core of this machine (`calibration.device_file`). For each model and number of processes there
are two plans: the best by curves, and the best by measured kernels (`ax.profile`, which times kernels for `--seconds`
and plans anew). Each is predicted both ways and run over gloo, in turn, where they differ; those of `RACED` several
times on the most processes: which plan is faster when run? Five models are in every run of the script, the others
follow until the minutes are over.

A run has two figures. *Seconds* of an iteration are those of the clock on the wall: they mean something where nothing
else runs and there are as many cores as processes. *Computing seconds* are those of the processor in all forward and
backward tasks of all ranks, without waiting and without what other programs take: they hold on a busy machine, too,
but for caches that are shared. *Update* is the same of the optimizer's steps, of one process.
The load beside a row is the number of processes that wanted a core when it was run.

`--store` writes on_cpu.json beside this file, and keeps the rows of the models that are not run.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean, geometric_mean, median
from typing import Any

import torch
from architecture_models import hugging_face, language, recurrent, tabular, vision

import alpa_explore as ax
from alpa_explore.accuracy.scores import kendall_tau
from alpa_explore.calibration.device_file import device_file
from alpa_explore.calibration.measuring import kernels
from alpa_explore.calibration.measuring.clock import Clock
from alpa_explore.calibration.microbenchmarks import measure
from alpa_explore.cluster import Cluster
from alpa_explore.cluster.kernel_store import KernelStore
from alpa_explore.cluster.presets import load_preset
from alpa_explore.errors import AlpaExploreError
from alpa_explore.graph import TrainingGraph
from alpa_explore.models.configs import DecoderConfig, ExpertsConfig
from alpa_explore.models.factory import make_inputs, make_module
from alpa_explore.plans.plan import Plan
from alpa_explore.plans.report.error_bands import measured_share
from alpa_explore.plans.report.text import render_table
from alpa_explore.questions.reprice import reprice
from alpa_explore.runtime.measured import load_measured

STORE = Path(__file__).parent / "on_cpu.json"
B, LAYERS, DELTA = 2, 4, 1.0
STEPS, SHORT, STEPS_OF_SHORT = 6, 0.3, 20
"""Steps of a run, and of those whose steps take less than so many seconds: its first ones make the memory of all."""
RACED = ("resnet-own", "unet", "bert", "mixtral", "llama")
"""A CNN, a U-Net, a BERT, a mixture and a Llama."""
LIBRARY = ("bert", "gpt2", "t5", "vit")
OWN = {**recurrent.MODELS, **vision.MODELS, **tabular.MODELS, **language.MODELS}
NAMES = (
    *RACED,
    *("gpt2", "lstm", "vgg", "convnext-own", "t5", "densenet", "vae", "mlp-mixer", "wavenet", "torch-transformer"),
    *("linear-attention", "dlrm", "message-passing", "autoencoder", "nerf"),
)
_DECODER = {"hidden": 256, "layers": 4, "heads": 8, "kv_heads": 4, "ffn": 704, "vocabulary": 1024, "sequence": 128}
DECODERS = {
    "llama": DecoderConfig(**_DECODER),
    "mixtral": DecoderConfig(
        family="Mixtral",
        head=32,
        experts=ExpertsConfig(count=8, chosen=2, ffn=352),
        **(_DECODER | {"layers": 2, "ffn": 0}),
    ),
}
Row = dict[str, Any]


def built(name: str) -> tuple[torch.nn.Module, Any]:
    """The model of `name` with weights, and a microbatch of random numbers."""
    torch.manual_seed(0)
    if name in DECODERS:
        return make_module(DECODERS[name], "cpu", 0), make_inputs(DECODERS[name], 4, "cpu", 0)
    model, inputs = OWN[name]() if name in OWN else hugging_face.build(name)

    def drawn(tensor: torch.Tensor) -> torch.Tensor:
        return torch.rand(tensor.shape) if tensor.dtype.is_floating_point else torch.randint(0, 2, tensor.shape)

    if isinstance(inputs, dict):
        return model, {key: drawn(value) for key, value in inputs.items()}
    return model, tuple(map(drawn, inputs))


def curves(folder: Path) -> Path:
    """A device file of one core of this machine, by processor time; links between two processes by the wall's."""
    torch.set_num_threads(1)
    clock = Clock("cpu", 1, 0.02, time.thread_time)
    found = replace(
        measure(kind="cpu", ranks=min(2, os.cpu_count() or 1), shapes=False),
        matmul={dtype: tuple(kernels.square_products(clock, dtype)) for dtype in kernels.DTYPES["cpu"]},
        memory=tuple(kernels.memory(clock)),
    )
    path = folder / "core.json"
    path.write_text(json.dumps(device_file(found, name="core", like=load_preset("cpu"))))
    return path


def run(plan: Plan, model: torch.nn.Module, inputs: Any, graph: TrainingGraph) -> Row:
    """Train; the figures of the run."""
    with tempfile.TemporaryDirectory() as folder:
        own = {"model": model, "example_inputs": inputs, "graph": graph, "device": "cpu", "frozen_buffers": True}
        steps = STEPS_OF_SHORT if plan.predicted.iteration_seconds < SHORT else STEPS
        ax.launch(plan, steps=steps, folder=folder, stall_seconds=300.0, **own).result()
        measured = load_measured(folder)
        return {
            "seconds": measured.measured_iteration_seconds,
            "computing": processor_seconds(Path(folder), plan, lambda name: "U" not in name),
            "update": processor_seconds(Path(folder), plan, lambda name: "U" in name),
            "load": round(os.getloadavg()[0], 1),
        }


def processor_seconds(folder: Path, plan: Plan, counts: Callable[[str], bool]) -> float:
    """Processor seconds of the tasks that count, of all ranks: medians over the steps but the first."""
    whole = 0.0
    for rank in (rank for stage in plan.stages for rank in stage.devices):
        tasks = json.loads((folder / f"rank-{rank}.measured.json").read_text())["tasks"]
        whole += sum(median(of["processor_seconds"][1:]) for name, of in tasks.items() if counts(name))
    return whole


def predicted(plan: Plan) -> tuple[float, float, float]:
    """(seconds of an iteration, computing seconds of all ranks, those of the update)."""
    timeline, computing = plan.timeline(), 0.0
    for stage, submesh in enumerate(timeline.schedule.submesh_of_stage):
        times = timeline.times[stage]
        parts = (times.forward_seconds, times.backward_input_seconds, times.backward_weight_seconds)
        alone = sum(part * (1 - share) for part, share in zip(parts, times.collective_fraction, strict=False))
        computing += alone * plan.options.num_microbatches * len(plan.stages[submesh].devices)
    update = sum(times.update_seconds for times in timeline.times)
    return plan.predicted.iteration_seconds, computing, update


def compare(
    name: str, processes: Sequence[int], core: Path, store: KernelStore | None, seconds: float, races: int
) -> tuple[list[Row], KernelStore | None]:
    """The rows of one model, and the store with its kernels."""
    model, inputs = built(name)
    graph = ax.capture(model, inputs, name=name)
    rows: list[Row] = []
    for count in processes:
        cluster = Cluster.parse(f"1x{count}:{core}")
        layers = min(LAYERS, len(graph.forward_operators))
        by_curves = ax.plan(graph, cluster, num_microbatches=B, num_layers=layers, delta=DELTA, cache=False)
        profile = ax.profile(by_curves, seconds=seconds, kind="cpu", store=store)
        store = profile.store
        timed = replace(cluster, device=replace(cluster.device, measured=store))
        by_kernels = ax.plan(graph, timed, num_microbatches=B, num_layers=layers, delta=DELTA, cache=False)
        plans = {"curves": by_curves, "kernels": by_kernels}
        if decisions(by_curves) == decisions(by_kernels):
            del plans["curves"]
        runs: dict[str, list[Row]] = {by: [] for by in plans}
        for _ in range(races if name in RACED and count == max(processes) else 1):
            for by, plan in plans.items():
                runs[by].append(run(plan, model, inputs, graph))
        for by, plan in plans.items():
            row = {"model": name, "processes": count, "plan": by if len(plans) > 1 else "both"}
            for how, where in (("curves", cluster), ("kernels", timed)):
                figures = zip(("seconds", "computing", "update"), predicted(reprice(plan, where, graph)), strict=True)
                row |= {f"{figure} by {how}": value for figure, value in figures}
            row["share measured"] = measured_share(reprice(plan, timed, graph))
            row |= {key: median(each[key] for each in runs[by]) for key in ("seconds", "computing", "update", "load")}
            row["runs"] = [each["seconds"] for each in runs[by]], [each["computing"] for each in runs[by]]
            rows.append(row)
            print(
                *(
                    f"{key} {value:.3g}" if isinstance(value, float) else value
                    for key, value in row.items()
                    if key != "runs"
                ),
                sep=" · ",
                file=sys.stderr,
                flush=True,
            )
    return rows, store


def decisions(plan: Plan) -> list[Any]:
    """What two plans differ in: stages, and how each operator is divided."""
    return [[*stage.layers, list(stage.devices), [o.strategy for o in stage.operators]] for stage in plan.stages]


def score(rows: Sequence[Row], figure: str, how: str) -> Row:
    """How well a figure is predicted: errors of the ratio, also without a common factor, and the order."""
    ratios = [row[f"{figure} by {how}"] / row[figure] for row in rows]
    common = geometric_mean(ratios)
    return {
        "figure": figure,
        "by": how,
        "processes": " and ".join(map(str, sorted({row["processes"] for row in rows}))),
        "rows": len(rows),
        "mean error": fmean(abs(ratio - 1) for ratio in ratios),
        "worst": max(abs(ratio - 1) for ratio in ratios),
        "bias": common - 1,
        "error without it": fmean(abs(ratio / common - 1) for ratio in ratios),
        "tau": kendall_tau([row[f"{figure} by {how}"] for row in rows], [row[figure] for row in rows]),
    }


def scores_of(rows: Sequence[Row]) -> list[Row]:
    """Those of all runs, and of the runs of one process: two on one real core slow each other, which is in no kernel's
    time."""
    alone = [row for row in rows if row["processes"] == 1]
    scored = [("computing", rows), ("seconds", rows)]
    if alone:
        scored += [("computing", alone), ("seconds", alone), ("update", alone)]
    return [score(of, figure, how) for figure, of in scored for how in ("curves", "kernels")]


def raced(rows: Sequence[Row]) -> list[Row]:
    """The plan by measured kernels beside that by curves, where they differ."""
    found = []
    for row in rows:
        others = [r for r in rows if (r["model"], r["processes"]) == (row["model"], row["processes"])]
        if row["plan"] == "kernels" and (other := next((r for r in others if r["plan"] == "curves"), None)):
            found.append(
                {
                    "model": row["model"],
                    "processes": row["processes"],
                    "seconds, kernels / curves": row["seconds"] / other["seconds"],
                    "computing, kernels / curves": row["computing"] / other["computing"],
                    "predicted by kernels": row["seconds by kernels"] / other["seconds by kernels"],
                    "runs of each": len(row["runs"][0]),
                    "load": row["load"],
                }
            )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=list(NAMES), metavar="NAME")
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument(
        "--seconds", type=float, default=4.0, help="to time kernels in, for each model and number of processes"
    )
    parser.add_argument("--races", type=int, default=5, help="runs of each plan of the models that are raced")
    parser.add_argument("--store", action="store_true")
    options = parser.parse_args()
    end, store = time.monotonic() + 60 * options.minutes, None
    stored = json.loads(STORE.read_text()) if options.store and STORE.exists() else {"rows": []}
    rows: list[Row] = stored["rows"]
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        core = curves(Path(folder))
        for name in options.names:
            if time.monotonic() > end:
                print(f"the time is over before {name}", file=sys.stderr)
                break
            try:
                found, store = compare(name, options.processes, core, store, options.seconds, options.races)
            except AlpaExploreError as error:
                print(f"{name}: {error}", file=sys.stderr, flush=True)
                continue
            rows = [row for row in rows if row["model"] != name] + found
            scores = scores_of(rows)
            record = {
                "date": datetime.now(UTC).date().isoformat(),
                "machine": f"{os.cpu_count()} cores, {platform.machine()}, torch {torch.__version__}",
                "load": [min(row["load"] for row in rows), max(row["load"] for row in rows)],
                "scores": scores,
                "races": raced(rows),
                "rows": rows,
            }
            if options.store:
                STORE.write_text(json.dumps(record, indent=1) + "\n")
    print(render_table([{k: v for k, v in row.items() if k != "runs"} for row in rows]))
    print(render_table(scores))
    print(render_table(raced(rows)))


if __name__ == "__main__":
    main()
