"""The errors of each source of measured runs: how wide they are, and to which side."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from alpa_explore import units
from alpa_explore.accuracy.measured_run import MeasuredRun
from alpa_explore.accuracy.record import Record, Source
from alpa_explore.accuracy.scores import Score, errors, score
from alpa_explore.accuracy.tuning import ENOUGH_MFU
from alpa_explore.figures.accuracy.marks import NO_RUNS, signed_percent, source_marker
from alpa_explore.figures.style import HOVER_TEXT, TOOL_PIXELS, dress, faint, ink, lines, safe
from alpa_explore.plans.report.tables import Row

__all__ = ["sources_figure", "sources_sentence", "sources_table"]

_ROW, _FRAME = 38, 120
"""Pixels of a row, and of axis and legend."""


def sources_figure(record: Record, theme: str = "light") -> go.Figure:
    """A row for each source: the middle 80 % of the errors of its runs as a bar, the mean of them as a mark."""
    rows = [(source, _shown(record, source)) for source in record.sources]
    rows = [(source, own) for source, own in rows if own]
    figure = go.Figure()
    for source, own in rows:
        found = sorted(run.seconds_error for run in own if run.seconds_error is not None)
        low, high = _quantile(found, 0.1), _quantile(found, 0.9)
        mark = source_marker(record, source.name)
        shown = score(record.of(source.name))
        hover = _hover(source, shown, own)
        name = safe(source.label)
        figure.add_trace(
            go.Bar(
                y=[name],
                x=[100 * (high - low)],
                base=[100 * low],
                orientation="h",
                width=0.5,
                marker={"color": mark["color"], "opacity": 0.55, "line": {"width": 1, "color": mark["color"]}},
                hovertext=[hover],
                hovertemplate=HOVER_TEXT,
                showlegend=False,
            )
        )
        figure.add_trace(
            go.Scatter(
                y=[name],
                x=[100 * sum(found) / len(found)],
                mode="markers",
                marker={**mark, "size": 11, "line": {"width": 1, "color": ink(theme)}},
                hovertext=[hover],
                hovertemplate=HOVER_TEXT,
                showlegend=False,
            )
        )
    height = _FRAME + _ROW * max(len(rows), 3)
    if rows:
        ends = [_ends(own) for _, own in rows]
        low, high = min(e[0] for e in ends), max(e[1] for e in ends)
        room = 0.06 * (high - low) + 0.01
        low, high = min(low - room, -0.12), max(high + room, 0.12)
        figure.add_trace(_zero([safe(source.label) for source, _ in rows], theme))
        figure.update_xaxes(
            title="predicted / measured − 1: bar, the middle 80 % of the runs; mark, their mean",
            range=[100 * low, 100 * high],
            ticksuffix=" %",
        )
        figure.update_yaxes(
            automargin=True,
            autorange="reversed",
            tickvals=[safe(source.label) for source, _ in rows],
            ticktext=[_label(source, own, theme) for source, own in rows],
        )
    return dress(
        figure, sources_sentence(record), theme=theme, height=height, barmode="overlay", margin={"r": TOOL_PIXELS + 12}
    )


def sources_sentence(record: Record) -> str:
    """What the figure shows."""
    rows = [(source, score(own)) for source in record.sources if (own := _shown(record, source))]
    known = [(s.seconds.mean, source.label, s.seconds.runs) for source, s in rows if s.seconds is not None]
    if not known:
        return NO_RUNS
    best, worst = min(known), max(known)
    return (
        f"{len(known)} sources of measured runs: the mean error of the iteration time is between "
        f"{units.percent(best[0])} ({best[1]}, {best[2]:,} runs) and {units.percent(worst[0])} ({worst[1]}, "
        f"{worst[2]:,} runs)."
    )


def sources_table(record: Record) -> list[Row]:
    """One row per source: errors of time and memory, order of layouts, regret, and what was said to fit."""
    rows = []
    for source in record.sources:
        runs = record.of(source.name)
        whole, fresh = score(runs), score([run for run in runs if run.held_out])
        enough = errors(run.seconds_error for run in runs if (run.mfu or 0.0) >= ENOUGH_MFU)
        fitting = whole.fitting
        rows.append(
            {
                "source": source.label,
                "runs": whole.runs,
                "refused": whole.refused,
                "left_out": whole.left_out,
                "with_times": 0 if whole.seconds is None else whole.seconds.runs,
                "mean_error_fraction": None if whole.seconds is None else whole.seconds.mean,
                "median_error_fraction": None if whole.seconds is None else whole.seconds.median,
                "bias_fraction": None if whole.seconds is None else whole.seconds.bias,
                "not_fitted_runs": 0 if fresh.seconds is None else fresh.seconds.runs,
                "not_fitted_error_fraction": None if fresh.seconds is None else fresh.seconds.mean,
                "with_enough_mfu": 0 if enough is None else enough.runs,
                "their_error_fraction": None if enough is None else enough.mean,
                "if_not_seen_fraction": source.unseen_fraction,
                "kendall_tau": whole.tau,
                "choices": whole.choices,
                "regret_fraction": whole.regret,
                "memory_runs": 0 if whole.bytes_ is None else whole.bytes_.runs,
                "memory_error_fraction": None if whole.bytes_ is None else whole.bytes_.mean,
                "fits_and_ran": fitting.fits_and_ran,
                "fits_but_failed": fitting.fits_but_failed,
                "too_large_but_ran": fitting.too_large_but_ran,
                "too_large_and_failed": fitting.too_large_and_failed,
                "licence": source.licence,
                "from": source.origin,
            }
        )
    return rows


def _shown(record: Record, source: Source) -> list[MeasuredRun]:
    """The runs of a source that no figure was fitted to; all that have an error where there are none."""
    timed = [run for run in record.of(source.name) if run.seconds_error is not None]
    return [run for run in timed if run.held_out] or timed


def _label(source: Source, runs: Sequence[MeasuredRun], theme: str) -> str:
    """The source, and below it '± 9 %, 312 runs'."""
    found = errors(run.seconds_error for run in runs)
    assert found is not None, "rows have errors"
    counted = f"{found.runs:,} run{'' if found.runs == 1 else 's'}"
    colour = f"color:{faint(theme)}"
    return f"{safe(source.label)}<br><span style='{colour}'>± {units.percent(found.mean)}, {counted}</span>"


def _ends(runs: Sequence[MeasuredRun]) -> tuple[float, float]:
    found = sorted(run.seconds_error for run in runs if run.seconds_error is not None)
    return _quantile(found, 0.1), _quantile(found, 0.9)


def _quantile(ordered: Sequence[float], share: float) -> float:
    """Between the two nearest values."""
    place = share * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])


def _zero(names: Sequence[str], theme: str) -> go.Scatter:
    """The line of no error."""
    return go.Scatter(
        x=[0.0] * len(names),
        y=list(names),
        mode="lines",
        line={"color": ink(theme), "width": 1},
        hoverinfo="skip",
        showlegend=False,
    )


def _hover(source: Source, whole: Score, shown: Sequence[MeasuredRun]) -> str:
    own = score(shown)
    assert own.seconds is not None, "rows have errors"
    fresh = "no figure was fitted to" if shown[0].held_out else "all of which figures were fitted to"
    fitting = whole.fitting
    failed = fitting.fits_but_failed + fitting.too_large_and_failed
    return lines(
        f"<b>{safe(source.label)}</b>",
        f"{own.seconds.runs:,} runs that {fresh}: mean error {units.percent(own.seconds.mean)}, median "
        f"{units.percent(own.seconds.median)}, bias {signed_percent(own.seconds.bias)}",
        "" if own.bytes_ is None else f"memory: {own.bytes_.runs:,} runs, mean error {units.percent(own.bytes_.mean)}",
        "" if whole.tau is None else f"order of layouts: Kendall's tau {whole.tau:.2f}",
        ""
        if whole.regret is None
        else f"predicted best of {whole.choices} groups: {units.percent(whole.regret)} slower than the best",
        f"failed runs said to be too large: {fitting.too_large_and_failed:,} of {failed:,}" if failed else "",
        f"refused: {whole.refused:,}" if whole.refused else "",
        safe(source.origin),
    )
