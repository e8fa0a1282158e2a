"""`alpa-explore compare-run RUN`: compare the measured and predicted times of a run, task by task."""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict
from typing import Any

from alpa_explore.cli.output import print_json
from alpa_explore.plans.printable import printable
from alpa_explore.plans.report.text import render_table

_COLUMNS = (
    "tasks",
    "count",
    "predicted_seconds",
    "measured_seconds",
    "ratio",
    "predicted_collective_seconds",
    "measured_collective_seconds",
    "measured_receive_seconds",
)


def add(commands: Any) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "compare-run",
        help="compare measured and predicted times of a run",
        allow_abbrev=False,
        description="Print the measured and predicted times of the tasks of a run, joined by their names: 0F are the"
        " forward tasks of stage 0, 1B the backward tasks of stage 1. The first step is left out of the medians.",
    )
    argument = parser.add_argument
    argument("folder", metavar="RUN", help="the folder of a run that `alpa-explore launch` made")
    argument(
        "--cluster",
        metavar="NxM:DEVICE",
        help="predict with the figures of this cluster, such as one of `alpa-explore calibrate --from-run`",
    )
    argument(
        "--allow-import",
        action="store_true",
        help="with --cluster, allow a recipe package.module:function of the run's plan, which runs that code",
    )
    argument("--tasks", action="store_true", help="one row per task instead of one per kind of task")
    argument("--html", metavar="FILE", help="write one self-contained page with the figure")
    argument("--json", action="store_true", help="print JSON, with every task")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the table, and write the figure if requested."""
    from alpa_explore.cluster import Cluster
    from alpa_explore.figures.runs.run import ranks_table, run_html, run_sentence, run_table
    from alpa_explore.runtime.measured import load_measured
    from alpa_explore.store.write import check_target, write_text

    if options.html is not None:
        check_target(options.html, "The page")
    cluster = Cluster.parse(options.cluster) if options.cluster is not None else None
    measured = load_measured(options.folder, cluster, allow_import=options.allow_import)
    if options.html is not None:
        write_text(options.html, run_html(measured), "The page")
        print(f"wrote {printable(options.html)}", file=sys.stderr)
    if options.json:
        print_json({**asdict(measured), "kinds": run_table(measured)})
        return 0
    print(f"{run_sentence(measured)}\n")
    if options.tasks:
        print(render_table([asdict(task) for task in measured.tasks]))
    else:
        print(render_table(run_table(measured), _COLUMNS))
    print(f"\n{render_table(ranks_table(measured))}")
    return 0
