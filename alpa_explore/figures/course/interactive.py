"""A figure with sliders: the function that draws it and the values that each slider takes; or states that are drawn
beforehand, on one slider or in a list.

A notebook draws a state when its sliders ask for it; an offline page holds all states. A state that cannot exist (a
schedule that needs more microbatches) is the reason why.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any, TypeAlias

from alpa_explore.errors import AlpaExploreError, OptionError
from alpa_explore.figures import tuning
from alpa_explore.figures.style import Drawing, Figure, Trace, with_theme

Value: TypeAlias = int | float | str
MIME_TYPE = "application/vnd.alpa-explore.interactive+json"
"""Of an output that holds all states of a figure."""
_TITLE_PIXELS = 86
"""Height of a title of two lines."""
_CHARACTERS = 96
"""Width at which such a title is wrapped: that of the output of a notebook."""
WHOLE = "ALPA_EXPLORE_ALL_STATES"
"""Environment variable: outputs hold all states, as a page needs them that is read without a kernel."""


@dataclass(frozen=True, slots=True)
class Control:
    """A slider over numbers, or a list of names."""

    name: str
    """The keyword of the drawing function."""
    label: str
    """What a reader sees: 'Microbatches B'."""
    values: tuple[Value, ...]
    start: Value
    """The value that is chosen first."""
    texts: tuple[str, ...] = ()
    """What a reader sees of each value; none: the value itself."""
    plays: bool = False
    """A Play button moves the slider through its values."""

    @property
    def shown(self) -> tuple[str, ...]:
        """The text of each value."""
        return self.texts or tuple(f"{v:,}" if isinstance(v, int) else str(v) for v in self.values)


@dataclass(frozen=True, slots=True, kw_only=True)
class InteractiveFigure:
    """`draw(**values)` with one value of each control is the figure of a state."""

    draw: Callable[..., Figure]
    controls: tuple[Control, ...]
    label: str
    """What the figure shows, for screen readers."""

    def __post_init__(self) -> None:
        for control in self.controls:
            if control.start not in control.values:
                raise OptionError(
                    f"The control {control.label} begins at a value that it does not have",
                    found=f"{control.start!r} of {', '.join(map(repr, control.values))}",
                    remedy="Begin at one of its values.",
                )
        states = prod(len(control.values) for control in self.controls)
        if states > tuning.COURSE_STATES:
            raise OptionError(
                "An interactive figure has too many states for an offline page",
                found=f"{states} states of {tuning.COURSE_STATES}",
                remedy="Give its controls fewer values.",
            )

    def __call__(self, *values: Any, **options: Any) -> Figure:
        """The figure of a state."""
        return self.draw(*values, **options)

    @property
    def start(self) -> dict[str, Value]:
        """The values that are chosen first, by name."""
        return {control.name: control.start for control in self.controls}

    def state(self, values: Mapping[str, Value], *, theme: str = "light") -> Figure | str:
        """The figure of a state, or the reason why there is none."""
        try:
            return self.draw(**values, theme=theme)
        except AlpaExploreError as error:
            return str(error)

    def states(self) -> Iterator[tuple[tuple[int, ...], Figure | str]]:
        """(index of each control's value, figure or the reason why there is none) of all states."""
        names = [control.name for control in self.controls]
        for indices in product(*(range(len(control.values)) for control in self.controls)):
            values = [control.values[i] for control, i in zip(self.controls, indices, strict=True)]
            yield indices, self.state(dict(zip(names, values, strict=True)))

    def document(self) -> dict[str, Any]:
        """All states as JSON values: {label, controls: [{label, values, …}], states: {'0,2': figure or reason}}.

        The layout that most states share would be repeated in each: `template` is kept once, beside them.
        """
        controls = [
            {
                "label": c.label,
                "values": list(c.values),
                "texts": list(c.shown),
                "plays": c.plays,
                "start": c.values.index(c.start),
            }
            for c in self.controls
        ]
        states: dict[str, Any] = {}
        template: Any = None
        for indices, figure in self.states():
            if isinstance(figure, str):
                states[_key(indices)] = figure
                continue
            state = json.loads(figure.to_json(validate=False))
            template = state["layout"].pop("template", None) or template
            states[_key(indices)] = {"data": state["data"], "layout": state["layout"]}
        return {"label": self.label, "controls": controls, "template": template, "states": states}


def with_controls(label: str, *controls: Control) -> Callable[[Callable[..., Drawing]], InteractiveFigure]:
    """The function that draws a state, as a figure with these controls; for `label` see `InteractiveFigure`."""
    return lambda draw: InteractiveFigure(draw=with_theme(draw), controls=controls, label=label)


def of_states(
    label: str, name: str, states: Mapping[str, Drawing], start: str = "", *, listed: bool = False, plays: bool = False
) -> InteractiveFigure:
    """A figure with these states by their names, on a slider or (`listed`) in a list called `name`."""
    names = tuple(states)
    first = start or names[0]
    control = Control("state", name, names, first)
    if not listed:
        control = Control("state", name, tuple(range(len(names))), names.index(first), names, plays)
    drawings = dict(zip(control.values, states.values(), strict=True))
    return with_controls(label, control)(lambda state: drawings[state])


def steady(traces: Sequence[Trace], sentence: str, *, height: float, **layout: Any) -> Drawing:
    """A state whose title has room for two lines, so that the plot does not move from state to state."""
    margin = {"t": _TITLE_PIXELS} | layout.pop("margin", {})
    return Drawing(traces, sentence, height=height, characters=_CHARACTERS, margin=margin, **layout)


def _key(indices: Sequence[int]) -> str:
    return ",".join(map(str, indices))
