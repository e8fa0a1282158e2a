"""The status of a run in words: what would run, its progress, its end, and the plan that it runs."""

import os
import shlex
from html import escape
from typing import Any

from alpa_explore import units
from alpa_explore.figures.keys import key
from alpa_explore.plans.iteration_time import iteration_time
from alpa_explore.plans.phrases import ranges
from alpa_explore.plans.plan import Plan
from alpa_explore.plans.report.iteration import iteration_phrase
from alpa_explore_widgets.panels.messages import fault_html
from alpa_explore_widgets.session.state import State
from alpa_explore_widgets.session.training_run import RunCheck, TrainingRun


def status_html(state: State, check: RunCheck | None) -> str:
    """The status as HTML; `check` is that of the plan on screen with the chosen settings, None if there is none."""
    run = state.run
    parts = [] if run is None else [_run(run), _retries(run), _drift(run), _plan_of_run(run, state)]
    if run is None or run.finished:
        parts.append(_check(check, first=run is None))
    return f'<div class="alpa-run-status" role="status">{"".join(parts)}</div>'


def _run(run: TrainingRun) -> str:
    count = run.first_step + len(run.steps)
    done, total = f"{count:,}", f"{run.settings.steps:,}"
    logs = f" Logs: <code>{escape(str(run.folder))}</code>."
    if run.fault is not None:
        steps = f"{done} of {total} steps were done{_kept(run)}." if run.steps else ""
        return fault_html(run.fault, steps, details="The end of its log", unfolded=True)
    shared_cores = _shared_cores(run.plan, run.settings.target, run.measured.device if run.measured is not None else "")
    bar = f'<progress aria-label="Steps" max="{run.settings.steps}" value="{count}"></progress>'
    loss = f", loss {run.steps[-1].loss:.6g}" if run.steps else ""
    sentences = {
        "preparing": "preparing the program of each rank…",
        "running": f"{bar} {done} of {total} steps{_kept(run)}{loss}",
        "done": f"Done: {total} {'step' if run.settings.steps == 1 else 'steps'}.{shared_cores}{logs}",
        "stopped": f"Stopped after {done} of {total} steps{_kept(run)}.{logs}",
        "written": _script(run),
    }
    stopping = run.stopping and not run.finished
    sentence = f"stopping after {done} of {total} steps…" if stopping else sentences[run.state]
    data = " The data are its example inputs, in another order at each step." if run.trains_user_module else ""
    if run.changing:
        sentence = f"{bar} {done} of {total} steps; writing a checkpoint, after which the better plan takes over…"
    changed = f" This plan took over after step {run.changed_at:,}." if run.changed_at else ""
    return f"<p>{sentence}{changed}{data}</p>"


def _retries(run: TrainingRun) -> str:
    """A line for each attempt after which the run went on; the reason of a failure comes from a log."""
    lines = [f"<li>Passed over: {escape(why)}</li>" for why in run.passed_over]
    for retry in run.retries:
        lost = "1 step was" if retry.lost_steps == 1 else f"{retry.lost_steps or 'no'} steps were"
        where = f", {retry.where}" if retry.where else ""
        lines.append(
            f"<li>Attempt {retry.attempt} {retry.ending}: {escape(retry.reason)} It went on from step "
            f"{retry.first_step:,} ({lost} lost){escape(where)}.</li>"
        )
    return f'<ol class="alpa-retries">{"".join(lines)}</ol>' if lines else ""


def _drift(run: TrainingRun) -> str:
    """What runs otherwise than predicted, and the plan that would be better."""
    if run.drift is None or not run.drift.lines or run.state == "failed":
        return ""
    lines = "; ".join(run.drift.lines)
    better = "" if run.better is None else f"; with that {run.better}"
    return f'<p class="alpa-drift">{escape(lines[0].upper() + lines[1:] + better)}.</p>'


def _kept(run: TrainingRun) -> str:
    """What is known of its checkpoints."""
    resumed = f", resumed after step {run.first_step:,}" if run.first_step else ""
    return resumed + (f", the last checkpoint is of step {run.kept_step:,}" if run.kept_step else "")


def _script(run: TrainingRun) -> str:
    slurm = run.settings.target == "slurm"
    script = f"{run.folder}/{'slurm.sh' if slurm else 'run.sh'}"
    command = f"{'sbatch' if slurm else 'bash'} {shlex.quote(script)}"
    compare = f"alpa-explore compare-run {shlex.quote(str(run.folder))}"
    return (
        f"The script is written, nothing was started. Run it: <code>{escape(command)}</code>, then "
        f"<code>{escape(compare)}</code>."
    )


def _plan_of_run(run: TrainingRun, state: State) -> str:
    """A remark if the run's plan is not the one on screen."""
    if run.plan is state.plan:
        return ""
    positions = [position for position, plan in enumerate(state.history.plans) if plan is run.plan]
    button = f'<button type="button" data-alpa-key="{key(plan=positions[-1])}">Show it</button>' if positions else ""
    return f"<p>This run is of another plan than the one above: {escape(_plan_phrase(run.plan))}. {button}</p>"


def _check(check: RunCheck | None, *, first: bool) -> str:
    if check is None:
        return ""
    if check.fault is not None:
        return fault_html(check.fault)
    if check.busy:
        return "<p>checking…</p>" if first else ""
    if check.program is not None:
        return f"<p>{_program(check.program, check.plan)}</p>"
    if not first:
        return ""
    count = _rank_count(check.plan)
    ready = f"Ready: {_plan_phrase(check.plan)} needs {count} {'rank' if count == 1 else 'ranks'}."
    return f"<p>{escape(ready)}{_shared_cores(check.plan, check.settings.target, check.settings.device)}</p>"


def _program(document: dict[str, Any], plan: Plan) -> str:
    stages = "; ".join(
        f"stage {k} on rank{'s' * (len(ranks) != 1)} {ranges(ranks)}" for k, ranks in enumerate(document["stages"])
    )
    time = iteration_time(plan)
    seconds = units.seconds(plan.predicted.iteration_seconds) if time is None else iteration_phrase(time)
    return (
        f"Checked, nothing started: {document['instructions']:,} instructions under "
        f"{escape(document['schedule'])}, {stages}; predicted time of a step: {seconds}."
    )


def _shared_cores(plan: Plan, target: str, device: str) -> str:
    """A remark if the ranks of a run on CPUs have to share cores."""
    cores = os.cpu_count() or 1
    shared = target == "local" and device == "cpu" and _rank_count(plan) > cores
    return f" {_rank_count(plan)} ranks share {cores} cores here." if shared else ""


def _rank_count(plan: Plan) -> int:
    return sum(len(stage.devices) for stage in plan.stages)


def _plan_phrase(plan: Plan) -> str:
    count = len(plan.stages)
    return (
        f"{plan.model.name} on {plan.cluster}, {count} {'stage' if count == 1 else 'stages'}, "
        f"B = {plan.options.num_microbatches:,}, {plan.options.pipeline.schedule}"
    )
