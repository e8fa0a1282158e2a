"""`alpa-explore compare-run RUN`: compare the measured and predicted times of a run, task by task."""

import argparse
from dataclasses import asdict
from pathlib import Path

from alpa_explore.cli.options import FIGURE
from alpa_explore.cli.output import check_file, print_json, write_figure, wrote
from alpa_explore.plans.report.text import render_table

COMMAND = f"""compare-run  compare measured and predicted times of a run
    Print the measured and predicted times of the tasks of a run, joined by their names: 0F are the forward tasks of
    stage 0, 1B the backward tasks of stage 1. The first step is left out of the medians.
folder RUN  the folder of a run that `alpa-explore launch` made
--cluster NxM:DEVICE  predict with the figures of this cluster, such as one of `alpa-explore calibrate --from-run`
--allow-import  allow a recipe package.module:function of the plan (--cluster, --better-plan), which runs that code
--better-plan FILE  plan again with the speed and the links that the run had; write that plan if it is faster. Also
    while the run goes on: `launch FILE --resume RUN` goes on with it from a checkpoint
--tasks  one row per task instead of one per kind of task
{FIGURE}"""

_COLUMNS = (
    "tasks count predicted_seconds measured_seconds ratio "
    "predicted_collective_seconds measured_collective_seconds measured_receive_seconds"
)


def run(options: argparse.Namespace) -> int:
    """Print the table, and write the figure if requested."""
    from alpa_explore.cluster import Cluster
    from alpa_explore.figures.runs import ranks_table, run_figure, run_sentence, run_table
    from alpa_explore.runtime.drift import drift_of
    from alpa_explore.runtime.measured import load_measured

    if options.better_plan is not None:
        return _better_plan(options)
    check_file(options.html)
    cluster = Cluster.parse(options.cluster) if options.cluster is not None else None
    measured = load_measured(options.folder, cluster, allow_import=options.allow_import)
    write_figure(lambda: run_figure(measured), options.html)
    if options.json:
        print_json({**asdict(measured), "kinds": run_table(measured)})
        return 0
    print(f"{run_sentence(measured)}\n")
    if options.tasks:
        print(render_table([asdict(task) for task in measured.tasks]))
    else:
        print(render_table(run_table(measured), _COLUMNS))
    print(f"\n{render_table(ranks_table(measured))}")
    drift = drift_of(Path(options.folder)) if cluster is None else None
    if drift is not None and drift.lines:
        print("", *drift.lines, sep="\n")
    return 0


def _better_plan(options: argparse.Namespace) -> int:
    """Say what runs otherwise than predicted and which plan would be better, and write that one."""
    from alpa_explore.errors import PlanFileError
    from alpa_explore.plans.file.document import save_plan
    from alpa_explore.plans.plan import load_plan
    from alpa_explore.questions.better_plan import better_plan
    from alpa_explore.runtime.drift import drift_of

    check_file(options.better_plan, "The plan")
    home = Path(options.folder)
    drift = drift_of(home)
    if drift is None:
        raise PlanFileError(
            "The ranks of this run have reported no times",
            found=f"{home}",
            remedy="Name the folder of a run that has done a few steps.",
        )
    for line in drift.lines:
        print(line)
    better = better_plan(load_plan(home / "plan.json"), drift.cluster, allow_import=options.allow_import)
    print(f"with the measured figures {better}")
    if better.best is not better.present:
        save_plan(better.best, options.better_plan)
        wrote(options.better_plan)
    return 0
