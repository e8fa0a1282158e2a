"""An all-reduce on a ring of p devices, chunk by chunk: a reduce-scatter, then an all-gather.

Each device cuts its tensor into p chunks. In step k of the reduce-scatter, device i sends chunk i − k to device i + 1,
which adds it to its own; after p − 1 steps every device has one chunk of the sum. In the all-gather the sums travel on
in the same way for p − 1 steps (all numbers modulo p). Each step moves 1/p of the bytes from every device:

    t = 2 (p − 1) · (alpha + bytes / p / bandwidth)                             `cost.collectives.collective_seconds`
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go

from alpa_explore import units
from alpa_explore.figures.course.states import State, play_figure
from alpa_explore.figures.style import HEAT, HOVER_TEXT, OKABE_ITO, empty, faint, hatching, ink

_CHUNK = 0.17
"""Width of a chunk, where the radius of the ring is 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RingState:
    """The ring after some steps."""

    steps: int
    summed: tuple[tuple[frozenset[int], ...], ...]
    """[device][chunk]: the devices whose values are in this sum."""
    phase: str
    """'start', 'reduce-scatter' or 'all-gather': of the last step."""


def ring_states(devices: int) -> list[RingState]:
    """The ring before the first step and after each of its 2 (p − 1) steps."""
    summed = [[frozenset({device})] * devices for device in range(devices)]
    states = [RingState(steps=0, summed=tuple(map(tuple, summed)), phase="start")]
    for step in range(2 * (devices - 1)):
        adding = step < devices - 1
        sent = [((chunk + step) % devices, chunk) for chunk in range(devices)]
        before = [row.copy() for row in summed]
        for sender, chunk in sent:
            receiver = (sender + 1) % devices
            old = before[receiver][chunk] if adding else frozenset()
            summed[receiver][chunk] = old | before[sender][chunk]
        phase = "reduce-scatter" if adding else "all-gather"
        states.append(RingState(steps=step + 1, summed=tuple(map(tuple, summed)), phase=phase))
    return states


def ring_figure(
    devices: int, tensor_bytes: float, bandwidth: float, latency_seconds: float, theme: str = "light"
) -> go.Figure:
    """The ring on the left, the seconds so far on the right; a frame a step.

    A cell is a chunk on a device: its number says how many devices' values are in it, Σ that all are.
    """
    alpha, beta = latency_seconds, tensor_bytes / devices / bandwidth
    states = []
    for state in ring_states(devices):
        spent = state.steps * (alpha + beta)
        total = 2 * (devices - 1) * (alpha + beta)
        traces = [_cells(state, devices), _moving(state, devices), *_time(state, devices, alpha, beta, theme)]
        moved = units.bytes_(tensor_bytes / devices)
        sentence = {
            "start": f"{devices} devices hold {units.bytes_(tensor_bytes)} each, cut into {devices} chunks.",
            "reduce-scatter": f"Reduce-scatter: each device sends {moved} to the next, which adds it.",
            "all-gather": f"All-gather: each device passes a finished chunk of {moved} to the next.",
        }[state.phase]
        words = f"{sentence} {units.seconds(spent)} of {units.seconds(total)}."
        states.append(State(label=str(state.steps), sentence=words, traces=traces))
    _, unit = units.seconds_axis(2 * (devices - 1) * (alpha + beta))
    hidden: dict[str, Any] = {"visible": False, "fixedrange": True}
    return play_figure(
        states,
        "steps done:",
        milliseconds=1200,
        theme=theme,
        height=560,
        xaxis={"domain": [0, 0.62], "range": [-1.55, 1.55], **hidden},
        yaxis={"range": [-1.35, 1.35], **hidden},
        xaxis2={"domain": [0.74, 1.0], "anchor": "y2", "title": {"text": "step"}, "dtick": 1},
        yaxis2={"anchor": "x2", "title": {"text": f"time so far ({unit})"}, "rangemode": "tozero"},
        annotations=_arrows(devices, theme),
        barmode="stack",
        bargap=0.15,
        legend={"x": 0.74},
    )


def _place(device: int, devices: int) -> tuple[float, float]:
    angle = math.pi / 2 - 2 * math.pi * device / devices
    return math.cos(angle), math.sin(angle)


def _cell(device: int, chunk: int, devices: int) -> tuple[float, float]:
    x, y = _place(device, devices)
    return x + (chunk - (devices - 1) / 2) * _CHUNK, y


def _cells(state: RingState, devices: int) -> dict[str, Any]:
    cells = [(device, chunk) for device in range(devices) for chunk in range(devices)]
    places = [_cell(device, chunk, devices) for device, chunk in cells]
    counts = [len(state.summed[device][chunk]) for device, chunk in cells]
    return {
        "type": "scatter",
        "x": [x for x, _ in places],
        "y": [y for _, y in places],
        "mode": "markers+text",
        "marker": {"symbol": "square", "size": 26, "color": counts, "colorscale": HEAT, "cmin": 1, "cmax": devices},
        "text": ["Σ" if count == devices else str(count) for count in counts],
        "textfont": {"size": 12, "color": ["#000000" if 2 * c > devices + 1 else "#ffffff" for c in counts]},
        "hovertext": [
            f"device {device}, chunk {chunk}: the values of devices "
            + ", ".join(map(str, sorted(state.summed[device][chunk])))
            for device, chunk in cells
        ],
        "hovertemplate": HOVER_TEXT,
        "showlegend": False,
    }


def _moving(state: RingState, devices: int) -> dict[str, Any]:
    """Chunk j, which has arrived at device j + steps: plotly moves its frame along the ring from state to state."""
    places = [_cell((chunk + state.steps) % devices, chunk, devices) for chunk in range(devices)]
    return {
        "type": "scatter",
        "x": [x for x, _ in places],
        "y": [y for _, y in places],
        "ids": [str(chunk) for chunk in range(devices)],
        "mode": "markers",
        "marker": {"symbol": "square-open", "size": 30, "color": OKABE_ITO[5], "line": {"width": 3}},
        "name": "just moved",
        "hoverinfo": "skip",
        "showlegend": False,
    }


def _time(state: RingState, devices: int, alpha: float, beta: float, theme: str) -> list[dict[str, Any]]:
    """Of each step the seconds so far: messages' latency and bytes, stacked; steps to come are empty."""
    scale, unit = units.seconds_axis(2 * (devices - 1) * (alpha + beta))
    steps = list(range(1, 2 * devices - 1))
    bars: list[dict[str, Any]] = []
    parts = (("latency, α a step", alpha, OKABE_ITO[1], "/"), ("bytes, n/p·β a step", beta, OKABE_ITO[0], ""))
    for name, part, color, shape in parts:
        values = [step * part / scale if step <= state.steps else 0.0 for step in steps]
        bars.append(
            {
                "type": "bar",
                "x": steps,
                "y": values,
                "name": name,
                "marker": {"color": color, "pattern": hatching(shape), "line": {"width": 1, "color": faint(theme)}},
                "hovertemplate": f"after step %{{x}}: %{{y:.4g}} {unit} of {name.split(',')[0]}<extra></extra>",
                "xaxis": "x2",
                "yaxis": "y2",
            }
        )
    rest = [0.0 if step <= state.steps else step * (alpha + beta) / scale for step in steps]
    bars.append(
        {
            "type": "bar",
            "x": steps,
            "y": rest,
            "marker": {"color": empty(theme)},
            "hoverinfo": "skip",
            "showlegend": False,
            "xaxis": "x2",
            "yaxis": "y2",
        }
    )
    return bars


def _arrows(devices: int, theme: str) -> list[dict[str, Any]]:
    """The links of the ring, and the names of the devices."""
    arrows: list[dict[str, Any]] = []
    for device in range(devices):
        (ax, ay), (bx, by) = _place(device, devices), _place((device + 1) % devices, devices)
        tail, head = (0.74 * ax + 0.26 * bx, 0.74 * ay + 0.26 * by), (0.26 * ax + 0.74 * bx, 0.26 * ay + 0.74 * by)
        arrows.append(
            {
                "x": head[0],
                "y": head[1],
                "ax": tail[0],
                "ay": tail[1],
                "xref": "x",
                "yref": "y",
                "axref": "x",
                "ayref": "y",
                "text": "",
                "showarrow": True,
                "arrowhead": 2,
                "arrowwidth": 2,
                "arrowcolor": faint(theme),
            }
        )
        x, y = _place(device, devices)
        name: dict[str, Any] = {
            "x": x,
            "y": y + 0.2,
            "text": f"device {device}",
            "showarrow": False,
            "xref": "x",
            "yref": "y",
        }
        arrows.append(name | {"font": {"size": 13, "color": ink(theme)}})
    return arrows
