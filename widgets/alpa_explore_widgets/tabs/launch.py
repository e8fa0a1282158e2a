"""The Run tab: start the plan here or elsewhere, watch it, stop it, see what was measured beside what was predicted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import ipywidgets as W

from alpa_explore_widgets.elements.fields import ChoiceField, NumberField, TextField
from alpa_explore_widgets.session.runs import Runs, RunSettings
from alpa_explore_widgets.tab_kinds.figure_panel import FigurePanel, note_figure
from alpa_explore_widgets.tabs.launch_status import status_html

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from alpa_explore.plans.plan import Plan
    from alpa_explore.plans.report.tables import Row
    from alpa_explore_widgets.session.state import State

_WHERE = [
    ["local", "this machine", ""],
    ["dask", "a Dask cluster", ""],
    ["torchrun", "a torchrun script", ""],
    ["slurm", "a Slurm script", ""],
]
_SCRIPTS = ("torchrun", "slurm")
_DEVICES = [["", "GPUs, else CPU", ""], ["cpu", "CPU processes", ""], ["cuda", "GPUs", ""]]
_STEPS, _MEASURED = "steps", "measured"
_SHOWN = [[_STEPS, "step by step", ""], [_MEASURED, "task by task", ""]]


class LaunchPanel(FigurePanel):
    """Does the plan run as predicted?"""

    title = "Run"
    question = "Does the plan run as predicted?"

    def __init__(self, runs: Runs) -> None:
        self._runs = runs
        self._checked: tuple[Plan | None, RunSettings] = (None, RunSettings())
        self._measured: object = None
        super().__init__()

    def controls(self) -> list[W.Widget]:
        """Where, on what, how long; and which figure."""
        start = RunSettings()
        self.where = ChoiceField(
            label="Where",
            hint="Where the ranks run. A script is written and nothing started.",
            choices=_WHERE,
            value=start.target,
        )
        self.scheduler = TextField(
            label="Scheduler",
            hint="Address of a Dask scheduler; its workers start the ranks.",
            example="tcp://127.0.0.1:8786",
        )
        self.device = ChoiceField(label="On", hint="A process for each rank.", choices=_DEVICES, value=start.device)
        self.steps = NumberField(
            label="Steps", hint="Iterations of training.", minimum=1, maximum=100_000, whole=True, value=start.steps
        )
        self.shown = ChoiceField(
            label="Shown",
            hint="Measured and predicted times of each stage are there when the run is done.",
            choices=_SHOWN[:1],
            value=_STEPS,
        )
        for field in (self.where, self.scheduler, self.device, self.steps, self.shown):
            field.observe(self._chosen, "value")
        return [self.where, self.scheduler, self.device, self.steps, self.shown]

    def below(self) -> list[W.Widget]:
        """The buttons, and how the run is."""
        self.start = self.button("Start", "Train with the plan on screen", lambda: self._runs.start(self.asked()))
        self.stop = self.button(
            "Stop", "End the run; closing the explorer or its kernel ends it as well", self._runs.stop
        )
        self.dry = self.button(
            "Dry run",
            "Lower the plan and check its program; nothing is started",
            lambda: self._runs.check(self.asked(), dry=True),
        )
        self.status = W.HTML()
        row = W.HBox([self.start, self.stop, self.dry, self.status])
        row.add_class("alpa-launch")
        return [row]

    def asked(self) -> RunSettings:
        """What is chosen."""
        scheduler = self.scheduler.value if self.where.value == "dask" else ""
        return RunSettings(
            target=self.where.value, device=self.device.value, steps=int(self.steps.value or 1), scheduler=scheduler
        )

    def follow(self, state: State) -> None:
        """Buttons and status; a plan that was not seen here before is checked."""
        asked, run = self.asked(), state.run
        self.scheduler.layout.display = "" if asked.target == "dask" else "none"
        if (state.plan, asked) != self._checked and not asked.asks_others:
            self._checked = (state.plan, asked)
            self._runs.check(asked)
            return  # the check is a change of the state: this is called again
        check = state.run_check
        if check is not None and (check.plan is not state.plan or check.settings != asked):
            check = None  # of another plan, or asked otherwise
        going = run is not None and not run.over
        count = f"{asked.steps:,} {'step' if asked.steps == 1 else 'steps'}"
        self.start.description = f"Write a script of {count}" if asked.target in _SCRIPTS else f"Start {count}"
        self.start.disabled = going or (check is not None and check.problem is not None)
        (self.start.remove_class if self.start.disabled or run else self.start.add_class)("alpa-call")
        self.stop.disabled = run is None or run.over or run.stopping
        self.dry.disabled = check is not None and check.busy
        self.status.value = status_html(state, check)
        measured = None if run is None else run.measured
        if measured is not self._measured:
            self._measured = measured
            self.shown.unobserve(self._chosen, "value")  # it is being drawn already
            self.shown.choices = _SHOWN if measured is not None else _SHOWN[:1]
            self.shown.value = _MEASURED if measured is not None else _STEPS
            self.shown.observe(self._chosen, "value")

    def plan_of(self, state: State) -> Plan:
        """The plan of the run, which may be another one than that on screen."""
        return state.run.plan if state.run is not None else super().plan_of(state)

    def busy(self, _state: State) -> bool:
        """A run goes on whatever is planned beside it."""
        return False

    def depends_on(self, state: State) -> tuple[object, ...]:
        """The run, and what of it is chosen."""
        return (state.run, self.shown.value, self.start.disabled)

    def draw(self, state: State, theme: str) -> go.Figure:
        """See `alpa_explore.figures.runs.steps` and `run`; before a run nothing but how to get one."""
        from alpa_explore.figures.runs.run import run_figure  # late: plotly takes seconds to import
        from alpa_explore.figures.runs.steps import steps_figure

        run = state.run
        if run is None:
            return note_figure("Nothing was run yet" + ("." if self.start.disabled else ": press Start."), theme)
        if not run.predicted_seconds:
            return note_figure("The run has not begun.", theme)
        if self.shown.value == _MEASURED and run.measured is not None:
            return run_figure(run.measured, theme).update_layout(uirevision=f"{run.folder} by task")
        figure = steps_figure(
            run.plan, steps=run.steps, total=run.settings.steps, predicted_seconds=run.predicted_seconds, theme=theme
        )
        return figure.update_layout(uirevision=str(run.folder))  # a zoom lasts as long as the run

    def rows(self, state: State) -> Sequence[Row]:
        """A row a step, or for the tasks of each stage and for each rank."""
        from alpa_explore.figures.runs.run import run_rows
        from alpa_explore.figures.runs.steps import steps_table

        run = state.run
        if run is None:
            return []
        if self.shown.value == _MEASURED and run.measured is not None:
            return run_rows(run.measured)
        return steps_table(run.steps, run.predicted_seconds)

    def _chosen(self, _change: dict[str, Any]) -> None:
        self.redraw()
