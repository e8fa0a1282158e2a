"""The automatic plan beside what people do by hand, for models of the paper's GPT table on the paper's clusters.

    python benchmarks/baselines.py                     gpt-350m, gpt-1.3b, gpt-2.6b
    python benchmarks/baselines.py gpt-6.7b gpt-15b    others; hours for the largest

A baseline that is cut at the same layers and yet predicted faster ends the run with an error. What was seen is kept in
paper_rows.json; `benchmarks/paper.py --stored` shows it.
"""

from __future__ import annotations

import sys
import time

from stored import keep

from alpa_explore import planner
from alpa_explore.baselines.baseline import baseline
from alpa_explore.baselines.kinds import KINDS
from alpa_explore.errors import AlpaExploreError
from alpa_explore.models.catalog import entry

OTHER_CUTS = "equal-operators"


def main(names: list[str]) -> None:
    faster = []
    for name in names:
        known = entry(name)
        cluster = f"1x{known.gpus}:v100" if known.gpus <= 8 else f"{known.gpus // 8}x8:v100"
        b = known.num_microbatches
        graph = planner.resolve(name, b)
        start = time.perf_counter()
        plan = planner.plan(graph, cluster, num_microbatches=b)
        best, layers = plan.predicted.iteration_seconds, len(plan.layers)
        took = time.perf_counter() - start
        print(f"{name} on {cluster}, B = {b}, {layers} layers: {best:.3f} s, planned in {took:.0f} s", flush=True)
        ratios: dict[str, float | str] = {}
        for kind in KINDS:
            start = time.perf_counter()
            try:
                found = baseline(graph, cluster, kind, num_microbatches=b, num_layers=layers)
            except AlpaExploreError as error:
                ratios[kind] = f"{error.what}: {error.found}"
                keep(name, baselines=ratios)
                print(f"  {kind:20} {ratios[kind]}", flush=True)
                continue
            ratios[found.options.baseline] = ratio = found.predicted.iteration_seconds / best
            keep(name, baselines=ratios)
            took = time.perf_counter() - start
            print(f"  {found.options.baseline:40} {ratio:7.4f} × the automatic plan ({took:.0f} s)", flush=True)
            if ratio < 1 - 1e-9 and kind != OTHER_CUTS:
                faster.append(f"{name}: {found.options.baseline}")
    if faster:
        raise SystemExit("Predicted faster than the automatic plan: " + ", ".join(faster))


if __name__ == "__main__":
    main(sys.argv[1:] or ["gpt-350m", "gpt-1.3b", "gpt-2.6b"])
