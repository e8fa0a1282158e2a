"""The colour and symbol of each source of measured runs, and what a point says of its run."""

from collections.abc import Callable, Sequence
from typing import Any

from alpa_explore import units
from alpa_explore.accuracy.measured_run import MeasuredRun
from alpa_explore.accuracy.record import Record
from alpa_explore.figures.style import OKABE_ITO, TOOL_PIXELS, faint, lines, safe

_SYMBOLS = ("circle", "diamond", "square", "triangle-up", "cross", "pentagon", "star", "hexagram")
_LIST = 172
"""Pixels of the widest name of a source with its mark."""
NO_RUNS = "No measured runs are stored with this version: the errors of its predictions are not known."
"""The sentence of a figure without runs."""


def beside_legend() -> dict[str, Any]:
    """Layout of a figure with the list of all sources on its right: a narrow page draws it smaller as a whole."""
    legend = {"orientation": "v", "x": 1.02, "y": 1.02, "yanchor": "top", "traceorder": "normal", "maxheight": 430}
    legend |= {"font": {"size": 11}, "bgcolor": "rgba(0,0,0,0)"}  # its ground would cover the last label of the axis
    return {"height": 470, "margin": {"r": _LIST + TOOL_PIXELS}, "legend": legend, "meta": {"least_width": 520}}


def in_two_lines(names: Sequence[tuple[str, str]]) -> Callable[[str], list[str]]:
    """The names of rows, each with a second line in a paler colour."""
    return lambda theme: [f"{name}<br><span style='color:{faint(theme)}'>{more}</span>" for name, more in names]


def signed_percent(fraction: float) -> str:
    """'+6.2 %', '−12 %'."""
    text = f"{100 * fraction:+.1f}" if abs(fraction) < 0.0995 else f"{100 * fraction:+,.0f}"
    return f"{text.replace('-', '−')} %"


def run_text(record: Record, run: MeasuredRun) -> str:
    """The hover text of a run: what ran where, predicted, measured, and its line in the table of its source."""
    samples = "" if run.sequence is None else f"sequence {run.sequence:,}"
    reached = "" if run.mfu is None else f"MFU {units.percent(run.mfu)}"
    parts = (run.sizes, samples, run.precision, recomputed(run), reached)
    details = "; ".join(safe(part) for part in parts if part)
    return lines(
        f"<b>{safe(run.model)} on {run.gpus:,} × {safe(run.device)}</b>",
        safe(run.layout),
        details,
        *measured_lines(run),
        f"{safe(record.label(run.source))} ({safe(run.software)}), line {run.line:,}"
        f"{'' if run.held_out else '; figures were fitted to it'}",
        f"left out: {safe(run.left_out)}" if run.left_out else "",
    )


def measured_lines(run: MeasuredRun) -> list[str]:
    """'predicted 7.5 s, measured 7.98 s: −6.0 %', and the same for memory."""
    found = []
    for what, show, predicted, measured in (
        ("", units.seconds, run.predicted_seconds, run.measured_seconds),
        ("memory ", units.bytes_, run.predicted_bytes, run.measured_bytes),
    ):
        if predicted and measured:
            error = signed_percent(predicted / measured - 1)
            found.append(f"{what}predicted {show(predicted)}, measured {show(measured)}: {error}")
    return found


def recomputed(run: MeasuredRun) -> str:
    """'full recomputation'; '' where the source does not say."""
    return f"recomputation: {run.recompute}" if run.recompute else ""


def source_look(record: Record, source: str) -> tuple[str, str]:
    """Colour and symbol of the points of a source: both differ, so that colour is not the only sign."""
    place = [s.name for s in record.sources].index(source)
    color = OKABE_ITO[place % len(OKABE_ITO)]
    return color, _SYMBOLS[(place + place // len(OKABE_ITO)) % len(_SYMBOLS)]
