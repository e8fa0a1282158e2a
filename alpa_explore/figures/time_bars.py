"""Stacked bars of the parts of an iteration's time, with the same colours, hatching and order in every figure.

The parts are those of `explain.time_parts`: compute, collectives by mesh axis, sends, gradient sync, overhead, idle
time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go

from alpa_explore import units
from alpa_explore.figures.style import HOVER_TEXT, OKABE_ITO, empty, faint, ground, lines
from alpa_explore.questions.explain import COMPUTE, OVERHEAD, SEND, SYNC, UNKNOWN, WAIT

_LOOKS = {
    COMPUTE: (OKABE_ITO[0], ""),
    UNKNOWN: (OKABE_ITO[0], "."),
    SEND: (OKABE_ITO[3], "\\"),
    SYNC: (OKABE_ITO[2], "-"),
    OVERHEAD: (OKABE_ITO[6], "."),
}
"""Part -> colour, hatching; collectives take those of `_COLLECTIVE_LOOKS` in turn."""
_COLLECTIVE_LOOKS = ((OKABE_ITO[1], "/"), (OKABE_ITO[5], "x"), (OKABE_ITO[4], "+"), (OKABE_ITO[6], "|"))


def time_bars(
    rows: Mapping[str, Mapping[str, float]], *, scale: float, theme: str, of: str, keys: Sequence[str] | None = None
) -> list[go.Bar]:
    """A trace for each part, a bar for each row.

    `rows` maps a row to its parts and their seconds, drawn in units of `scale` seconds. `of` names the whole in the
    hover text ('an iteration'); `keys` are the keys of the rows (see `figures.keys`).
    """
    names = list(dict.fromkeys(name for parts in rows.values() for name in parts))
    order = [n for n in (COMPUTE, UNKNOWN) if n in names]
    order += sorted(n for n in names if n not in (*_LOOKS, WAIT)) + [
        n for n in (SEND, SYNC, OVERHEAD, WAIT) if n in names
    ]
    collective_looks = iter(_COLLECTIVE_LOOKS * len(order))
    bars = []
    for name in order:
        if name in _LOOKS:
            color, pattern = _LOOKS[name]
        else:
            color, pattern = (empty(theme), "") if name == WAIT else next(collective_looks)
        marker: dict[str, Any] = {
            "color": color,
            "line": {"width": 1, "color": faint(theme)},
            "pattern": {"shape": pattern, "fgcolor": ground(theme), "size": 6, "solidity": 0.25},
        }
        seconds = [parts.get(name, 0.0) for parts in rows.values()]
        bars.append(
            go.Bar(
                orientation="h",
                y=list(rows),
                x=[s / scale for s in seconds],
                name=name,
                marker=marker,
                customdata=keys,
                hovertext=[
                    lines(
                        f"<b>{row}</b>",
                        f"{name}: {units.seconds(s)}",
                        f"{units.percent(s / sum(parts.values()))} of {of}",
                    )
                    for (row, parts), s in zip(rows.items(), seconds, strict=True)
                ],
                hovertemplate=HOVER_TEXT,
            )
        )
    return bars
