"""Time of a collective against the bytes of the message: where latency counts, and where bandwidth does.

    t(n) = r (p − 1) · (alpha + n / p · beta)        r = 2 for an all-reduce, 1 for a reduce-scatter or an all-gather

Both parts are equal at n½ = p · alpha / beta: below it t hardly depends on n, above it t is proportional to n.
"""

from collections.abc import Mapping, Sequence

from alpa_explore import units
from alpa_explore.cluster.device import Link
from alpa_explore.cost.collectives import collective_seconds
from alpa_explore.figures.course.interactive import InteractiveFigure, of_states, steady
from alpa_explore.figures.marks import axis, line, points
from alpa_explore.figures.style import OKABE_ITO, Drawing, Trace
from alpa_explore.sharding.reshard import StepKind

_SIZES = tuple(2.0**power for power in range(10, 35))
"""1 KiB to 16 GiB."""
_LOOKS = ((OKABE_ITO[0], "solid"), (OKABE_ITO[5], "dash"), (OKABE_ITO[2], "dot"))


def half_bytes(devices: int, link: Link) -> float:
    """n½: the bytes at which latency and bandwidth take equally long, on a ring of `devices`."""
    return devices * link.latency_seconds * link.bandwidth


def message_sizes_figure(
    links: Mapping[str, Link], devices: Sequence[int], kind: StepKind = StepKind.ALL_REDUCE
) -> InteractiveFigure:
    """Above, seconds over bytes for each link (both logarithmic), a circle at n½; below, the share of the link's
    bandwidth that is reached. A slider changes p."""
    states = {str(p): _state(links, p, kind) for p in devices}
    return of_states(f"Time of an {kind.value} against the bytes of the tensor", "Devices p", states)


def _state(links: Mapping[str, Link], p: int, kind: StepKind) -> Drawing:
    traces: list[Trace] = []
    words = []
    sizes, written = list(_SIZES), [units.bytes_(n) for n in _SIZES]
    for (name, link), (color, dash) in zip(links.items(), _LOOKS, strict=False):
        seconds = [collective_seconds(kind, n, p, link.bandwidth, link.latency_seconds) for n in _SIZES]
        moving = [collective_seconds(kind, n, p, link.bandwidth, 0.0) for n in _SIZES]
        waiting = collective_seconds(kind, 0.0, p, link.bandwidth, link.latency_seconds)
        half = units.bytes_(half_bytes(p, link))
        words.append(f"{half} {name}")
        hover = [
            f"{name} {n}: {units.seconds(t)} = {units.seconds(waiting)} waiting + {units.seconds(m)}"
            for n, t, m in zip(written, seconds, moving, strict=True)
        ]
        shares = [m / t for m, t in zip(moving, seconds, strict=True)]
        reached = [f"{name}, {n}: {units.percent(s)}" for n, s in zip(written, shares, strict=True)]
        group, alone = {"legendgroup": name}, {"legendgroup": name, "listed": False}
        both = [f"n½ {half} {name}: latency and bytes take {units.seconds(waiting)} each"]
        circle = {"hover": both, "edge": (None, 2), **alone}
        traces += [
            line(sizes, seconds, color, 2.5, dash, name=name, hover=hover, **group),
            line(sizes, [waiting] * len(sizes), color, 1, "dot", name="latency alone", **alone),
            line(sizes, moving, color, 1, "dot", name="bytes alone", **alone),
            points([half_bytes(p, link)], [2 * waiting], color, "circle-open", 13, **circle),
            line(sizes, shares, color, 2.5, dash, name=name, hover=reached, yaxis="y2", **alone),
        ]
    reach = f"half of the bandwidth is reached at {' and '.join(words)}."
    sentence = f"{kind.value.capitalize()} among {p} devices: {reach}"
    ticks = {2.0**k: units.bytes_(2.0**k) for k in range(10, 35, 4)}
    times = {10.0**k: units.seconds(10.0**k) for k in range(-6, 3)}
    return steady(
        traces,
        sentence,
        height=530,
        xaxis=axis("bytes of the tensor on one device", ticks=ticks, type="log", anchor="y2"),
        yaxis=axis("time", (-5.6, 1.6), ticks=times, type="log", domain=[0.42, 1.0]),
        yaxis2=axis("of the bandwidth", (-0.08, 1.05), domain=[0.0, 0.32], tickformat=".0%"),
    )
