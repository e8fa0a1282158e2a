"""The choices for a stage: latency of a microbatch against the peak memory of a device, and what fills that memory.

A choice is named by what it means to the user (`choice_names`); what is proven about it stands in its hover text.
"""

from collections.abc import Sequence

from alpa_explore import units
from alpa_explore.figures import tuning
from alpa_explore.figures.marks import (
    MEMORY_PARTS,
    Plots,
    bars_across,
    fitted,
    inside,
    label_positions,
    labels,
    legend_below,
    limit_line,
    points,
    sums,
)
from alpa_explore.figures.style import OKABE_ITO, Drawing, ink, lines, with_theme
from alpa_explore.plans.phrases import layers_phrase, logical_mesh_phrase
from alpa_explore.plans.plan import Plan
from alpa_explore.plans.report.tables import Row
from alpa_explore.plans.report.text import PROVENANCE_PHRASES
from alpa_explore.questions.frontier import FrontierPoint, StageFrontier, known_frontier
from alpa_explore.questions.frontier import frontier_table as table_of

FASTEST = "the fastest that fits"
ALMOST = f"almost as fast (within {units.percent(tuning.ALMOST_AS_FAST)})"
SLOWER = "slower, with less memory"
TOO_LARGE = "does not fit"
_LOOKS = {
    FASTEST: ("square", OKABE_ITO[0]),
    ALMOST: ("diamond", OKABE_ITO[4]),
    SLOWER: ("triangle-down", OKABE_ITO[2]),
    TOO_LARGE: ("x", OKABE_ITO[5]),
}
"""Name of a choice -> its marker and colour."""
_UPPER, _ROW, _GAP = 210, 22, 66
"""Pixels of the upper panel, of a bar, and between the panels."""


@with_theme
def frontier_figure(plan: Plan, stage: int = 0, *, frontier: StageFrontier | None = None) -> Drawing:
    """Above, each choice as a mark at its memory and latency, with a ring around that of the plan; below, a bar for
    each with what fills the memory. A line is at the memory of a device.

    `frontier` is what `ax.frontier(plan, stage)` returned; without it, the choices that the plan's stage costs hold.
    """
    frontier = frontier or known_frontier(plan, stage)
    shown = _listed(frontier)
    height = _UPPER + _ROW * len(shown) + _GAP
    figure = Plots([_UPPER, _ROW * len(shown)], spacing=(0.0, _GAP / height))
    _marks(figure, frontier)
    _memory(figure, frontier, shown)
    return figure.figure(
        frontier_sentence(plan, stage, frontier=frontier),
        height=height,
        above=18,
        around={"b": 84, "l": 128},
        barmode="stack",
        bargap=0.25,
        legend=legend_below(0, 1) | {"y": 1 + 18 / height, "yanchor": "bottom"},
        legend2=legend_below(48, height),
    )


def frontier_table(plan: Plan, stage: int = 0, *, frontier: StageFrontier | None = None) -> list[Row]:
    """The same as rows."""
    frontier = frontier or known_frontier(plan, stage)
    names = choice_names(frontier)
    return [{"choice": name, **row} for name, row in zip(names, table_of(frontier), strict=True)]


def frontier_sentence(plan: Plan, stage: int = 0, *, frontier: StageFrontier | None = None) -> str:
    """What the figure shows for this plan and stage."""
    frontier = frontier or known_frontier(plan, stage)
    points, fitting = frontier.points, [p for p in frontier.points if p.fits]
    memory = units.bytes_(frontier.memory_bytes)
    count = f"{len(points)} choice{'' if len(points) == 1 else 's'}"
    fits = "fits" if len(fitting) == 1 else "fit"
    head = (
        f"Stage {frontier.stage} ({layers_phrase(frontier.layers)}): {len(fitting)} of {count} {fits} in {memory}"
        if len(points) > 1
        else f"Stage {frontier.stage} ({layers_phrase(frontier.layers)}): a single choice is known"
    )
    sentences = [head, *_of_the_plan(frontier)]
    exact = "No other choice is faster with as little memory: this is the exact frontier"
    return " ".join(f"{sentence}." for sentence in [*sentences, *([exact] if frontier.complete else [])])


def choice_names(frontier: StageFrontier) -> list[str]:
    """What each choice is to a user: the fastest that fits, almost as fast, slower with less memory, or too large."""
    best = min((p.seconds for p in frontier.points if p.fits), default=0.0)
    names = []
    for point in frontier.points:
        if not point.fits:
            names.append(TOO_LARGE)
        elif point.seconds <= best and FASTEST not in names:
            names.append(FASTEST)
        else:
            names.append(ALMOST if point.seconds <= best * (1 + tuning.ALMOST_AS_FAST) else SLOWER)
    return names


def _of_the_plan(frontier: StageFrontier) -> list[str]:
    """What the plan takes, and what the choice with the least memory would save and cost."""
    chosen = next((p for p in frontier.points if p.chosen), None)
    if chosen is None:
        return []
    name = choice_names(frontier)[frontier.points.index(chosen)]
    taken = f": {name}" if name in (FASTEST, ALMOST) else ""
    found = [f"The plan takes {units.seconds(chosen.seconds)} and {units.bytes_(chosen.peak_bytes)}{taken}"]
    least = min(frontier.points, key=lambda p: p.peak_bytes)
    saved, slower = 1 - least.peak_bytes / chosen.peak_bytes, least.seconds / chosen.seconds - 1
    if saved >= tuning.NOTICEABLE_SHARE:
        cost = f"would be {units.percent(slower)} slower" if slower > 0 else "would be as fast"
        found.append(f"The choice with the least memory needs {units.percent(saved)} less and {cost}")
    return found


def _listed(frontier: StageFrontier) -> list[FrontierPoint]:
    """The points with a bar: all, or evenly many of them with that of the plan."""
    points, most = frontier.points, tuning.MEMORY_BARS
    if len(points) <= most:
        return list(points)
    kept = {round(i * (len(points) - 1) / (most - 1)) for i in range(most)}
    return [p for i, p in enumerate(points) if i in kept or p.chosen]


def _marks(figure: Plots, frontier: StageFrontier) -> None:
    shown, names = frontier.points, choice_names(frontier)
    x_scale, x_unit = units.bytes_axis(max(p.peak_bytes for p in shown))
    y_scale, y_unit = units.seconds_axis(max(p.seconds for p in shown))
    limit = frontier.memory_bytes / x_scale
    places = [(p.peak_bytes / x_scale, p.seconds / y_scale) for p in shown]
    x = fitted([px for px, _ in places], limit, zero=tuning.MEMORY_FROM_ZERO)
    y = fitted([py for _, py in places], zero=tuning.MEMORY_FROM_ZERO)
    for name, (symbol, color) in _LOOKS.items():
        own = [(p, place) for p, place, known in zip(shown, places, names, strict=True) if known == name]
        if own:
            hover = [_hover(p, name, frontier) for p, _ in own]
            px, py = [at[0] for _, at in own], [at[1] for _, at in own]
            figure.add(points(px, py, color, symbol, 11, edge=(ink, 1), name=name, hover=hover))
    positions = label_positions(places, ["the plan" if p.chosen else "" for p in shown], x, y, pixels=(580, _UPPER))
    chosen = [(at, side) for p, at, side in zip(shown, places, positions, strict=True) if p.chosen]
    looks = {"mode": "markers+text", "cliponaxis": False, "name": "the plan", "listed": False, "edge": (None, 2)}
    looks |= labels(["the plan"] * len(chosen), [side for _, side in chosen], 13)
    px, py = [at[0] for at, _ in chosen], [at[1] for at, _ in chosen]
    figure.add(points(px, py, ink, "circle-open", 20, **looks))
    figure.limit(limit, units.bytes_(frontier.memory_bytes), x, y, xanchor="right", yanchor="top")
    held = f"{units.number(frontier.microbatches_held)} microbatch{'' if frontier.microbatches_held == 1 else 'es'}"
    figure.x(1, title=x.title(f"peak memory of a device, holding {held} ({x_unit})"), span=x)
    figure.y(1, title=y.title(f"latency per microbatch ({y_unit})").replace(", ", ",<br>"), span=y)


def _memory(figure: Plots, frontier: StageFrontier, shown: Sequence[FrontierPoint]) -> None:
    """Stacked bars of what fills the memory, the fastest choice first."""
    most = max([frontier.memory_bytes, *(p.peak_bytes for p in shown)])
    scale, unit = units.bytes_axis(most)
    names = dict(zip(frontier.points, choice_names(frontier), strict=True))
    rows, hover = list(range(len(shown))), [_hover(p, names[p], frontier) for p in shown]
    for name, color, shape, field in MEMORY_PARTS:
        sizes = [getattr(p, field) for p in shown]
        # Where the part of the bar is wide enough.
        texts = inside([units.bytes_(size) if size > 0.13 * most else "" for size in sizes], size=11)
        texts["textfont"]["color"] = ink if shape else "#ffffff"
        looks = {"name": name, "hover": hover, "legend": "legend2", **texts}
        figure.add(bars_across([size / scale for size in sizes], rows, color, shape, **looks), row=2)
    peaks = [p.peak_bytes for p in shown]
    figure.add(sums([peak / scale for peak in peaks], rows, [units.bytes_(peak) for peak in peaks]), row=2)
    figure.add(limit_line([frontier.memory_bytes / scale] * 2, [-0.5, len(shown) - 0.5]), row=2)
    ticks = {row: f"{'<b>the plan</b>: ' if p.chosen else ''}{units.seconds(p.seconds)}" for row, p in enumerate(shown)}
    figure.y(2, ticks=ticks, span=(len(shown) - 0.5, -0.5))
    figure.x(2, title=f"memory of a device ({unit})", span=(0, 1.16 * most / scale))


def _hover(point: FrontierPoint, name: str, frontier: StageFrontier) -> str:
    phrase = PROVENANCE_PHRASES[point.provenance]
    best = min((p.seconds for p in frontier.points if p.fits), default=point.seconds)
    slower = point.seconds / best - 1
    beside = f", {units.percent(abs(slower))} {'slower' if slower > 0 else 'faster'} than the fastest that fits"
    held = units.number(frontier.microbatches_held)
    return lines(
        f"<b>{units.seconds(point.seconds)} per microbatch: {name}</b>{', chosen by the plan' if point.chosen else ''}",
        f"{units.bytes_(point.peak_bytes)} = weights {units.bytes_(point.weight_bytes)} + activations of {held} "
        f"{units.bytes_(point.activations_held_bytes)} + workspace {units.bytes_(point.workspace_bytes)}",
        f"of {units.bytes_(frontier.memory_bytes)}{beside if abs(slower) >= tuning.NOTICEABLE_SHARE else ''}",
        logical_mesh_phrase(point.logical_mesh),
        f"what is proven: {phrase}" if phrase else "",
    )
