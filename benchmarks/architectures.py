"""Which architectures are captured, divided and planned: model types of Hugging Face at two layers on the meta device,
and models in plain torch (`benchmarks/architecture_models`).

    python benchmarks/architectures.py [NAME …] [--cluster 1x4:a100] [--limit-seconds 120] [--store] [--list]

Each runs in a process of its own, a fork of this one; one that fails, or takes longer than the limit, is a row with its
reason. `--store` merges the rows into architectures.json and writes the table of all of them to architectures.md.

An operator is *heavy* when it and the others of its kind hold at least 1 % of the model's FLOPs or of the bytes that
its kernels access. A heavy one that cannot be divided (no rule and no discovered split, or a rule without a factor) is
computed whole by every device; one without inputs (positions, for example) is made where it is needed. A row counts as
planned where the plan exists and no such operator does.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import time
import traceback
import warnings
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
MICROBATCHES, LAYERS, DELTA = 4, 2, 1.0
HEAVY = 0.01
Row = dict[str, Any]


def names() -> list[str]:
    """All architectures, those of Hugging Face first."""
    from architecture_models import hugging_face, language, recurrent, tabular, vision

    own = (recurrent, vision, tabular, language)
    return [*hugging_face.NAMES, *(name for module in own for name in module.MODELS)]


def build(name: str) -> tuple[Any, Any]:
    """The model of `name` and its inputs, on the meta device."""
    import torch
    from architecture_models import hugging_face, language, recurrent, tabular, vision

    own = {**recurrent.MODELS, **vision.MODELS, **tabular.MODELS, **language.MODELS}
    with torch.device("meta"):
        return own[name]() if name in own else hugging_face.build(name)


def measure(name: str, cluster: str, to: Any) -> None:
    """Send the row of one architecture through `to`, after each pass what is known."""
    import alpa_explore as ax
    from alpa_explore.errors import AlpaExploreError
    from alpa_explore.plans.report.summary import broken_floors

    row: Row = {"name": name}
    try:
        model, inputs = build(name)
        before = time.perf_counter()
        graph = ax.capture(model, inputs)
        row["capture_seconds"] = round(time.perf_counter() - before, 2)
        row["operators"], row["whole"] = len(graph.operators), whole(graph)
        to.send(row)
        before = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what they say is counted in `whole`
            plan = ax.plan(
                graph, ax.Cluster.parse(cluster), num_microbatches=MICROBATCHES, num_layers=LAYERS, delta=DELTA
            )
        row["plan_seconds"] = round(time.perf_counter() - before, 2)
        row["iteration_seconds"] = plan.predicted.iteration_seconds
        if below := broken_floors(plan):
            row["reason"] = f"FAULT below a floor of physics: {'; '.join(below)}"
    except AlpaExploreError as error:
        row["reason"] = " ".join(str(error).split())
    except Exception as error:  # a fault of this package: a row too, so that the others still run
        row["reason"] = f"FAULT {type(error).__name__}: {' '.join(str(error).split())}"
        row["at"] = "".join(traceback.format_exc()[-1500:])
    to.send(row)


def whole(graph: Any) -> dict[str, float]:
    """Kinds of heavy operators that no device can have a part of, and their share of FLOPs or bytes."""
    from alpa_explore.sharding.splits import splits_for, with_discovered_splits

    graph = with_discovered_splits(graph)
    flops, moved = (sum(getattr(o, key) for o in graph.operators) or 1 for key in ("flops", "bytes_accessed"))
    shares: dict[str, list[float]] = {}
    for operator in graph.operators:
        if operator.inputs and not splits_for(operator, graph.tensors).splits:
            share = shares.setdefault(operator.kind, [0.0, 0.0])
            share[0] += operator.flops / flops
            share[1] += operator.bytes_accessed / moved
    return {kind: round(max(share), 4) for kind, share in sorted(shares.items()) if max(share) >= HEAVY}


def row_of(name: str, cluster: str, limit_seconds: float) -> Row:
    """`measure` in a fork of this process, which has imported all that it needs."""
    receiving, sending = multiprocessing.Pipe(duplex=False)
    child = multiprocessing.get_context("fork").Process(target=measure, args=(name, cluster, sending))
    child.start()
    sending.close()
    row: Row = {"name": name}
    reason, end = "", time.monotonic() + limit_seconds
    while "plan_seconds" not in row and "reason" not in row and not reason:
        if not receiving.poll(max(0.0, end - time.monotonic())):
            reason = f"not done after {limit_seconds:.0f} s"
            continue
        try:
            row = receiving.recv()
        except EOFError:
            reason = "ended without a word"
    if reason:
        row["reason"] = reason
    child.join(0.5)
    if child.is_alive():
        child.kill()
    child.join()
    return row


def good(row: Row) -> bool:
    """Planned, and nothing heavy whole on every device."""
    return "plan_seconds" in row and not row["whole"]


def table(rows: list[Row]) -> str:
    """The rows as Markdown, with a summary."""
    captured, planned = (sum(key in r for r in rows) for key in ("capture_seconds", "plan_seconds"))
    lines = [
        "# Architectures",
        "",
        f"{len(rows)} architectures: {captured} captured, {planned} planned, {sum(map(good, rows))} of these without a",
        f"heavy operator that every device computes whole. Written by `benchmarks/architectures.py` (what it counts is"
        f" there): {MICROBATCHES} microbatches, {LAYERS} layers of the planner; seconds on a shared machine.",
        "",
        "| architecture | operators | captured, s | divided | planned, s | reason |",
        "|---|---:|---:|---|---:|---|",
    ]
    for row in rows:
        seconds = [f"{row[key]:.1f}" if key in row else "–" for key in ("capture_seconds", "plan_seconds")]
        kinds = "–" if "whole" not in row else ", ".join(f"not {k} ({s:.0%})" for k, s in row["whole"].items()) or "all"
        reason = str(row.get("reason", "")).replace("|", "\\|")[:400]
        lines.append(
            f"| {row['name']} | {row.get('operators', '–')} | {seconds[0]} | {kinds} | {seconds[1]} | {reason} |"
        )
    return "\n".join(lines) + "\n"


def store(rows: list[Row]) -> None:
    """Merge `rows` into the stored ones, and write their table."""
    path = HERE / "architectures.json"
    stored = {r["name"]: r for r in json.loads(path.read_text())["rows"]} if path.exists() else {}
    stored |= {r["name"]: {k: v for k, v in r.items() if k != "at"} for r in rows}
    merged = [stored[name] for name in names() if name in stored]
    text = json.dumps({"rows": merged}, indent=1, ensure_ascii=False)
    for target, content in ((path, text + "\n"), (path.with_suffix(".md"), table(merged))):
        temporary = target.with_suffix(".tmp")
        temporary.write_text(content)
        os.replace(temporary, target)


def main() -> None:
    """Print a row as soon as it is known."""
    parser = argparse.ArgumentParser(description=Path(__file__).stem)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--cluster", default="1x4:a100")
    parser.add_argument("--limit-seconds", type=float, default=120)
    parser.add_argument("--store", action="store_true")
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()
    if options.list:
        print("\n".join(names()))
        return
    _ready(options.cluster)
    print(f"{'architecture':24} {'operators':>9} {'captured s':>10} {'planned s':>9}  whole; reason")
    for name in options.names or names():
        row = row_of(name, options.cluster, options.limit_seconds)
        captured, planned = (f"{row[k]:.1f}" if k in row else "-" for k in ("capture_seconds", "plan_seconds"))
        said = "; ".join(text for text in (str(row.get("whole") or ""), str(row.get("reason", ""))[:300]) if text)
        print(f"{name:24} {row.get('operators', '-'):>9} {captured:>10} {planned:>9}  {said}", flush=True)
        if "at" in row:
            print(row["at"], flush=True)
        if options.store:
            store([row])


def _ready(cluster: str) -> None:
    """Import the planner and compile its kernels once, before the forks."""
    import torch

    import alpa_explore as ax

    torch.set_num_threads(1)  # a fork after torch has made threads would wait for them
    graph = ax.capture(torch.nn.Linear(64, 64), (torch.zeros(8, 64), torch.zeros(8, 64)), loss="mse")
    ax.plan(graph, ax.Cluster.parse(cluster), num_microbatches=2, num_layers=1)


if __name__ == "__main__":
    main()
