"""`alpa-explore launch PLAN`: train with a plan on the attached devices, one process per device of the plan."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from alpa_explore import units
from alpa_explore.cli.options import ALLOW_IMPORT, PLAN_FILE
from alpa_explore.cli.output import complain, print_json

if TYPE_CHECKING:
    from alpa_explore.runtime.run import Run
    from alpa_explore.schedules.task import Schedule

RUN = f"""\
--schedule NAME  1f1b, gpipe, eager-1f1b, zb-h1; of a plan made for it interleaved-1f1b, zb-v, v-half, v-min,
    dualpipe-v or dualpipe; or a .csv file in torch's format (default: the plan's own)
--device KIND  cpu or cuda (default: cuda where there is one)
--learning-rate X (float)  learning rate of the optimizer (default: 0.001)
--seed N (int)  seed of weights and data of a catalogue model (default: 0)
--scheduler ADDRESS  address tcp://… of the Dask scheduler, for --target dask
--ports FIRST-LAST  where rank 0 listens while the ranks meet, such as 29500-29600, for --target dask (default: any
    port)
{ALLOW_IMPORT}"""
"""The options of all commands that run a plan."""
COMMAND = f"""launch  train with a plan
    Train with a plan file, one process per device of the plan.
{PLAN_FILE}
--steps N (int, = 10)  iterations of training (default: 10)
{RUN}
--target WHERE (= local)  local (default): processes on this machine; torchrun, slurm, kubernetes: write a complete
    script or PyTorchJob and start nothing; dask: the workers of --scheduler start the ranks
--checkpoint-every N (int)  write the whole state every N steps, keep the last two
--retries N (int, = 0)  after the loss of a process, host or link go on from the last checkpoint, up to N times;
    planned again where too few hosts are left, and back under the first plan when all answer again
--resume DIR  go on from the newest checkpoint of a run, or from a checkpoint; under any plan of the same model
    and global batch. --steps counts from the start of training
--image IMAGE  container image with alpa-explore, for --target kubernetes
--claim NAME  volume claim that holds the folder of the run, for --target kubernetes (default: the machines' own path)
--save DIR  write the trained weights (torch.distributed.checkpoint) into a new folder
--folder DIR  folder for logs and results (default: a new one in ./alpa-runs or $ALPA_EXPLORE_RUNS)
--stall-seconds S (float, = 60)  fail when no rank finishes an instruction for so long (default: 60)
--frozen-buffers  train a model whose losses depend on buffers that its forward pass writes and this run cannot, with
    their first values
--dry-run  lower and check the plan, print the run, start nothing"""
EPILOG = """Every step is a line of JSON on stdout: {"step": 0, "loss": 5.54, "seconds": 0.21}. The folder of the run
holds the log of every rank, and measured.json with measured and predicted times.

exit codes: 0 done, 1 the run failed, 2 bad input or too few devices, 130 stopped by Ctrl-C

example:
  alpa-explore plan gpt-tiny --cluster 1x4:cpu -B 4 --precision float32 -o a.plan.json
  alpa-explore launch a.plan.json --steps 20 --checkpoint-every 5 --folder one
  alpa-explore launch b.plan.json --steps 40 --resume one"""
_POLL_SECONDS = 0.1
_REQUESTED = tuple(
    """
    steps learning_rate seed device save stall_seconds checkpoint_every resume retries allow_import scheduler ports
    image claim frozen_buffers
    """.split()
)
"""Options that `launch` takes by the same names."""


def requested_schedule(options: argparse.Namespace) -> str | Schedule | None:
    """The requested schedule: a name, or a table from a file; None for the plan's own."""
    from alpa_explore.schedules.csv_file import read_csv

    name: str | None = options.schedule
    return read_csv(name) if name is not None and name.endswith(".csv") else name


def run(options: argparse.Namespace) -> int:
    """Launch, and print the steps as they finish."""
    from alpa_explore.graph.written import listed
    from alpa_explore.plans.plan import load_plan
    from alpa_explore.runtime.launch import describe_run, launch, request_of
    from alpa_explore.runtime.targets.scripts import COMMANDS

    plan = load_plan(options.file)
    requested = {name: getattr(options, name) for name in _REQUESTED} | {"schedule": requested_schedule(options)}
    if options.dry_run:
        print_json(describe_run(request_of(plan, options.target, **requested)))
        return 0
    handle = launch(plan, options.target, folder=options.folder, **requested)
    complain(f"{len(handle.ranks):,} ranks, the run is in {handle.folder}")
    try:
        follow(handle)
        result = handle.result()
    except BaseException:  # also on Ctrl-C: the ranks end with this command
        handle.stop()
        handle.wait()
        raise
    if frozen := json.loads((handle.attempt_folder / "run.json").read_text(encoding="utf-8")).get("frozen_buffers"):
        complain(f"the forward pass writes {listed(frozen)}, which this run leaves at their first values")
    if handle.progress.state == "written":
        command, name = COMMANDS[options.target]
        script = handle.folder / name
        complain(f"nothing was started: {command} {shlex.quote(str(script))}")
        print(script)
        return 0
    drift = handle.drift()
    for line in () if drift is None else drift.lines:
        complain(line)
    if drift is not None and drift.lines:
        folder = shlex.quote(str(handle.folder))
        complain(f"what would be better: alpa-explore compare-run {folder} --better-plan FILE")
    complain(f"{len(result.steps)} steps done; measured times in {result.folder / 'measured.json'}")
    return 0


def follow(handle: Run) -> None:
    """Print every step as a line of JSON until the run is over."""
    shown: dict[str, int] = {}

    def new(name: str) -> Sequence[Any]:
        found: Sequence[Any] = getattr(progress, name)
        first, shown[name] = shown.get(name, 0), len(found)
        return found[first:]

    while True:
        progress = handle.progress
        for why in new("failures"):
            complain(f"{why} Looking for where the run can go on.")
        for why in new("passed_over"):
            complain(f"passed over: {why}")
        for retry in new("retries"):
            complain(str(retry))
            shown["steps"] = retry.first_step - progress.first_step  # what was lost is shown again
        for step in new("steps"):
            # JSON has no NaN.
            figures = {k: v if v == v else None for k, v in asdict(step).items()}
            print(json.dumps(figures, allow_nan=False), flush=True)
        for kept in new("checkpoints"):
            what = f"checkpoint of step {kept.step}" if kept.kind == "state" else "trained weights"
            complain(f"{what} in {kept.folder}: {units.bytes_(kept.bytes)}, written in {units.seconds(kept.seconds)}")
        if progress.state not in ("preparing", "running"):
            return
        sys.stdout.flush()
        time.sleep(_POLL_SECONDS)
