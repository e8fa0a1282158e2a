"""The layouts of a model on a cluster by two of their degrees: in each cell the fastest of the rest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go

from alpa_explore import units
from alpa_explore.baselines.layout import LABELS, Axis
from alpa_explore.figures import tuning
from alpa_explore.figures.style import (
    CONFIG,
    HEAT,
    HOVER_TEXT,
    OKABE_ITO,
    dress,
    empty,
    faint,
    ground,
    ink,
    lines,
    safe,
)
from alpa_explore.uniform_layouts.beside_plan import PlanAsLayout
from alpa_explore.uniform_layouts.measured import MeasuredLayout
from alpa_explore.uniform_layouts.ranking import Layouts, PricedLayout, memory_words
from alpa_explore.uniform_layouts.report import Row, layouts_sentence, layouts_table, measured_sentence

__all__ = ["best_of_cells", "heat_map_figure", "heat_map_html", "heat_map_sentence", "heat_map_table"]

_CORNER = 0.36
"""Of a cell, from its middle to where a mark stands."""


def heat_map_figure(
    layouts: Layouts,
    theme: str = "light",
    *,
    x: Axis = "tensor",
    y: Axis = "pipeline",
    where: Mapping[Axis, Any] | None = None,
    plan: PlanAsLayout | None = None,
    measured: Sequence[MeasuredLayout] = (),
) -> go.Figure:
    """A cell for each value of `x` and `y` that some layout has, with the seconds of the fastest that fits; hatched
    with ✕ where none does, with the reason on hover. `where` keeps only layouts with these values.

    A star marks the cell of the plan where it corresponds to a uniform layout, a ring the fastest of all, a diamond
    each cell with a measured run.
    """
    columns, rows = layouts.values(x), layouts.values(y)
    cells = best_of_cells(layouts, x, y, where)
    fitting = {place: priced for place, priced in cells.items() if priced.fits}
    figure = go.Figure()
    _heat(figure, fitting, columns, rows, layouts)
    _crossed(figure, {p: c for p, c in cells.items() if not c.fits}, columns, rows, layouts, theme)
    if fitting:
        best = min(fitting, key=lambda place: fitting[place].seconds)
        marks = [_place(best, columns, rows)]
        _marks(figure, "fastest", "circle-open", OKABE_ITO[5], marks, [_hover(fitting[best], layouts)], theme, (1, 1))
    _plan_mark(figure, plan, x, y, columns, rows, theme)
    _measured_marks(figure, measured, x, y, columns, rows, theme)
    for update, axis, values in ((figure.update_xaxes, x, columns), (figure.update_yaxes, y, rows)):
        update(
            title=LABELS[axis],
            tickvals=list(range(len(values))),
            ticktext=[str(value) for value in values],
            range=[-0.5, len(values) - 0.5],
            showgrid=False,
            zeroline=False,
        )
    height = tuning.HEAT_MAP_TOP + tuning.HEAT_MAP_ROW * max(len(rows), 2)
    sentence = heat_map_sentence(layouts, plan, measured)
    return dress(figure, sentence, theme=theme, height=height, margin={"b": 48, "l": 64})


def best_of_cells(
    layouts: Layouts, x: Axis, y: Axis, where: Mapping[Axis, Any] | None = None
) -> dict[tuple[Any, Any], PricedLayout]:
    """(value of x, value of y) -> the first layout there in the order of the ranking."""
    cells: dict[tuple[Any, Any], PricedLayout] = {}
    for priced in layouts.where(where or {}):
        cells.setdefault((getattr(priced.layout, x), getattr(priced.layout, y)), priced)
    return cells


def heat_map_table(layouts: Layouts, most: int | None = None, where: Mapping[Axis, Any] | None = None) -> list[Row]:
    """Every layout, the fastest that fits first."""
    return layouts_table(layouts, most, layouts.where(where or {}))


def heat_map_sentence(
    layouts: Layouts, plan: PlanAsLayout | None = None, measured: Sequence[MeasuredLayout] = ()
) -> str:
    """How many fit, the fastest, what the plan gains, and what was measured."""
    return " ".join(filter(None, (layouts_sentence(layouts, plan), measured_sentence(measured, layouts))))


def heat_map_html(
    layouts: Layouts, plan: PlanAsLayout | None = None, measured: Sequence[MeasuredLayout] = (), theme: str = "light"
) -> str:
    """The figure as one self-contained page."""
    figure = heat_map_figure(layouts, theme, plan=plan, measured=measured)
    page: str = figure.to_html(include_plotlyjs=True, full_html=True, config=CONFIG)
    return page


def _heat(
    figure: go.Figure,
    fitting: Mapping[tuple[Any, Any], PricedLayout],
    columns: Sequence[Any],
    rows: Sequence[Any],
    layouts: Layouts,
) -> None:
    """The cells with a layout that fits. Colours end at a multiple of the fastest: slower ones would leave few."""
    seconds = [priced.seconds for priced in fitting.values()]
    scale, unit = units.seconds_axis(max(seconds, default=1.0))
    least = min(seconds, default=1.0)

    def grid(of: Any, missing: Any) -> list[list[Any]]:
        return [[of(fitting[x, y]) if (x, y) in fitting else missing for x in columns] for y in rows]

    figure.add_trace(
        go.Heatmap(
            x=list(range(len(columns))),
            y=list(range(len(rows))),
            z=grid(lambda priced: priced.seconds / scale, None),
            text=grid(lambda priced: units.number(priced.seconds / scale, 3), ""),
            texttemplate="%{text}",
            hovertext=grid(lambda priced: _hover(priced, layouts), ""),
            hovertemplate=HOVER_TEXT,
            hoverongaps=False,
            name="fits",
            colorscale=HEAT,
            reversescale=True,
            zmin=least / scale,
            zmax=max(min(max(seconds, default=1.0), tuning.HEAT_MAP_RATIO * least), 1.02 * least) / scale,
            xgap=2,
            ygap=2,
            colorbar={"title": {"text": f"iteration ({unit})"}},
        )
    )


def _crossed(
    figure: go.Figure,
    unfit: Mapping[tuple[Any, Any], PricedLayout],
    columns: Sequence[Any],
    rows: Sequence[Any],
    layouts: Layouts,
    theme: str,
) -> None:
    """The cells in which no layout fits: hatched boxes with ✕."""
    if not unfit:
        return
    places = [_place(place, columns, rows) for place in unfit]
    texts = [_hover(priced, layouts) for priced in unfit.values()]
    figure.add_trace(
        go.Bar(
            x=[x for x, _ in places],
            y=[0.96] * len(places),
            base=[y - 0.48 for _, y in places],
            width=0.96,
            marker={
                "color": empty(theme),
                "line": {"width": 0},
                "pattern": {"shape": "/", "fgcolor": faint(theme), "fgopacity": 0.5, "size": 8, "solidity": 0.15},
            },
            hovertext=texts,
            hovertemplate=HOVER_TEXT,
            showlegend=False,
            name="does not fit",
        )
    )
    figure.add_trace(
        go.Scatter(
            x=[x for x, _ in places],
            y=[y for _, y in places],
            mode="text",
            text=["✕"] * len(places),
            textfont={"size": 13, "color": ink(theme)},
            hoverinfo="skip",
            showlegend=False,
            name="✕",
        )
    )


def _plan_mark(
    figure: go.Figure,
    plan: PlanAsLayout | None,
    x: Axis,
    y: Axis,
    columns: Sequence[Any],
    rows: Sequence[Any],
    theme: str,
) -> None:
    if plan is None or plan.layout is None:
        return
    place = getattr(plan.layout, x), getattr(plan.layout, y)
    if place[0] in columns and place[1] in rows:
        text = lines(f"<b>the plan: {safe(plan.words)}</b>", f"iteration {units.seconds(plan.seconds)}")
        _marks(figure, "the plan", "star", OKABE_ITO[0], [_place(place, columns, rows)], [text], theme, (-1, 1))


def _measured_marks(
    figure: go.Figure,
    measured: Sequence[MeasuredLayout],
    x: Axis,
    y: Axis,
    columns: Sequence[Any],
    rows: Sequence[Any],
    theme: str,
) -> None:
    """One mark for each cell, with all runs in its text."""
    texts: dict[tuple[Any, Any], list[str]] = {}
    for one in measured:
        if one.priced is not None:
            place = getattr(one.priced.layout, x), getattr(one.priced.layout, y)
            texts.setdefault(place, []).append(
                f"{safe(one.words)}: measured {units.seconds(one.seconds)}, predicted "
                f"{units.seconds(one.priced.seconds)}{'' if one.priced.fits else ', and not to fit'} "
                f"({safe(one.run.software)}, {safe(one.run.precision)})"
            )
    if texts:
        places = [_place(place, columns, rows) for place in texts]
        shown = [lines("<b>measured runs</b>", *some) for some in texts.values()]
        _marks(figure, "measured", "diamond", OKABE_ITO[1], places, shown, theme, (-1, -1))


def _marks(
    figure: go.Figure,
    name: str,
    symbol: str,
    color: str,
    places: Sequence[tuple[float, float]],
    texts: Sequence[str],
    theme: str,
    corner: tuple[int, int],
) -> None:
    """Marks in a corner of their cells, where they cover no number."""
    figure.add_trace(
        go.Scatter(
            x=[x + corner[0] * _CORNER for x, _ in places],
            y=[y + corner[1] * _CORNER * 0.8 for _, y in places],
            mode="markers",
            name=name,
            marker={"symbol": symbol, "size": 11, "color": color, "line": {"width": 2, "color": _edge(symbol, theme)}},
            hovertext=list(texts),
            hovertemplate=HOVER_TEXT,
            showlegend=True,
        )
    )


def _edge(symbol: str, theme: str) -> str:
    return OKABE_ITO[5] if symbol.endswith("open") else ground(theme)


def _place(place: tuple[Any, Any], columns: Sequence[Any], rows: Sequence[Any]) -> tuple[int, int]:
    return columns.index(place[0]), rows.index(place[1])


def _hover(priced: PricedLayout, layouts: Layouts) -> str:
    parts = sorted(priced.parts_bytes, key=lambda part: -part[1])
    return lines(
        f"<b>{safe(priced.words)}</b>",
        f"number {layouts.rank(priced):,} of {len(layouts.ranked):,}" if priced.fits else f"✕ {safe(priced.reason)}",
        f"iteration {units.seconds(priced.seconds)}, {priced.tokens_per_second:,.0f} tokens/s, MFU "
        f"{units.percent(priced.mfu)}",
        f"fullest device {memory_words(priced, layouts.cluster)}: "
        + ", ".join(f"{name} {units.bytes_(size)}" for name, size in parts[:3]),
    )
