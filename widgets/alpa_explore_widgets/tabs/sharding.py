"""The Sharding tab, with the spec constraints of the selected operator."""

from collections.abc import Sequence
from html import escape
from typing import Any

import ipywidgets as W

from alpa_explore.figures.keys import read_key
from alpa_explore.plans.plan import Plan
from alpa_explore_widgets.elements.documents import DataflowGraph
from alpa_explore_widgets.elements.fields import choice_field
from alpa_explore_widgets.elements.page_widget import PageFigure
from alpa_explore_widgets.panels.spec_constraints import ConstraintControls
from alpa_explore_widgets.session.session import Session
from alpa_explore_widgets.session.state import State
from alpa_explore_widgets.tab_kinds.figure_panel import StagePanel

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
