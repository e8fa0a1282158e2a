"""The errors of each source of measured runs: how wide they are, and to which side."""

from collections.abc import Sequence
from types import SimpleNamespace

import numpy as np

from alpa_explore import units
from alpa_explore.accuracy.measured_run import MeasuredRun
from alpa_explore.accuracy.record import Record, Source
from alpa_explore.accuracy.scores import Score, errors, score
from alpa_explore.accuracy.tuning import ENOUGH_MFU
from alpa_explore.figures.accuracy.marks import NO_RUNS, in_two_lines, signed_percent, source_look
from alpa_explore.figures.marks import Plots, bars_across, line, outline, points
from alpa_explore.figures.style import TOOL_PIXELS, Drawing, ink, lines, safe, with_theme
from alpa_explore.plans.report.tables import Row, row_of

_ROW, _FRAME = 38, 120
"""Pixels of a row, and of axis and legend."""
_NONE = SimpleNamespace(runs=0, mean=None, median=None, bias=None)
"""The errors where no run has one."""


@with_theme
def sources_figure(record: Record) -> Drawing:
    """A row for each source: the middle 80 % of the errors of its runs as a bar, the mean of them as a mark."""
    rows = [(source, own) for source in record.sources if (own := _shown(record, source))]
    figure, ends = Plots(), list[float]()
    for source, own in rows:
        found = [run.seconds_error for run in own if run.seconds_error is not None]
        low, high = np.quantile(found, (0.1, 0.9)).tolist()
        ends += [low, high]
        color, symbol = source_look(record, source.name)
        hover, name = [_hover(source, score(record.of(source.name)), own)], safe(source.label)
        looks = {"marker": {"color": color, "opacity": 0.55, **outline((color, 1))}, "hover": hover, "listed": False}
        figure.add(bars_across([100 * (high - low)], [name], None, base=[100 * low], width=0.5, **looks))
        mean = [100 * sum(found) / len(found)]
        figure.add(points(mean, [name], color, symbol, 11, edge=(ink, 1), hover=hover, listed=False))
    if rows:
        names = [safe(source.label) for source, _ in rows]
        low, high = min(ends), max(ends)
        room = 0.06 * (high - low) + 0.01
        figure.add(line([0.0] * len(names), names, ink, 1, listed=False))
        title = "predicted / measured − 1: bar, the middle 80 % of the runs; mark, their mean"
        figure.x(title=title, span=(100 * min(low - room, -0.12), 100 * max(high + room, 0.12)), ticksuffix=" %")
        shown = in_two_lines([(name, _error(own)) for name, (_, own) in zip(names, rows, strict=True)])
        figure.y(automargin=True, autorange="reversed", tickvals=names, ticktext=shown)
    layout = {"height": _FRAME + _ROW * max(len(rows), 3), "margin": {"r": TOOL_PIXELS + 12}}
    return figure.figure(sources_sentence(record), barmode="overlay", **layout)


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
        times = "with_times=runs mean_error_fraction=mean median_error_fraction=median bias_fraction=bias"
        rows.append(
            {"source": source.label, **row_of(whole, "runs refused left_out")}
            | row_of(whole.seconds or _NONE, times)
            | row_of(fresh.seconds or _NONE, "not_fitted_runs=runs not_fitted_error_fraction=mean")
            | row_of(enough or _NONE, "with_enough_mfu=runs their_error_fraction=mean")
            | {"if_not_seen_fraction": source.unseen_fraction}
            | row_of(whole, "kendall_tau=tau choices regret_fraction=regret")
            | row_of(whole.bytes_ or _NONE, "memory_runs=runs memory_error_fraction=mean")
            | row_of(whole.fitting, "fits_and_ran fits_but_failed too_large_but_ran too_large_and_failed")
            | row_of(source, "licence from=origin")
        )
    return rows


def _shown(record: Record, source: Source) -> list[MeasuredRun]:
    """The runs of a source that no figure was fitted to; all that have an error where there are none."""
    timed = [run for run in record.of(source.name) if run.seconds_error is not None]
    return [run for run in timed if run.held_out] or timed


def _error(runs: Sequence[MeasuredRun]) -> str:
    """'± 9 %, 312 runs'."""
    found = errors(run.seconds_error for run in runs)
    assert found is not None, "rows have errors"
    return f"± {units.percent(found.mean)}, {found.runs:,} run{'' if found.runs == 1 else 's'}"


def _hover(source: Source, whole: Score, shown: Sequence[MeasuredRun]) -> str:
    own = score(shown)
    assert own.seconds is not None, "rows have errors"
    fresh = "no figure was fitted to" if shown[0].held_out else "all of which figures were fitted to"
    regret, fitting = "", whole.fitting
    if whole.regret is not None:
        regret = f"predicted best of {whole.choices} groups: {units.percent(whole.regret)} slower than the best"
    failed = fitting.fits_but_failed + fitting.too_large_and_failed
    return lines(
        f"<b>{safe(source.label)}</b>",
        f"{own.seconds.runs:,} runs that {fresh}: mean error {units.percent(own.seconds.mean)}, median "
        f"{units.percent(own.seconds.median)}, bias {signed_percent(own.seconds.bias)}",
        "" if own.bytes_ is None else f"memory: {own.bytes_.runs:,} runs, mean error {units.percent(own.bytes_.mean)}",
        "" if whole.tau is None else f"order of layouts: Kendall's tau {whole.tau:.2f}",
        regret,
        f"failed runs said to be too large: {fitting.too_large_and_failed:,} of {failed:,}" if failed else "",
        f"refused: {whole.refused:,}" if whole.refused else "",
        safe(source.origin),
    )
