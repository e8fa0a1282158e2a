"""The explorer: one widget that shows a plan, with controls to change its settings."""

import json
import threading
from dataclasses import MISSING, fields
from typing import Any, Self

import ipywidgets as W
from IPython.display import display

from alpa_explore.cluster import Cluster
from alpa_explore.errors import AlpaExploreError, OptionError, nearest_names
from alpa_explore.graph import TrainingGraph, full_precision
from alpa_explore.inter_op.options import PipelineOptions
from alpa_explore.models.catalog import CONFIG_FAMILY, entry
from alpa_explore.plans.export.export import TARGETS
from alpa_explore.plans.export.torch_code import torch_code
from alpa_explore.plans.file.document import plan_text
from alpa_explore.plans.plan import Plan
from alpa_explore.sharding.spec_constraint import constraints_of
from alpa_explore_widgets.elements.fields import PageBridge, TabBar
from alpa_explore_widgets.elements.message_order import MessageOrder
from alpa_explore_widgets.elements.page_widget import box, send_states, set_class, set_shown, share_lock
from alpa_explore_widgets.elements.tables import table_csv
from alpa_explore_widgets.export import SavedOutputs, not_expressed, plan_code, plan_from_text, plan_table
from alpa_explore_widgets.figures_ahead import FiguresAhead
from alpa_explore_widgets.lessons import LESSONS, LessonPanel
from alpa_explore_widgets.panels.actions import PlanButtonPanel, ToolbarPanel, file_name, progress_words
from alpa_explore_widgets.panels.controls import BATCH, MICROBATCH, ControlsPanel, chosen_for
from alpa_explore_widgets.panels.messages import MessagesPanel, SelectedPanel
from alpa_explore_widgets.panels.setting_controls import B_STOPS, drawer_handle
from alpa_explore_widgets.panels.spec_constraints import ConstraintList
from alpa_explore_widgets.panels.verdict import VerdictPanel
from alpa_explore_widgets.session import tuning
from alpa_explore_widgets.session.backend import Backend
from alpa_explore_widgets.session.session import Session
from alpa_explore_widgets.session.settings import Settings, device_setting, settings_of
from alpa_explore_widgets.session.sources import Sources, config_of_plan, model_of_plan, user_model
from alpa_explore_widgets.session.state import State, fault_of
from alpa_explore_widgets.tab_groups import tabs_of
from alpa_explore_widgets.tab_kinds.panel import Panel, PanelList, css_name

_SETTING_OPTIONS = tuple(
    field.name for field in fields(Settings) if field.default is not MISSING and field.name != "spec_constraints"
)
"""Settings with a default, which are options of `explore`; spec constraints are given as `pin` and `forbid`."""
_SAVED = "The file is in the browser's folder for downloads."


class Explorer(W.VBox):  # type: ignore[misc]  # ipywidgets has no types
    """The verdict on top, controls on the left, figures on the right. Everything shows the state of one session.

    On a narrow page the two sliders stay on top, and all other controls are in a drawer.
    """

    def __init__(self, session: Session) -> None:
        self.session = session
        self.bridge = PageBridge()
        self.controls, self.plan_button = ControlsPanel(session), PlanButtonPanel(session)
        self.messages, self.verdict = MessagesPanel(session.take), VerdictPanel()
        self.selected = SelectedPanel(session.compute_regrets)
        self.toolbar, self.lesson = ToolbarPanel(self.toolbar_pressed), LessonPanel(self.go_to_tab)
        self._usual_tabs = tabs_of(session, self.go_to_tab)
        self.panels = PanelList(self._usual_tabs, self._panel_made)
        self.tabs = TabBar(label="Figures", tabs=self._tabs())
        self._as_table = False
        self._initial_settings = session.store.state.settings
        self.spec_constraints = ConstraintList(session)
        self._main = self._right()
        super().__init__([self.bridge, self._body()])
        self.add_class("alpa-explorer")
        share_lock(self, session.store.lock)
        self.saved = SavedOutputs(self._table)
        self.order = MessageOrder(self)
        self.ahead = FiguresAhead(B_STOPS)
        self.controls.kept_changed = self._make_figures_ahead
        self.tabs.observe(self._show_again, "selected")
        self.bridge.observe(self._show_again, "theme")
        self.bridge.observe(self._selection_changed, "selection")
        self.bridge.observe(self._views_changed, "views")
        self.bridge.observe(self._page_loaded, "loads")
        with session.store.lock:  # the planner may be running already
            session.store.listen(self._state_changed)
            self.controls.show(session.store.state)
            self._show(session.store.state)

    @property
    def plan(self) -> Plan | None:
        """The plan on screen; None before the first."""
        return self.session.store.state.plan

    @property
    def settings(self) -> Settings:
        """The values of the controls."""
        return self.session.store.state.settings

    def wait(self, timeout: float | None = None) -> Plan | None:
        """Block until planning is done, and return the plan, whose table and picture a notebook that is saved then has
        (for scripts; a notebook updates by itself)."""
        self.session.wait(timeout)
        self.saved.send_again(self.session.store.state, timeout)
        return self.plan

    def close(self) -> None:
        """Close the widget, stop planning, and end the processes of a training run."""
        self.ahead.close()
        self.saved.close()
        self.session.close()
        super().close()

    def _right(self) -> W.Box:
        """The column on the right, where panels are added as they are made."""
        above = (self.messages.widget, self.verdict.below, self.tabs, self.lesson.widget, self.selected.widget)
        return box("alpa-main", *above, kind=W.VBox)

    def _body(self) -> W.Box:
        """The verdict, the parts on the left, and the column on the right; `explorer.css` places them."""
        css = "alpa-controls alpa-drawer"
        drawer = box(css, self.controls.widget, self.spec_constraints.widget, kind=W.VBox)
        column = box("alpa-column", drawer, self.plan_button.widget, kind=W.VBox)
        head = box("alpa-head", self.verdict.head, self.toolbar.widget, kind=W.Box)
        parts = (head, self.controls.sliders, drawer_handle(drawer), column, self._main)
        return box("alpa-body", *parts, kind=W.Box)

    def _panel_made(self, panel: Panel) -> None:
        """Add a panel, hidden until its tab is shown."""
        panel.widget.layout.display = "none"
        panel.lock, panel.redrawn = self.session.store.lock, self._make_figures_ahead
        share_lock(panel.widget, panel.lock)
        for figure in panel.figures:
            figure.observe(self._selection_changed, "selection")
        self._main.children = (*self._main.children, panel.widget)
        self.order.register()

    def _state_changed(self, old: State, new: State) -> None:
        if new.settings is not old.settings or new.fault is not old.fault or chosen_for(new) != chosen_for(old):
            self.controls.show(new)
        self._show(new)
        self.saved.follow(old, new)

    def _show(self, state: State) -> None:
        """Update everything but the controls; of the figures only the one of the selected tab.

        The figure comes first, so that the page draws it while Python writes the texts around it; but not its first
        one, for which plotly may have to be imported.
        """
        panel = self.panels[self.tabs.selected]
        for part in (self._show_panel, self._show_texts) if panel.drawn else (self._show_texts, self._show_panel):
            part(state, panel)
            if state is not self.session.store.state:
                return  # a control of the panel changed the state, which has been shown since
        if not state.replanning:
            self.session.layouts.follow_batch()
            if state is not self.session.store.state:
                return
        self.lesson.show(state, panel.title, panel.stage_of_rows())
        self.tabs.drawn = panel.title
        self._make_figures_ahead()

    def _make_figures_ahead(self) -> None:
        panel, state = self.panels[self.tabs.selected], self.session.store.state
        if self.controls.keeps_batch:  # another B has other microbatches, of which nothing is known
            self.ahead.forget(panel)
            return
        self.ahead.follow(panel, state, self.bridge.theme, as_table=self._as_table)

    def _show_panel(self, state: State, panel: Panel) -> None:
        """Show this panel alone."""
        for figure in panel.figures:
            figure.waiting = _waiting_text(state)
        for other in self.panels.made:  # hidden rather than removed, so that a figure keeps its zoom
            set_shown(other.widget, on=other is panel)
        if state.plan is not None or not panel.needs_plan:
            panel.show(state, self.bridge.theme, as_table=self._as_table)
        busy = panel.busy(state)
        for figure in panel.figures:
            figure.busy = busy

    def _show_texts(self, state: State, panel: Panel) -> None:
        """Update what is above the panel and beside it."""
        self.spec_constraints.show(state)
        self.plan_button.show(state)
        self.messages.show(state)
        self.verdict.show(state, with_best=panel.title not in ("Layouts", "Compare"))
        failed = state.fault is not None and state.plan is not None and state.out_of_date
        set_class(self._main, "alpa-stale", on=failed)
        self.selected.show(state)
        self.bridge.selection = state.selection
        self.bridge.label = f"Plan explorer: {_name(state.plan_settings or state.settings)}"
        code = self._code(state, state.plan, state.plan_settings or state.settings)
        self.toolbar.show(
            state,
            code,
            as_table=self._as_table,
            teaching=self.lesson.on,
            picture=panel.has_picture and not self._as_table,
        )

    def _code(self, state: State, plan: Plan | None, settings: Settings, *, explores: bool = False) -> str:
        """Python code that makes `plan` of these settings, or with `explores` shows it."""
        try:
            cluster = self.session.sources.cluster(settings) if plan is None else plan.cluster
        except AlpaExploreError as error:  # impossible numbers, which are reported where they are used
            return f"# {error}\n"
        reference, where = self.session.sources.code_name(settings.model), _scheduler_of(state, settings)
        baseline = "" if plan is None else plan.options.baseline
        return plan_code(settings, cluster, reference=reference, baseline=baseline, scheduler=where, explores=explores)

    def go_to_tab(self, title: str) -> None:
        """Select the tab with this title."""
        self.tabs.selected = self.panels.at(title)

    def opened(self, tab: str | None, *, teach: bool, b_keeps: str) -> Self:
        """With the tab of this title selected, the lessons on, and what stays when B moves. OptionError where there is
        no such tab, and for anything else that is to stay."""
        titles = {tab.kind.title.casefold(): tab.kind.title for tab in self.panels.tabs}
        if tab is not None and str(tab).casefold() not in titles:
            remedy = nearest_names(str(tab), titles.values())
            self.close()
            raise OptionError("The explorer has no such tab", found=repr(tab), remedy=remedy)
        if b_keeps not in (BATCH, MICROBATCH):
            self.close()
            remedy = f"Give {BATCH!r} or {MICROBATCH!r}."
            raise OptionError("Another B keeps the global batch or the microbatch", found=repr(b_keeps), remedy=remedy)
        self.controls.kept.value = b_keeps
        if tab is not None:
            self.go_to_tab(titles[str(tab).casefold()])
        if teach:
            self.toggle_teaching()
        return self

    def _tabs(self) -> list[list[str]]:
        """The tabs for the bar."""
        return [[tab.kind.title, tab.kind.question, css_name(tab.kind.title)] for tab in self.panels.tabs]

    def toggle_teaching(self) -> None:
        """Switch lessons on or off; while they are on, the tabs are in the order of the lessons, before those that have
        none."""
        panel, self.lesson.on = self.panels[self.tabs.selected], not self.lesson.on
        if self.lesson.on:  # they change B alone
            self.controls.kept.value = MICROBATCH
        self.panels.tabs = list(self._usual_tabs)
        if self.lesson.on:
            steps = {title: place for place, title in enumerate(LESSONS)}
            self.panels.tabs.sort(key=lambda tab: steps.get(tab.kind.title, len(steps)))
        with self.tabs.hold_sync():
            self.tabs.tabs = self._tabs()
            self.go_to_tab(panel.title)
        self._show(self.session.store.state)

    def _show_again(self, _change: dict[str, Any]) -> None:
        with self.session.store.lock:
            self._show(self.session.store.state)

    def _selection_changed(self, change: dict[str, Any]) -> None:
        """A selection on the page: in a figure, or in the bridge for everything else."""
        with self.session.store.lock:
            if change["new"] != self.session.store.state.selection:
                self.session.select(change["new"])
                self._show(self.session.store.state)  # resets the sender if the key named nothing

    def _page_loaded(self, _change: dict[str, Any]) -> None:
        """Bring a page that was loaded to the present state: it may have missed changes while it started."""
        with self.session.store.lock:
            send_states(self)

    def _views_changed(self, change: dict[str, Any]) -> None:
        """End a training run that nobody can see or stop any more, unless the explorer is shown again soon."""

        def stop_if_hidden() -> None:
            if self.bridge.views == 0:
                self.session.runs.stop()

        if change["new"] == 0:
            delay = tuning.RELOAD_SECONDS if self.bridge.reloading else tuning.HIDDEN_SECONDS
            timer = threading.Timer(delay, stop_if_hidden)
            timer.daemon = True
            timer.start()

    def toolbar_pressed(self, name: str, content: dict[str, Any], buffers: list[Any]) -> None:
        """A button of the toolbar was pressed on the page; an error is shown as a message."""
        try:
            with self.session.store.lock:
                self._run_action(name, content, buffers)
        except AlpaExploreError as error:
            self.session.store.change(fault=fault_of(error))

    def _run_action(self, name: str, content: dict[str, Any], buffers: list[Any]) -> None:
        """The action of a button of the toolbar."""
        session, state = self.session, self.session.store.state
        if name == "undo":
            session.undo()
        elif name == "redo":
            session.redo()
        elif name == "pin":
            session.pin(on=state.pinned is None)
        elif name == "table":
            self._as_table = not self._as_table
            self._show(state)
        elif name == "teach":
            self.toggle_teaching()
        elif name == "reset":
            session.runs.stop()
            session.set(**{field.name: getattr(self._initial_settings, field.name) for field in fields(Settings)})
        elif name == "open":
            session.open_plan(plan_from_text(str(content.get("name", "the file")), bytes(buffers[0])))
        elif state.plan is not None:
            plan = state.plan
            session.write_file(lambda: self._export(name, state, plan))

    def _export(self, name: str, state: State, plan: Plan) -> dict[str, Any]:
        """Make the browser save a file; returns the changes of the state."""
        save = self.toolbar.widget.save
        if name == "plan":
            save(file_name(plan, "plan.json"), plan_text(plan), "application/json")
        elif name == "csv":
            panel = self.panels[self.tabs.selected]
            save(file_name(plan, f"{panel.title.lower()}.csv"), table_csv(panel.rows(state)), "text/csv")
        elif name == "trace":
            from alpa_explore.plans.timeline import plan_timeline  # late: no other part needs them
            from alpa_explore.schedules.simulator.trace import chrome_trace

            timeline = plan_timeline(plan, plan.options.pipeline.schedule)
            names = [f"submesh {stage.index}: {len(stage.devices)} devices" for stage in plan.stages]
            text = json.dumps(chrome_trace(timeline, names), allow_nan=False)
            save(file_name(plan, "trace.json"), text, "application/json")
        elif name == "torch":
            save(file_name(plan, "placements.py"), torch_code(plan), "text/x-python")
        elif name in TARGETS:
            from alpa_explore.questions.exported import export  # late: it loads the baselines

            exported = export(plan, name)
            kind = "text/x-python" if exported.ending == "py" else "text/x-shellscript"
            save(file_name(plan, f"{name}.{exported.ending}"), exported.text, kind)
            return {"activity": f"{_SAVED} {not_expressed(exported)}".strip()}
        elif name == "report":
            save(file_name(plan, "report.html"), self._report(state, plan), "text/html")
        elif name == "html":
            from alpa_explore.figures.page import page_html  # late: plotly takes seconds to import

            save(file_name(plan, "html"), page_html(plan), "text/html")
        return {"activity": _SAVED}

    def _report(self, state: State, plan: Plan) -> str:
        """The page about all plans of the history."""
        from alpa_explore.figures.report_page import Tried, report_html  # late: plotly takes seconds to import

        entries = state.history.entries
        tried = [Tried(plan=entry.plan, code=self._code(state, entry.plan, entry.settings)) for entry in entries]
        places = [place for place, entry in enumerate(entries) if entry.plan is plan]
        if not places:
            places, tried = [len(tried)], [*tried, Tried(plan=plan)]
        return report_html(tried, chosen=places[-1])

    def __repr__(self) -> str:
        # Stored in the notebook as the text of this output; the repr of ipywidgets would list every child.
        return f"Explorer({_name(self.settings)}, B = {self.settings.num_microbatches})"

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        bundle = super()._repr_mimebundle_(**kwargs)
        data, *rest = bundle if isinstance(bundle, tuple) else (bundle,)
        state = self.session.store.state
        data = {**data, "text/html": self._table(state)}
        return (data, *rest) if rest else data

    def _ipython_display_(self, **_options: Any) -> None:
        """Show the explorer, and below it what replaces it once the notebook is saved and closed."""
        display(super()._repr_mimebundle_(), raw=True)
        with self.session.store.lock:  # a plan that is ready meanwhile is shown after
            self.saved.show(self.session.store.state)

    def _table(self, state: State) -> str:
        """The plan on screen, with the code that shows it."""
        settings = state.plan_settings or state.settings
        return plan_table(state.plan, self._code(state, state.plan, settings, explores=True))


def _scheduler_of(state: State, settings: Settings) -> str:
    """The scheduler of the attached hosts that the settings are for; '' where they are for another cluster."""
    attachment = state.attachment
    if attachment is None or attachment.cluster is None or attachment.nodes is None:
        return ""
    return attachment.nodes.scheduler if device_setting(attachment.cluster) == settings.device else ""


def _name(s: Settings) -> str:
    """The model and the cluster."""
    return f"{s.model} on {s.nodes}x{s.devices_per_node}:{s.device}"


def _waiting_text(state: State) -> str:
    """Why a figure is not there yet."""
    if state.plan is not None:
        return "Drawing the figure…"
    if state.planning:
        return f"{progress_words(state)} · the figure appears with the first plan"
    return "No figure: there is no plan yet."


def explore(
    model: TrainingGraph | Plan | str | Any,
    *,
    cluster: Cluster | str = "1x4:v100",
    num_microbatches: int | None = None,
    global_batch: int | None = None,
    delta: float = 0.5,
    num_layers: int | None = None,
    example_inputs: Any = None,
    backend: Backend | None = None,
    tab: str | None = None,
    teach: bool = False,
    b_keeps: str = "",
    **options: Any,
) -> Explorer:
    """Show the plan of `model` on `cluster` with controls for its settings. Returns at once; planning continues in the
    background.

    `model` is a catalogue name, the path of a Hugging Face config.json, a captured graph, or an nn.Module with
    `example_inputs` (one microbatch) and any option of `ax.capture`. A finished Plan is shown as it is, with its own
    settings. `num_microbatches` is B (the catalogue's for its models, else 32), `global_batch` the samples of an
    iteration (the catalogue's; of a graph or a module those of B microbatches); with `num_layers` None the planner
    chooses. `options` may also be fields of `Settings` (solver, sequence, precision, schedule, memory_bytes, …), and
    `pin` and `forbid` as in `ax.plan`. `tab` is the title of the tab that is seen first ("t_max"); `teach` switches the
    lessons on. `b_keeps` is what stays when B moves: "batch", the global batch, or "microbatch", its size (the default
    for a Plan). `backend` replaces the functions that capture, plan and run (for tests). Raises
    UnknownNameError, RecipeError, ClusterError or OptionError for invalid input; errors
    while planning are shown in the explorer.
    """
    backend = backend or Backend()
    if isinstance(model, Plan):
        sources = Sources(backend.capture, model_of_plan(model), model.cluster, config_of_plan(model))
        session = Session(settings_of(model), sources, backend)
        session.show_plan(model)
        return Explorer(session).opened(tab, teach=teach, b_keeps=b_keeps or MICROBATCH)
    parsed_cluster = Cluster.parse(cluster) if isinstance(cluster, str) else cluster
    setting_options = {name: options.pop(name) for name in _SETTING_OPTIONS if name in options}
    if setting_options.get("precision"):
        setting_options["precision"] = full_precision(setting_options["precision"])
    setting_options["spec_constraints"] = constraints_of(options.pop("pin", None), options.pop("forbid", None))
    given_model = None if isinstance(model, str) else user_model(model, example_inputs, options)
    if isinstance(model, str) and options:
        raise OptionError(
            "Unknown option of explore", found=", ".join(options), remedy=nearest_names(min(options), _SETTING_OPTIONS)
        )
    found = entry(model, setting_options.get("sequence")) if isinstance(model, str) else None
    config = found if found is not None and found.family == CONFIG_FAMILY else None
    sources = Sources(backend.capture, given_model, parsed_cluster, config)
    if found is None:
        assert given_model is not None
        name = given_model.name
    else:
        name, _, tokens = found.name.partition("@")
        setting_options["sequence"] = int(tokens) if tokens else None
    setting_options.setdefault("expert_imbalance", parsed_cluster.device.expert_imbalance)
    microbatch, count = sources.initial_batch(name, num_microbatches, global_batch)
    settings = Settings(
        model=name,
        microbatch=microbatch,
        nodes=parsed_cluster.nodes,
        devices_per_node=parsed_cluster.devices_per_node,
        device=device_setting(parsed_cluster),
        num_microbatches=count,
        delta=float(delta),
        num_layers=num_layers,
        **setting_options,
    )
    PipelineOptions(**settings.pipeline)  # OptionError for a value that a field cannot have
    session = Session(settings, sources, backend)
    session.plan()
    return Explorer(session).opened(tab, teach=teach, b_keeps=b_keeps or BATCH)
