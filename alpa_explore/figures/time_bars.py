"""Stacked bars of the parts of an iteration's time (`part_looks`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from alpa_explore import units
from alpa_explore.figures.part_looks import part_looks
from alpa_explore.figures.style import HOVER_TEXT, faint, ground, lines


def time_bars(
    rows: Mapping[str, Mapping[str, float]], *, scale: float, theme: str, of: str, keys: Sequence[str] | None = None
) -> list[dict[str, Any]]:
    """A trace for each part, a bar for each row.

    `rows` maps a row to its parts and their seconds, drawn in units of `scale` seconds. `of` names the whole in the
    hover text ('an iteration'); `keys` are the keys of the rows (see `figures.keys`).
    """
    bars = []
    for name, (color, pattern) in part_looks((name for parts in rows.values() for name in parts), theme).items():
        marker: dict[str, Any] = {
            "color": color,
            "line": {"width": 1, "color": faint(theme)},
            "pattern": {"shape": pattern, "fgcolor": ground(theme), "size": 6, "solidity": 0.25},
        }
        seconds = [parts.get(name, 0.0) for parts in rows.values()]
        bars.append(
            {
                "type": "bar",
                "orientation": "h",
                "y": list(rows),
                "x": [s / scale for s in seconds],
                "name": name,
                "marker": marker,
                "customdata": keys,
                "hovertext": [
                    lines(
                        f"<b>{row}</b>",
                        f"{name}: {units.seconds(s)}",
                        f"{units.percent(s / sum(parts.values()))} of {of}",
                    )
                    for (row, parts), s in zip(rows.items(), seconds, strict=True)
                ],
                "hovertemplate": HOVER_TEXT,
            }
        )
    return bars
