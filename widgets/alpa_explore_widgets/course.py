"""Widgets of the lessons: what a page without a kernel cannot do.

`Workbench` is a small sharding problem: a click on a strategy chooses it, and the cost is seen at once. `sliders` shows
a figure of `alpa_explore.figures.course` with its sliders: the kernel draws the state that they ask for; while the
static site is built, the output holds all states as well.
"""

import os
from collections.abc import Sequence
from typing import Any

import ipywidgets as W

from alpa_explore.figures.course.interactive import MIME_TYPE, WHOLE, Control, InteractiveFigure
from alpa_explore.figures.course.planning.workbench import Names, dearest, greedy, workbench_figure
from alpa_explore.figures.keys import read_key
from alpa_explore.intra_op.ilp.enumerated_ilp import Relaxation, relax
from alpa_explore.intra_op.problem.sharding_problem import Choices, ShardingProblem
from alpa_explore.intra_op.solve import solve
from alpa_explore_widgets.elements.fields import PageBridge
from alpa_explore_widgets.elements.figures import PlotlyFigure


class Workbench(W.VBox):  # type: ignore[misc]  # ipywidgets has no types
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
        self.buttons = [W.Button(description=name, tooltip=f"Show what it chooses: {name}") for name, _ in methods]
        for button, (_, method) in zip(self.buttons, methods, strict=True):
            button.on_click(lambda _button, method=method: method())
        super().__init__([self.bridge, self.figure, W.HBox(self.lists), W.HBox(self.buttons)])
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

    def _list(self, v: int) -> W.Dropdown:
        title, *strategies = (
            self.names[v] if self.names else (f"node {v}", *map(str, range(len(self.problem.node_costs[v]))))
        )
        widget = W.Dropdown(
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


PLAY_MILLISECONDS = 1000
"""Between two steps: time to read the sentence above the figure."""
_PLAY, _PAUSE = "Play", "Pause"


class SliderFigure(W.VBox):  # type: ignore[misc]  # ipywidgets has no types
    """The controls above, the figure below; a state that cannot exist is a sentence in its place."""

    def __init__(self, figure: InteractiveFigure) -> None:
        self.interactive = figure
        self.bridge = PageBridge(label=figure.label)
        self.figure = PlotlyFigure(waiting="")
        self.problem = W.Label(layout=W.Layout(display="none"))
        self.fields = [_field(control) for control in figure.controls]
        self.players = {c.name: Player(f) for c, f in zip(figure.controls, self.fields, strict=True) if c.plays}
        parts = [
            widget
            for control, field in zip(figure.controls, self.fields, strict=True)
            for widget in (field, self.players.get(control.name))
            if widget is not None
        ]
        row = W.Box(parts, layout=W.Layout(flex_flow="row wrap"))
        super().__init__([self.bridge, row, self.problem, self.figure])
        for field in self.fields:
            field.observe(self._draw, "value")
        self.bridge.observe(self._draw, "theme")
        self._draw({})

    def _draw(self, _change: dict[str, Any]) -> None:
        values = {c.name: f.value for c, f in zip(self.interactive.controls, self.fields, strict=True)}
        drawn = self.interactive.state(values, theme=self.bridge.theme)
        self.problem.value = drawn if isinstance(drawn, str) else ""
        self.problem.layout.display = "" if self.problem.value else "none"
        self.figure.busy = isinstance(drawn, str)  # the last figure that exists, faded
        if not isinstance(drawn, str):
            self.figure.draw(drawn, self.interactive.label)

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        bundle = super()._repr_mimebundle_(**kwargs)
        data, *rest = bundle if isinstance(bundle, tuple) else (bundle,)
        if os.environ.get(WHOLE):
            data = {**data, MIME_TYPE: self.interactive.document()}
        return (data, *rest) if rest else data


def sliders(figure: InteractiveFigure) -> SliderFigure:
    """Show a figure with its sliders: `sliders(schedule_figure)` as the last line of a cell."""
    return SliderFigure(figure)


def _field(control: Control) -> Any:
    options = list(zip(control.shown, control.values, strict=True))
    common = {"options": options, "value": control.start, "description": control.label}
    style = {"description_width": "initial"}
    if isinstance(control.start, str):
        return W.Dropdown(**common, style=style)
    return W.SelectionSlider(**common, style=style, continuous_update=True, layout=W.Layout(width="340px"))


class Player(W.HBox):  # type: ignore[misc]  # ipywidgets has no types
    """A button that moves a slider step by step to its end; from its end, it begins again.

    The clock is that of ipywidgets' Play in the page. It is hidden, as its buttons are pictures without a name.
    """

    def __init__(self, slider: Any) -> None:
        last = len(slider.options) - 1
        hidden = W.Layout(display="none")
        self.clock = W.Play(min=0, max=last, value=slider.index, interval=PLAY_MILLISECONDS, layout=hidden)
        self.button = W.Button(description=_PLAY, layout=W.Layout(width="96px"))
        super().__init__([self.button, self.clock])
        W.link((self.clock, "value"), (slider, "index"))
        self.button.on_click(self._pressed)
        self.clock.observe(self._name, "playing")

    def _pressed(self, _button: W.Button) -> None:
        self.clock.playing = not self.clock.playing

    def _name(self, change: dict[str, Any]) -> None:
        self.button.description = _PAUSE if change["new"] else _PLAY
