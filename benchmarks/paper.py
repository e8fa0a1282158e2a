"""The plans found for the paper's tables beside the paper's: predicted and measured PFLOPS, the shapes of the stages.

    python benchmarks/paper.py                       the 8-GPU row of each family
    python benchmarks/paper.py gpt-6.7b moe-10b      others, by their catalogue names; minutes each from 16 GPUs on

PFLOPS are model FLOPs (recomputation not counted) of all devices in a second. The paper's are measured, and read off
its figures (alpa_paper.json says from where). Predictions are a roofline on published figures: the ratio says how rosy.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from pathlib import Path

from alpa_explore import planner
from alpa_explore.models.catalog import entry

PAPER = json.loads((Path(__file__).parent / "alpa_paper.json").read_text())
SMALL = ("gpt-2.6b", "moe-2.4b", "wide-resnet-2b")
COLUMN = {"gpt": "gpt_alpa", "moe": "moe_alpa", "wide-resnet": "wide_resnet_alpa"}


def main(names: list[str]) -> None:
    columns, rows = PAPER["throughput_pflops"]["columns"], PAPER["throughput_pflops"]["rows"]
    measured = {(column, row[0]): row[i] for row in rows for i, column in enumerate(columns)}
    found_plans = PAPER["gpt"]["found_plans"]
    print(f"{'model':18}{'devices':>8}{'B':>6}{'planned':>10}{'T':>10}{'PFLOPS':>9}{'paper':>8}{'ratio':>7}  stages")
    for name in names:
        known = entry(name)
        family = next(f for f in COLUMN if name.startswith(f))
        cluster = f"1x{known.gpus}:v100" if known.gpus <= 8 else f"{known.gpus // 8}x8:v100"
        start = time.perf_counter()
        plan = planner.plan(name, cluster, num_microbatches=known.num_microbatches)
        took = time.perf_counter() - start
        total = plan.predicted.iteration_seconds
        pflops = plan.model.model_flops * known.num_microbatches / total / 1e15
        paper = measured.get((COLUMN[family], known.gpus))
        shapes = Counter(f"{s.submesh[0]}x{s.submesh[1]} as {'x'.join(map(str, s.logical_mesh))}" for s in plan.stages)
        said = found_plans.get(name.removeprefix("gpt-").upper(), "") if family == "gpt" else ""
        print(
            f"{name:18}{known.gpus:>8}{known.num_microbatches:>6}{took:>8.0f} s{total:>8.2f} s{pflops:>9.3f}"
            f"{paper if paper is not None else '–':>8}{f'{pflops / paper:.2f}' if paper else '–':>7}  "
            + ", ".join(f"{count} of {shape}" for shape, count in shapes.items())
            + (f"; paper: {said}" if said else ""),
            flush=True,
        )


if __name__ == "__main__":
    main(sys.argv[1:] or list(SMALL))
