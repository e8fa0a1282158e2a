"""The tabs of the plan with controls or several figures: Overview, Memory, Sharding, Timeline."""

import gzip
from collections.abc import Callable, Sequence
from html import escape
from typing import Any, cast

import ipywidgets as W

from alpa_explore.figures.keys import read_key
from alpa_explore.figures.style import Figure
from alpa_explore.figures.timelines.parts import Window
from alpa_explore.plans.plan import Plan
from alpa_explore.plans.report.tables import Row, stages_table
from alpa_explore_widgets.elements.fields import choice_field, options
from alpa_explore_widgets.elements.figures import DataflowGraph, LinkedView, TimelinePlayer
from alpa_explore_widgets.elements.page_widget import PageFigure
from alpa_explore_widgets.elements.tables import table_html
from alpa_explore_widgets.overview.cards import overview_html
from alpa_explore_widgets.panels.spec_constraints import ConstraintControls
from alpa_explore_widgets.session.session import Session
from alpa_explore_widgets.session.state import State
from alpa_explore_widgets.tab_kinds.figure_panel import PlanPanel, StagePanel
from alpa_explore_widgets.tab_kinds.panel import Panel


class OverviewPanel(Panel):
    """How is the model divided, what does each device do when, and why does it take so long?"""

    title = "Overview"
    made_ahead = True
    question = "How is the model divided, what does each device do when, and where does the time go?"

    def __init__(self, go_to: Callable[[str], None]) -> None:
        self.view, self.table = LinkedView(go_to), W.HTML()
        super().__init__()

    @property
    def figures(self) -> Sequence[PageFigure]:
        """The four figures are one view."""
        return (self.view,)

    def contents(self) -> list[W.Widget]:
        """The figures and the table, of which one is hidden."""
        return [self.view, self.table]

    def update(self, state: State, theme: str, *, as_table: bool) -> None:
        """Draw the figures, in colours that do not depend on the theme, or make the table."""
        self.table.layout.display = "" if as_table else "none"
        self.view.layout.display = "none" if as_table else None
        self.finding.value = ""
        if as_table:
            self.table.value = table_html(self.rows(state), self.plan_of(state))
        else:
            self.view.html = overview_html(self.plan_of(state))

    def packed(self, state: State, theme: str) -> bytes:
        """The figures for a state."""
        return gzip.compress(overview_html(self.plan_of(state)).encode(), 3)

    def rows(self, state: State) -> Sequence[Row]:
        """The stages."""
        return stages_table(self.plan_of(state))


_TIME, _CHOICES = "time", "choices"


class FrontierPanel(StagePanel):
    """What fills a device over time, and how much slower does a stage become with less memory?"""

    title, name = "Memory", "frontier"
    made_ahead = True
    question = "What fills the memory of a stage's devices, and how much slower would the stage be with less?"

    def __init__(self, select: Callable[[str], None]) -> None:
        self._opened = False
        super().__init__(select)

    def controls(self) -> list[W.Widget]:
        """The stage, and what is shown of its memory."""
        hint = "One iteration over time, by part; or the choices for the stage, with their latency and memory."
        self.view = choice_field("View", hint, {_TIME: "Over time", _CHOICES: "Choices"})
        self.watch(self.view)
        return [*super().controls(), self.view]

    def depends_on(self, state: State) -> tuple[object, ...]:
        """The stage and the view."""
        return (*super().depends_on(state), self.view.value)

    def draw(self, state: State, theme: str) -> Figure:
        """See `alpa_explore.figures.timelines.stage_memory`, or `decisions.frontier`."""
        if self.view.value == _CHOICES:
            return super().draw(state, theme)
        from alpa_explore.figures.timelines.stage_memory import stage_memory_figure

        return stage_memory_figure(self.plan_of(state), self.stage_of_rows(), theme=theme)

    def rows(self, state: State) -> Sequence[Row]:
        """The table of the view."""
        if self.view.value == _CHOICES:
            return super().rows(state)
        from alpa_explore.figures.timelines.stage_memory import stage_memory_table

        return stage_memory_table(self.plan_of(state), self.stage_of_rows())

    def follow(self, state: State) -> None:
        """Begin with the stage that has the least memory left and a choice; then follow the selection."""
        if not self._opened and state.plan is not None and "stage" not in read_key(state.selection):
            with self.quietly(self.stage, self._stage_chosen):  # nothing is selected
                self.stage.value = str(_fullest_with_a_choice(state.plan))
        self._opened = True
        super().follow(state)


def _fullest_with_a_choice(plan: Plan) -> int:
    """The stage with the highest peak among those for which several choices are known, or among all."""

    def rank(stage: int) -> tuple[bool, float]:
        of = plan.stages[stage]
        known = plan.submesh_of(of) in plan.costs.submeshes
        return known and len(plan.costs.candidates.get(plan.key_of(of), ())) > 1, of.peak_bytes

    return max(range(len(plan.stages)), key=rank)


CONTEXT_OPERATORS = 12
"""Operators shown before and after the selected one; set by hand."""
PAGE_OPERATORS = 48
"""Operators that the figure of a whole stage shows; set by hand."""


_GRAPH, _MATRIX = "graph", "matrix"


class ShardingPanel(StagePanel):
    """How is every operator of a stage sharded over the axes of its logical mesh? As a graph or as a matrix."""

    title, name = "Sharding", "sharding"
    question = "How is each operator of a stage divided over the devices, and what do its collectives cost?"

    def __init__(self, session: Session) -> None:
        self.spec_constraints = ConstraintControls(session)
        self.graph = DataflowGraph(label=f"{self.title}: waiting for the first plan")
        self._graph_inputs: tuple[object, ...] = ()
        """What the graph was drawn from."""
        self._graph_sentence = ""
        super().__init__(session.select)
        head, *rest = self.widget.children
        question, *controls = head.children
        head.children = (question, self.view, *controls)
        for line in controls:
            line.add_class("alpa-with-constraints")
        self.widget.children = (head, *rest)

    @property
    def figures(self) -> Sequence[PageFigure]:
        """The matrix and the graph."""
        return (self.figure, self.graph)

    def contents(self) -> list[W.Widget]:
        """The graph, the matrix and the table, of which one is shown."""
        return [self.graph, *super().contents()]

    def controls(self) -> list[W.Widget]:
        """The choice of the stage; beside it the spec constraints of the selected operator, or how to get them. The
        choice of the view stands beside the question."""
        hint = "The operators as a graph in the order of the data, or as a matrix of their specs."
        self.view = choice_field("View", hint, {_GRAPH: "Graph", _MATRIX: "Matrix"})
        self.watch(self.view)
        self.hint = W.HTML('<p class="alpa-question">Click an operator to pin or forbid its spec.</p>')
        return [*super().controls(), self.hint, self.spec_constraints.widget]

    def follow(self, state: State) -> None:
        """Update the stage and the spec constraints."""
        super().follow(state)
        self.spec_constraints.show(state)
        self.hint.layout.display = None if self.spec_constraints.widget.layout.display == "none" else "none"

    def update(self, state: State, theme: str, *, as_table: bool) -> None:
        """The graph of the stage, or its matrix as a figure, or the table."""
        if as_table or self.view.value == _MATRIX:
            self.graph.layout.display = "none"
            super().update(state, theme, as_table=as_table)
            return
        self.figure.layout.display = self.table.layout.display = "none"
        self.graph.layout.display = None
        from alpa_explore.figures.dataflow.document import dataflow_document
        from alpa_explore.figures.dataflow.stage_dataflow import sentence_of, stage_dataflow

        plan, stage = self.plan_of(state), self.plan_of(state).stages[self.stage_of_rows()]
        place = (stage.index, stage.layers, stage.submesh, stage.logical_mesh)
        inputs = (plan.model.name, str(plan.cluster), theme, place, tuple(stage.operators), tuple(stage.tensors))
        if inputs != self._graph_inputs:  # another B leaves them alone
            flow = stage_dataflow(plan, stage.index)
            self._graph_inputs, self._graph_sentence = inputs, sentence_of(flow)
            label = f"{self.title} of {plan.model.name} on {plan.cluster} as a graph. {self._graph_sentence}"
            self.graph.draw(dataflow_document(flow), label)
        self.finding.value = f'<p class="alpa-finding" tabindex="0">{escape(self._graph_sentence, quote=False)}</p>'

    def depends_on(self, state: State) -> tuple[object, ...]:
        """The stage, and the part of it that is shown."""
        graph = self.view.value == _GRAPH
        return (*super().depends_on(state), _GRAPH if graph else self._start(self.plan_of(state), state.selection))

    def figure_arguments(self, state: State) -> dict[str, Any]:
        """The whole stage, or the operators around the selected one if that does not show it."""
        start = self._start(self.plan_of(state), state.selection)
        return {} if start is None else {"start": start, "count": 2 * CONTEXT_OPERATORS + 1}

    def _start(self, plan: Plan, selection: str) -> int | None:
        """Index of the first operator to show; None for the figure of the whole stage."""
        name = read_key(selection).get("operator")
        if name is None:
            return None
        from alpa_explore.figures.decisions.operator_rows import operator_page

        stage = plan.stages[self.stage_of_rows()]
        if name in {row.operator.name for row in operator_page(stage, count=PAGE_OPERATORS)[0]}:
            return None
        index = next((i for i, o in enumerate(stage.operators) if o.name == name), None)
        return None if index is None else max(0, index - CONTEXT_OPERATORS)


_NONE = "none"
_WINDOWS = {
    "parts": "warm-up, steady, drain",
    "whole": "the whole iteration",
    "start": "its start",
    "middle": "its middle",
    "end": "its end",
}
_DRAGGED = "dragged"


class TimelinePanel(PlanPanel):
    """What does each stage do at what time?"""

    title, name, room = "Timeline", "timeline", "timelines"
    made_ahead = True
    question = "What does each stage do at what time, and what does it hold in memory?"

    def controls(self) -> list[W.Widget]:
        """The schedule, a second one, and the part of the iteration."""
        self._offered: Plan | None = None
        self.schedule = choice_field("Schedule", "The order of the tasks.", {"": ""})
        self.beside = choice_field("Beside it", "A second schedule on the same time axis.", {_NONE: "none"})
        hint = "The part of the iteration that is drawn. Drag across the strip at the bottom to choose another one."
        self.window = choice_field("Shown", hint, _WINDOWS)
        fields = [self.schedule, self.beside, self.window]
        self.watch(*fields)
        self.figure.observe(self._brushed, "brushed")
        return list(fields)

    def contents(self) -> list[W.Widget]:
        """The figure or the table, and the playback."""
        self.player = TimelinePlayer()
        return [*super().contents(), self.player]

    def follow(self, state: State) -> None:
        """Offer the schedules that are possible for the plan; its own is shown until another one is chosen."""
        assert state.plan is not None, "shown before there was a plan"
        if state.plan is self._offered:
            return
        from alpa_explore.plans.schedule_stages import possible_schedules

        self._offered = state.plan
        names = possible_schedules(state.plan)
        for field, offered in ((self.schedule, names), (self.beside, (_NONE, *names))):
            before = field.choices[0][0]
            field.choices = options(offered)
            if field.value == before or field.value not in offered:
                with self.quietly(field):
                    field.value = offered[0]

    def schedules(self) -> tuple[str, ...]:
        """The chosen schedules, one or two."""
        chosen = (self.schedule.value, self.beside.value)
        return tuple(name for name in dict.fromkeys(chosen) if name != _NONE)

    def depends_on(self, _state: State) -> tuple[object, ...]:
        """The choices above the figure."""
        return (*self.schedules(), self._shown_window())

    def arguments(self, _state: State) -> dict[str, Any]:
        """The schedules."""
        return {"schedules": self.schedules()}

    def figure_arguments(self, _state: State) -> dict[str, Any]:
        """The part of the iteration, and that another one can be dragged over."""
        return {"window": self._shown_window(), "brush": True}

    def update(self, state: State, theme: str, *, as_table: bool) -> None:
        """The figure, and then the playback, which gets the same timelines: the figure does not wait for it."""
        from alpa_explore.figures.timelines.playback import playback_document

        self.player.layout.display = "none" if as_table else None
        super().update(state, theme, as_table=as_table)
        if not as_table:
            plan = self.plan_of(state)
            self.player.load(playback_document(plan, self.schedules(), window=self._shown_window()))

    def _shown_window(self) -> Window:
        """The window of the figure: a name, or the part that was dragged over."""
        if self.window.value != _DRAGGED:
            return cast("Window", self.window.value)
        start, end = self.figure.brushed
        return start, end

    def _brushed(self, change: dict[str, Any]) -> None:
        """Show the part of the overview that was dragged over; after a double click on it the default."""
        dragged, field = bool(change["new"]), self.window
        with self.quietly(field):  # the value and its choice change together
            field.choices = options(_WINDOWS | ({_DRAGGED: "a part, dragged below"} if dragged else {}))
            field.value = _DRAGGED if dragged else "parts"
        self.redraw()
