"""The best uniform layout over the number of devices: tokens a second, efficiency, and where the model fits."""

import math
from collections.abc import Sequence

from alpa_explore import units
from alpa_explore.figures.keys import change_key
from alpa_explore.figures.marks import Plots, line, words
from alpa_explore.figures.style import OKABE_ITO, Drawing, Trace, faint, ink, lines, safe, with_theme
from alpa_explore.uniform_layouts.report import point_words, priced_best, scaling_sentence, scaling_table
from alpa_explore.uniform_layouts.scaling import Scaling, ScalingPoint

scaling_curve_table, scaling_curve_sentence = scaling_table, scaling_sentence
_SYMBOLS = ("circle", "square", "diamond", "triangle-up", "triangle-down", "pentagon", "hexagon", "star")
_PANELS, _GAP = (190, 110, 40), 40
"""Pixels of tokens a second, of the efficiency, and of a row of the table of what fits; between panels."""

_MARGIN = 0.12
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
        _device(figure, number, safe(device.upper()), scaling.of(device))
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
    names = {number: safe(device.upper()) for number, device in enumerate(scaling.devices)}
    figure.y(1, ticks=names, span=(rows - 0.5, -0.5), bare=True)
    return figure.figure(scaling_curve_sentence(scaling), height=height, around={"l": 96, "b": 56})


def log_ticks(values: Sequence[float]) -> list[float]:
    """1, 2 and 5 times powers of ten, from below the least value to above the largest."""
    if not values:
        return []
    exponents = range(math.floor(math.log10(min(values))), math.ceil(math.log10(max(values))) + 1)
    ticks = [step * 10.0**exponent for exponent in exponents for step in (1, 2, 5)]
    below = max((i for i, tick in enumerate(ticks) if tick <= min(values)), default=0)
    return [tick for tick in ticks[below:] if tick <= 2 * max(values)]


def _cell(point: ScalingPoint) -> str:
    best = priced_best(point)
    if best is not None:
        cost = point.dollars_per_billion_tokens
        return f"✓ {units.seconds(best.seconds)}" + ("" if cost is None else f"<br>{cost:,.0f} $ a B tokens")
    if point.state == "does not fit":
        return f"✕ −{units.bytes_(point.missing_bytes)}"
    return {"waiting": "…", "fits": "✓ …"}.get(point.state, "–")


def _device(figure: Plots, number: int, name: str, shown: tuple[ScalingPoint, ...]) -> None:
    """A device's row in the table of what fits, its tokens a second and its efficiency."""
    known = [(point, best) for point in shown if (best := priced_best(point)) is not None]
    color, symbol = OKABE_ITO[number % len(OKABE_ITO)], _SYMBOLS[number % len(_SYMBOLS)]
    counts, rates = [point.cluster.devices for point, _ in known], [best.tokens_per_second for _, best in known]
    if len(known) > 1:
        perfect = [rates[0] * count / counts[0] for count in counts]
        figure.add(line(counts, perfect, color, 1, "dot", name=f"{name}, perfect", listed=False), row=2)
    looks: Trace = {"mode": "lines+markers", "name": name, "legendgroup": name}
    looks |= {"marker": {"symbol": symbol, "size": 10, "color": color}}
    looks |= {"hover": [_hover(point) for point, _ in known], "keys": [_key(point) for point, _ in known]}
    for row, values in ((2, rates), (3, [point.efficiency for point, _ in known])):
        figure.add(line(counts, values, color, listed=row == 2, **looks), row=row)
    colors = [ink if point.best is not None else faint for point in shown]
    about: Trace = {"hover": [_hover(point) for point in shown], "keys": [_key(point) for point in shown]}
    about |= {"name": f"{shown[0].device} fits" if shown else "fits", "cliponaxis": False}
    x, texts = [point.cluster.devices for point in shown], [_cell(point) for point in shown]
    figure.add(words(x, [number] * len(shown), texts, color=colors, **about))


def _key(point: ScalingPoint) -> str:
    return change_key("cluster", point.cluster)


def _hover(point: ScalingPoint) -> str:
    where = f"<b>{safe(str(point.cluster))}</b>, {point.cluster.devices:,} devices"
    best = priced_best(point)
    if best is None:
        nearest = "" if point.nearest is None else f"the leanest: {safe(point.nearest.words)}"
        return lines(where, safe(point_words(point)), nearest)
    efficiency = "" if point.efficiency is None else f", efficiency {units.percent(point.efficiency)}"
    cost = point.dollars_per_billion_tokens
    return lines(
        where,
        safe(best.words),
        f"iteration {units.seconds(best.seconds)}, {best.tokens_per_second:,.0f} tokens/s{efficiency}",
        f"MFU {units.percent(best.mfu)}, fullest device {units.bytes_(best.bytes)}",
        "" if cost is None else f"{cost:,.0f} dollars for a billion tokens",
        "click: plans here",
    )
