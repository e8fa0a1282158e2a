"""A simulated iteration as rows: its submeshes, its critical path by kind, and schedules side by side."""

from collections.abc import Sequence
from typing import Any

from alpa_explore import units
from alpa_explore.plans.iteration_time import iteration_time_of
from alpa_explore.plans.phrases import ranges
from alpa_explore.plans.report.error_bands import band_of, bands_summary, with_band
from alpa_explore.plans.report.iteration import iteration_phrase
from alpa_explore.plans.report.tables import Row, row_of
from alpa_explore.plans.value import PlanValue
from alpa_explore.schedules.closed_form import closed_form
from alpa_explore.schedules.simulator.memory import memory_curve
from alpa_explore.schedules.simulator.timeline import Timeline
from alpa_explore.schedules.task import Action, Schedule

ACTION_NAMES = {
    Action.FORWARD: "forward",
    Action.BACKWARD: "backward",
    Action.BACKWARD_INPUT: "backward, inputs",
    Action.BACKWARD_WEIGHT: "backward, weights",
    Action.UPDATE: "update",
}
"""Names of actions on screen."""


def submeshes_table(plan: PlanValue, timeline: Timeline) -> list[Row]:
    """One row per submesh: its stages, its busy and idle time, and the contents of a device's memory at its peak."""
    schedule = timeline.schedule
    rows = []
    for p in range(schedule.num_submeshes):
        curve = memory_curve(timeline, p)
        warm, cool = timeline.phases(p)
        peak = int(curve.total_bytes.argmax())
        rows.append(
            {
                "submesh": p,
                "stages": ranges([s for s, q in enumerate(schedule.submesh_of_stage) if q == p]),
                "devices": plan.stages[p].devices,
                "busy_seconds": float(timeline.busy_seconds[p]),
                "bubble_fraction": float(timeline.bubble_fractions[p]),
                "warm_up_seconds": warm,
                "cool_down_seconds": timeline.makespan_seconds - cool,
                # In whole microbatches of the submesh, as in the plan: with several stages it holds parts of them.
                "microbatches_held": float(curve.activation_bytes[peak]) / max(plan.stages[p].activation_bytes, 1e-300),
                **row_of(curve, "weight_bytes gradient_bytes optimizer_bytes"),
                "activation_bytes": float(curve.activation_bytes[peak]),
                "workspace_bytes": float(curve.workspace_bytes[peak]),
                "peak_bytes": curve.peak_bytes,
                "memory_fraction": curve.peak_bytes / plan.device_of(plan.stages[p]).memory_bytes,
            }
        )
    return rows


def critical_table(timeline: Timeline) -> list[Row]:
    """The critical path by stage and kind of task: seconds and number of tasks."""
    totals: dict[tuple[int, str], list[float]] = {}
    for step in timeline.critical_path():
        task = timeline.schedule.task(step.task)
        start, end = (
            (timeline.send_start_seconds, timeline.send_end_seconds)
            if step.send
            else (timeline.start_seconds, timeline.end_seconds)
        )
        sums = totals.setdefault((task.stage, "send" if step.send else ACTION_NAMES[task.action]), [0.0, 0])
        sums[0] += float(end[step.task] - start[step.task])
        sums[1] += 1
    return [
        {
            "stage": stage,
            "kind": kind,
            "pieces": int(pieces),
            "on_path_seconds": seconds,
            "of_path_fraction": seconds / max(timeline.makespan_seconds, 1e-300),
        }
        for (stage, kind), (seconds, pieces) in sorted(totals.items())
    ]


def timeline_summary(plan: PlanValue, timeline: Timeline) -> dict[str, Any]:
    """The figures of one timeline, as `alpa-explore simulate --json` prints them."""
    schedule, form = timeline.schedule, closed_form(timeline.schedule, timeline.times)
    rows = submeshes_table(plan, timeline)
    return {
        **row_of(schedule, "schedule=name num_microbatches stages=num_stages submeshes=num_submeshes"),
        "makespan_seconds": timeline.makespan_seconds,
        "sends_seconds": iteration_time_of(plan, timeline).sends_seconds,
        "bubble_fraction": timeline.bubble_fraction,
        "closed_form": None if form is None else row_of(form, "seconds formula exact bubble_fraction"),
        "predicted_iteration_seconds": plan.predicted.iteration_seconds,
        "predicted_bubble_fraction": plan.predicted.bubble_fraction,
        "errors": bands_summary(plan),
        "peak_bytes": max(row["peak_bytes"] for row in rows),
        "memory_fraction": max(row["memory_fraction"] for row in rows),
        "table": rows,
        "critical_path": critical_table(timeline),
    }


def comparison_table(plan: PlanValue, timelines: Sequence[Timeline]) -> list[Row]:
    """One row per timeline: schedules side by side."""
    rows = []
    for timeline in timelines:
        summary = timeline_summary(plan, timeline)
        form = summary["closed_form"] or {"seconds": None, "bubble_fraction": None}
        rows.append(
            {
                **{name: summary[name] for name in ("schedule", "makespan_seconds", "sends_seconds")},
                "closed_form_seconds": form["seconds"],
                "bubble_fraction": summary["bubble_fraction"],
                "closed_form_bubble_fraction": form["bubble_fraction"],
                **{name: summary[name] for name in ("peak_bytes", "memory_fraction")},
            }
        )
    return rows


def timeline_sentence(plan: PlanValue, timeline: Timeline) -> str:
    """The timeline in two sentences: T, sends and their sum; idle time and memory."""
    rows = submeshes_table(plan, timeline)
    worst = max(rows, key=lambda row: row["memory_fraction"])
    schedule = timeline.schedule
    phrase = iteration_phrase(iteration_time_of(plan, timeline))
    fits = "fits" if worst["memory_fraction"] <= 1 else "does NOT fit"
    return (
        f"One iteration: {with_band(phrase, band_of(plan, 'seconds'))}. Under {schedule.name} with B = "
        f"{schedule.num_microbatches:,} the mean {row_word(schedule)} waits {units.percent(timeline.bubble_fraction)} "
        f"of {units.seconds(timeline.makespan_seconds)}, and memory {fits}: {row_word(schedule)} {worst['submesh']} "
        f"is {units.percent(worst['memory_fraction'])} full."
    )


def row_word(schedule: Schedule) -> str:
    """What a submesh of a schedule is called: 'stage' where each runs one stage, 'submesh' where it runs several."""
    return "stage" if schedule.num_stages == schedule.num_submeshes else "submesh"
