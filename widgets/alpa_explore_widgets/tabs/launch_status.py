"""How a run is, in words: what it would be, how far it is, how it ended, whose plan it runs."""

from __future__ import annotations

import os
import shlex
from html import escape
from typing import TYPE_CHECKING, Any

from alpa_explore import units
from alpa_explore.figures.keys import key
from alpa_explore.plans.report.text import ranges
from alpa_explore_widgets.panels.messages import problem_html

if TYPE_CHECKING:
    from alpa_explore.plans.plan import Plan
    from alpa_explore_widgets.session.runs import RunCheck, TrainingRun
    from alpa_explore_widgets.session.state import State


def status_html(state: State, check: RunCheck | None) -> str:
    """`check` is that of the plan on screen as it is asked for now; None where that is not known."""
    run = state.run
    parts = [] if run is None else [_run(run), _whose(run, state)]
    if run is None or run.over:
        parts.append(_check(check, first=run is None))
    return f'<div class="alpa-launch-status" role="status">{"".join(parts)}</div>'


def _run(run: TrainingRun) -> str:
    done, total = f"{len(run.steps):,}", f"{run.settings.steps:,}"
    logs = f" Logs: <code>{escape(str(run.folder))}</code>."
    if run.problem is not None:
        steps = f"{done} of {total} steps were done." if run.steps else ""
        return problem_html(run.problem, steps, details="The end of its log", unfolded=True)
    crowded = _crowded(run.plan, run.settings.target, run.measured.device if run.measured is not None else "")
    bar = f'<progress aria-label="Steps" max="{run.settings.steps}" value="{len(run.steps)}"></progress>'
    sentences = {
        "preparing": "preparing: a program for each rank…",
        "running": f"{bar} {done} of {total} steps",
        "done": f"Done: {total} {'step' if run.settings.steps == 1 else 'steps'}.{crowded}{logs}",
        "stopped": f"Stopped after {done} of {total} steps.{logs}",
        "written": _script(run),
    }
    said = f"stopping after {done} of {total} steps…" if run.stopping and not run.over else sentences[run.state]
    made_up = " The data are its example inputs, in another order each time." if run.own_model else ""
    return f"<p>{said}{made_up}</p>"


def _script(run: TrainingRun) -> str:
    slurm = run.settings.target == "slurm"
    script = f"{run.folder}/{'slurm.sh' if slurm else 'run.sh'}"
    command = f"{'sbatch' if slurm else 'bash'} {shlex.quote(script)}"
    compare = f"alpa-explore compare-run {shlex.quote(str(run.folder))}"
    return (
        f"The script is written, nothing was started. Run it: <code>{escape(command)}</code>, then "
        f"<code>{escape(compare)}</code>."
    )


def _whose(run: TrainingRun, state: State) -> str:
    """Says so where the plan on screen is another one than that of the run."""
    if run.plan is state.plan:
        return ""
    places = [k for k, plan in enumerate(state.history.plans) if plan is run.plan]
    button = f'<button type="button" data-alpa-key="{key(plan=places[-1])}">Show it</button>' if places else ""
    return f"<p>This is the run of another plan than the one above: {escape(_named(run.plan))}. {button}</p>"


def _check(check: RunCheck | None, *, first: bool) -> str:
    if check is None:
        return ""
    if check.problem is not None:
        return problem_html(check.problem)
    if check.busy:
        return "<p>checking…</p>" if first else ""
    if check.program is not None:
        return f"<p>{_program(check.program)}</p>"
    if not first:
        return ""
    count = _count(check.plan)
    ready = f"Ready: {_named(check.plan)} takes {count} {'rank' if count == 1 else 'ranks'}."
    return f"<p>{escape(ready)}{_crowded(check.plan, check.settings.target, check.settings.device)}</p>"


def _program(document: dict[str, Any]) -> str:
    stages = "; ".join(f"stage {k} on {_ranks(ranks)}" for k, ranks in enumerate(document["stages"]))
    seconds = units.seconds(document["predicted_iteration_seconds"])
    return (
        f"Checked, and nothing started: {document['instructions']:,} instructions under "
        f"{escape(document['schedule'])}, {stages}; {seconds} a step are predicted."
    )


def _crowded(plan: Plan, target: str, device: str) -> str:
    """Why a run on CPUs takes longer than it would with a core for each rank."""
    cores = os.cpu_count() or 1
    crowded = target == "local" and device == "cpu" and _count(plan) > cores
    return f" {_count(plan)} ranks share {cores} cores here." if crowded else ""


def _count(plan: Plan) -> int:
    return sum(len(stage.devices) for stage in plan.stages)


def _ranks(ranks: tuple[int, ...]) -> str:
    return f"rank{'' if len(ranks) == 1 else 's'} {ranges(ranks)}"


def _named(plan: Plan) -> str:
    count = len(plan.stages)
    return (
        f"{plan.model.name} on {plan.cluster}, {count} {'stage' if count == 1 else 'stages'}, "
        f"B = {plan.options.num_microbatches:,}, {plan.options.pipeline.schedule}"
    )
