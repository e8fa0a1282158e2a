"""Predicted iteration time of every baseline over that of the automatic plan, for the GPT rows of the paper's table.

    python benchmarks/baselines.py                     gpt-350m, gpt-1.3b, gpt-2.6b
    python benchmarks/baselines.py gpt-6.7b gpt-15b    other models; minutes each
    python benchmarks/baselines.py gpt-39b --kinds zero-3 megatron      some baselines, beside the stored plan

Every baseline is planned with the microbatches of the automatic plan. Where that is infeasible (a microbatch has fewer
samples than there are devices, or fills the memory), it is planned again with the same global batch in microbatches
that suit it, and a pipeline of single devices with as many layers as it needs; such rows say so.

The run ends with an error if a baseline with the same layers and microbatches is predicted faster than the automatic
plan. Results are stored in paper_rows.json; `benchmarks/paper.py --stored` prints them.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from typing import Any

from paper import plan_row
from stored import OWN, rows, store

from alpa_explore.baselines.baseline import baseline
from alpa_explore.baselines.kinds import KINDS
from alpa_explore.errors import AlpaExploreError
from alpa_explore.models.catalog import entry
from alpa_explore.planner.microbatch_graph import microbatch_graph
from alpa_explore.plans.plan import Plan

MODELS = ["gpt-350m", "gpt-1.3b", "gpt-2.6b"]
"""Planned without arguments: the rows of up to 8 GPUs."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=MODELS)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, help="only these baselines, beside the stored plan")
    options = parser.parse_args()
    for name in options.names:
        if options.kinds is None:
            store(name, **plan_row(name)[1], baselines={})
        row = rows()[name]
        print(f"{name} on {row['cluster']}: {row['iteration_seconds']:.3f} s", flush=True)
        for kind in options.kinds or KINDS:
            price(kind, name, row)
    if violations := faster_baselines():
        raise SystemExit("Predicted faster than the automatic plan: " + ", ".join(violations))


def price(kind: str, name: str, row: dict[str, Any]) -> None:
    """Plan a baseline, attempt by attempt until one is feasible, and store the results in place of earlier ones."""
    results = {text: ratio for text, ratio in rows()[name]["baselines"].items() if not text.startswith(kind)}
    for label, arguments in attempts(kind, name, row):
        start = time.perf_counter()
        text, feasible = kind + label, True
        try:
            plan = baseline(cluster=row["cluster"], **arguments)
        except AlpaExploreError as error:
            feasible = False
            results[text] = f"{error.what}: {error.found}"
        else:
            text = with_degrees(kind, plan) + label
            results[text] = plan.predicted.iteration_seconds / row["iteration_seconds"]
        print(f"  {text:60} {results[text]} ({time.perf_counter() - start:.0f} s)", flush=True)
        store(name, baselines=results)
        if feasible:
            return


def attempts(kind: str, name: str, row: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """(label, arguments of `baseline`) to try one after the other until one is feasible."""
    model = entry(name)
    b, layers = row["num_microbatches"], row["num_layers"]
    same = {"model": microbatch_graph(name, b), "kind": kind, "num_microbatches": b, "num_layers": layers}
    yield "", same
    if kind == "inter-only" and layers < model.gpus:
        # On a single device nothing is sharded: this is the pipeline of megatron, which is priced sooner.
        single = {"kind": "megatron", "tp": 1, "dp": 1, "pp": model.gpus, "num_layers": model.gpus}
        yield f", {model.gpus} layers {OWN}", same | single
        return
    shards_batch = kind in ("data-parallel", "zero-1", "zero-2", "zero-3")
    other = model.global_batch // model.gpus if shards_batch else 2 * b
    while other != b and model.global_batch % other == 0:
        yield f", B {other} {OWN}", same | {"model": microbatch_graph(name, other), "num_microbatches": other}
        if shards_batch:
            return
        other *= 2


def with_degrees(kind: str, plan: Plan) -> str:
    """The name of a baseline with its fastest degrees."""
    return plan.options.baseline if plan.options.baseline.startswith(kind) else f"{kind} (single devices)"


def faster_baselines() -> list[str]:
    """Of all stored rows, the baselines with the same layers and microbatches that are faster than the plan."""
    return [
        f"{name}: {text}"
        for name, row in rows().items()
        for text, ratio in row.get("baselines", {}).items()
        if OWN not in text and not isinstance(ratio, str) and ratio < 1 - 1e-9
    ]


if __name__ == "__main__":
    main()
