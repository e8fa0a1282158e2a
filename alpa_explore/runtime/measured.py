"""Join the measured and predicted times of a run by the names of its tasks (`0F3`: stage 0, forward, microbatch 3).

The time of a task is that of the slowest rank of its stage, the median over the steps. The first of several steps, in
which memory is allocated and kernels are selected, is left out. The time that a rank waits for messages of other stages
is separate, and so is the time in which the inputs of a microbatch are made; in a timeline both are the gap before the
task.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from alpa_explore.cluster import Cluster
from alpa_explore.errors import PlanFileError
from alpa_explore.plans.iteration_time import iteration_time_of
from alpa_explore.plans.plan import load_plan
from alpa_explore.questions.reprice import reprice
from alpa_explore.runtime import tuning
from alpa_explore.runtime.folder import attempts_of, read_facts, read_figures, replace_text
from alpa_explore.runtime.reports import StepReader
from alpa_explore.schedules.csv_file import read_csv
from alpa_explore.schedules.simulator.memory import memory_curve
from alpa_explore.schedules.simulator.timeline import Timeline
from alpa_explore.schedules.task import LETTERS, ONCE_AN_ITERATION, Action, Task
from alpa_explore.store.read import read_json
from alpa_explore.store.records import plain, record

FILE = "measured.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredTask:
    """The predicted and measured times of one task of the schedule."""

    task: str
    """Its name, as in torch's schedule files."""
    stage: int
    action: str
    """Letter of the action: F, B, I, W or U."""
    microbatch: int
    predicted_seconds: float
    measured_seconds: float
    """Without waiting for messages."""
    predicted_collective_seconds: float
    """The part of `predicted_seconds` in collectives; 0 for updates, for which it is not known."""
    measured_collective_seconds: float
    predicted_send_seconds: float
    """Sending its result to the next stage, on a link."""
    measured_receive_seconds: float
    """Waiting for messages of other stages, and receiving them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRank:
    """The memory of one rank."""

    rank: int
    submesh: int
    """Index of the plan's stage on whose submesh the rank runs."""
    predicted_peak_bytes: float
    measured_peak_bytes: float
    """On a CPU the values of the program and the optimizer state; on a GPU as torch counts it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The measured and predicted figures of a run."""

    model: str
    schedule: str
    device: str
    predicted_iteration_seconds: float
    measured_iteration_seconds: float
    tasks: tuple[MeasuredTask, ...]
    ranks: tuple[MeasuredRank, ...]
    planned_device: str = ""
    """The device that the prediction is for; '' in older files, which lack it."""
    predicted_sends_seconds: float = 0.0
    """Part of the predicted seconds: the sends between stages (`plans.iteration_time`); 0 in older files."""


def write_measured(folder: Path) -> Measured:
    """Join the measurements of the ranks, and write `measured.json`."""
    measured = _joined(folder)
    replace_text(folder / FILE, json.dumps(plain(measured), indent=1))
    return measured


def _joined(folder: Path, cluster: Cluster | None = None, *, allow_import: bool = False) -> Measured:
    """Measured figures with the predictions of the plan, or of the plan repriced for `cluster`."""
    run = read_facts(folder, "stages", "schedule", "options")
    plan = load_plan(folder / "plan.json")
    if cluster is not None:
        plan = reprice(plan, cluster, allow_import=allow_import)
    written = {rank: read_figures(folder, rank) for rank in run["ranks"]}
    timeline = plan.timeline(read_csv(folder / "schedule.csv"))
    steps = StepReader(folder, tuple(run["ranks"]), run["options"].get("first_step", 0))
    return Measured(
        model=plan.model.name,
        schedule=run["schedule"],
        device=run["options"]["device"],
        planned_device=plan.cluster.device_name,
        predicted_iteration_seconds=timeline.makespan_seconds,
        predicted_sends_seconds=iteration_time_of(plan, timeline).sends_seconds,
        measured_iteration_seconds=_settled([s.seconds for s in steps()]),
        tasks=tuple(_tasks(timeline, run["stages"], written)),
        ranks=tuple(
            MeasuredRank(
                rank=rank,
                submesh=submesh,
                predicted_peak_bytes=memory_curve(timeline, submesh).peak_bytes,
                measured_peak_bytes=written[rank]["peak_bytes"],
            )
            for submesh, stage in enumerate(plan.stages)
            for rank in stage.devices
        ),
    )


def load_measured(
    folder: str | os.PathLike[str], cluster: Cluster | None = None, *, allow_import: bool = False
) -> Measured:
    """The figures that `write_measured` wrote, or would write for a run that was started by a script; of a run that was
    retried, those of its last attempt.

    With a cluster, the predictions are those of the same plan on that cluster. PlanFileError where the folder holds no
    measured run; raises as `reprice`.
    """
    home = attempts_of(Path(folder))[-1]
    path = home / FILE
    try:
        if cluster is not None:
            return _joined(home, cluster, allow_import=allow_import)
        if not path.exists():
            return write_measured(home)
        measured = record(Measured, read_json(path, tuning.MAX_REPORT_BYTES), FILE)
        if strange := {task.action for task in measured.tasks} - set(LETTERS.values()):
            raise ValueError(f"{FILE} has the action {min(strange)[:20]!r}")
        return measured
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise PlanFileError(
            "There is no measured run",
            found=f"{path}: {error}",
            remedy="Name the folder of a run that `alpa-explore launch` has brought to its end.",
        ) from error


def _tasks(timeline: Timeline, stages: list[list[int]], written: dict[int, Any]) -> list[MeasuredTask]:
    tasks = []
    for place in range(len(timeline.schedule.actions)):
        task = timeline.schedule.task(place)
        of_ranks = [of_task(written[rank]["tasks"], task) for rank in stages[task.stage]]
        sent = timeline.send_end_seconds[place] - timeline.send_start_seconds[place]
        tasks.append(
            MeasuredTask(
                task=str(task),
                stage=task.stage,
                action=LETTERS[task.action],
                microbatch=task.microbatch,
                predicted_seconds=float(timeline.end_seconds[place] - timeline.start_seconds[place]),
                measured_seconds=max(
                    _settled([a - b for a, b in zip(o["seconds"], o["receive_seconds"], strict=True)]) for o in of_ranks
                ),
                predicted_collective_seconds=_collective(timeline, place),
                measured_collective_seconds=max(_settled(o["collective_seconds"]) for o in of_ranks),
                predicted_send_seconds=float(sent) if sent == sent else 0.0,
                measured_receive_seconds=max(_settled(o["receive_seconds"]) for o in of_ranks),
            )
        )
    return tasks


def of_task(tasks: dict[str, dict[str, list[float]]], task: Task) -> dict[str, list[float]]:
    """The seconds of a task of a rank, one entry a step; of an update in parts the sum of the parts."""
    if task.action is not Action.UPDATE:
        return tasks[str(task)]
    names = [str(Task(action, task.stage, task.microbatch)) for action in ONCE_AN_ITERATION]
    parts = [tasks[name] for name in names if name in tasks]
    return {figure: [sum(step) for step in zip(*(p[figure] for p in parts), strict=True)] for figure in parts[0]}


def _collective(timeline: Timeline, place: int) -> float:
    task = timeline.schedule.task(place)
    times = timeline.times[task.stage]
    parts = (times.forward_seconds, times.backward_input_seconds, times.backward_weight_seconds)
    which = {Action.FORWARD: (0,), Action.BACKWARD: (1, 2), Action.BACKWARD_INPUT: (1,), Action.BACKWARD_WEIGHT: (2,)}
    return sum(parts[i] * times.collective_fraction[i] for i in which.get(task.action, ()))


def _settled(values: list[float]) -> float:
    return median(values[1:] or values)
