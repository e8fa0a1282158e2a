"""A figure of the course with its sliders: the kernel draws the state that they ask for.

While the static site is built, the output holds all states of the figure as well: a page has no kernel.
"""

import os
from typing import Any

import ipywidgets as W

from alpa_explore.figures.course.interactive import MIME_TYPE, WHOLE, Control, InteractiveFigure
from alpa_explore_widgets.elements.fields import PageBridge
from alpa_explore_widgets.elements.plotly_figure import PlotlyFigure

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
    """Show a figure with its sliders: `sliders(schedule_player())` as the last line of a cell."""
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
