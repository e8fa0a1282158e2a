"""A figure with a slider or a menu that moves through precomputed states: no kernel is needed to touch it."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

import plotly.graph_objects as go

from alpa_explore.figures.style import empty, faint, ink, layout_of
from alpa_explore.units import printable

SLIDER_PIXELS = 92
"""Height of a slider with the labels of its steps, below the axis."""
TITLE_PIXELS = 86
"""Height of the title: two lines in every state, so that the plot does not move with the slider."""
BUTTONS_BELOW = 44
"""Pixels between a plot without titles of axes and the buttons below it."""
_TITLE_CHARACTERS = 96
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


def state_layout(state: State, *, theme: str, height: int, **layout: Any) -> dict[str, Any]:
    """The layout of a figure in one state."""
    margin = {"t": TITLE_PIXELS} | layout.pop("margin", {})
    whole = layout_of(state.sentence, theme=theme, height=height, margin=margin, **layout)
    whole["title"] = whole["title"] | {"text": title_text(state.sentence)}
    return whole | dict(state.layout)


def title_text(sentence: str) -> str:
    """The sentence as plotly's title, in lines of a notebook's width."""
    wrapped = textwrap.wrap(printable(sentence), _TITLE_CHARACTERS, break_on_hyphens=False)
    return "<br>".join(escape(line, quote=False) for line in wrapped)


def slider_figure(
    states: Sequence[State], name: str, *, start: int = 0, theme: str = "light", height: int = 460, **layout: Any
) -> go.Figure:
    """All states in one figure, of which a slider called `name` shows one."""
    steps = [_step(states, number) for number in range(len(states))]
    slider = _slider(steps, name, start, theme)
    margin = {"b": 56 + SLIDER_PIXELS} | layout.pop("margin", {})
    return _figure(states, start, theme, height, sliders=[slider], margin=margin, **layout)


def menu_figure(
    states: Sequence[State],
    *,
    start: int = 0,
    theme: str = "light",
    height: int = 460,
    buttons_below: int = BUTTONS_BELOW,
    **layout: Any,
) -> go.Figure:
    """All states in one figure, of which a row of buttons shows one, `buttons_below` pixels below the plot."""
    steps = [_step(states, number) for number in range(len(states))]
    menu = _menu(steps, theme, active=start, pad={"t": buttons_below})
    margin = {"b": 56 + buttons_below} | layout.pop("margin", {})
    return _menus(states, [menu], start, theme, height, margin=margin, **layout)


def choice_figure(
    states: Sequence[State],
    special: Sequence[State],
    *,
    start: int = 0,
    theme: str = "light",
    height: int = 460,
    **layout: Any,
) -> go.Figure:
    """All states in one figure: a menu that unfolds has `states`, buttons beside it the `special` ones."""
    every = [*states, *special]
    steps = [_step(every, number) for number in range(len(every))]
    unfolding = _menu(steps[: len(states)], theme, type="dropdown", direction="up", active=start)
    buttons = _menu(steps[len(states) :], theme, x=1, xanchor="right", showactive=False)
    return _menus(every, [unfolding, buttons], start, theme, height, **layout)


def play_figure(
    states: Sequence[State],
    name: str,
    *,
    milliseconds: int,
    start: int = 0,
    theme: str = "light",
    height: int = 460,
    **layout: Any,
) -> go.Figure:
    """A figure that plays its states as frames, with a slider called `name` to stop at any of them.

    Every state has the same traces in the same order: plotly moves marks from one to the next.
    """
    assert len({len(state.traces) for state in states}) == 1, "the states of an animation have the same traces"
    frames: list[dict[str, Any]] = [
        {"name": str(n), "data": list(s.traces), "layout": {"title": {"text": title_text(s.sentence)}} | dict(s.layout)}
        for n, s in enumerate(states)
    ]
    pace = {"frame": {"duration": milliseconds, "redraw": True}, "transition": {"duration": milliseconds * 2 // 3}}
    jump = {"frame": {"duration": 0, "redraw": True}, "transition": {"duration": 0}, "mode": "immediate"}
    steps = [{"label": s.label, "method": "animate", "args": [[str(n)], jump]} for n, s in enumerate(states)]
    slider = _slider(steps, name, start, theme) | {"x": 0.16, "len": 0.84}
    buttons: list[dict[str, Any]] = [
        {"label": "▶ Play", "method": "animate", "args": [None, pace | {"fromcurrent": True}]},
        {"label": "❚❚", "method": "animate", "args": [[None], jump]},
    ]
    menu = _menu(buttons, theme, showactive=False, pad={"t": 52})
    margin = {"b": 56 + SLIDER_PIXELS} | layout.pop("margin", {})
    whole = state_layout(states[start], theme=theme, height=height, margin=margin, **layout)
    whole |= {"sliders": [slider], "updatemenus": [menu]}
    return go.Figure(data=list(states[start].traces), layout=whole, frames=frames)


def _figure(states: Sequence[State], start: int, theme: str, height: int, **layout: Any) -> go.Figure:
    traces = [{**trace, "visible": number == start} for number, state in enumerate(states) for trace in state.traces]
    whole = state_layout(states[start], theme=theme, height=height, **layout)
    return go.Figure(data=traces, layout=whole)


def _menus(
    states: Sequence[State], menus: list[dict[str, Any]], start: int, theme: str, height: int, **layout: Any
) -> go.Figure:
    margin = {"b": 56 + BUTTONS_BELOW} | layout.pop("margin", {})
    return _figure(states, start, theme, height, updatemenus=menus, margin=margin, **layout)


def _menu(buttons: Sequence[dict[str, Any]], theme: str, **looks: Any) -> dict[str, Any]:
    """Buttons below the plot. plotly draws the active one on a light ground, where light text cannot be read."""
    return {
        "type": "buttons",
        "direction": "right",
        "showactive": theme == "light",
        "buttons": list(buttons),
        "x": 0,
        "xanchor": "left",
        "y": 0,
        "yanchor": "top",
        "pad": {"t": BUTTONS_BELOW},
        "bgcolor": empty(theme),
        "bordercolor": faint(theme),
        "font": {"color": ink(theme), "size": 12},
    } | looks


def _step(states: Sequence[State], number: int) -> dict[str, Any]:
    """The step that shows one state: its traces, its title and its part of the layout."""
    visible = [n == number for n, state in enumerate(states) for _ in state.traces]
    changed = {"title.text": title_text(states[number].sentence)}
    return {
        "label": states[number].label,
        "method": "update",
        "args": [{"visible": visible}, changed | dict(states[number].layout)],
    }


def _slider(steps: Sequence[dict[str, Any]], name: str, start: int, theme: str) -> dict[str, Any]:
    return {
        "active": start,
        "steps": list(steps),
        "currentvalue": {"prefix": f"{name} ", "font": {"size": 13, "color": ink(theme)}},
        "pad": {"t": 40, "b": 8},
        "font": {"size": 11, "color": ink(theme)},
        "bgcolor": empty(theme),
        "bordercolor": faint(theme),
        "tickcolor": faint(theme),
        "len": 1.0,
        "x": 0,
    }
