"""Plans of today's models beside the layouts that Megatron-Bridge, Megatron-LM and torchtitan publish for them.

    python benchmarks/practice.py                           print the stored table
    python benchmarks/practice.py llama-3-8b mixtral-8x7b   plan these cases again, and store them in practice.json
    python benchmarks/practice.py all [--layouts]           all cases; only the layouts, beside stored plans

A layout is a baseline on the same cluster with the same software, price model, precision (bf16), global batch and
memory reserve as the plan. Each plan and each layout is computed in a process of its own, without cache: wall and CPU
seconds, capture included, and the most memory that the process held. Wall seconds depend on what else the machine
does, CPU seconds hardly. MFU is against the bf16 peak and does not count recomputed FLOPs.

A plan is made with the numbers of microbatches, recomputation, submeshes (all, or those of 1, 2, 4, … nodes) and
schedules that a case names, and the fastest counts: those of the layouts are among them. Layouts that do not fit in
memory are priced as if they did, and said so. The run ends with an error if a layout that fits is predicted faster than
the plan.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import resource
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import alpa_explore as ax
from alpa_explore.baselines.baseline import baseline
from alpa_explore.cluster import Cluster
from alpa_explore.errors import AlpaExploreError, InfeasiblePlanError
from alpa_explore.graph import TrainingGraph
from alpa_explore.inter_op.options import PipelineOptions
from alpa_explore.planner.microbatch_graph import microbatch_graph
from alpa_explore.plans.plan import Plan
from alpa_explore.plans.report.parallelism import parallelism_lines

STORED = Path(__file__).with_name("practice.json")
GIBIBYTE = 2**30
ENOUGH_MEMORY = 16
"""Times the memory of a device, to price layouts that do not fit."""
TOLERANCE = 1e-6
"""Of the times that are compared: sums in another order."""

BRIDGE = "NVIDIA-NeMo/Megatron-Bridge scripts/performance/configs"
DGXC = "NVIDIA/dgxc-benchmarking llama3.1"
TITAN = "pytorch/torchtitan benchmarks/llama3_h100_202412_torchtitan.md"
LONG = "NeMo long-sequence tables (measured/nemo_long_sequence.csv)"


@dataclass(frozen=True, kw_only=True)
class Variant:
    """How a case is planned."""

    num_microbatches: int
    recompute: bool | str = False
    turns: int = 1
    """Stages of a submesh; more than one under the interleaved schedule."""
    num_layers: int | None = None
    submeshes: str = "all"


@dataclass(frozen=True, kw_only=True)
class Layout(Variant):
    """A published layout."""

    text: str
    """As its source writes it; where it must be adapted, how."""
    kind: str
    degrees: dict[str, int] = field(default_factory=dict)
    cluster: str | None = None
    """Where it takes fewer devices than the case has."""
    gradient_bytes: int | None = None
    """Of an element of an accumulated gradient, where it is not what the software does by default."""
    source: str


@dataclass(frozen=True, kw_only=True)
class Case:
    """A model on a cluster with a global batch, in sequences."""

    model: str
    cluster: str
    batch: int
    plans: tuple[Variant, ...]
    layouts: tuple[Layout, ...]


CASES = {
    "llama-3-8b": Case(
        model="llama-3-8b@8192",
        cluster="1x8:h100",
        batch=128,
        plans=(Variant(num_microbatches=16), Variant(num_microbatches=32)),
        layouts=(
            Layout(
                text="TP 1, PP 1, CP 2, MBS 1, gradients in bfloat16",
                kind="megatron",
                degrees={"tp": 1, "pp": 1, "cp": 2},
                num_microbatches=32,
                gradient_bytes=2,
                source=f"{DGXC}/README_8b.md, BF16; gradients as NVIDIA/NeMo-Framework-Launcher "
                "examples/training/llama/h100/llama3_8b_bf16.sh (grad_sync_dtype)",
            ),
            Layout(
                text="FSDP 8, MBS 1",
                kind="fsdp",
                num_microbatches=16,
                source="NVIDIA-NeMo/Megatron-Bridge docs/performance-summary.md, container 25.11 (there FP8)",
            ),
            Layout(
                text="FSDP 8, local batch 2, recomputed in full (there selectively)",
                kind="fsdp",
                num_microbatches=8,
                recompute=True,
                source=f"{TITAN}, table 1",
            ),
        ),
    ),
    "llama-3-8b at 131,072": Case(
        model="llama-3-8b@131072",
        cluster="1x8:h100",
        batch=32,
        plans=(Variant(num_microbatches=32, recompute="auto"), Variant(num_microbatches=16, recompute="auto")),
        layouts=(
            Layout(
                text="TP 2, CP 4, recomputed in full (there not stated; B200, FP8)",
                kind="megatron",
                degrees={"tp": 2, "pp": 1, "cp": 4},
                num_microbatches=32,
                recompute=True,
                source=f"{LONG}: 131,072 tokens",
            ),
            Layout(
                text="FSDP 2, CP 4, local batch 1, recomputed in full",
                kind="fsdp",
                degrees={"cp": 4},
                num_microbatches=16,
                recompute=True,
                source=f"{TITAN}, table 2",
            ),
        ),
    ),
    "llama-3-70b": Case(
        model="llama-3-70b@8192",
        cluster="8x8:h100",
        batch=128,
        plans=(Variant(num_microbatches=64), Variant(num_microbatches=64, turns=4)),
        layouts=(
            Layout(
                text="TP 4, PP 4, VP 5, CP 2, MBS 1 (here VP 4)",
                kind="megatron",
                degrees={"tp": 4, "pp": 4, "cp": 2},
                num_microbatches=64,
                turns=4,
                source=f"{DGXC}/README_70b.md, BF16",
            ),
            Layout(
                text="TP 4, PP 8, VP 5, MBS 1 (here VP 2)",
                kind="megatron",
                degrees={"tp": 4, "pp": 8},
                num_microbatches=64,
                turns=2,
                source="NVIDIA-NeMo/Megatron-Bridge docs/performance-summary.md, container 25.11 (there FP8)",
            ),
            Layout(
                text="FSDP 8, TP 8, local batch 16, recomputed in full (there FSDP 32 on 256 GPUs)",
                kind="fsdp+tp+pp",
                degrees={"tp": 8, "pp": 1, "replicas": 1},
                num_microbatches=1,
                recompute=True,
                source=f"{TITAN}, table 4",
            ),
        ),
    ),
    "llama-3.1-405b": Case(
        model="llama-3.1-405b@8192",
        cluster="64x8:h100",
        batch=256,
        plans=(
            Variant(num_microbatches=128, recompute="auto", submeshes="power-of-two"),
            Variant(num_microbatches=64, recompute="auto", submeshes="power-of-two"),
        ),
        layouts=(
            Layout(
                text="TP 8, PP 8, VP 8, CP 2, MBS 1 (there DP 8 on 1,024 GPUs; here PP 8 of 16 layers, VP 2)",
                kind="megatron",
                degrees={"tp": 8, "pp": 8, "cp": 2},
                num_microbatches=64,
                turns=2,
                num_layers=16,
                source=f"{BRIDGE}/llama/llama31_workload_base_configs.py, H100_BF16_V1",
            ),
            Layout(
                text="FSDP 8, TP 8, PP 8, local batch 32, 1F1B, recomputed in full",
                kind="fsdp+tp+pp",
                degrees={"tp": 8, "pp": 8, "replicas": 1},
                num_microbatches=32,
                num_layers=16,
                recompute=True,
                source=f"{TITAN}, table 5",
            ),
        ),
    ),
    "llama-3.1-405b on 2 racks": Case(
        model="llama-3.1-405b@8192",
        cluster="2x72:gb200",
        batch=64,
        plans=(Variant(num_microbatches=32, recompute="auto"), Variant(num_microbatches=32, recompute="auto", turns=2)),
        layouts=(
            Layout(
                text="TP 4, PP 8, VP 8, CP 2, MBS 1 on 128 of the 144 GPUs (here PP 8 of 16 layers, VP 2)",
                kind="megatron",
                degrees={"tp": 4, "pp": 8, "cp": 2},
                num_microbatches=32,
                turns=2,
                num_layers=16,
                cluster="2x64:gb200",
                source=f"{BRIDGE}/llama/llama31_workload_base_configs.py, GB200_BF16_V1",
            ),
        ),
    ),
    "mixtral-8x7b": Case(
        model="mixtral-8x7b@4096",
        cluster="4x8:h100",
        batch=256,
        plans=(Variant(num_microbatches=8), Variant(num_microbatches=32), Variant(num_microbatches=32, turns=4)),
        layouts=(
            Layout(
                text="TP 1, PP 4, VP 8, EP 8, MBS 1 (there 64 GPUs; here VP 4)",
                kind="megatron",
                degrees={"tp": 1, "pp": 4, "ep": 8},
                num_microbatches=32,
                turns=4,
                source="NVIDIA/Megatron-LM megatron/core/transformer/moe/README.md, reference mappings of MCore 0.8",
            ),
            Layout(
                text="FSDP 32, EP 8, local batch 1",
                kind="fsdp+tp+pp",
                degrees={"tp": 1, "pp": 1, "ep": 8, "replicas": 1},
                num_microbatches=8,
                source="torchtitan's layout of MoE models (FSDP × EP); none is published for Mixtral",
            ),
        ),
    ),
    "qwen3-30b-a3b": Case(
        model="qwen3-30b-a3b@4096",
        cluster="4x8:h100",
        batch=1024,
        plans=(Variant(num_microbatches=32), Variant(num_microbatches=64), Variant(num_microbatches=64, turns=4)),
        layouts=(
            Layout(
                text="TP 1, PP 1, EP 16, MBS 1 (there 16 GPUs)",
                kind="megatron",
                degrees={"tp": 1, "pp": 1, "ep": 16},
                num_microbatches=32,
                source=f"{BRIDGE}/qwen/qwen3_workload_base_configs.py, H100_BF16_V1",
            ),
            Layout(
                text="TP 1, PP 2, VP 12, EP 8, MBS 1 (there 16 GPUs, FP8; here VP 4)",
                kind="megatron",
                degrees={"tp": 1, "pp": 2, "ep": 8},
                num_microbatches=64,
                turns=4,
                source="NVIDIA-NeMo/Megatron-Bridge docs/performance-summary-archive.md, container 26.02",
            ),
        ),
    ),
    "deepseek-v3": Case(
        model="deepseek-v3@4096",
        cluster="32x8:h100",
        batch=2048,
        plans=(Variant(num_microbatches=128, recompute=True, num_layers=8, submeshes="power-of-two"),),
        layouts=(
            Layout(
                text="TP 2, PP 8, EP 16, MBS 1, recomputed in full (there 1,024 GPUs, VP 4, EP 64, selectively)",
                kind="megatron",
                degrees={"tp": 2, "pp": 8, "ep": 16},
                num_microbatches=128,
                num_layers=16,
                recompute=True,
                source=f"{BRIDGE}/deepseek/deepseek_workload_base_configs.py, H100_V1",
            ),
            Layout(
                text="FSDP 256, local batch 4, recomputed in full (there selectively)",
                kind="fsdp",
                num_microbatches=2,
                recompute=True,
                source="pytorch/torchtitan torchtitan/models/deepseek_v3/train_configs/deepseek_v3_671b.toml",
            ),
        ),
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "cases", nargs="*", choices=[*CASES, "all", []], default=[], metavar="case", help="; ".join(CASES)
    )
    parser.add_argument("--layouts", action="store_true", help="price the layouts alone, and keep the stored plans")
    options = parser.parse_args()
    for name in CASES if "all" in options.cases else options.cases:
        run(name, CASES[name], layouts_alone=options.layouts)
    rows = stored()
    for line in table(rows):
        print(line)
    if faster := [f"{name}: {row['text']}" for name, case in rows.items() for row in faster_layouts(case)]:
        raise SystemExit("Predicted faster than the plan: " + "; ".join(faster))


def run(name: str, case: Case, *, layouts_alone: bool = False) -> None:
    """Plan a case and price its layouts, storing each as it is there."""
    row = stored().get(name, {}) if layouts_alone else {}
    row |= {"model": case.model, "cluster": case.cluster, "batch": case.batch, "layouts": []}
    if not layouts_alone:
        row["plans"] = []
        for variant in case.plans:
            row["plans"].append(apart(planned, case, variant))
            show(row["plans"][-1])
            store(name, row)
    for layout in case.layouts:
        row["layouts"].append({"text": layout.text, "source": layout.source, **apart(priced, case, layout)})
        show(row["layouts"][-1])
        store(name, row)


def apart(function: Any, *arguments: Any) -> dict[str, Any]:
    """The result of `function` in a process of its own, with the seconds and bytes that it took."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(measured, function, *arguments).result()


def measured(function: Any, *arguments: Any) -> dict[str, Any]:
    """Seconds from here on; the process has imported the planner, and begins with no cache."""
    begun, before = time.perf_counter(), os.times()
    try:
        result = figures(function(*arguments))
    except AlpaExploreError as error:
        result = {"error": f"{error.what}: {error.found}"}
    after = os.times()
    cpu = sum(after[:4]) - sum(before[:4])
    memory = max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return result | {
        "wall_seconds": round(time.perf_counter() - begun, 1),
        "cpu_seconds": round(cpu, 1),
        "memory_gib": round(memory * 1024 / GIBIBYTE, 2),
    }


def planned(case: Case, variant: Variant) -> Plan:
    """The plan of a case."""
    return ax.plan(
        case.model,
        case.cluster,
        num_microbatches=variant.num_microbatches,
        global_batch=case.batch,
        rematerialization=variant.recompute,
        num_layers=variant.num_layers,
        pipeline=pipeline_of(variant),
        scheduler="serial",
        cache=False,
    )


def priced(case: Case, layout: Layout) -> Plan:
    """A layout, priced as a baseline; where it does not fit, as if devices had more memory."""
    graph = microbatch_graph(
        case.model, layout.num_microbatches, rematerialization=bool(layout.recompute), global_batch=case.batch
    )
    cluster = Cluster.parse(layout.cluster or case.cluster)
    if layout.gradient_bytes is not None:
        cluster = cluster.with_changes(software=replace(cluster.software, gradient_bytes=layout.gradient_bytes))
    try:
        return on(cluster, graph, layout)
    except InfeasiblePlanError:
        device = cluster.device
        # The share of the memory that the allocator loses is that of the real one.
        software = replace(device.software, reserve_bytes=round(device.reserved_bytes), fragmentation=0.0)
        return on(
            cluster.with_changes(memory_bytes=ENOUGH_MEMORY * device.memory_bytes, software=software), graph, layout
        )


def on(cluster: Cluster, graph: TrainingGraph, layout: Layout) -> Plan:
    """A layout on a cluster."""
    plan = baseline(
        graph,
        cluster,
        layout.kind,
        num_microbatches=layout.num_microbatches,
        num_layers=layout.num_layers,
        **layout.degrees,
    )
    return ax.replan(plan, pipeline=pipeline_of(layout), known_alone=True) if layout.turns > 1 else plan


def pipeline_of(variant: Variant) -> PipelineOptions:
    """The options of the pipeline: 1F1B, interleaved where a submesh has several stages."""
    plain = PipelineOptions(submesh_space=variant.submeshes)
    return replace(plain, schedule="interleaved-1f1b", stages_per_submesh=variant.turns) if variant.turns > 1 else plain


def figures(plan: Plan) -> dict[str, Any]:
    """What is stored of a plan."""
    options, devices = plan.options, plan.cluster.devices
    recomputed = sum(len(s.rematerialized) for s in plan.stages)
    words = [f"{len(plan.stages)} stage{'s' * (len(plan.stages) > 1)}", *parallelism_lines(plan)]
    words += [f"{recomputed} of {options.num_layers} layers recomputed"] if recomputed else []
    if options.pipeline.schedule == "interleaved-1f1b":
        words.append(f"{options.pipeline.stages_per_submesh} stages a submesh in turn")
    return {
        "num_microbatches": options.num_microbatches,
        "iteration_seconds": round(plan.predicted.iteration_seconds, 4),
        "tokens_per_second_per_device": round(plan.tokens_per_second / devices),
        "mfu": round(plan.flops_utilization, 4),
        "device_gib": round(max(s.peak_bytes for s in plan.stages) / GIBIBYTE, 1),
        "fits": plan.cluster.device.memory_bytes
        <= Cluster.parse(f"1x1:{plan.cluster.device.name}").device.memory_bytes,
        "does": "; ".join(words),
    }


def best_plan(case: dict[str, Any]) -> dict[str, Any] | None:
    """The fastest of the plans of a stored case, None where there is none."""
    feasible = [row for row in case.get("plans", ()) if "error" not in row]
    return min(feasible, key=lambda row: row["iteration_seconds"], default=None)


def faster_layouts(case: dict[str, Any]) -> list[dict[str, Any]]:
    """The layouts of a stored case that are faster than its plan."""
    best = best_plan(case)
    if best is None:
        return []
    bound = best["iteration_seconds"] * (1 - TOLERANCE)
    return [row for row in case["layouts"] if row.get("fits") and row["iteration_seconds"] < bound]


def table(rows: dict[str, Any]) -> Iterator[str]:
    """The stored cases as lines of a Markdown table."""
    yield "| | B | T s | tokens/s a GPU | MFU | GiB a device | T / plan | planner: wall s, CPU s, GiB |"
    yield "|---|---|---|---|---|---|---|---|"
    for name, case in rows.items():
        best = best_plan(case)
        yield f"| **{name}**, {case['cluster']}, {case['batch']} sequences | | | | | | | |"
        for row in (*([best] if best else case.get("plans", [])[-1:]), *case["layouts"]):
            text = row.get("text") or f"plan: {row.get('does', '')}"
            took = f"{row['wall_seconds']:.0f}, {row['cpu_seconds']:.0f}, {row['memory_gib']:.1f}"
            if "error" in row:
                yield f"| {text} | | {row['error']} | | | | | {took} |"
                continue
            ratio = f"{row['iteration_seconds'] / best['iteration_seconds']:.3f}" if best else ""
            ratio += "" if row["fits"] else " (does not fit)"
            yield (
                f"| {text} | {row['num_microbatches']} | {row['iteration_seconds']:.3f} "
                f"| {row['tokens_per_second_per_device']:,} | {row['mfu']:.1%} | {row['device_gib']:.1f} | {ratio} "
                f"| {took} |"
            )


def show(row: dict[str, Any]) -> None:
    print({key: value for key, value in row.items() if key != "source"}, flush=True)


def stored() -> dict[str, Any]:
    """The stored cases, in the order of `CASES`."""
    found = json.loads(STORED.read_text()) if STORED.exists() else {}
    return {name: found[name] for name in CASES if name in found}


def store(name: str, row: dict[str, Any]) -> None:
    """Replace a case in the file, which is renamed into place."""
    new = STORED.with_suffix(".tmp")
    new.write_text(json.dumps(stored() | {name: row}, indent=1) + "\n")
    new.replace(STORED)


if __name__ == "__main__":
    main()
