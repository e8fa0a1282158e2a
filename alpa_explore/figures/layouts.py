"""Uniform layouts: all of a model on a cluster by time and memory, and the best of them on other clusters."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from alpa_explore import units
from alpa_explore.accuracy.error_band import usable_bytes
from alpa_explore.baselines.layout import LABELS, Axis
from alpa_explore.cluster.software import Software
from alpa_explore.figures import tuning
from alpa_explore.figures.keys import change_key, key
from alpa_explore.figures.marks import NOWHERE, Plots, gaps, line, note, points, words
from alpa_explore.figures.style import OKABE_ITO, Drawing, Trace, faint, ground, ink, lines, safe, with_theme
from alpa_explore.uniform_layouts import report
from alpa_explore.uniform_layouts.beside_plan import PlanAsLayout
from alpa_explore.uniform_layouts.measured import MeasuredLayout
from alpa_explore.uniform_layouts.ranking import Layouts, PricedLayout, memory_words
from alpa_explore.uniform_layouts.report import priced_best
from alpa_explore.uniform_layouts.scaling import Scaling, ScalingPoint

_SYMBOLS = ("circle", "square", "diamond", "triangle-up")
"""Of the ZeRO stages."""
_TOO_MUCH = OKABE_ITO[5]


@with_theme
def scatter_figure(
    layouts: Layouts,
    *,
    where: Mapping[Axis, Any] | None = None,
    plan: PlanAsLayout | None = None,
    measured: Sequence[MeasuredLayout] = (),
) -> Drawing:
    """A point for each layout that fits or nearly does, coloured by PP, its shape by ZeRO; `where` keeps only those
    with these values. The key of one that fits is its rank.

    The line is the frontier: none is faster with less memory. Right of the dotted line is what a framework cannot use
    of a device. A star is the plan; a diamond a measured run, tied to its prediction.
    """
    room = layouts.cluster.device.memory_bytes
    shown = _near(layouts.where(where or {}), room)
    ranks = {id(one): rank for rank, one in enumerate(layouts.ranked, 1)}
    x_scale, x_unit = units.bytes_axis(room)
    scale, unit = units.seconds_axis(max((one.seconds for one in shown), default=1.0))
    figure = Plots()
    seconds = [one.seconds for one in shown] + ([plan.seconds] if plan is not None else [])
    ties = [one for one in measured if one.priced is not None and one.priced in shown]
    seconds += [one.seconds for one in ties]
    least, most = min(seconds, default=scale) / scale, max(seconds, default=scale) / scale
    low, high = least - 0.06 * (most - least or least), most + 0.06 * (most - least or least)
    sizes = [one.bytes for one in shown] + ([plan.bytes] if plan is not None else [])
    left, right = min([*sizes, room]) / x_scale, max([*sizes, room]) / x_scale
    left, right = max(left - 0.04 * (right - left), 0.0), right + 0.04 * (right - left)
    usable = usable_bytes(room) / x_scale
    zone = {"fill": "toself", "fillcolor": "rgba(213, 94, 0, 0.07)", "listed": False, "name": "not usable"}
    figure.add(line([usable, right, right, usable], [low, low, high, high], "rgba(0,0,0,0)", 0, **zone))
    figure.add(line([usable] * 2, [low, high], _TOO_MUCH, 1, "dot", name="usable", listed=False))
    anchors = {"xanchor": "right", "yanchor": "top", "xshift": -4, "refs": ("x", "y")}
    figure.note(note(f"usable {units.number(usable, 3)} {x_unit}", usable, high, size=11, color=_TOO_MUCH, **anchors))
    front = _frontier(shown)
    across, down = [one.bytes / x_scale for one in front], [one.seconds / scale for one in front]
    figure.add(line(across, down, faint, 1.2, name="frontier", listed=False))
    for number, pipeline in enumerate(layouts.values("pipeline")):
        own = [one for one in shown if one.layout.pipeline == pipeline]
        color = OKABE_ITO[number % len(OKABE_ITO)]
        trace = points(
            [one.bytes / x_scale for one in own],
            [one.seconds / scale for one in own],
            color,
            [_SYMBOLS[one.layout.zero_stage] for one in own],
            8,
            edge=(ground, 0.5),
            name=f"PP {pipeline}",
            hover=[_hover(one, layouts, ranks[id(one)]) for one in own],
            keys=[key(layout=ranks[id(one)]) if one.fits else "" for one in own],
            listed=bool(own),
        )
        trace["marker"]["opacity"] = [0.9 if one.fits else 0.25 for one in own]
        figure.add(trace)
    for zero in layouts.values("zero_stage") if len(layouts.values("zero_stage")) > 1 else ():
        figure.add(points(*NOWHERE, faint, _SYMBOLS[zero], 8, name=f"ZeRO-{zero}"))
    if ties:
        pairs = [(one, one.priced) for one in ties if one.priced is not None]
        tied = [[(at.bytes / x_scale, of.seconds / scale) for of in (at, one)] for one, at in pairs]
        figure.add(line(*gaps(*tied), ink, 1, name="error", listed=False))
        hover = [_measured(one, at, plan) for one, at in pairs]
        opened = [key(layout=ranks[id(at)]) if at.fits else "" for _, at in pairs]
        at = ([at.bytes / x_scale for _, at in pairs], [one.seconds / scale for one, _ in pairs])
        figure.add(points(*at, ink, "diamond-open", 9, name="measured", hover=hover, keys=opened))
    if plan is not None:
        text = lines(f"<b>the plan: {safe(plan.words)}</b>", f"iteration {units.seconds(plan.seconds)}")
        # Named in the legend: beside it, a label would lie on the layouts.
        star = points([plan.bytes / x_scale], [plan.seconds / scale], ink, "star", 15, name="the plan", hover=[text])
        figure.add(star | {"cliponaxis": False})
    figure.x(title=f"memory of the fullest device ({x_unit})", span=(left, right), zeroline=False)
    figure.y(title=f"iteration ({unit})", span=(low, high), zeroline=False)
    sentence = scatter_sentence(layouts, plan, measured)
    return figure.figure(sentence, height=215, around={"l": 64, "b": 48})


def scatter_sentence(
    layouts: Layouts, plan: PlanAsLayout | None = None, measured: Sequence[MeasuredLayout] = ()
) -> str:
    """How many fit, the fastest, what the plan gains, what was measured, and why the plan is slower or faster."""
    beside = report.beside_run(plan, measured[0]) if plan is not None and measured else ""
    sentences = report.layouts_sentence(layouts, plan), report.measured_sentence(measured, layouts), beside
    return " ".join(filter(None, sentences))


def _near(chosen: Sequence[PricedLayout], room: float) -> list[PricedLayout]:
    """Those that are worth looking at: not several times slower than the fastest, nor far from fitting."""
    fits = [one for one in chosen if one.fits] or list(chosen[: tuning.LAYOUT_POINTS])
    least = min((one.seconds for one in fits), default=0.0)
    most = max(tuning.LAYOUT_BYTES * room, fits[0].bytes if fits else 0.0)
    near = [one for one in chosen if one.seconds <= tuning.LAYOUT_RATIO * least and one.bytes <= most]
    return near[: tuning.LAYOUT_POINTS]


def _frontier(shown: Sequence[PricedLayout]) -> list[PricedLayout]:
    """Those that fit, and than which none is faster with less memory."""
    front: list[PricedLayout] = []
    for one in sorted((one for one in shown if one.fits), key=lambda one: (one.bytes, one.seconds)):
        if not front or one.seconds < front[-1].seconds:
            front.append(one)
    return front


def _hover(priced: PricedLayout, layouts: Layouts, rank: int) -> str:
    parts = sorted(priced.parts_bytes, key=lambda part: -part[1])
    return lines(
        f"<b>{safe(priced.words)}</b>",
        f"number {rank:,} of {len(layouts.ranked):,}" if priced.fits else f"✕ {safe(priced.reason)}",
        f"iteration {units.seconds(priced.seconds)}, {priced.tokens_per_second:,.0f} tokens/s, MFU "
        f"{units.percent(priced.mfu)}",
        f"fullest device {memory_words(priced, layouts.cluster)}: "
        + ", ".join(f"{name} {units.bytes_(size)}" for name, size in parts[:3]),
        "click: opens it as a plan" if priced.fits else "",
    )


def _measured(one: MeasuredLayout, priced: PricedLayout, plan: PlanAsLayout | None) -> str:
    return lines(
        f"<b>{safe(one.words)}</b>",
        f"measured {units.seconds(one.seconds)}, predicted {units.seconds(priced.seconds)}",
        f"{safe(one.run.software)}, {safe(one.run.precision)}",
        "" if plan is None else report.beside_run(plan, one),
        "click: opens its layout as a plan" if priced.fits else "",
    )


scaling_curve_table, scaling_curve_sentence = report.scaling_table, report.scaling_sentence
_DEVICE_SYMBOLS = ("circle", "square", "diamond", "triangle-up", "triangle-down", "triangle-left", "triangle-right")
_DEVICE_MARKS = "●■◆▲▼◄►"
"""The same as text; all of them are in every font that has the box drawings of a terminal."""
_PANELS, _GAP = (190, 110, 84), 36
"""Pixels of tokens a second, of the efficiency, and of a row of the table of what fits; between panels."""

_DEGREES: tuple[Axis, ...] = ("tensor", "pipeline", "data", "context", "expert")
"""What a cell has room to say of its layout; its hover text says all."""
_MARGIN = 0.18
"""Of the range of devices, to its left and right: room for half of a text."""


@with_theme
def scaling_curve_figure(scaling: Scaling) -> Drawing:
    """Three panels over the number of devices: a row for each device with what fits, the dollars for a billion tokens
    where they are known, or what is missing; tokens a second with the line of perfect scaling; the efficiency.

    A click on a mark plans there.
    """
    rows = len(scaling.devices)
    heights = [_PANELS[2] * max(rows, 1), _PANELS[0], _PANELS[1]]
    height = sum(heights) + 2 * _GAP
    figure = Plots(heights, spacing=(0.0, _GAP / height), shared_x=True)
    for number, device in enumerate(scaling.devices):
        _device(figure, number, _device_name(scaling, device), scaling.of(device))
    counts = sorted({point.cluster.devices for point in scaling.points})
    figure.x(type="log", ticks={count: f"{count:,}" for count in counts}, showgrid=False)
    if counts:
        low, high = math.log10(counts[0]), math.log10(counts[-1])
        margin = _MARGIN * (high - low or 1)
        figure.x(span=(low - margin, high + margin))
    figure.x(1, showticklabels=True)
    figure.x(3, title="devices", showticklabels=True)
    rates = [best.tokens_per_second for point in scaling.points if (best := priced_best(point)) is not None]
    figure.y(2, title="tokens/s (log)", type="log", ticks={tick: units.count(tick) for tick in log_ticks(rates)})
    figure.y(3, title="efficiency", tickformat=".0%", rangemode="tozero")
    # The names of the rows are the legend of the curves.
    names = {
        number: f'<span style="color:{OKABE_ITO[number % len(OKABE_ITO)]}">{_DEVICE_MARKS[number % len(_DEVICE_MARKS)]}'
        f"</span> {_device_name(scaling, device)}"
        for number, device in enumerate(scaling.devices)
    }
    figure.y(1, ticks=names, span=(rows - 0.5, -0.5), bare=True)
    looks = {"around": {"l": 96, "b": 56}, "showlegend": False}
    return figure.figure(scaling_curve_sentence(scaling), height=height, **looks)


def log_ticks(values: Sequence[float]) -> list[float]:
    """1, 2 and 5 times powers of ten, from below the least value to above the largest."""
    if not values:
        return []
    exponents = range(math.floor(math.log10(min(values))), math.ceil(math.log10(max(values))) + 1)
    ticks = [step * 10.0**exponent for exponent in exponents for step in (1, 2, 5)]
    below = max((i for i, tick in enumerate(ticks) if tick <= min(values)), default=0)
    return [tick for tick in ticks[below:] if tick <= 2 * max(values)]


def _device_name(scaling: Scaling, device: str) -> str:
    """Its name; that of a device whose software is idealised says so, beside others that were fitted to runs."""
    ideal = any(point.cluster.software.name == Software().name for point in scaling.of(device))
    return safe(device.upper()) + (", ideal" if ideal else "")


def _cell(point: ScalingPoint) -> str:
    best = priced_best(point)
    if best is not None:
        cost = point.dollars_per_billion_tokens
        more = units.bytes_(best.bytes) + ("" if cost is None else f", {cost:,.0f} $ a B tokens")
        degrees = [(LABELS[axis], getattr(best.layout, axis)) for axis in _DEGREES]
        layout = "·".join(f"{label}{degree}" for label, degree in degrees if degree > 1)
        return f'✓ {units.seconds(best.seconds)}<br><span style="font-size:10px">{lines(layout, more)}</span>'
    if point.state == "does not fit":
        return f"✕ −{units.bytes_(point.missing_bytes)}"
    return {"waiting": "…", "fits": "✓ …"}.get(point.state, "–")


def _device(figure: Plots, number: int, name: str, shown: tuple[ScalingPoint, ...]) -> None:
    """A device's row in the table of what fits, its tokens a second and its efficiency."""
    known = [(point, best) for point in shown if (best := priced_best(point)) is not None]
    color, symbol = OKABE_ITO[number % len(OKABE_ITO)], _DEVICE_SYMBOLS[number % len(_DEVICE_SYMBOLS)]
    counts, rates = [point.cluster.devices for point, _ in known], [best.tokens_per_second for _, best in known]
    if len(known) > 1:
        perfect = [rates[0] * count / counts[0] for count in counts]
        figure.add(line(counts, perfect, color, 1, "dot", name=f"{name}, perfect", listed=False), row=2)
    looks: Trace = {"mode": "lines+markers", "name": name}
    looks |= {"marker": {"symbol": symbol, "size": 10, "color": color}}
    looks |= {"hover": [_point_hover(point) for point, _ in known], "keys": [_key(point) for point, _ in known]}
    for row, values in ((2, rates), (3, [point.efficiency for point, _ in known])):
        figure.add(line(counts, values, color, listed=False, **looks), row=row)
    colors = [ink if point.best is not None else faint for point in shown]
    about: Trace = {"hover": [_point_hover(point) for point in shown], "keys": [_key(point) for point in shown]}
    about |= {"name": f"{shown[0].device} fits" if shown else "fits", "cliponaxis": False}
    x, texts = [point.cluster.devices for point in shown], [_cell(point) for point in shown]
    figure.add(words(x, [number] * len(shown), texts, color=colors, **about))


def _key(point: ScalingPoint) -> str:
    return change_key("cluster", point.cluster)


def _point_hover(point: ScalingPoint) -> str:
    where = f"<b>{safe(str(point.cluster))}</b>, {point.cluster.devices:,} devices"
    best = priced_best(point)
    if best is None:
        nearest = "" if point.nearest is None else f"the leanest: {safe(point.nearest.words)}"
        return lines(where, safe(report.point_words(point)), nearest)
    efficiency = "" if point.efficiency is None else f", efficiency {units.percent(point.efficiency)}"
    cost = point.dollars_per_billion_tokens
    return lines(
        where,
        safe(best.words),
        f"iteration {units.seconds(best.seconds)}, {best.tokens_per_second:,.0f} tokens/s{efficiency}",
        f"MFU {units.percent(best.mfu)}, fullest device {units.bytes_(best.bytes)}",
        f"software: {safe(point.cluster.software.label)}",
        "" if cost is None else f"{cost:,.0f} dollars for a billion tokens",
        "click: plans here",
    )
