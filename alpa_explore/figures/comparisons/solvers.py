"""Formulations of one sharding problem side by side: the seconds of each, and its gap above the optimum."""

import math

from alpa_explore import units
from alpa_explore.figures.marks import Plots, bars_across, legend_below, words
from alpa_explore.figures.style import OKABE_ITO, Drawing, faint, lines, with_theme
from alpa_explore.formulations.comparison import Comparison, SolverRow, solvers_table

__all__ = ["solvers_figure", "solvers_sentence", "solvers_table"]

_PASSES = (("build", "build_seconds"), ("solve", "solve_seconds"), ("repair", "repair_seconds"))


@with_theme
def solvers_figure(comparison: Comparison) -> Drawing:
    """A row for each formulation, the fastest at the top: its seconds (logarithmic), beside them its gap in percent.

    The gap is a hatched bar for the own answer of a formulation (none where that is infeasible), and a plain one for
    what remains after the joint repair under the exact costs; 'optimal' where nothing remains of either.
    """
    rows = sorted(comparison.rows, key=lambda row: -row.total_seconds)
    names, totals = [row.solver for row in rows], [row.total_seconds for row in rows]
    titles = ("seconds (log)", "above the optimum, %")
    figure = Plots(column_widths=(3, 2), spacing=(0.03, 0.0), titles=titles, shared_y=True)
    outside = {"textposition": "outside", "cliponaxis": False}
    looks = {"text": [units.seconds(t) for t in totals], "hover": [_seconds_text(row) for row in rows], **outside}
    figure.add(bars_across(totals, names, OKABE_ITO[0], name="total seconds", listed=False, **looks))
    span = (math.log10(min(totals, default=0.1)) - 0.4, math.log10(max(totals, default=1.0)) + 0.3)
    figure.x(1, 1, span=span, type="log", ticks={10.0**p: units.seconds(10.0**p) for p in range(-4, 5)})
    before, after = ([of(row) for row in rows] for of in (comparison.gap_before, comparison.gap))
    hover = [_gap_text(row) for row in rows]
    for name, gaps, color, shape in (
        ("before the repair", before, OKABE_ITO[1], "/"),
        ("after the repair", after, OKABE_ITO[2], ""),
    ):
        text = ["" if not g else units.percent(g) for g in gaps]
        lengths = [None if g is None else 100 * g for g in gaps]
        figure.add(bars_across(lengths, names, color, shape, name=name, hover=hover, text=text, **outside), col=2)
    verdicts = [_verdict(row, own, rest) for row, own, rest in zip(rows, before, after, strict=True)]
    figure.add(words([0] * len(rows), names, verdicts, "middle right", 12, faint, name="verdicts"), col=2)
    highest = 100 * max((g for g in (*before, *after) if g is not None), default=0.0)
    figure.x(1, 2, span=(0, max(1.0, 1.25 * highest)))
    layout = {
        "barmode": "group",
        "bargap": 0.4,
        "legend": legend_below(36, 60 * len(rows)),
        "around": {"l": 100, "b": 84},
    }
    sentence = solvers_sentence(comparison)
    return figure.figure(sentence, height=60 * max(len(rows), 2), **layout)


def _verdict(row: SolverRow, before: float | None, after: float | None) -> str:
    """What stands in place of bars: that there is nothing above the optimum, or no answer of its own."""
    if before is None:
        reason = f"{row.impossible_nodes} impossible placements" if row.impossible_nodes else "a forbidden pair"
        return f" own answer infeasible: {reason}"
    return "" if before or after else " optimal"


def solvers_sentence(comparison: Comparison) -> str:
    """What the figure shows for this comparison."""
    rows = comparison.rows
    if not rows:
        return f"No formulation was run on logical mesh {comparison.mesh}."
    fastest = min(rows, key=lambda r: r.total_seconds)
    worst = max(rows, key=comparison.gap)
    outcome = f"{worst.solver} ends {units.percent(comparison.gap(worst))} above the optimum"
    if comparison.gap(worst) < 5e-5:
        outcome = "all reach the optimum"
    time = units.seconds(fastest.total_seconds)
    return f"On logical mesh {comparison.mesh} {fastest.solver} is fastest ({time}); {outcome}."


def _seconds_text(row: SolverRow) -> str:
    passes = [f"{name} {units.seconds(getattr(row, key))}" for name, key in _PASSES if getattr(row, key) > 0]
    size = f"{row.variables:,} variables, {row.constraints:,} constraints"
    return lines(f"<b>{row.solver}</b>", ", ".join(passes), size)


def _gap_text(row: SolverRow) -> str:
    before = row.objective_before_seconds
    return lines(
        f"<b>{row.solver}</b>",
        f"objective {units.seconds(row.objective_seconds)}",
        f"{units.seconds(before)} before the repair"
        if before is not None
        else f"its own answer is infeasible at {row.impossible_nodes} nodes",
        f"{row.differing_nodes} nodes differ from the optimal choice",
        f"{units.percent(row.batch_share_before)} of the operators shard the batch on every axis before the repair, "
        f"{units.percent(row.batch_share)} after it",
    )
