"""`alpa-explore predict ROWS.csv …`: predict measured training runs with the planner's costs, and score them."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from alpa_explore.cli.output import print_json
from alpa_explore.cli.progress_line import ProgressLine
from alpa_explore.plans.report.text import render_table
from alpa_explore.units import printable

if TYPE_CHECKING:
    from alpa_explore.validation.runs.rows import Rows

COMMAND = """predict  predict measured training runs, and score the predictions
    Predict the time and memory of every training run in CSV files with the planner's cost model, and compare with
    what was measured.
files ROWS.csv (many)  files of runs, one run a line
--device NAME  a device or device file, instead of what each row says
--software NAME  a software profile, instead of what each row says
--split (fit|held-out|all, = all)  only the configurations to which figures may be fitted, or only the others
    (default: all)
--json  print JSON"""
EPILOG = """The first line of a file names its columns, in any order.
  model      model, layers, hidden, heads, kv_heads, ffn, vocab, tied, seq
  batch      global_batch, micro_batch, grad_accum
  machine    gpus, gpu_type, gpus_per_node, framework
  layout     tp, pp, vp, dp, zero_stage, recompute, precision, schedule
  measured   step_s (or tokens_s_gpu, or tflops_gpu), memory_gib, status
The columns of vTrain's tables are read, too. Rows that cannot be priced are refused by line, with the reason;
for names of devices, software and precisions that are not known the nearest is priced, with a note. Where a
row does not say what is recomputed, both ends are priced: seconds and bytes of each are of the same run.

example:
  alpa-explore predict nanotron.csv --split held-out --json"""


def run(options: argparse.Namespace) -> int:
    """Print the scores of every source and group, the worst rows and the refusals."""
    from alpa_explore.validation.report import (
        group_records,
        groups_table,
        notes,
        notes_table,
        range_table,
        refusals_table,
        row_records,
        worst_table,
    )
    from alpa_explore.validation.runs.machines import check_overrides
    from alpa_explore.validation.runs.rows import read_rows
    from alpa_explore.validation.score import score

    check_overrides(options.device, options.software)
    rows = _on_side(read_rows(options.files), options.split)
    with ProgressLine(sys.stderr) as line:
        for words in rows.ignored:
            line.say(printable(words))
        line.say(f"predicting {len(rows.measured):,} runs")
        from alpa_explore.validation.predict import predict_rows
        from alpa_explore.validation.run_price import price_run

        predictions = predict_rows(
            rows, pricer=price_run, device=options.device, software=options.software, progress=line
        )
    scores = score(predictions.predicted)
    if options.json:
        print_json({"rows": row_records(predictions), "groups": group_records(scores)})
        return 0
    for source in dict.fromkeys(s.source for s in scores):
        mine = [s for s in scores if s.source == source]
        predicted = [p for p in predictions.predicted if p.row.file == source]
        print(f"{source}\n\n{render_table(groups_table(mine))}\n")
        print("\n".join(notes(mine, predicted)))
        if worst := worst_table(predicted):
            print(f"\nFarthest off:\n{render_table(worst)}")
        if near := notes_table(predicted):
            print(f"\nNot as the rows say:\n{render_table(near)}")
        if ranged := range_table(predicted):
            print(f"\nBetween two ends, the farthest apart:\n{render_table(ranged)}")
        print()
    if predictions.refused:
        print(f"Refused: {len(predictions.refused)} rows\n{render_table(refusals_table(predictions))}")
    return 0


def _on_side(rows: Rows, side_name: str) -> Rows:
    """The rows of one side of the split; what is refused has no side and stays."""
    from alpa_explore.validation.runs.rows import side

    if side_name == "all":
        return rows
    return replace(rows, measured=tuple(row for row in rows.measured if side(row) == side_name))
