"""The explorer: one widget that shows a plan, and what it would be otherwise."""

from __future__ import annotations

import threading
from dataclasses import MISSING, fields
from typing import TYPE_CHECKING, Any

import ipywidgets as W
from IPython.display import display, update_display

from alpa_explore.baselines.kinds import KINDS
from alpa_explore.cluster import Cluster
from alpa_explore.errors import AlpaExploreError, OptionError, nearest_names
from alpa_explore.plans.export.torch_code import torch_code
from alpa_explore.plans.file.write import plan_text
from alpa_explore.plans.plan import Plan
from alpa_explore.sharding.spec_constraint import constraints_of
from alpa_explore_widgets.elements.fields import PageBridge, TabBar
from alpa_explore_widgets.elements.message_order import Order
from alpa_explore_widgets.elements.tables import table_csv
from alpa_explore_widgets.export.saved import plan_table
from alpa_explore_widgets.export.sharing import file_name, plan_code, plan_from_text
from alpa_explore_widgets.lessons import LESSONS
from alpa_explore_widgets.panels.controls import ControlsPanel
from alpa_explore_widgets.panels.lesson import LessonPanel
from alpa_explore_widgets.panels.messages import MessagesPanel
from alpa_explore_widgets.panels.plan_button import RunPanel
from alpa_explore_widgets.panels.selected import SelectedPanel
from alpa_explore_widgets.panels.spec_constraints import ConstraintList
from alpa_explore_widgets.panels.summary import SummaryPanel
from alpa_explore_widgets.panels.toolbar import ToolbarPanel
from alpa_explore_widgets.session.backend import Planner
from alpa_explore_widgets.session.neighbours import neighbours
from alpa_explore_widgets.session.session import Session
from alpa_explore_widgets.session.sources import Sources, own_model, planned_model
from alpa_explore_widgets.session.state import Settings, State, problem_of, settings_of
from alpa_explore_widgets.tab_kinds.figure_panel import FigurePanel
from alpa_explore_widgets.tabs.cluster import ClusterPanel
from alpa_explore_widgets.tabs.compare import ComparePanel
from alpa_explore_widgets.tabs.frontier import FrontierPanel
from alpa_explore_widgets.tabs.launch import LaunchPanel
from alpa_explore_widgets.tabs.layers import LayersPanel
from alpa_explore_widgets.tabs.microbatches import MicrobatchesPanel
from alpa_explore_widgets.tabs.search import SearchPanel
from alpa_explore_widgets.tabs.sharding import ShardingPanel
from alpa_explore_widgets.tabs.solvers import SolversPanel
from alpa_explore_widgets.tabs.stage_costs import StageCostsPanel
from alpa_explore_widgets.tabs.t_max import TMaxPanel
from alpa_explore_widgets.tabs.timeline import TimelinePanel
from alpa_explore_widgets.tabs.why import WhyPanel

if TYPE_CHECKING:
    from alpa_explore.graph import TrainingGraph


GONE_SECONDS = 3.0
"""An explorer that is nowhere on the page for so long was closed: its cell was run again, or its output cleared."""
LOADING_SECONDS = 60.0
"""The same when the page itself went: loaded again it takes a while until it shows the explorer."""
_MORE = tuple(
    field.name for field in fields(Settings) if field.default is not MISSING and field.name != "spec_constraints"
)
"""Settings that have a default: options of `explore` of the same names; spec constraints are `pin` and `forbid`."""


class Explorer(W.VBox):
    """Controls on the left; summary, tabs and figures on the right. All of it shows its session's state."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.bridge = PageBridge()
        self.controls, self.run = ControlsPanel(session), RunPanel(session)
        self.messages, self.summary, self.selected = MessagesPanel(), SummaryPanel(), SelectedPanel(session.ask_regrets)
        self.toolbar, self.lesson = ToolbarPanel(self._pressed), LessonPanel(self._go_to)
        self.panels: list[FigurePanel] = [
            LayersPanel(),
            ClusterPanel(),
            TMaxPanel(),
            MicrobatchesPanel(),
            TimelinePanel(),
            ShardingPanel(session),
            StageCostsPanel(),
            FrontierPanel(session.select),
            WhyPanel(self._try_neighbours),
            SearchPanel(self._try_neighbours, lambda: session.try_baselines(KINDS)),
            ComparePanel(),
            SolversPanel(session.compare),
            LaunchPanel(session.runs),
        ]
        self._usual_panels = tuple(self.panels)
        self.tabs = TabBar(label="Figures", tabs=_tabs(self.panels))
        self._as_table = False
        self._start = session.store.state.settings
        self.spec_constraints = ConstraintList(session)
        left = W.VBox([self.controls.widget, self.spec_constraints.widget, self.run.widget])
        left.add_class("alpa-controls")
        right = W.VBox(
            [
                self.toolbar.widget,
                self.messages.widget,
                self.summary.widget,
                self.selected.widget,
                self.tabs,
                self.lesson.widget,
                *(p.widget for p in self.panels),
            ]
        )
        right.add_class("alpa-main")
        body = W.Box([left, right])
        body.add_class("alpa-body")
        super().__init__([self.bridge, body])
        self.add_class("alpa-explorer")
        self._saved = None
        self.order = Order(self)
        self.tabs.observe(self._again, "selected")
        self.bridge.observe(self._again, "theme")
        self.bridge.observe(self._selected, "selection")
        self.bridge.observe(self._left, "views")
        for panel in self.panels:
            panel.lock = session.store.lock
            panel.figure.observe(self._selected, "selection")
        with session.store.lock:  # planning may be under way already
            session.store.listen(self._state_changed)
            self.controls.show(session.store.state)
            self._show(session.store.state)

    @property
    def plan(self) -> Plan | None:
        """The plan on screen; None before the first."""
        return self.session.store.state.plan

    @property
    def settings(self) -> Settings:
        """What the controls ask for."""
        return self.session.store.state.settings

    def wait(self, timeout: float | None = None) -> Plan | None:
        """Block until planning is done, and return the plan (for scripts; in a notebook figures come by themselves)."""
        self.session.wait(timeout)
        return self.plan

    def close(self) -> None:
        """Close the widget; nothing of it goes on: no planning, no processes of a run."""
        self.session.close()
        super().close()

    def _state_changed(self, old: State, new: State) -> None:
        if new.settings is not old.settings:
            self.controls.show(new)
        self._show(new)
        if new.plan is not old.plan:
            self._save(new)

    def _show(self, state: State) -> None:
        """Bring everything but the controls to `state`; of the figures only the one that can be seen."""
        self.spec_constraints.show(state)
        self.run.show(state)
        self.messages.show(state)
        self.summary.show(state, self.bridge.theme)
        self.selected.show(state)
        self.bridge.selection = state.selection
        own = self.session.sources.own
        code = plan_code(state.settings, own=own is not None and own.name == state.settings.model)
        self.toolbar.show(state, code, as_table=self._as_table, teaching=self.lesson.on)
        panel = self.panels[self.tabs.selected]
        for other in self.panels:  # hidden, not removed: a figure keeps its zoom
            other.widget.layout.display = "" if other is panel else "none"
        if state.plan is not None:
            panel.show(state, self.bridge.theme, as_table=self._as_table)
        self.lesson.show(state, panel)
        panel.figure.busy = panel.busy(state)

    def _go_to(self, title: str) -> None:
        self.tabs.selected = [panel.title for panel in self.panels].index(title)

    def _teach(self) -> None:
        """Lessons on or off; while they are on, tabs stand in the order of the algorithm."""
        panel, self.lesson.on = self.panels[self.tabs.selected], not self.lesson.on
        titles = list(LESSONS) if self.lesson.on else [p.title for p in self._usual_panels]
        self.panels.sort(key=lambda p: titles.index(p.title))
        with self.tabs.hold_sync():
            self.tabs.tabs = _tabs(self.panels)
            self._go_to(panel.title)
        self._show(self.session.store.state)

    def _again(self, _change: dict[str, Any]) -> None:
        with self.session.store.lock:
            self._show(self.session.store.state)

    def _selected(self, change: dict[str, Any]) -> None:
        with self.session.store.lock:
            if change["new"] != self.session.store.state.selection:
                self.session.select(change["new"])
                self._show(self.session.store.state)  # a key that names nothing goes out again

    def _left(self, change: dict[str, Any]) -> None:
        """A run that nobody can see or stop any more ends; a cell that is moved only blinks."""

        def look() -> None:
            if self.bridge.views == 0:
                self.session.runs.stop()

        if change["new"] == 0:
            timer = threading.Timer(LOADING_SECONDS if self.bridge.loading else GONE_SECONDS, look)
            timer.daemon = True
            timer.start()

    def _try_neighbours(self) -> None:
        state = self.session.store.state
        if state.plan is not None and state.planned is not None:
            self.session.try_each(neighbours(state.planned, state.plan))

    def _pressed(self, name: str, content: dict[str, Any], buffers: list[Any]) -> None:
        """A button of the toolbar."""
        try:
            with self.session.store.lock:
                self._do(name, content, buffers)
        except AlpaExploreError as error:
            self.session.store.change(problem=problem_of(error))

    def _do(self, name: str, content: dict[str, Any], buffers: list[Any]) -> None:
        session, state = self.session, self.session.store.state
        if name in ("undo", "redo"):
            getattr(session, name)()
        elif name == "pin":
            session.pin(on=state.pinned is None)
        elif name == "table":
            self._as_table = not self._as_table
            self._show(state)
        elif name == "teach":
            self._teach()
        elif name == "reset":
            session.runs.stop()
            session.set(**{field.name: getattr(self._start, field.name) for field in fields(Settings)})
        elif name == "open":
            plan = plan_from_text(str(content.get("name", "the file")), bytes(buffers[0]))
            session.bring(plan)
        elif state.plan is not None:
            plan = state.plan
            session.write(lambda: self._export(name, state, plan))

    def _export(self, name: str, state: State, plan: Plan) -> dict[str, Any]:
        save = self.toolbar.widget.save
        if name == "plan":
            save(file_name(plan, "plan.json"), plan_text(plan), "application/json")
        elif name == "csv":
            panel = self.panels[self.tabs.selected]
            save(file_name(plan, f"{panel.title.lower()}.csv"), table_csv(panel.rows(state)), "text/csv")
        elif name == "torch":
            save(file_name(plan, "py"), torch_code(plan), "text/x-python")
        elif name == "html":
            from alpa_explore.figures.page import page_html  # late: plotly takes seconds to import

            save(file_name(plan, "html"), page_html(plan), "text/html")
        return {"activity": "The file is saved where the browser keeps downloads."}

    def __repr__(self) -> str:
        # Stored with the notebook as the text of this output: ipywidgets' own repr names every child.
        s = self.settings
        return f"Explorer({s.model} on {s.nodes}x{s.devices_per_node}:{s.device}, B = {s.num_microbatches})"

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        bundle = super()._repr_mimebundle_(**kwargs)
        data, *rest = bundle if isinstance(bundle, tuple) else (bundle,)
        state = self.session.store.state
        data = {**data, "text/html": plan_table(state.plan, state.settings)}
        return (data, *rest) if rest else data

    def _ipython_display_(self, **_options: Any) -> None:
        """Show the explorer, and below it the table that takes its place once the notebook is saved and closed.

        Two outputs: the table follows the plan without the widget above being built anew, and hides while that lives.
        """
        state = self.session.store.state
        display(super()._repr_mimebundle_(), raw=True)
        self._saved = display({"text/html": plan_table(state.plan, state.settings)}, raw=True, display_id=True)

    def _save(self, state: State) -> None:
        if self._saved is not None:
            html = plan_table(state.plan, state.settings)
            update_display({"text/html": html}, raw=True, display_id=self._saved.display_id)


def _tabs(panels: list[FigurePanel]) -> list[list[str]]:
    return [[p.title, p.question] for p in panels]


def explore(
    model: TrainingGraph | Plan | str | Any,
    *,
    cluster: Cluster | str = "1x4:v100",
    num_microbatches: int | None = None,
    delta: float = 0.5,
    num_layers: int | None = None,
    example_inputs: Any = None,
    planner: Planner | None = None,
    **options: Any,
) -> Explorer:
    """Show the plan of `model` on `cluster` and let its settings be moved. Returns at once; planning goes on beside.

    `model` is a catalogue name, a captured graph, or an nn.Module with `example_inputs` (one microbatch) and any option
    of `ax.capture`. `options` may also be fields of `Settings` (solver, schedule, memory_bytes, …), and `pin` and
    `forbid` as `ax.plan` takes them. A finished Plan is
    shown as it is, with its own settings. `num_microbatches` is B (the paper's for its own models, else 32);
    `num_layers` None lets the planner choose. `planner` replaces the planner's functions (tests). Raises
    UnknownNameError, ClusterError or OptionError for input at fault; what goes wrong while planning is shown in the
    explorer.
    """
    planner = planner or Planner()
    if isinstance(model, Plan):
        session = Session(settings_of(model), Sources(planner.capture, planned_model(model), model.cluster), planner)
        session.start_from(model)
        return Explorer(session)
    given = Cluster.parse(cluster) if isinstance(cluster, str) else cluster
    asked = {name: options.pop(name) for name in _MORE if name in options}
    asked["spec_constraints"] = constraints_of(options.pop("pin", None), options.pop("forbid", None))
    own = None if isinstance(model, str) else own_model(model, example_inputs, options)
    if isinstance(model, str) and options:
        raise OptionError(
            "explore does not know this option", found=", ".join(options), remedy=nearest_names(min(options), _MORE)
        )
    sources = Sources(planner.capture, own, given)
    name = own.name if own is not None else str(model).lower()
    microbatch, count = sources.start(name, num_microbatches)
    settings = Settings(
        model=name,
        microbatch=microbatch,
        nodes=given.nodes,
        devices_per_node=given.devices_per_node,
        device=given.device.name,
        num_microbatches=count,
        delta=float(delta),
        num_layers=num_layers,
        **asked,
    )
    session = Session(settings, sources, planner)
    session.plan()
    return Explorer(session)
