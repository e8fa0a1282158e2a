"""`alpa-explore simulate PLAN`: simulate one iteration of a plan file under one schedule or several."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

from alpa_explore.cli.options import PLAN_FILE
from alpa_explore.cli.output import check_file, print_json, write_page

if TYPE_CHECKING:
    from alpa_explore.plans.plan import Plan
    from alpa_explore.schedules.simulator.timeline import Timeline

COMMAND = f"""simulate  simulate the tasks of a plan file
    Simulate one iteration of a plan: every forward and backward task, every send on its link, and the memory of each
    submesh, beside the closed form. Predicted times, not measured ones.
{PLAN_FILE}
--schedule NAME  1f1b, gpipe, eager-1f1b, zb-h1, zb-v, v-half, v-min, dualpipe-v, dualpipe, interleaved-1f1b, 'all',
    or a .csv file in torch's format (default: the plan's)
--stages-per-submesh V (int)  for interleaved-1f1b: stages on each submesh (default: the plan's, or 2)
--trace FILE  write a trace for Perfetto (ui.perfetto.dev) or chrome://tracing
--csv FILE  write the schedule as a CSV file in the format of torch.distributed.pipelining
--html FILE  write one self-contained page with the timeline and all other figures
--json  print JSON"""

_COLUMNS = (
    "submesh stages busy_seconds bubble_fraction warm_up_seconds cool_down_seconds microbatches_held weight_bytes "
    "gradient_bytes optimizer_bytes activation_bytes workspace_bytes peak_bytes memory_fraction"
)


def run(options: argparse.Namespace) -> int:
    """Simulate, write the requested files, print a table."""
    from alpa_explore.errors import OptionError
    from alpa_explore.plans.plan import load_plan
    from alpa_explore.plans.report.text import render_table
    from alpa_explore.plans.report.timeline_tables import (
        comparison_table,
        critical_table,
        submeshes_table,
        timeline_sentence,
        timeline_summary,
    )
    from alpa_explore.schedules.csv_file import write_csv
    from alpa_explore.schedules.simulator.trace import chrome_trace
    from alpa_explore.store.write import write_text

    for path, what in ((options.trace, "The trace"), (options.csv, "The schedule"), (options.html, "The page")):
        check_file(path, what)
    plan = load_plan(options.file)
    timelines = _timelines(plan, options)
    several = len(timelines) > 1
    if several and (options.trace or options.csv):
        raise OptionError(
            "A trace or a CSV file holds one schedule",
            found=f"--schedule {options.schedule}",
            remedy="Name one schedule.",
        )
    shown = timelines[0]
    if options.trace:
        names = [f"submesh {s.index}: {len(s.devices)} devices" for s in plan.stages]
        write_text(options.trace, json.dumps(chrome_trace(shown, names), allow_nan=False), "The trace")
    if options.csv:
        write_text(options.csv, write_csv(shown.schedule), "The schedule")
    write_page(plan, options.html)
    if options.json:
        print_json([timeline_summary(plan, t) for t in timelines] if several else timeline_summary(plan, shown))
    elif several:
        print(render_table(comparison_table(plan, timelines)))
    else:
        print(f"{timeline_sentence(plan, shown)}\n\n{render_table(submeshes_table(plan, shown), _COLUMNS)}\n")
        print(f"The critical path:\n{render_table(critical_table(shown))}")
    return 0


def _timelines(plan: Plan, options: argparse.Namespace) -> list[Timeline]:
    """The requested timelines; for 'all' those that exist for this plan."""
    from alpa_explore.cli.output import complain
    from alpa_explore.errors import ScheduleError
    from alpa_explore.plans.timeline import plan_timeline
    from alpa_explore.schedules.catalog import DUAL_PIPE, INTERLEAVED, SCHEDULES, V_SHAPES
    from alpa_explore.schedules.csv_file import read_csv

    stages = options.stages_per_submesh
    if options.schedule is not None and options.schedule.endswith(".csv"):
        return [plan_timeline(plan, read_csv(options.schedule), stages_per_submesh=stages)]
    if options.schedule != "all":
        return [plan_timeline(plan, options.schedule, stages_per_submesh=stages)]
    timelines = []
    for name in SCHEDULES:
        try:
            timelines.append(plan_timeline(plan, name, stages_per_submesh=stages if name == INTERLEAVED else None))
        except ScheduleError as error:
            if name not in (INTERLEAVED, *V_SHAPES, DUAL_PIPE):
                raise
            complain(f"{name} is left out: {error}")
    return timelines
