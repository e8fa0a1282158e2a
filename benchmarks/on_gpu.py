"""Everything that this project wants to know of a CUDA GPU, in one command and 20 minutes at most.

The file has more than 500 lines because it is one command, copied to a GPU machine and read there as a whole.

    PYTHONPATH=. python benchmarks/on_gpu.py --folder gpu-h100 [--minutes 20]
    PYTHONPATH=. python benchmarks/on_gpu.py --folder /tmp/x --device cpu --quick      its own test, without a GPU

1. calibrate     products by shape and dtype, attention, memory, host time        -> device.json, for --cluster
2. train         about 30 configurations of small Llamas and GPTs in plain PyTorch, eager and compiled, with and
                 without recomputation: median step and peak memory               -> rows.csv (shared/data/measured)
3. predict       the same configurations on device.json: planned (`ax.baseline` on one device) and priced
                 (`alpa-explore predict`)                                         -> predictions.csv
4. programs      plan, verify and launch tiny models through NCCL (gloo on a CPU), and a real one whose tasks are
                 compared with their predictions; two ranks on one GPU

Every step has a time budget, and what it found is on disk when it ends: `on_gpu.json` says what was done. The same
command goes on where an earlier one stopped; a configuration during which the process died is not tried again. Rows
are of bfloat16 weights and gradients with a float32 master copy and moments (fused AdamW), as the planner counts them.

Steps 1 and 2 need torch (with CUDA) and numpy, the others also cloudpickle, fastjsonschema, highspy, numba,
platformdirs and pulp. On a machine that lacks some of them the first two are done all the same: copy the folder to one
that has them and call the script there with `--device cpu`, and it predicts the rows of the GPU. No network is used.
It ran on one H100 with torch 2.11 (tests/validation/data/on_gpu); the compiled runs take half a minute each to compile.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import gc
import io
import json
import os
import platform
import signal
import statistics
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.multiprocessing.spawn import spawn
from torch.utils.checkpoint import checkpoint

import alpa_explore as ax
from alpa_explore.calibration.device_file import device_file
from alpa_explore.calibration.microbenchmarks import measure
from alpa_explore.cli import main as alpa_explore
from alpa_explore.cluster.presets import load_preset, preset_names
from alpa_explore.errors import AlpaExploreError
from alpa_explore.models.configs import DecoderConfig, GPTConfig
from alpa_explore.models.factory import make_inputs, make_module
from alpa_explore.plans.report.text import render_table

COLUMNS = next(
    csv.reader(
        [
            "model,params_b,layers,hidden,heads,kv_heads,ffn,vocab,tied,experts,topk,seq,global_batch,micro_batch,"
            "grad_accum,gpus,gpu_type,gpus_per_node,tp,pp,vp,dp,cp,ep,zero_stage,recompute,precision,schedule,"
            "tokens_s_gpu,tflops_gpu,mfu_pct,memory_gib,step_s,status,framework,source,license,note"
        ]
    )
)
"""Of shared/data/measured."""
WARM_UPS, STEPS = 3, 10
SHARES = {"calibrate": 0.25, "train": 0.8, "predict": 0.94, "programs": 1.0}
"""Step -> the share of all minutes at which it ends at the latest."""
RUN_SECONDS = 150
"""The longest time of one configuration; compiling takes most of it."""
BALANCE = 9.0
"""Of layers: embedding and head are far heavier than a block of a small model, and one device needs no balance."""
VERIFIED = (
    ("gpt-tiny", "float32", 1e-5),
    ("llama-tiny", "float32", 1e-5),
    ("mixtral-tiny", "float32", 1e-5),
    ("llama-tiny", "bfloat16", 0.1),
    ("gpt-oss-tiny", "float32", 1e-5),
)
"""Model, precision and tolerance of what is planned, verified and launched."""
TWO_RANKS_SECONDS = 60.0
"""How long two ranks on one GPU may wait for each other."""
MODELS: dict[str, GPTConfig | DecoderConfig] = {
    "llama-0.4B": DecoderConfig(
        hidden=1536, layers=16, heads=12, kv_heads=4, ffn=4096, vocabulary=32000, sequence=1024, tied=True
    ),
    "gpt-0.35B": GPTConfig(hidden=1024, layers=24, heads=16, vocabulary=50304, sequence=1024, attention="fused"),
    "llama-1.1B": DecoderConfig(
        hidden=2048, layers=20, heads=16, kv_heads=8, ffn=5632, vocabulary=32000, sequence=1024
    ),
    "gpt-1.3B": GPTConfig(hidden=2048, layers=24, heads=16, vocabulary=50304, sequence=1024, attention="fused"),
    "llama-tiny": DecoderConfig(hidden=64, layers=2, heads=4, kv_heads=2, ffn=128, vocabulary=256, sequence=32),
    "gpt-tiny": GPTConfig(hidden=64, layers=2, heads=4, vocabulary=256, sequence=32, attention="fused"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """One training run on one device."""

    model: str
    sequence: int
    microbatch: int
    grad_accum: int
    framework: str = "eager"
    """'eager' or 'compiled', names of software profiles."""
    recompute: str = "none"
    """'none' or 'full': every block is run again in the backward pass."""

    @property
    def key(self) -> str:
        """Its name in `on_gpu.json`."""
        return "/".join(map(str, asdict(self).values()))

    @property
    def config(self) -> GPTConfig | DecoderConfig:
        """The model at this sequence length."""
        return replace(MODELS[self.model], sequence=self.sequence)


def configurations(*, quick: bool) -> list[Configuration]:
    """All runs; the first ones tell most, should time run out."""
    if quick:
        return [
            Configuration(model=model, sequence=32, microbatch=2, grad_accum=2, recompute=recompute)
            for model in ("llama-tiny", "gpt-tiny")
            for recompute in ("none", "full")
        ]
    small, large = ("llama-0.4B", "gpt-0.35B"), ("llama-1.1B", "gpt-1.3B")
    shapes = ((1024, 8, 2), (1024, 1, 4), (4096, 2, 2), (8192, 1, 2), (2048, 4, 2), (2048, 1, 1))

    def of(model: str, shape: tuple[int, int, int], **more: str) -> Configuration:
        return Configuration(model=model, sequence=shape[0], microbatch=shape[1], grad_accum=shape[2], **more)

    return [
        *(of(model, shape) for shape in shapes for model in small),
        *(of(model, (2048, 4, 2)) for model in large),
        *(of(model, (2048, 4, 2), recompute="full") for model in (*small, *large)),
        *(of(model, shape, framework="compiled") for shape in shapes[:3] for model in small),
        *(of(model, (2048, 4, 2), framework="compiled") for model in large),
        of("llama-1.1B", (8192, 32, 1)),  # more than any GPU of today holds
        *(of(model, (2048, 4, 2), framework="compiled", recompute="full") for model in small),
        *(of(model, shape, framework="compiled") for shape in shapes[3:] for model in small),
    ]


class Overtime(Exception):
    """A step has used its time."""


@contextlib.contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Raise Overtime after so many seconds; a call of the driver that hangs is not interrupted."""

    def over(_signal: int, _frame: object) -> None:
        raise Overtime(f"{seconds:.0f} s are over")

    if seconds <= 0:
        raise Overtime("no time is left for it")
    before = signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


class State:
    """What was done until now, in `on_gpu.json`."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "on_gpu.json"
        self.found: dict[str, Any] = json.loads(self.path.read_text()) if self.path.exists() else {}
        for section in ("steps", "runs", "predictions"):
            self.found.setdefault(section, {})

    def save(self) -> None:
        """Write it; a reader sees the old file or the new one."""
        write(self.path, json.dumps(self.found, indent=1))


def write(path: Path, text: str) -> None:
    """Write a file at once."""
    path.with_suffix(".part").write_text(text, encoding="utf-8")
    path.with_suffix(".part").replace(path)


def main() -> int:
    """Run all steps; 0 when each of them was brought to its end."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to test this script")
    parser.add_argument("--only", nargs="+", choices=tuple(SHARES), help="these steps, each with all the minutes")
    options = parser.parse_args()
    if options.device == "cuda" and not torch.cuda.is_available():
        parser.error("no CUDA device is attached; --device cpu --quick tests the script")
    if options.device == "cuda":
        torch.cuda.set_device(0)
        torch.backends.cudnn.allow_tf32 = False
    options.folder.mkdir(parents=True, exist_ok=True)
    state, start = State(options.folder), time.monotonic()
    state.found.setdefault("machine", machine(options.device))
    steps: dict[str, Callable[[Any, State, Callable[[], float]], None]] = {
        "calibrate": calibrate,
        "train": train,
        "predict": predict,
        "programs": programs,
    }
    for name, step in steps.items():
        if state.found["steps"].get(name, {}).get("state") == "done" or name not in (options.only or SHARES):
            continue
        share = 1.0 if options.only else SHARES[name]
        began, end = time.monotonic(), start + 60 * options.minutes * share
        say(f"{name}: until minute {options.minutes * share:.0f}")
        try:
            step(options, state, lambda end=end: end - time.monotonic())
            outcome = {"state": "done"}
        except Overtime as error:
            outcome = {"state": "over time", "why": str(error)}
        except Exception as error:  # the next step may still tell something
            traceback.print_exc()
            outcome = {"state": "failed", "why": f"{type(error).__name__}: {error}"[:2000]}
        state.found["steps"][name] = {**outcome, "seconds": round(time.monotonic() - began, 1)}
        state.save()
        say(f"{name}: {outcome['state']} in {time.monotonic() - began:.0f} s {outcome.get('why', '')}")
    report(options.folder, state)
    return int(any(step["state"] != "done" for step in state.found["steps"].values()))


def say(text: str) -> None:
    """A line for the person who waits."""
    print(text, file=sys.stderr, flush=True)


def machine(kind: str) -> dict[str, Any]:
    """What ran this, for the note of each row."""
    told: dict[str, Any] = {"torch": torch.__version__, "python": platform.python_version(), "cores": os.cpu_count()}
    if kind == "cuda":
        figures = torch.cuda.get_device_properties(0)
        told |= {
            "gpu": figures.name,
            "multiprocessors": figures.multi_processor_count,
            "memory_bytes": figures.total_memory,
            "cuda": torch.version.cuda,
            "nccl": ".".join(map(str, torch.cuda.nccl.version())),
        }
    return told


def preset_of(kind: str) -> str:
    """The preset whose datasheet is that of the device: most of its name is in that of the GPU."""
    if kind == "cpu":
        return "cpu"
    name = torch.cuda.get_device_name(0).lower().replace(" ", "-")
    return matching_preset(name)


def matching_preset(name: str) -> str:
    """'nvidia-a100-sxm4-80gb' -> 'a100-80gb'; 'h100' where none matches."""
    parts = {preset: [part in name for part in preset.split("-")] for preset in preset_names()}
    fitting = [preset for preset, found in parts.items() if all(found)]
    return max(fitting, key=len, default="h100")


def calibrate(options: Any, state: State, left: Callable[[], float]) -> None:
    """Measure the device."""
    with at_most(left()):
        seconds = 1e-4 if options.quick else 0.01
        measured = measure(kind=options.device, ranks=1, run_seconds=seconds, shapes=True)
    body = device_file(measured, name="measured", like=load_preset(preset_of(options.device)))
    write(options.folder / "device.json", json.dumps(body, indent=2, ensure_ascii=False))
    state.found["fitted"] = body["measured"]["fitted"]


def train(options: Any, state: State, left: Callable[[], float]) -> None:
    """Run all configurations that were not run yet."""
    runs = state.found["runs"]
    for run in runs.values():
        if run["status"] == "started":
            run.update(status="failed", note="the process died")
    for each in configurations(quick=options.quick):
        if each.key in runs:
            continue
        if left() <= 0:
            raise Overtime(f"{len(runs)} of {len(configurations(quick=options.quick))} configurations were run")
        runs[each.key] = {"status": "started"}
        state.save()
        try:
            with at_most(min(left(), RUN_SECONDS)):
                runs[each.key] = {"status": "ok", **train_one(each, options.device, quick=options.quick)}
        except torch.OutOfMemoryError as error:
            runs[each.key] = {"status": "oom", "note": str(error).splitlines()[0][:300]}
        except Exception as error:  # the others may run
            if left() <= 0:  # of all runs, so this one is tried again; the compiler tells it as an error of its own
                del runs[each.key]
                state.save()
                raise Overtime(f"{len(runs)} of {len(configurations(quick=options.quick))} were run") from error
            if not isinstance(error, Overtime):
                traceback.print_exc()
            note = " ".join(f"{type(error).__name__}: {error}".split())
            runs[each.key] = {"status": "failed", "note": note[:300]}
        tidy(options.device)
        state.save()
        write_rows(options, state)
        say(f"  {each.key}: {runs[each.key]}")


def tidy(kind: str) -> None:
    """Give the memory of a run back, also after an error."""
    torch._dynamo.reset()
    gc.collect()
    if kind == "cuda":
        torch.cuda.synchronize()
        torch.cuda.empty_cache()


def train_one(each: Configuration, kind: str, *, quick: bool) -> dict[str, Any]:
    """Median seconds of an iteration after warming up, and the most memory that tensors took."""
    config = each.config
    # Weights are drawn on the CPU: the factory forks only its generator.
    model = make_module(config, "cpu", seed=0).to(device=kind, dtype=torch.bfloat16)
    if each.recompute == "full":
        for block in model.h:
            block.forward = partial(checkpoint, block.forward, use_reentrant=False)
    run = torch.compile(model) if each.framework == "compiled" else model
    parameters = [p for p in model.parameters() if p.requires_grad]
    masters = [p.detach().float().clone().requires_grad_() for p in parameters]
    optimizer = torch.optim.AdamW(masters, lr=1e-4, fused=kind == "cuda")
    batches = [[t.to(kind) for t in make_inputs(config, each.microbatch, "cpu", m)] for m in range(each.grad_accum)]

    def iteration() -> None:
        for tokens, targets in batches:
            (run(tokens, targets) / each.grad_accum).backward()
        for master, parameter in zip(masters, parameters, strict=True):
            master.grad = None if parameter.grad is None else parameter.grad.float()
            parameter.grad = None
        optimizer.step()
        with torch.no_grad():
            torch._foreach_copy_(parameters, masters)
        for master in masters:
            master.grad = None

    def timed() -> float:
        finish(kind)
        start = time.perf_counter()
        iteration()
        finish(kind)
        return time.perf_counter() - start

    first = [timed() for _ in range(1 if quick else WARM_UPS)]
    if kind == "cuda":
        torch.cuda.reset_peak_memory_stats()
    steps = [timed() for _ in range(2 if quick else STEPS)]
    found = {
        "step_s": statistics.median(steps),
        "least_s": min(steps),
        "most_s": max(steps),
        "first_s": first[0],
        "params_b": sum(p.numel() for p in parameters) / 1e9,
    }
    if kind == "cuda":
        found |= {"memory_bytes": torch.cuda.max_memory_allocated(), "reserved_bytes": torch.cuda.max_memory_reserved()}
    return found


def finish(kind: str) -> None:
    """Wait for the device."""
    if kind == "cuda":
        torch.cuda.synchronize()


def write_rows(options: Any, state: State) -> None:
    """All finished runs in the columns of shared/data/measured."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for key, each in written(options, state).items():
        writer.writerow(row(each, state.found["runs"][key], state.found["machine"]))
    write(options.folder / "rows.csv", text.getvalue())


def written(options: Any, state: State) -> dict[str, Configuration]:
    """The finished runs by key, in the order of the rows."""
    runs = state.found["runs"]
    finished = {key for key, run in runs.items() if run["status"] != "started"}
    return {each.key: each for each in configurations(quick=options.quick) if each.key in finished}


def row(each: Configuration, run: dict[str, Any], told: dict[str, Any]) -> dict[str, Any]:
    """One row; what was not measured stays empty."""
    config, batch = each.config, each.microbatch * each.grad_accum
    llama = isinstance(config, DecoderConfig)
    measured: dict[str, Any] = {}
    if run["status"] == "ok":
        measured = {
            "step_s": round(run["step_s"], 6),
            "tokens_s_gpu": round(batch * each.sequence / run["step_s"], 2),
            "params_b": round(run["params_b"], 5),
        }
    if "memory_bytes" in run:
        measured["memory_gib"] = round(run["memory_bytes"] / 2**30, 3)
    return dict.fromkeys(COLUMNS, "") | {
        "model": each.model.replace("llama", "llama-like").replace("gpt", "gpt-like"),
        "layers": config.layers,
        "hidden": config.hidden,
        "heads": config.heads,
        "kv_heads": config.kv_heads,
        "ffn": config.ffn if llama else config.mlp_width,
        "vocab": config.vocabulary,
        "tied": int(config.tied),
        "seq": each.sequence,
        "global_batch": batch,
        "micro_batch": each.microbatch,
        "grad_accum": each.grad_accum,
        "gpus": 1,
        "gpu_type": told.get("gpu", "cpu"),
        "gpus_per_node": 1,
        **dict.fromkeys(("tp", "pp", "vp", "dp", "cp", "ep"), 1),
        "zero_stage": 0,
        "recompute": each.recompute,
        "precision": "bf16",
        "framework": each.framework,
        "status": run["status"],
        "source": "benchmarks/on_gpu.py",
        "license": "Apache-2.0",
        "note": run.get("note", f"torch {told['torch']}; master weights in float32, gradients in bfloat16"),
        **measured,
    }


def predict(options: Any, state: State, left: Callable[[], float]) -> None:
    """What the planner says of each configuration on the measured device: a single device, no choice but to run all."""
    predictions = state.found["predictions"]
    graphs: dict[Any, Any] = {}
    for each in configurations(quick=options.quick):
        if each.key in predictions:
            continue
        with at_most(left()):
            shape = (each.model, each.sequence, each.microbatch, each.recompute)
            try:
                if shape not in graphs:
                    graphs[shape] = captured(each)
                predictions[each.key] = predicted(graphs[shape], each, options.folder / "device.json")
            except AlpaExploreError as error:  # does not fit, say
                predictions[each.key] = {"error": str(error).splitlines()[0]}
        state.save()
    with at_most(left()):
        file, rows = str(options.folder / "device.json"), str(options.folder / "rows.csv")
        state.found["predict"] = command(["predict", rows, "--device", file, "--json"])
    if state.found["predict"]["code"]:
        raise RuntimeError(f"alpa-explore predict: {state.found['predict']['errors'][-500:]}")
    for key, row in zip(written(options, state), json.loads(state.found["predict"]["output"])["rows"], strict=True):
        priced = {"priced_seconds": row["predicted_seconds"], "priced_bytes": row["predicted_bytes"]}
        predictions[key] |= {**priced, "fits": row["fits"], "refused": row["refused"]}
    lines = compared(state)
    text = io.StringIO()
    writer = csv.DictWriter(text, list(lines[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    write(options.folder / "predictions.csv", text.getvalue())


def captured(each: Configuration) -> ax.TrainingGraph:
    """The training step of one microbatch."""
    module = make_module(each.config, "meta", seed=0)
    inputs = make_inputs(each.config, each.microbatch, "meta", 0)
    full = each.recompute == "full"
    return ax.capture(module, inputs, optimizer="adamw", precision="bfloat16", rematerialization=full, name=each.model)


def predicted(graph: ax.TrainingGraph, each: Configuration, device: Path) -> dict[str, Any]:
    """Seconds and bytes of the only plan for one device. Layers bound what is recomputed, so there is one a block."""
    cluster = ax.Cluster.parse(f"1x1:{device}", software=each.framework)
    plan = ax.baseline(
        graph, cluster, "data-parallel", num_microbatches=each.grad_accum, num_layers=each.config.layers, delta=BALANCE
    )
    # What torch counts as allocated knows of no reserve.
    used = plan.predicted.peak_bytes_per_device - cluster.device.reserved_bytes
    return {"seconds": plan.predicted.iteration_seconds, "bytes": used}


def compared(state: State) -> list[dict[str, Any]]:
    """A line for each configuration: predicted and measured."""
    lines = []
    for key, told in state.found["predictions"].items():
        run = state.found["runs"].get(key, {"status": "not run"})
        planned, priced, measured = told.get("seconds"), told.get("priced_seconds"), run.get("step_s")
        lines.append(
            {
                "configuration": key,
                "status": run["status"],
                "planned_s": rounded(planned),
                "priced_s": rounded(priced),
                "measured_s": rounded(measured),
                "planned_ratio": rounded(planned / measured if planned and measured else None),
                "priced_ratio": rounded(priced / measured if priced and measured else None),
                "planned_gib": gib(told.get("bytes")),
                "priced_gib": gib(told.get("priced_bytes")),
                "measured_gib": gib(run.get("memory_bytes")),
                "error": told.get("error") or told.get("refused") or "",
            }
        )
    return lines


def rounded(value: float | None) -> float | None:
    """Six digits after the point."""
    return None if value is None else round(value, 6)


def gib(size: float | None) -> float | None:
    """Bytes as GiB."""
    return None if size is None else round(size / 2**30, 3)


def programs(options: Any, state: State, left: Callable[[], float]) -> None:
    """The runtime on this device: plans are verified against one process, and launched."""
    done = state.found["programs"] = {}
    device = options.folder / "device.json"
    cluster = f"1x1:{device if device.exists() else preset_of(options.device)}@eager"

    def call(name: str, *words: str) -> None:
        with at_most(min(left(), 180)):
            done[name] = command(list(words))
        state.save()
        say(f"  {name}: {'works' if not done[name]['code'] else done[name]['errors'][-300:]}")

    def folder(name: str) -> str:
        return tempfile.mkdtemp(prefix=f"run-{name}-", dir=options.folder)

    for model, precision, tolerance in VERIFIED[: 1 if options.quick else None]:
        name = f"{model} {precision}"
        plan = str(options.folder / f"{model}.{precision}.plan.json")
        # No --num-layers: the tiny models have their own.
        made = ("plan", model, "--cluster", cluster, "-B", "2", "--precision", precision, "-o", plan)
        call(f"plan {name}", *made, "--scheduler", "serial")
        call(f"verify {name}", "verify", plan, "--device", options.device, "--tolerance", str(tolerance), "--json")
        call(f"launch {name}", "launch", plan, "--device", options.device, "--steps", "5", "--folder", folder(model))
    if not options.quick:
        model, plan, run = "gpt-350m", str(options.folder / "gpt-350m.plan.json"), folder("gpt-350m")
        made = ("plan", model, "--cluster", cluster, "-B", "4", "--global-batch", "32", "-o", plan)
        call(f"plan {model}", *made, "--precision", "bfloat16", "--scheduler", "serial")
        call(f"launch {model}", "launch", plan, "--device", options.device, "--steps", "6", "--folder", run)
        call(f"compare-run {model}", "compare-run", run, "--json")
    done["two ranks on one device"] = two_ranks(options.device)
    state.save()
    failed = [name for name, made in done.items() if made.get("code")]
    if failed:
        raise RuntimeError(f"{', '.join(failed)}: {done[failed[0]]['errors'][-500:]}")


def command(words: list[str]) -> dict[str, Any]:
    """Run `alpa-explore` in this process: its exit code, and the ends of what it printed."""
    out, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
        try:
            code = alpa_explore(words)
        except SystemExit as stop:
            code = int(stop.code or 0)
    return {"words": words, "code": code, "output": out.getvalue(), "errors": errors.getvalue()[-4000:]}


def two_ranks(kind: str) -> dict[str, Any]:
    """Whether two ranks can share one device; NCCL is expected to refuse."""
    with tempfile.TemporaryDirectory() as folder:
        context = spawn(_sum_of_two, args=(kind, folder), nprocs=2, join=False)
        end = time.monotonic() + TWO_RANKS_SECONDS
        try:
            while not context.join(timeout=1.0):
                if time.monotonic() > end:
                    return {"works": False, "why": f"they waited for {TWO_RANKS_SECONDS:.0f} s"}
        except Exception as error:  # NCCL's own words are the result
            return {"works": False, "why": str(error).strip().splitlines()[-1][:500]}
        finally:
            for process in context.processes:
                process.kill()
                process.join()
    return {"works": True}


def _sum_of_two(rank: int, kind: str, folder: str) -> None:
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    if kind == "cuda":
        torch.cuda.set_device(0)
    backend = "nccl" if kind == "cuda" else "gloo"
    dist.init_process_group(backend, init_method=f"file://{folder}/store", rank=rank, world_size=2)
    x = torch.ones(1, device=kind)
    dist.all_reduce(x)
    assert float(x) == 2.0
    dist.destroy_process_group()


def report(folder: Path, state: State) -> None:
    """Print what was found."""
    lines = compared(state)
    if lines:
        print(render_table([{k: v for k, v in line.items() if k != "error"} for line in lines]))
    for which in ("planned", "priced"):
        ratios = [line[f"{which}_ratio"] for line in lines if line[f"{which}_ratio"] is not None]
        if ratios:
            errors = [abs(ratio - 1) for ratio in ratios]
            print(f"{which}: {len(ratios)} configurations, mean error of the seconds {statistics.fmean(errors):.1%},")
            print(f"median {statistics.median(errors):.1%}, predicted / measured {statistics.median(ratios):.2f}.")
    for name, step in state.found["steps"].items():
        print(f"{name}: {step['state']} in {step['seconds']:.0f} s {step.get('why', '')}")
    print(f"all of it is in {folder}")


if __name__ == "__main__":
    sys.exit(main())
