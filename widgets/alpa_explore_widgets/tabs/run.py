"""The Run tab: train with the plan, watch and stop the run, and compare measured with predicted times."""

import os
import shlex
from collections.abc import Callable, Sequence
from dataclasses import replace
from html import escape
from typing import Any

import ipywidgets as W

from alpa_explore import units
from alpa_explore.figures.keys import key
from alpa_explore.figures.style import Figure
from alpa_explore.models.catalog import is_reference
from alpa_explore.plans.iteration_time import iteration_time
from alpa_explore.plans.phrases import ranges
from alpa_explore.plans.plan import Plan
from alpa_explore.plans.report.error_bands import iteration_with_band
from alpa_explore.plans.report.headline import headline
from alpa_explore.plans.report.iteration import iteration_phrase
from alpa_explore.plans.report.tables import Row
from alpa_explore_widgets.elements.fields import CONTROLS, TextField, choice_field, options, plain_button, whole_field
from alpa_explore_widgets.elements.page_widget import box, set_class, set_shown
from alpa_explore_widgets.panels.actions import file_name
from alpa_explore_widgets.panels.hosts import AttachedPanel, ProfilePanel
from alpa_explore_widgets.panels.messages import fault_html
from alpa_explore_widgets.session.runs import Attaching, Profiling, TrainingRuns
from alpa_explore_widgets.session.state import RunCheck, RunSettings, State, TrainingRun
from alpa_explore_widgets.tab_kinds.figure_panel import FigurePanel

_WHERE = {"local": "this machine", "dask": "a Dask cluster", "torchrun": "a torchrun script", "slurm": "a Slurm script"}
_SCRIPTS = ("torchrun", "slurm")
_DEVICES = {"": "GPUs, else CPU", "cpu": "CPU processes", "cuda": "GPUs"}
_STEPS, _MEASURED = "steps", "measured"
_SHOWN, _BY_TASK = {_STEPS: "step by step"}, {_MEASURED: "task by task"}

_SAID = CONTROLS["run"]


class RunPanel(FigurePanel):
    """Does the plan run as predicted?"""

    title = "Run"
    question = "Does the plan run as predicted?"
    of_plan, waits = False, False

    def __init__(
        self,
        runs: TrainingRuns,
        attaching: Attaching,
        profiling: Profiling,
        plan_for_attached: Callable[[], None],
        show_plan: Callable[[Plan], None],
    ) -> None:
        self._runs, self._plan_for_attached, self._show_plan = runs, plan_for_attached, show_plan
        self.attached = AttachedPanel(attaching, self._plan_and_run_on)
        self.profile = ProfilePanel(profiling)
        self._checked: tuple[Plan | None, RunSettings] = (None, RunSettings())
        self._measured: object = None
        super().__init__()

    def controls(self) -> list[W.Widget]:
        """The settings of a run, and the choice of the figure."""
        self.where = choice_field(**_SAID["where"], texts=_WHERE)
        self.scheduler = TextField(**_SAID["scheduler"])
        self.device = choice_field(**_SAID["device"], texts=_DEVICES)
        self.steps = whole_field(**_SAID["steps"], most=100_000, value=RunSettings().steps)
        self.every = whole_field(**_SAID["every"], most=100_000, empty="never")
        self.retries = whole_field(**_SAID["retries"], most=100, empty="never")
        set_shown(self.retries, on=False)  # until there are checkpoints
        self.resume = TextField(**_SAID["resume"])
        self.shown = choice_field(**_SAID["shown"], texts=_SHOWN)
        set_shown(self.shown, on=False)  # until there is a choice
        where, how = [self.where, self.scheduler, self.device], [self.steps, self.every, self.retries, self.resume]
        fields = [*where, *how, self.shown]
        self.watch(*fields)
        return fields

    def below(self) -> list[W.Widget]:
        """The buttons and the status of the run."""
        self.start = plain_button(**_SAID["start"], press=lambda: self._runs.start(self.run_settings()))
        self.stop = plain_button(**_SAID["stop"], press=self._runs.stop)
        self.go_on = plain_button(**_SAID["go_on"], press=self._go_on)
        self.dry = plain_button(**_SAID["dry"], press=lambda: self._runs.check(self.run_settings(), dry=True))
        self.change = plain_button(**_SAID["change"], press=self._change_plan)
        self.change.layout.width, self.status = "auto", W.HTML()
        row = box("alpa-run", self.start, self.stop, self.go_on, self.dry, self.change, self.status)
        return [self.attached.widget, self.profile.widget, row]

    def _change_plan(self) -> None:
        """Go on under the better plan, which is shown, too."""
        run = self._runs.run
        if run is not None and run.can_change and run.better is not None:
            self._runs.change_plan()
            self._show_plan(run.better.best)

    def _go_on(self) -> None:
        """Resume the run that ended early."""
        run = self._runs.run
        if run is not None and run.can_resume:
            self._runs.start(replace(self.run_settings(), resume=str(run.folder)))

    def _plan_and_run_on(self, scheduler: str) -> None:
        """Plan for the attached hosts; the next run is on them, too."""
        self.where.value, self.scheduler.value = "dask", scheduler
        self._plan_for_attached()

    def run_settings(self) -> RunSettings:
        """The chosen settings."""
        scheduler = self.scheduler.value if self.where.value == "dask" else ""
        retried = self.retries.value and self.every.value and self.where.value not in _SCRIPTS
        return RunSettings(
            target=self.where.value,
            device=self.device.value,
            steps=int(self.steps.value or 1),
            scheduler=scheduler,
            checkpoint_every=int(self.every.value) if self.every.value else None,
            retries=int(self.retries.value or 0) if retried else 0,
            resume=self.resume.value,
        )

    def follow(self, state: State) -> None:
        """Update the buttons and the status; check the plan if it or the settings are new."""
        self.attached.show(state)
        self.profile.show(state)
        settings, run = self.run_settings(), state.run
        set_shown(self.scheduler, on=settings.target == "dask")
        can_retry = settings.checkpoint_every and settings.target not in _SCRIPTS
        set_shown(self.retries, on=bool(can_retry))
        if (state.plan, settings) != self._checked and not settings.check_is_remote:
            self._checked = (state.plan, settings)
            self._runs.check(settings)
            return  # the check changes the state, so this is called again
        check = state.run_check
        if check is not None and (check.plan is not state.plan or check.settings != settings):
            check = None  # of another plan or other settings
        running = run is not None and not run.finished
        count = f"{settings.steps:,} {'step' if settings.steps == 1 else 'steps'}"
        self.start.description = f"Write a script of {count}" if settings.target in _SCRIPTS else f"Start {count}"
        self.start.disabled = running or (check is not None and check.fault is not None)
        set_class(self.start, "alpa-call", on=not (self.start.disabled or run))
        can_resume = run is not None and run.can_resume
        set_shown(self.go_on, on=can_resume)
        set_class(self.go_on, "alpa-call", on=can_resume)
        self.stop.disabled = run is None or run.finished or run.stopping
        set_shown(self.change, on=run is not None and (run.can_change or run.changing))
        self.change.disabled = run is None or not run.can_change
        self.dry.disabled = check is not None and check.busy
        self.status.value = status_html(state, check)
        measured = None if run is None else run.measured
        if measured is not self._measured:
            self._measured = measured
            with self.quietly(self.shown):
                self.shown.choices = options(_SHOWN | ({} if measured is None else _BY_TASK))
                self.shown.value = _MEASURED if measured is not None else _STEPS
            set_shown(self.shown, on=measured is not None)

    def plan_of(self, state: State) -> Plan:
        """The plan of the run, which may differ from the one on screen."""
        return state.run.plan if state.run is not None else super().plan_of(state)

    def depends_on(self, state: State) -> tuple[object, ...]:
        """The run, of what it is, the chosen figure, and whether Start can be pressed."""
        before = (state.plan, self.run_settings()) if state.run is None else ()
        return (state.run, self.subject(state), self.shown.value, self.start.disabled, *before)

    def instead(self, state: State) -> tuple[str, str] | None:
        """Before the first step, what is predicted and how else to run the plan."""
        if state.run is None:
            said = "No run yet" + ("." if self.start.disabled else ": press Start.")
            return said, ways_html(self.plan_of(state), self.run_settings())
        return None if state.run.predicted_seconds else ("The run has not begun.", "")

    def draw(self, state: State, theme: str) -> Figure:
        """See `alpa_explore.figures.runs`."""
        from alpa_explore.figures.runs import (
            run_figure,  # late: plotly takes seconds to import
            steps_figure,
        )

        run = state.run
        assert run is not None, "drawn before there is a run"
        if self.shown.value == _MEASURED and run.measured is not None:
            return run_figure(run.measured, theme=theme).update_layout(uirevision=f"{run.folder} by task")
        figure = steps_figure(
            run.plan, steps=run.steps, total=run.settings.steps, predicted_seconds=run.predicted_seconds, theme=theme
        )
        return figure.update_layout(uirevision=str(run.folder))  # a zoom is kept as long as the run

    def rows(self, state: State) -> Sequence[Row]:
        """One row per step; for measured times, one row per kind of task and stage, and one per rank."""
        from alpa_explore.figures.runs import run_rows, steps_table

        run = state.run
        if run is None:
            return []
        if self.shown.value == _MEASURED and run.measured is not None:
            return run_rows(run.measured)
        return steps_table(run.steps, run.predicted_seconds)


def ways_html(plan: Plan, settings: RunSettings) -> str:
    """What a run of the plan takes as predicted; the command that runs it elsewhere; how hosts are attached."""
    figures = {figure.name: figure for figure in headline(plan)}
    rate, steps = figures.get("tokens/s", figures["samples/s"]), settings.steps
    step = f"A step takes {iteration_with_band(plan)}, {rate.text} {rate.name}"
    whole = f"; {steps:,} take about {units.seconds(steps * plan.predicted.iteration_seconds)}." if steps > 1 else "."
    start, join = "<code>dask scheduler</code>", "<code>dask worker ADDRESS --nthreads 1</code>"
    command = launch_command(plan, settings)
    shell = f'Save the plan (Export, Save plan), then<code class="alpa-command">{escape(command)}</code>'
    if not command:
        shell = "The model was made in this notebook: press Start, or <code>ax.launch(plan, model=…)</code>."
    hosts = (
        f"Run {start} on one host and {join} on each; give the address that it prints to Attached hosts, which "
        "measures their links and plans for them."
    )
    ways = (("Predicted", escape(step + whole)), ("In a shell", shell), ("On other hosts", hosts))
    listed = "".join(f"<b>{name}</b><span>{text}</span>" for name, text in ways)
    return f'<div class="alpa-ways alpa-run-status">{listed}</div>'


def launch_command(plan: Plan, settings: RunSettings) -> str:
    """The command that runs the saved plan with these settings; '' where the plan does not know how its model is
    made."""
    if plan.model.recipe is None:
        return ""
    options = {
        "target": "" if settings.target == "local" else settings.target,
        "scheduler": settings.scheduler,
        "device": settings.device,
        "steps": settings.steps,
        "checkpoint-every": settings.checkpoint_every,
        "retries": settings.retries,
        "resume": settings.resume,
    }
    words = ["alpa-explore", "launch", file_name(plan, "plan.json")]
    words += [word for name, value in options.items() if value for word in (f"--{name}", str(value))]
    return shlex.join([*words, *(() if is_reference(plan.model.recipe) else ("--allow-import",))])


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
