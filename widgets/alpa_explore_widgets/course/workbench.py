"""The sharding problem as a workbench: a click on a strategy chooses it, and the cost is seen at once."""

from collections.abc import Sequence
from typing import Any

import ipywidgets

from alpa_explore.figures.course.planning.workbench import Names, dearest, greedy, workbench_figure
from alpa_explore.figures.keys import read_key
from alpa_explore.intra_op.ilp.enumerated_ilp import Relaxation, relax
from alpa_explore.intra_op.problem.sharding_problem import Choices, ShardingProblem
from alpa_explore.intra_op.solve import solve
from alpa_explore_widgets.elements.fields import PageBridge
from alpa_explore_widgets.elements.plotly_figure import PlotlyFigure


class Workbench(ipywidgets.VBox):  # type: ignore[misc]  # ipywidgets has no types
    """`Workbench(problem)`: a figure whose strategies can be clicked, a list for each node (for the keyboard), and
    buttons for what three methods choose. `choices` is the choice on screen; while strategies are chosen in part, which
    only the LP relaxation does, it is the one before, and the lists of their nodes are blank."""

    def __init__(self, problem: ShardingProblem, names: Names | None = None, *, seconds: bool = False) -> None:
        self.problem, self.names, self.seconds = problem, names, seconds
        self.choices = dearest(problem)
        self._setting = False
        self._shown: Choices | Relaxation = self.choices
        self.bridge = PageBridge(label="The sharding problem as a workbench")
        self.figure = PlotlyFigure()
        self.figure.observe(self._clicked, "selection")
        self.lists = [self._list(v) for v in range(len(problem.node_costs))]
        methods = (("Greedy", self._greedy), ("LP relaxation", self._relax), ("Optimum", self._optimum))
        self.buttons = [
            ipywidgets.Button(description=name, tooltip=f"Show what it chooses: {name}") for name, _ in methods
        ]
        for button, (_, method) in zip(self.buttons, methods, strict=True):
            button.on_click(lambda _button, method=method: method())
        super().__init__([self.bridge, self.figure, ipywidgets.HBox(self.lists), ipywidgets.HBox(self.buttons)])
        self.choose(self.choices)
        self.bridge.observe(lambda _change: self._draw(self._shown), "theme")

    @property
    def cost(self) -> float:
        """Of the choice on screen."""
        return self.problem.evaluate(self.choices)

    def choose(self, choices: Choices) -> None:
        """Show this choice."""
        self.choices = tuple(choices)
        self._set_lists(self.choices)
        self._draw(self.choices)

    def _set_lists(self, strategies: Sequence[int | None]) -> None:
        """The lists say what the figure shows; None for a node whose strategies are chosen in part."""
        self._setting = True
        try:
            for widget, k in zip(self.lists, strategies, strict=True):
                widget.value = k
        finally:
            self._setting = False

    def _draw(self, shown: Choices | Relaxation) -> None:
        self._shown = shown
        figure = workbench_figure(self.problem, shown, self.names, seconds=self.seconds, theme=self.bridge.theme)
        self.figure.draw(figure, figure.layout.title.text)

    def _list(self, v: int) -> ipywidgets.Dropdown:
        title, *strategies = (
            self.names[v] if self.names else (f"node {v}", *map(str, range(len(self.problem.node_costs[v]))))
        )
        widget = ipywidgets.Dropdown(
            options=[(name, k) for k, name in enumerate(strategies)], description=title, layout={"width": "190px"}
        )
        widget.observe(lambda change: self._listed(v, change["new"]), "value")
        return widget

    def _listed(self, v: int, k: int | None) -> None:
        if not self._setting and k is not None:
            self.choose((*self.choices[:v], k, *self.choices[v + 1 :]))

    def _clicked(self, change: dict[str, Any]) -> None:
        clicked = read_key(change["new"]).get("operator", "")
        if clicked:
            v, k = map(int, clicked.split("."))
            self.figure.selection = ""  # a click chooses, and selects nothing
            self._listed(v, k)

    def _greedy(self) -> None:
        self.choose(greedy(self.problem))

    def _optimum(self) -> None:
        self.choose(solve(self.problem).choices)

    def _relax(self) -> None:
        relaxed = relax(self.problem)
        largest = tuple(int(shares.argmax()) for shares in relaxed.node_shares)
        if relaxed.whole:
            self.choose(largest)
            return
        whole = [float(shares.max()) > 1 - 1e-6 for shares in relaxed.node_shares]
        self._set_lists([k if alone else None for k, alone in zip(largest, whole, strict=True)])
        self._draw(relaxed)
