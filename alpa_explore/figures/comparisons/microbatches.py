"""T, throughput and memory of the fullest device over the number of microbatches B."""

from collections.abc import Sequence
from math import log10

from alpa_explore import units
from alpa_explore.figures import tuning
from alpa_explore.figures.keys import change_key
from alpa_explore.figures.marks import (
    MEMORY_PARTS,
    Plots,
    bars,
    labels,
    legend_below,
    limit_line,
    limit_note,
    line,
    outline,
    points,
    sums,
)
from alpa_explore.figures.style import OKABE_ITO, Drawing, Trace, ink, lines, with_theme
from alpa_explore.planner.microbatches import microbatches_of, same_global_batch
from alpa_explore.plans.plan import Plan
from alpa_explore.plans.records import TriedMicrobatches
from alpa_explore.plans.report.text import fullest
from alpa_explore.questions.microbatches import microbatches_sentence, microbatches_table

__all__ = ["microbatches_figure", "microbatches_sentence", "microbatches_table"]

_PANELS, _GAP = (100, 100, 140), 16
"""Pixels of the panels, and between them."""
_NOTED, _NEAR = 3, 0.8
"""Values of B beside which the memory of a device is written, and the share of it from which their marks are in the
way."""


@with_theme
def microbatches_figure(plan: Plan, rows: Sequence[TriedMicrobatches] | None = None) -> Drawing:
    """Three panels over the B that were tried (`rows`, by default `microbatches_of(plan)`), with their values: T,
    samples a second, and the fullest device with its capacity as a line.

    A star marks the B of the plan. A cross marks a B at which nothing fits, at the memory that the closest plan needs.
    A triangle is a lower bound on T, at a B that was not planned because another one is faster. With microbatches of
    one size T grows with B, so its axis is logarithmic.
    """
    tried = rows or microbatches_of(plan)
    names, texts = [f"{t.num_microbatches:,}" for t in tried], [_hover(t, plan) for t in tried]
    about: Trace = {"hover": texts, "keys": [_opens(t, plan) for t in tried]}
    height = sum(_PANELS) + 2 * _GAP
    figure = Plots(_PANELS, spacing=(0.0, _GAP / height), shared_x=True)
    fitting = [t.iteration_seconds for t in tried if t.iteration_seconds is not None]
    scale, second = units.seconds_axis(max(fitting, default=1.0))
    times = [None if t.iteration_seconds is None else t.iteration_seconds / scale for t in tried]
    rates = [None if t.iteration_seconds is None else t.samples_per_second for t in tried]
    chosen = [t.num_microbatches == plan.options.num_microbatches for t in tried]
    marker = {
        "symbol": ["star" if own else "circle" for own in chosen],
        "size": [17 if own else 7 for own in chosen],
        "color": [OKABE_ITO[0] if own else ink for own in chosen],
        "opacity": 1,
        **outline((ink, 1)),
    }
    for row, (name, values) in enumerate((("T", times), ("samples a second", rates)), start=1):
        written = labels(["" if value is None else units.number(value, 3) for value in values], size=11)
        looks = {"mode": "lines+markers+text", "marker": marker, "cliponaxis": False, **written}
        figure.add(line(names, values, ink, name=name, listed=False, **about, **looks), row=row)
    least = [t.least_seconds / scale if t.least_seconds is not None else None for t in tried]
    looks = {"name": "T is at least", "hover": texts, "listed": any(least)}
    figure.add(points(names, least, ink, "triangle-up-open", 9, **looks), row=1)
    one_size = not same_global_batch(tried)
    logarithmic = one_size and len(fitting) > 1
    _axis(figure, 1, f"T ({second}{', log' if logarithmic else ''})", [*times, *least], logarithmic=logarithmic)
    _axis(figure, 2, "samples/s", rates, logarithmic=False)
    _memory(figure, plan, tried, names, about)
    each = f"{plan.model.samples:,} sample{'' if plan.model.samples == 1 else 's'} in each"
    sizes = each if one_size else f"{plan.global_batch:,} samples in all"
    figure.x(type="category", categoryorder="array", categoryarray=names)
    figure.x(3, title=f"B, the number of microbatches ({sizes})")
    gap = max(0.3, 1.0 - len(names) / 10)  # no bar is wider than a tenth of the panel
    layout = {"barmode": "stack", "bargap": gap, "legend": legend_below(48, height), "around": {"b": 84}}
    layout["meta"] = {"least_width": tuning.LABELLED_PIXELS}
    return figure.figure(microbatches_sentence(plan, tried), height=height, **layout)


def _axis(figure: Plots, row: int, title: str, values: Sequence[float | None], *, logarithmic: bool) -> None:
    """From 0, or logarithmic, with room for the values above the marks."""
    known = [value for value in values if value is not None] or [1.0]
    if not logarithmic:
        figure.y(row, title=title, span=(0, 1.3 * max(known)))
        return
    low, high = log10(min(known)), log10(max(known))
    room = 0.3 * (high - low) + 0.1
    figure.y(row, title=title, span=(low - 0.5 * room, high + room), type="log", dtick=1)


def _memory(figure: Plots, plan: Plan, tried: Sequence[TriedMicrobatches], names: list[str], about: Trace) -> None:
    capacity = plan.device_of(fullest(plan)).memory_bytes
    rooms = [t.memory_bytes or capacity for t in tried]
    needed = [t.peak_bytes if t.over_bytes is None else capacity + t.over_bytes for t in tried]
    most = max([*rooms, *(n for n in needed if n is not None)])
    scale, byte = units.bytes_axis(most)
    for (name, color, shape, _), of in zip(MEMORY_PARTS, zip(*map(_sizes, tried), strict=True), strict=True):
        sizes = [None if size is None else size / scale for size in of]
        figure.add(bars(names, sizes, color, shape, name=name, **about), row=3)
    found = zip(names, tried, about["hover"], strict=True)
    over = [(n, (capacity + t.over_bytes) / scale, text) for n, t, text in found if t.over_bytes]
    x, y, hover = ([entry[place] for entry in over] for place in range(3))
    looks = {"name": "nothing fits; the closest needs", "hover": hover, "listed": bool(over)}
    shape = "hvh" if len(set(rooms)) > 1 else ""  # a step between devices of unlike nodes
    peaks = [None if t.peak_bytes is None else t.peak_bytes / scale for t in tried]
    figure.add(
        points(x, y, OKABE_ITO[5], "x", 11, **looks),
        limit_line(names, [room / scale for room in rooms], width=1, shape=shape),
        sums(names, peaks, ["" if peak is None else units.number(peak, 3) for peak in peaks], above=True),
        row=3,
    )
    # At the end of the line that no mark comes near, else above all of them.
    reach = [need is not None and need > _NEAR * room for need, room in zip(needed, rooms, strict=True)]
    right = any(reach[:_NOTED]) and not any(reach[-_NOTED:])
    raised = any(reach[-_NOTED:] if right else reach[:_NOTED])
    memory = " or ".join(units.bytes_(room) for room in dict.fromkeys(rooms))
    place = {"xanchor": "right" if right else "left", "yanchor": "bottom", "yshift": 13 if raised else 0}
    at = most if raised else rooms[-1 if right else 0]
    figure.note(limit_note(memory, float(right), at / scale, ("x3 domain", "y3"), **place))
    figure.y(3, title=f"fullest device<br>({byte})", span=(0, (1.34 if raised else 1.22) * most / scale))


def _opens(tried: TriedMicrobatches, plan: Plan) -> str:
    """The key of the plan at this B; '' where there is none, and of the plan itself."""
    if tried.iteration_seconds is None or tried.num_microbatches == plan.options.num_microbatches:
        return ""
    return change_key("microbatches", f"{tried.num_microbatches}x{tried.samples}")


def _hover(tried: TriedMicrobatches, plan: Plan) -> str:
    head = f"<b>B = {tried.num_microbatches:,}</b> microbatches of {units.samples(tried.samples)}"
    if tried.least_seconds is not None:
        return lines(head, f"not planned: T is at least {units.seconds(tried.least_seconds)}, and another B is faster")
    if tried.iteration_seconds is None or tried.peak_bytes is None:
        over = "" if tried.over_bytes is None else f": the closest is {units.bytes_(tried.over_bytes)} over"
        return lines(head, f"no plan fits in memory{over}")
    unlike = tried.memory_bytes is not None and len({kind.device.memory_bytes for kind in plan.cluster.kinds}) > 1
    room = f" of {units.bytes_(tried.memory_bytes or 0.0)}" if unlike else ""
    return lines(
        head,
        f"T {units.seconds(tried.iteration_seconds)}, {units.number(tried.samples_per_second, 4)} samples/s",
        f"{tried.stages} stages; on a device of stage {tried.fullest_stage}: {units.bytes_(tried.peak_bytes)}{room}",
        *(f"{name} {units.bytes_(size or 0.0)}" for (name, *_), size in zip(MEMORY_PARTS, _sizes(tried), strict=True)),
        f"click: opens the plan with B = {tried.num_microbatches:,}" if _opens(tried, plan) else "this plan",
    )


def _sizes(tried: TriedMicrobatches) -> tuple[float | None, ...]:
    """Of MEMORY_PARTS."""
    return tried.weight_bytes, tried.held_bytes, tried.workspace_bytes
