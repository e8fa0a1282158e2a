"""The plans that were tried: throughput against memory, and the Pareto frontier."""

from collections.abc import Sequence
from dataclasses import dataclass

from alpa_explore import units
from alpa_explore.figures import tuning
from alpa_explore.figures.keys import key
from alpa_explore.figures.marks import (
    Plots,
    fitted,
    label_positions,
    labels,
    legend_below,
    legend_entry,
    limit_line,
    limit_note,
    line,
    points,
)
from alpa_explore.figures.style import OKABE_ITO, Drawing, Trace, faint, halo, ink, lines, safe, with_theme
from alpa_explore.plans.plan import Plan
from alpa_explore.plans.report.compare import NoPlan, differences
from alpa_explore.plans.report.tables import Row
from alpa_explore.plans.report.text import fullest
from alpa_explore.units import printable


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """Plans that are nearly equal or would cover one another (`_near`): first the one on screen, then the fastest."""

    kind: str
    """The baseline that all of them are, without its degrees; '' for plans of the planner."""
    plans: tuple[tuple[int, Plan], ...]
    """(index in `tried`, plan); the mark is at the first."""

    @property
    def number(self) -> int:
        """The index of the plan at the mark."""
        return self.plans[0][0]

    @property
    def samples_per_second(self) -> float:
        """Of the plan at the mark."""
        return self.plans[0][1].samples_per_second

    @property
    def peak_bytes(self) -> float:
        """Of the plan at the mark."""
        return self.plans[0][1].predicted.peak_bytes_per_device

    def holds(self, plan: Plan) -> bool:
        """Whether `plan` is one of them."""
        return any(other is plan for _, other in self.plans)


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


def points_of(plan: Plan, shown: Sequence[tuple[int, Plan]]) -> tuple[Point, ...]:
    """The points: that of `plan`, which is one of `shown`, then the fastest."""
    spans = [max(of) - min(of) for of in zip(*(_figures(p) for _, p in shown), strict=True)]
    groups: list[list[tuple[int, Plan]]] = []
    for number, other in sorted(shown, key=lambda pair: (pair[1] is not plan, -pair[1].samples_per_second)):
        group = next((g for g in groups if _near(g[0][1], other, spans)), None)
        if group is None:
            groups.append(group := [])
        group.append((number, other))
    return tuple(Point(kind=_kind(group[0][1]), plans=tuple(group)) for group in groups)


def _figures(plan: Plan) -> tuple[float, float]:
    return plan.samples_per_second, plan.predicted.peak_bytes_per_device


def _near(a: Plan, b: Plan, spans: Sequence[float]) -> bool:
    """Whether two plans of a kind differ by little of their figures, or by little of the axes."""
    return _kind(a) == _kind(b) and all(
        abs(x - y) <= max(tuning.SAME_POINT_SHARE * max(x, y), tuning.SAME_PLACE_SHARE * span)
        for x, y, span in zip(_figures(a), _figures(b), spans, strict=True)
    )


def _kind(plan: Plan) -> str:
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
    texts = [_label(plan, point) for point in points_shown]
    places = [(peak[id(point.plans[0][1])], point.samples_per_second) for point in points_shown]
    radii = [_STAR_PIXELS / 2 if p.holds(plan) else 0.0 for p in points_shown]
    positions = label_positions(places, texts, x, y, radii=radii, upright=[limit])
    for name, symbol, size, color, chosen in (
        ("plans of the planner", "circle", 11, OKABE_ITO[0], [not p.kind for p in points_shown]),
        ("baselines", "diamond", 12, OKABE_ITO[1], [bool(p.kind) for p in points_shown]),
        ("this plan", "star", _STAR_PIXELS, OKABE_ITO[5], [p.holds(plan) for p in points_shown]),
    ):
        own = [i for i, wanted in enumerate(chosen) if wanted]
        if own:
            looks: Trace = {"name": name, "cliponaxis": False, "edge": (ink, 1)}
            looks |= {"keys": [key(plan=points_shown[i].number) for i in own]}
            if symbol != "star":  # its label is further away than plotly would write it
                written = ["" if points_shown[i].holds(plan) else texts[i] for i in own]
                looks |= {"mode": "markers+text", **labels(written, [positions[i] for i in own])}
            hover = [_hover(plan, points_shown[i]) for i in own]
            px, py = [places[i][0] for i in own], [places[i][1] for i in own]
            figure.add(points(px, py, color, symbol, size, hover=hover, **looks))
    here = next(i for i, p in enumerate(points_shown) if p.holds(plan))
    # Beside an unseen mark that is wider than the star: plotly keeps a label as far from a mark as a circle of its size
    # reaches, and the tips of a star reach further.
    looks = labels([texts[here]], positions[here], shadow=halo) | {"mode": "markers+text", "cliponaxis": False}
    star = points([places[here][0]], [places[here][1]], ink, name="label of this plan", listed=False, **looks)
    figure.add(star | {"marker": {"size": 1.4 * _STAR_PIXELS, "opacity": 0}})
    seen = limit <= x.high
    if seen:
        figure.add(limit_line([limit] * 2, list(y), dash=""))
    refs = ("x" if seen else "paper", "paper")
    anchors = {"xanchor": "right", "yanchor": "bottom"}
    figure.note(
        limit_note(
            "all its memory" if shares else units.bytes_(capacity),
            limit if seen else 1.0,
            1.0,
            refs,
            seen=seen,
            **anchors,
        )
    )
    cross = {"symbol": "x", "size": 10, "color": OKABE_ITO[5]}
    figure.add(*(legend_entry("scatter", f"no plan: {safe(str(attempt))}", cross) for attempt in failed))
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
    summary += f"; {front} {'is' if front == 1 else 'are'} on the Pareto frontier, "
    summary += (
        ("and it is this plan" if front == 1 else "this plan among them") if here in place else "this plan is not"
    )
    best = max((p for _, p in shown), key=lambda p: p.samples_per_second)
    gain = best.samples_per_second / plan.samples_per_second - 1
    if gain < tuning.NOTICEABLE_SHARE:
        fastest = "This plan is the fastest."
    else:
        settings = "; ".join(map(str, differences(plan, best))) or "the same settings"
        fastest = f"The fastest makes {units.percent(gain)} more samples/s: {settings}."
    return " ".join([f"{summary}.", fastest, *_failures(failed)])


def search_table(plan: Plan, *, tried: Sequence[Plan] = (), failed: Sequence[NoPlan] = ()) -> list[Row]:
    """Every plan, in the order in which they were made, and what has no plan, with the reason."""
    shown = comparable(plan, tried)
    frontier = pareto_frontier([p for _, p in shown])
    rows: list[Row] = [
        {
            "plan_number": number,
            "this_one": other is plan,
            "on_the_front": place in frontier,
            "differs_in": "; ".join(map(str, differences(plan, other))) or "nothing",
            "iteration_seconds": other.predicted.iteration_seconds,
            "samples_a_second": other.samples_per_second,
            "peak_bytes": other.predicted.peak_bytes_per_device,
            "stages": len(other.stages),
            "bubble_fraction": other.predicted.bubble_fraction,
            "no_plan_because": "",
        }
        for place, (number, other) in enumerate(shown)
    ]
    nothing = dict.fromkeys(rows[0])
    return rows + [nothing | {"differs_in": f.name, "no_plan_because": f.reason} for f in failed]


def _failures(failed: Sequence[NoPlan]) -> list[str]:
    """['No plan: data-parallel (needs 24.5 GiB of 16 GiB), …'], or nothing."""
    if not failed:
        return []
    more = len(failed) - tuning.NO_PLANS_NAMED
    named = ", ".join(f"{f.name} ({f.reason})" for f in failed[: tuning.NO_PLANS_NAMED])
    return [f"No plan: {named}{f' and {more} more, in the legend' if more > 0 else ''}."]


def _label(plan: Plan, point: Point) -> str:
    name = safe(point.kind) or ("this plan" if point.holds(plan) else "")
    more = len(point.plans) - 1
    if name:
        return f"{name} and {more} more" if more else name
    return f"{more + 1} plans" if more else ""


def _hover(plan: Plan, point: Point) -> str:
    shown, others = point.plans[0][1], len(point.plans) - 1
    listed = [_settings(plan, p) for _, p in point.plans[:_LISTED]]
    more = len(point.plans) - len(listed)
    return lines(
        f"<b>{listed[0]}</b>",
        f"{units.number(point.samples_per_second, 4)} samples/s, T {units.seconds(shown.predicted.iteration_seconds)}",
        f"peak {units.bytes_(point.peak_bytes)} of {units.bytes_(shown.device_of(fullest(shown)).memory_bytes)}",
        f"{len(shown.stages)} stage{'' if len(shown.stages) == 1 else 's'}",
        "nearly equal to it:" if others else "",
        *(f"   {text}" for text in listed[1:]),
        f"   and {more} more" if more else "",
        "" if shown is plan else "click: opens it",
    )


def _settings(plan: Plan, other: Plan) -> str:
    if other is plan:
        return "this plan"
    return "; ".join(safe(str(difference)) for difference in differences(plan, other)) or "the same settings"
