"""Bars of the parts of time that `explain.time_parts` names: the same colours, hatching and order in every figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go

from alpa_explore import units
from alpa_explore.figures.style import OKABE_ITO, empty, faint, ground, lines
from alpa_explore.questions.explain import COMPUTE, SEND, SYNC, UNKNOWN, WAIT

_LOOKS = {
    COMPUTE: (OKABE_ITO[0], ""),
    UNKNOWN: (OKABE_ITO[0], "."),
    SEND: (OKABE_ITO[3], "\\"),
    SYNC: (OKABE_ITO[2], "-"),
}
"""Part -> colour, hatching; collectives take the others."""
_COLLECTIVES = ((OKABE_ITO[1], "/"), (OKABE_ITO[5], "x"), (OKABE_ITO[4], "+"), (OKABE_ITO[6], "|"))


def part_bars(
    rows: Mapping[str, Mapping[str, float]], *, scale: float, theme: str, of: str, keys: Sequence[str] | None = None
) -> list[go.Bar]:
    """A trace a part, a bar a row: row -> part -> seconds, drawn in units of `scale` seconds. `of` says what the whole
    is, for the hover text; `keys` are those of the rows."""
    names = list(dict.fromkeys(name for parts in rows.values() for name in parts))
    order = [n for n in (COMPUTE, UNKNOWN) if n in names]
    order += sorted(n for n in names if n not in (*_LOOKS, WAIT)) + [n for n in (SEND, SYNC, WAIT) if n in names]
    free = iter(_COLLECTIVES * len(order))
    found = []
    for name in order:
        color, pattern = _LOOKS[name] if name in _LOOKS else next(free) if name != WAIT else (empty(theme), "")
        marker: dict[str, Any] = {
            "color": color,
            "line": {"width": 1, "color": faint(theme)},
            "pattern": {"shape": pattern, "fgcolor": ground(theme), "size": 6, "solidity": 0.25},
        }
        seconds = [parts.get(name, 0.0) for parts in rows.values()]
        found.append(
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
                hovertemplate="%{hovertext}<extra></extra>",
            )
        )
    return found
