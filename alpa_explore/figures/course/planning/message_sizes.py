"""Time of a collective against the bytes of the message: where latency counts, and where bandwidth does.

    t(n) = r (p − 1) · (alpha + n / p · beta)        r = 2 for an all-reduce, 1 for a reduce-scatter or an all-gather

Both parts are equal at n½ = p · alpha / beta: below it t hardly depends on n, above it t is proportional to n.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go

from alpa_explore import units
from alpa_explore.cluster.device import Link
from alpa_explore.cost.collectives import collective_seconds
from alpa_explore.figures.course.states import State, slider_figure
from alpa_explore.figures.style import HOVER_TEXT, OKABE_ITO
from alpa_explore.sharding.reshard import StepKind

_SIZES = tuple(2.0**power for power in range(10, 35))
"""1 KiB to 16 GiB."""
_LOOKS = ((OKABE_ITO[0], "solid"), (OKABE_ITO[5], "dash"), (OKABE_ITO[2], "dot"))


def half_bytes(devices: int, link: Link) -> float:
    """n½: the bytes at which latency and bandwidth take equally long, on a ring of `devices`."""
    return devices * link.latency_seconds * link.bandwidth


def message_sizes_figure(
    links: Mapping[str, Link], devices: Sequence[int], kind: StepKind = StepKind.ALL_REDUCE, theme: str = "light"
) -> go.Figure:
    """Above, seconds over bytes for each link (both logarithmic), a circle at n½; below, the share of the link's
    bandwidth that is reached. A slider changes p."""
    states = [_state(links, p, kind) for p in devices]
    powers = range(10, 35, 4)
    ticks = {"tickvals": [2.0**k for k in powers], "ticktext": [units.bytes_(2.0**k) for k in powers]}
    times = [10.0**k for k in range(-6, 3)]
    return slider_figure(
        states,
        "devices p =",
        theme=theme,
        height=620,
        xaxis={"type": "log", "title": {"text": "bytes of the tensor on one device"}, "anchor": "y2", **ticks},
        yaxis={
            "type": "log",
            "domain": [0.42, 1.0],
            "title": {"text": "time"},
            "range": [-5.6, 1.6],
            "tickvals": times,
            "ticktext": [units.seconds(t) for t in times],
        },
        yaxis2={"domain": [0.0, 0.32], "title": {"text": "of the bandwidth"}, "range": [0, 1.05], "tickformat": ".0%"},
    )


def _state(links: Mapping[str, Link], p: int, kind: StepKind) -> State:
    traces: list[dict[str, Any]] = []
    words = []
    for (name, link), (color, dash) in zip(links.items(), _LOOKS, strict=False):
        seconds = [collective_seconds(kind, n, p, link.bandwidth, link.latency_seconds) for n in _SIZES]
        moving = [collective_seconds(kind, n, p, link.bandwidth, 0.0) for n in _SIZES]
        waiting = collective_seconds(kind, 0.0, p, link.bandwidth, link.latency_seconds)
        half = half_bytes(p, link)
        words.append(f"{units.bytes_(half)} {name}")
        line = {"type": "scatter", "x": list(_SIZES), "hovertemplate": HOVER_TEXT, "legendgroup": name}
        texts = [
            f"{name} {units.bytes_(n)}: {units.seconds(t)} = {units.seconds(waiting)} waiting + {units.seconds(m)}"
            for n, t, m in zip(_SIZES, seconds, moving, strict=True)
        ]
        look = {"color": color, "dash": dash, "width": 2.5}
        traces.append(line | {"y": seconds, "mode": "lines", "line": look, "name": name, "hovertext": texts})
        thin = {"color": color, "dash": "dot", "width": 1}
        for part, values in (("latency alone", [waiting] * len(_SIZES)), ("bytes alone", moving)):
            traces.append(
                line
                | {"y": values, "mode": "lines", "line": thin, "name": part, "hoverinfo": "skip", "showlegend": False}
            )
        mark = {"symbol": "circle-open", "size": 13, "color": color, "line": {"width": 2}}
        traces.append(
            line
            | {
                "x": [half],
                "y": [2 * waiting],
                "mode": "markers+text",
                "marker": mark,
                "text": [f"n½ {units.bytes_(half)}"],
                "textposition": "top left",
                "hovertext": [f"{name}: latency and bytes take {units.seconds(waiting)} each"],
                "showlegend": False,
            }
        )
        shares = [m / t for m, t in zip(moving, seconds, strict=True)]
        share_texts = [f"{name}, {units.bytes_(n)}: {units.percent(s)}" for n, s in zip(_SIZES, shares, strict=True)]
        share = {"y": shares, "yaxis": "y2", "mode": "lines", "line": look, "hovertext": share_texts}
        traces.append(line | share | {"showlegend": False, "name": name})
    sentence = (
        f"{kind.value.capitalize()} among {p} devices: half of the bandwidth is reached at {' and '.join(words)}."
    )
    return State(label=str(p), sentence=sentence, traces=traces)
