"""The automatic plan beside what people do by hand, for models of the paper's GPT table on the paper's clusters.

    python benchmarks/baselines.py                     gpt-350m, gpt-1.3b, gpt-2.6b
    python benchmarks/baselines.py gpt-6.7b gpt-15b    others; minutes each
    python benchmarks/baselines.py gpt-39b --kinds zero-3 megatron      some, beside the plan that is stored

Every baseline is asked for with the plan's microbatches. Where that cannot be (a microbatch has fewer samples than
there are devices, or fills the memory) it is asked for again with the same global batch in microbatches as they suit
it, and a pipeline of single devices with layers as it needs them; such rows say so.

A baseline that is cut at the same layers and divides the batch alike, and yet is predicted faster, ends the run with an
error. What was seen is kept in paper_rows.json; `benchmarks/paper.py --stored` shows it.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from typing import Any

from paper import plan_row
from stored import OWN, keep, rows

from alpa_explore.baselines.baseline import baseline
from alpa_explore.baselines.kinds import KINDS
from alpa_explore.errors import AlpaExploreError
from alpa_explore.models.catalog import entry
from alpa_explore.planner.microbatch_graph import microbatch_graph
from alpa_explore.plans.plan import Plan


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=["gpt-350m", "gpt-1.3b", "gpt-2.6b"])
    parser.add_argument("--kinds", nargs="+", choices=KINDS, help="only these, beside the plan that is stored")
    options = parser.parse_args()
    for name in options.names:
        if options.kinds is None:
            keep(name, **plan_row(name)[1], baselines={})
        row = rows()[name]
        print(f"{name} on {row['cluster']}: {row['iteration_seconds']:.3f} s", flush=True)
        for kind in options.kinds or KINDS:
            price(kind, name, row)
    if sooner := faster():
        raise SystemExit("Predicted faster than the automatic plan: " + ", ".join(sooner))


def price(kind: str, name: str, row: dict[str, Any]) -> None:
    """Ask for a baseline until it has a price, and keep what was seen in place of what was known of it."""
    known = {text: said for text, said in rows()[name]["baselines"].items() if not text.startswith(kind)}
    for label, asked in attempts(kind, name, row):
        start = time.perf_counter()
        text, said = kind + label, 0.0
        try:
            found = baseline(cluster=row["cluster"], **asked)
        except AlpaExploreError as error:
            known[text] = f"{error.what}: {error.found}"
        else:
            text, said = named(kind, found) + label, found.predicted.iteration_seconds / row["iteration_seconds"]
            known[text] = said
        print(f"  {text:60} {known[text]} ({time.perf_counter() - start:.0f} s)", flush=True)
        keep(name, baselines=known)
        if said:
            return


def attempts(kind: str, name: str, row: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """What to ask for, one after the other until something has a price, and what is said of it."""
    known = entry(name)
    b, layers = row["num_microbatches"], row["num_layers"]
    asked = {"model": microbatch_graph(name, b), "kind": kind, "num_microbatches": b, "num_layers": layers}
    yield "", asked
    if kind == "inter-only" and layers < known.gpus:
        # On one device there is one way to divide an operator: this is megatron's pipeline, which is priced sooner.
        alone = {"kind": "megatron", "tp": 1, "dp": 1, "pp": known.gpus, "num_layers": known.gpus}
        yield f", {known.gpus} layers {OWN}", asked | alone
        return
    divides_batch = kind in ("data-parallel", "zero-3")
    other = known.global_batch // known.gpus if divides_batch else 2 * b
    while other != b and known.global_batch % other == 0:
        yield f", B {other} {OWN}", asked | {"model": microbatch_graph(name, other), "num_microbatches": other}
        if divides_batch:
            return
        other *= 2


def named(kind: str, found: Plan) -> str:
    """With the degrees that were the fastest."""
    return found.options.baseline if found.options.baseline.startswith(kind) else f"{kind} (single devices)"


def faster() -> list[str]:
    """Of all stored rows the baselines that the automatic plan should not be slower than, and is."""
    return [
        f"{name}: {text}"
        for name, row in rows().items()
        for text, ratio in row.get("baselines", {}).items()
        if OWN not in text and not isinstance(ratio, str) and ratio < 1 - 1e-9
    ]


if __name__ == "__main__":
    main()
