"""A figure with a slider or a menu that moves through precomputed states: no kernel is needed to touch it."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from alpa_explore.figures.style import Drawing, Trace, empty, faint, ink, layout_of

SLIDER_PIXELS = 92
"""Height of a slider with the labels of its steps, below the axis."""
TITLE_PIXELS = 86
"""Height of the title: two lines in every state, so that the plot does not move with the slider."""
BUTTONS_BELOW = 44
"""Pixels between a plot without titles of axes and the buttons below it."""


CHARACTERS = 96
"""Width at which a title is wrapped: that of the output of a notebook."""


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """What the figure shows at one step of its control."""

    label: str
    """Of the step, beside the slider or in the menu."""
    sentence: str
    """The title of the figure in this state."""
    traces: Sequence[dict[str, Any]]
    layout: Mapping[str, Any] = field(default_factory=dict)
    """Layout attributes that differ from state to state: shapes, annotations, ranges."""


def title_text(sentence: str) -> str:
    """The sentence as plotly's title, in lines of a notebook's width."""
    return str(layout_of(sentence, theme="light", height=1, characters=CHARACTERS)["title"]["text"])


def slider_figure(states: Sequence[State], name: str, *, start: int = 0, height: int = 460, **layout: Any) -> Drawing:
    """All states in one figure, of which a slider called `name` shows one."""
    slider = _slider(_steps(states), name, start)
    return _all_states(states, start, SLIDER_PIXELS, height=height, sliders=[slider], **layout)


def menu_figure(
    states: Sequence[State], *, start: int = 0, height: int = 460, buttons_below: int = BUTTONS_BELOW, **layout: Any
) -> Drawing:
    """All states in one figure, of which a row of buttons shows one, `buttons_below` pixels below the plot."""
    menu = _menu(_steps(states), active=start, pad={"t": buttons_below})
    return _all_states(states, start, buttons_below, height=height, updatemenus=[menu], **layout)


def choice_figure(
    states: Sequence[State], special: Sequence[State], *, start: int, height: int, **layout: Any
) -> Drawing:
    """All states in one figure: a menu that unfolds has `states`, buttons beside it the `special` ones."""
    every = [*states, *special]
    steps = _steps(every)
    unfolding = _menu(steps[: len(states)], type="dropdown", direction="up", active=start)
    buttons = _menu(steps[len(states) :], x=1, xanchor="right", showactive=False)
    menus = [unfolding, buttons]
    return _all_states(every, start, BUTTONS_BELOW, height=height, updatemenus=menus, **layout)


def play_figure(states: Sequence[State], name: str, *, milliseconds: int, height: int, **layout: Any) -> Drawing:
    """A figure that plays its states as frames, with a slider called `name` to stop at any of them.

    Every state has the same traces in the same order: plotly moves marks from one to the next.
    """
    assert len({len(state.traces) for state in states}) == 1, "the states of an animation have the same traces"
    frames: list[Trace] = [
        {"name": str(n), "data": list(s.traces), "layout": {"title": {"text": title_text(s.sentence)}} | dict(s.layout)}
        for n, s in enumerate(states)
    ]
    pace = {"frame": {"duration": milliseconds, "redraw": True}, "transition": {"duration": milliseconds * 2 // 3}}
    jump = {"frame": {"duration": 0, "redraw": True}, "transition": {"duration": 0}, "mode": "immediate"}
    steps = [{"label": s.label, "method": "animate", "args": [[str(n)], jump]} for n, s in enumerate(states)]
    play = {"label": "Play", "method": "animate", "args": [None, pace | {"fromcurrent": True}]}
    stop = {"label": "Pause", "method": "animate", "args": [[None], jump]}
    whole: dict[str, Any] = {
        "sliders": [_slider(steps, name, 0) | {"x": 0.22, "len": 0.78}],
        "updatemenus": [_menu([play, stop], showactive=False, pad={"t": 52})],
        "margin": {"b": 56 + SLIDER_PIXELS},
    }
    return state_figure(states[0], height=height, frames=frames, **whole, **layout)


def _menu(buttons: Sequence[Trace], **looks: Any) -> Trace:
    """Buttons below the plot. plotly draws the active one on a light ground, where light text cannot be read."""
    place = {"x": 0, "xanchor": "left", "y": 0, "yanchor": "top", "pad": {"t": BUTTONS_BELOW}}
    colors = {"bgcolor": empty, "bordercolor": faint, "font": {"color": ink, "size": 12}}
    shown = {"type": "buttons", "direction": "right", "showactive": lambda theme: theme == "light"}
    return {**shown, "buttons": list(buttons), **place, **colors, **looks}


def _slider(steps: Sequence[Trace], name: str, start: int) -> Trace:
    colors = {"bgcolor": empty, "bordercolor": faint, "tickcolor": faint, "font": {"size": 11, "color": ink}}
    value = {"prefix": f"{name} ", "font": {"size": 13, "color": ink}}
    place = {"pad": {"t": 40, "b": 8}, "len": 1.0, "x": 0}
    return {"active": start, "steps": list(steps), "currentvalue": value, **place, **colors}


def state_figure(state: State, *, height: int, traces: Sequence[Trace] = (), **layout: Any) -> Drawing:
    """A figure in one state; `traces` in place of those of the state, where it has others too."""
    margin = {"t": TITLE_PIXELS} | layout.pop("margin", {})
    whole = {**layout, **state.layout, "margin": margin, "characters": CHARACTERS}
    return Drawing(traces or state.traces, state.sentence, height=height, **whole)


def _all_states(states: Sequence[State], start: int, below: int, **layout: Any) -> Drawing:
    """A figure with `below` pixels for its control, at the state `start`."""
    traces = [{**trace, "visible": number == start} for number, state in enumerate(states) for trace in state.traces]
    margin = {"b": 56 + below} | layout.pop("margin", {})
    return state_figure(states[start], traces=traces, margin=margin, **layout)


def _steps(states: Sequence[State]) -> list[Trace]:
    """For each state the step that shows it: its traces, its title and its part of the layout."""
    steps = []
    for number, state in enumerate(states):
        visible = [n == number for n, other in enumerate(states) for _ in other.traces]
        changed = {"title.text": title_text(state.sentence)} | dict(state.layout)
        steps.append({"label": state.label, "method": "update", "args": [{"visible": visible}, changed]})
    return steps


def on_circle(number: int, count: int) -> tuple[float, float]:
    """The place of one of `count` nodes on a circle, from the top on, clockwise."""
    angle = math.pi / 2 - 2 * math.pi * number / count
    return math.cos(angle), math.sin(angle)
