"""Predicted against measured: every run a point, the diagonal, and the bands of ±10 % and ±25 %."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

from alpa_explore import units
from alpa_explore.accuracy.error_band import Quantity
from alpa_explore.accuracy.measured_run import MeasuredRun
from alpa_explore.accuracy.record import Record
from alpa_explore.accuracy.scores import errors
from alpa_explore.figures.accuracy.marks import NO_RUNS, beside_legend, run_text, source_look
from alpa_explore.figures.marks import Plots, line, points
from alpa_explore.figures.style import Drawing, Trace, ink, safe, with_theme
from alpa_explore.plans.report.tables import Row, row_of

_BANDS = ((0.25, 0.10), (0.10, 0.22))
"""(half width, opacity) of the bands around the diagonal."""
_LEFT = 86
"""Pixels of the labels on the left with the title of their axis."""
_MARGIN = 1.25
"""The axes end at this multiple of the largest value, and begin at this fraction of the least."""


@with_theme
def predictions_figure(record: Record, *, quantity: Quantity = "seconds") -> Drawing:
    """A point for each run with a prediction and a measurement, a trace for each source; both axes logarithmic.

    Runs that count in no score, as those with a fault of the measurement, are hollow.
    """
    drawn = [(run, *pair) for run in record.runs if (pair := _pair(run, quantity)) is not None]
    figure = Plots()
    if drawn:
        low = min(min(p, m) for _, p, m in drawn) / _MARGIN
        high = max(max(p, m) for _, p, m in drawn) * _MARGIN
        figure.add(*_diagonals(low, high))
        for source in record.sources:
            own = [entry for entry in drawn if entry[0].source == source.name]
            if own:
                figure.add(_points(record, source.name, source.label, own))
        figure.x(**_axis("measured", quantity, low, high))
        figure.y(**_axis("predicted", quantity, low, high))
    title = predictions_sentence(record, quantity=quantity)
    looks = beside_legend()
    return figure.figure(title, **looks | {"margin": looks["margin"] | {"l": _LEFT}})


def predictions_sentence(record: Record, *, quantity: Quantity = "seconds") -> str:
    """What the figure shows."""
    what = "Iteration times" if quantity == "seconds" else "Memory"
    fresh = errors(_error(run, quantity) for run in record.runs if run.held_out)
    fitted = errors(_error(run, quantity) for run in record.runs if not run.held_out)
    if fresh is None and fitted is None:
        return NO_RUNS if not record.runs else f"{what}: no run has both a prediction and a measurement."
    apart, within, parts = [_error(run, quantity) for run in record.runs if run.held_out], "", []
    if fresh is not None:
        near = sum(e is not None and abs(e) <= 0.10 for e in apart)
        within = f", {units.percent(near / fresh.runs)} of them within 10 %"
    for found, phrase, more in ((fresh, "no figure was fitted to", within), (fitted, "figures were fitted to", "")):
        if found is not None:
            parts.append(f"{found.runs:,} runs that {phrase}, mean error {units.percent(found.mean)}{more}")
    return f"{what}, predicted against measured: {'; '.join(parts)}."


def predictions_table(record: Record) -> list[Row]:
    """One row per run, as the record has them."""
    return [
        {"source": record.label(run.source)}
        | row_of(run, "line model gpus device software layout predicted_seconds measured_seconds")
        | {"error_fraction": _apart(run, "seconds"), **row_of(run, "predicted_bytes measured_bytes")}
        | {"memory_error_fraction": _apart(run, "bytes"), **row_of(run, "fits status held_out")}
        | {"not_counted_because": run.refused or run.left_out}
        for run in record.runs
    ]


def _apart(run: MeasuredRun, quantity: Quantity) -> float | None:
    """The error of any run, also of one that counts in no score."""
    pair = _pair(run, quantity)
    return None if pair is None else pair[0] / pair[1] - 1


def _pair(run: MeasuredRun, quantity: Quantity) -> tuple[float, float] | None:
    """(predicted, measured)."""
    predicted, measured = getattr(run, f"predicted_{quantity}"), getattr(run, f"measured_{quantity}")
    return (predicted, measured) if predicted and measured else None


def _error(run: MeasuredRun, quantity: Quantity) -> float | None:
    return run.seconds_error if quantity == "seconds" else run.bytes_error


def _diagonals(low: float, high: float) -> Iterator[Trace]:
    """The bands, the wider one first, then the line on which predictions are right."""
    ends = [low, high]
    for width, opacity in _BANDS:
        # +25 % is 1.25 times the measured value, −25 % is 0.75 times.
        under, over = ([end * (1 + side * width) for end in ends] for side in (-1, 1))
        edge = {"line": {"width": 0}}
        yield line(ends, under, "", listed=False, **edge)
        band = {"fill": "tonexty", "fillcolor": f"rgba(128,140,152,{opacity})"}
        yield line(ends, over, "", name=f"within {100 * width:.0f} %", listed=False, **band, **edge)
    yield line(ends, ends, ink, 1, name=f"exact, {', '.join(f'± {100 * width:.0f} %' for width, _ in _BANDS[::-1])}")


def _points(record: Record, source: str, label: str, own: Sequence[tuple[MeasuredRun, float, float]]) -> Trace:
    color, symbol = source_look(record, source)
    symbols = [symbol + ("" if run.timed else "-open") for run, _, _ in own]
    # Four digits: more than can be seen, and a smaller page.
    y, x = ([float(f"{entry[place]:.4g}") for entry in own] for place in (1, 2))
    trace = points(x, y, color, symbols, 6, name=safe(label), hover=[run_text(record, run) for run, _, _ in own])
    return trace | {"marker": trace["marker"] | {"opacity": 0.75}}


def _axis(which: str, quantity: Quantity, low: float, high: float) -> dict[str, Any]:
    """A logarithmic axis with ticks in readable units."""
    time = quantity == "seconds"
    what, show, base = ("iteration time", units.seconds, 1.0) if time else ("memory of a device", units.bytes_, 2.0**30)
    decades = range(math.floor(math.log10(low / base)), math.ceil(math.log10(high / base)) + 1)
    digits = (1,) if len(decades) > 3 else (1, 2, 5)
    ticks = [digit * 10.0**decade * base for decade in decades for digit in digits]
    ticks_shown = {tick: show(tick) for tick in ticks if low <= tick <= high}
    span = (math.log10(low), math.log10(high))
    # The margin has room for the longest label: where plotly is to find it, it lays the figure out again.
    return {"title": f"{which} {what}", "span": span, "ticks": ticks_shown, "type": "log", "automargin": False}
