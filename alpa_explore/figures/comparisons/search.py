"""The plans that were tried: throughput against memory, and the Pareto frontier."""

from collections.abc import Sequence
from typing import TypeAlias

from alpa_explore import units
from alpa_explore.figures import tuning
from alpa_explore.figures.keys import key
from alpa_explore.figures.marks import NOWHERE, Plots, fitted, label_positions, labels, legend_below, line, points
from alpa_explore.figures.style import OKABE_ITO, Drawing, Trace, faint, ink, lines, safe, with_theme
from alpa_explore.plans.plan import Plan
from alpa_explore.plans.report.compare import NoPlan, differences, tried_table
from alpa_explore.plans.report.tables import Row
from alpa_explore.plans.report.text import fullest
from alpa_explore.units import printable

Point: TypeAlias = list[tuple[int, Plan]]
"""(index in `tried`, plan) of plans that are nearly equal or would cover one another (`_near`): that on screen, then
the fastest; the mark is at the first."""


def comparable(plan: Plan, tried: Sequence[Plan]) -> list[tuple[int, Plan]]:
    """(index in `tried`, plan) of the plans of the same model; `plan` itself is one of them."""
    same_model = [(number, other) for number, other in enumerate(tried) if other.model.name == plan.model.name]
    return same_model if any(other is plan for _, other in same_model) else [*same_model, (len(tried), plan)]


def pareto_frontier(plans: Sequence[Plan], sizes: Sequence[float] = ()) -> frozenset[int]:
    """Indices of the plans that are not dominated: no other is at least as good in throughput and memory and better in
    one. `sizes` are what they need of a device; without them their bytes."""
    sizes = sizes or [p.predicted.peak_bytes_per_device for p in plans]
    points = [(p.samples_per_second, -size) for p, size in zip(plans, sizes, strict=True)]
    return frozenset(
        i
        for i, (rate, saved) in enumerate(points)
        if not any(r >= rate and s >= saved and (r, s) != (rate, saved) for r, s in points)
    )


def points_of(plan: Plan, shown: Sequence[tuple[int, Plan]]) -> list[Point]:
    """The points: that of `plan`, which is one of `shown` and the first in its point, then the fastest."""
    spans = [max(of) - min(of) for of in zip(*(_figures(p) for _, p in shown), strict=True)]
    groups: list[Point] = []
    for number, other in sorted(shown, key=lambda pair: (pair[1] is not plan, -pair[1].samples_per_second)):
        group = next((g for g in groups if _near(g[0][1], other, spans)), None)
        if group is None:
            groups.append(group := [])
        group.append((number, other))
    return groups


def _figures(plan: Plan) -> tuple[float, float]:
    return plan.samples_per_second, plan.predicted.peak_bytes_per_device


def _near(a: Plan, b: Plan, spans: Sequence[float]) -> bool:
    """Whether two plans of a kind differ by little of their figures, or by little of the axes."""
    return _kind(a) == _kind(b) and all(
        abs(x - y) <= max(tuning.SAME_POINT_SHARE * max(x, y), tuning.SAME_PLACE_SHARE * span)
        for x, y, span in zip(_figures(a), _figures(b), spans, strict=True)
    )


def _kind(plan: Plan) -> str:
    """The baseline that it is, without its degrees; '' for a plan of the planner."""
    return plan.options.baseline.split(" ")[0]


_STAR_PIXELS = 20
_LISTED = 4
"""Plans of one point that its hover text lists."""


@with_theme
def search_figure(plan: Plan, *, tried: Sequence[Plan] = (), failed: Sequence[NoPlan] = ()) -> Drawing:
    """A mark for each point of throughput and memory among the plans of the same model; the star is at `plan`.

    Nearly equal plans are one mark with their count; its key is the index of the fastest of them in `tried`. Baselines
    are diamonds with their names. The dashed line is the Pareto frontier; the legend lists what has no plan.
    """
    shown = comparable(plan, tried)
    points_shown, plans = points_of(plan, shown), [p for _, p in shown]
    capacity = float(plan.device_of(fullest(plan)).memory_bytes)
    sizes = [p.predicted.peak_bytes_per_device for p in plans]
    scale, unit = units.bytes_axis(max(sizes))
    rooms = [float(p.device_of(fullest(p)).memory_bytes) for p in plans]
    if shares := len(set(rooms)) > 1:  # of devices with unlike memory each peak is a share of its own
        sizes, capacity = [size / room for size, room in zip(sizes, rooms, strict=True)], 1.0
        scale, unit = 0.01, "% of the device"
    limit = capacity / scale
    peak = {id(p): size / scale for p, size in zip(plans, sizes, strict=True)}
    x, y = fitted([size / scale for size in sizes], limit), fitted([p.samples_per_second for p in plans])
    figure = Plots()
    corners = sorted({(sizes[i] / scale, plans[i].samples_per_second) for i in pareto_frontier(plans, sizes)})
    right, top = [*(px for px, _ in corners), x.high], [*(py for _, py in corners), corners[-1][1]]
    name = "Pareto frontier: none is faster with less memory"
    figure.add(line(right, top, faint, dash="dash", shape="hv", name=name))
    texts, kinds = [_label(plan, point) for point in points_shown], [_kind(point[0][1]) for point in points_shown]
    places = [(peak[id(shown)], shown.samples_per_second) for (_, shown), *_ in points_shown]
    radii = [_STAR_PIXELS / 2, *[0.0] * (len(places) - 1)]
    positions = label_positions(places, texts, x, y, radii=radii, upright=[limit])
    for name, symbol, size, color, own in (
        ("plans of the planner", "circle", 11, OKABE_ITO[0], [i for i, kind in enumerate(kinds) if not kind]),
        ("baselines", "diamond", 12, OKABE_ITO[1], [i for i, kind in enumerate(kinds) if kind]),
        ("this plan", "star", _STAR_PIXELS, OKABE_ITO[5], [0]),
    ):
        if own:
            looks: Trace = {"name": name, "cliponaxis": False, "edge": (ink, 1)}
            looks |= {"keys": [key(plan=points_shown[i][0][0]) for i in own]}
            if symbol != "star":  # its label is further away than plotly would write it
                written = [texts[i] if i else "" for i in own]
                looks |= {"mode": "markers+text", **labels(written, [positions[i] for i in own])}
            hover = [_hover(plan, points_shown[i]) for i in own]
            px, py = [places[i][0] for i in own], [places[i][1] for i in own]
            figure.add(points(px, py, color, symbol, size, hover=hover, **looks))
    # Beside an unseen mark that is wider than the star: plotly keeps a label as far from a mark as a circle of its size
    # reaches, and the tips of a star reach further.
    looks = labels(texts[:1], positions[0], over_lines=True) | {"mode": "markers+text", "cliponaxis": False}
    star = points([places[0][0]], [places[0][1]], ink, name="label of this plan", listed=False, **looks)
    figure.add(star | {"marker": {"size": 1.4 * _STAR_PIXELS, "opacity": 0}})
    memory = "all its memory" if shares else units.bytes_(capacity)
    figure.limit(limit, memory, x, y, "", xanchor="right", yanchor="bottom")
    figure.add(*(points(*NOWHERE, OKABE_ITO[5], "x", name=f"no plan: {safe(str(attempt))}") for attempt in failed))
    figure.x(title=x.title(f"peak memory of the fullest device ({unit})"), span=x)
    figure.y(title=y.title("samples/s"), span=y)
    bottom = 64 + 19 * (4 + len(failed) if failed else 1)
    sentence = search_sentence(plan, tried=tried, failed=failed)
    return figure.figure(sentence, height=300, around={"b": bottom}, legend=legend_below(56, 300))


def search_sentence(plan: Plan, *, tried: Sequence[Plan] = (), failed: Sequence[NoPlan] = ()) -> str:
    """What the figure shows for this plan."""
    shown = comparable(plan, tried)
    if len(shown) == 1:
        alone = "Only this plan has been made: move a control, or try settings and baselines."
        return " ".join([alone, *_failures(failed)])
    points = points_of(plan, shown)
    place = pareto_frontier([p for _, p in shown])
    count, front = len(points), len(place)
    here = next(i for i, (_, p) in enumerate(shown) if p is plan)
    summary = f"{len(shown)} plans of {printable(plan.model.name)}"
    if count < len(shown):
        summary += f" at {count} clearly different points" if count > 1 else ", nearly equal"
    own = ("and it is this plan" if front == 1 else "this plan among them") if here in place else "this plan is not"
    summary += f"; {front} {'is' if front == 1 else 'are'} on the Pareto frontier, {own}"
    best = max((p for _, p in shown), key=lambda p: p.samples_per_second)
    gain = best.samples_per_second / plan.samples_per_second - 1
    if gain < tuning.NOTICEABLE_SHARE:
        fastest = "This plan is the fastest."
    else:
        settings = "; ".join(map(str, differences(plan, best))) or "the same settings"
        fastest = f"The fastest makes {units.percent(gain)} more samples/s: {settings}."
    return " ".join([f"{summary}.", fastest, *_failures(failed)])


def search_table(plan: Plan, *, tried: Sequence[Plan] = (), failed: Sequence[NoPlan] = ()) -> list[Row]:
    """Every plan in the order in which they were made, with settings that differ and figures; then what has no plan."""
    shown = comparable(plan, tried)
    frontier, table = pareto_frontier([p for _, p in shown]), tried_table(plan, [p for _, p in shown])
    rows: list[Row] = [
        row | {"plan_number": number, "this_one": other is plan, "on_the_front": place in frontier, "no_plan": ""}
        for place, ((number, other), row) in enumerate(zip(shown, table, strict=True))
    ]
    return rows + [dict.fromkeys(rows[0]) | {"no_plan": str(attempt)} for attempt in failed]


def _failures(failed: Sequence[NoPlan]) -> list[str]:
    """['No plan: data-parallel (needs 24.5 GiB of 16 GiB), …'], or nothing."""
    if not failed:
        return []
    more = len(failed) - tuning.NO_PLANS_NAMED
    named = ", ".join(f"{f.name} ({f.reason})" for f in failed[: tuning.NO_PLANS_NAMED])
    return [f"No plan: {named}{f' and {more} more, in the legend' if more > 0 else ''}."]


def _label(plan: Plan, point: Point) -> str:
    name = safe(_kind(point[0][1])) or ("this plan" if point[0][1] is plan else "")
    more = len(point) - 1
    if name:
        return f"{name} and {more} more" if more else name
    return f"{more + 1} plans" if more else ""


def _hover(plan: Plan, point: Point) -> str:
    shown, others = point[0][1], len(point) - 1
    listed = [
        "this plan" if p is plan else safe("; ".join(map(str, differences(plan, p)))) or "the same settings"
        for _, p in point[:_LISTED]
    ]
    rate, time, size = shown.samples_per_second, shown.predicted.iteration_seconds, _figures(shown)[1]
    more = len(point) - len(listed)
    return lines(
        f"<b>{listed[0]}</b>",
        f"{units.number(rate, 4)} samples/s, T {units.seconds(time)}",
        f"peak {units.bytes_(size)} of {units.bytes_(shown.device_of(fullest(shown)).memory_bytes)}",
        f"{len(shown.stages)} stage{'' if len(shown.stages) == 1 else 's'}",
        "nearly equal to it:" if others else "",
        *(f"   {text}" for text in listed[1:]),
        f"   and {more} more" if more else "",
        "" if shown is plan else "click: opens it",
    )
