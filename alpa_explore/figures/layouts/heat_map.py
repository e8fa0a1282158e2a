"""The layouts of a model on a cluster by two of their degrees: in each cell the fastest of the rest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

from alpa_explore import units
from alpa_explore.baselines.layout import LABELS, Axis
from alpa_explore.figures import tuning
from alpa_explore.figures.marks import Plots, bars, points, words
from alpa_explore.figures.marks import cells as heat_cells
from alpa_explore.figures.style import OKABE_ITO, Figure, empty, faint, ground, heat_scale, lines, safe
from alpa_explore.uniform_layouts.beside_plan import PlanAsLayout
from alpa_explore.uniform_layouts.measured import MeasuredLayout
from alpa_explore.uniform_layouts.ranking import Layouts, PricedLayout, memory_words
from alpa_explore.uniform_layouts.report import Row, layouts_sentence, layouts_table, measured_sentence

__all__ = ["best_of_cells", "heat_map_figure", "heat_map_sentence", "heat_map_table"]

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
) -> Figure:
    """A cell for each value of `x` and `y` that some layout has, with the seconds of the fastest that fits; hatched
    with ✕ where none does, with the reason on hover. `where` keeps only layouts with these values.

    A star marks the cell of the plan where it corresponds to a uniform layout, a ring the fastest of all, a diamond
    each cell with a measured run.
    """
    columns, rows = layouts.values(x), layouts.values(y)
    place_of = {(a, b): (i, j) for (i, a), (j, b) in product(enumerate(columns), enumerate(rows))}
    cells = {place_of[of]: (c, _hover(c, layouts)) for of, c in best_of_cells(layouts, x, y, where).items()}
    fitting = {place: of for place, of in cells.items() if of[0].fits}
    unfit = {place: text for place, (c, text) in cells.items() if not c.fits}
    figure = Plots()
    seconds = [priced.seconds for priced, _ in fitting.values()]
    scale, unit = units.seconds_axis(max(seconds, default=1.0))
    least = min(seconds, default=1.0)

    def grid(of: Any, missing: Any) -> list[list[Any]]:
        across, down = range(len(columns)), range(len(rows))
        return [[of(*fitting[i, j]) if (i, j) in fitting else missing for i in across] for j in down]

    heat = heat_cells(
        list(range(len(columns))),
        list(range(len(rows))),
        grid(lambda priced, _: priced.seconds / scale, None),
        gap=2,
        text=grid(lambda priced, _: units.number(priced.seconds / scale, 3), ""),
        texttemplate="%{text}",
        hover=grid(lambda _, text: text, ""),
        name="fits",
        colorscale=heat_scale,
        reversescale=True,
        zmin=least / scale,
        # Colours end at a multiple of the fastest: slower ones would leave few.
        zmax=max(min(max(seconds, default=1.0), tuning.HEAT_MAP_RATIO * least), 1.02 * least) / scale,
        colorbar={"title": {"text": f"iteration ({unit})"}},
    )
    figure.add(heat)
    if unfit:
        across, down = [i for i, _ in unfit], [j for _, j in unfit]
        hatch = {"shape": "/", "fgcolor": faint, "fgopacity": 0.5, "size": 8, "solidity": 0.15}
        looks = {"base": [j - 0.48 for j in down], "width": 0.96, "hover": list(unfit.values()), "listed": False}
        boxes = bars(across, [0.96] * len(unfit), empty, edge=(None, 0), name="does not fit", **looks)
        boxes["marker"]["pattern"] = hatch
        figure.add(boxes, words(across, down, ["✕"] * len(unfit), size=13, name="✕"))
    marks: list[tuple[str, str, str, tuple[int, int], dict[tuple[int, int], str]]] = []
    if fitting:
        best = min(fitting, key=lambda place: fitting[place][0].seconds)
        marks.append(("fastest", "circle-open", OKABE_ITO[5], (1, 1), {best: fitting[best][1]}))
    if plan is not None and plan.layout is not None:
        text = lines(f"<b>the plan: {safe(plan.words)}</b>", f"iteration {units.seconds(plan.seconds)}")
        own = place_of.get((getattr(plan.layout, x), getattr(plan.layout, y)))
        if own is not None:
            marks.append(("the plan", "star", OKABE_ITO[0], (-1, 1), {own: text}))
    runs: dict[tuple[int, int], list[str]] = {}
    for one in measured:
        if one.priced is not None:
            runs.setdefault(place_of[getattr(one.priced.layout, x), getattr(one.priced.layout, y)], []).append(
                f"{safe(one.words)}: measured {units.seconds(one.seconds)}, predicted "
                f"{units.seconds(one.priced.seconds)}{'' if one.priced.fits else ', and not to fit'} "
                f"({safe(one.run.software)}, {safe(one.run.precision)})"
            )
    if runs:
        texts = {place: lines("<b>measured runs</b>", *some) for place, some in runs.items()}
        marks.append(("measured", "diamond", OKABE_ITO[1], (-1, -1), texts))
    for name, symbol, color, corner, at in marks:  # in a corner of their cells, where they cover no number
        across_at = [i + corner[0] * _CORNER for i, _ in at]
        down_at = [j + corner[1] * _CORNER * 0.8 for _, j in at]
        edge = (color if symbol.endswith("open") else ground, 2)
        figure.add(
            points(
                across_at, down_at, color, symbol, 11, edge=edge, name=name, hover=list(at.values()), showlegend=True
            )
        )
    for update, which, values in ((figure.x, x, columns), (figure.y, y, rows)):
        ticks, span = {place: str(value) for place, value in enumerate(values)}, (-0.5, len(values) - 0.5)
        update(title=LABELS[which], ticks=ticks, span=span, bare=True)
    height = tuning.HEAT_MAP_TOP + tuning.HEAT_MAP_ROW * max(len(rows), 2)
    sentence = heat_map_sentence(layouts, plan, measured)
    margin = {"b": 48, "l": 64}
    return figure.figure(sentence, theme=theme, height=height, margin=margin)


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
