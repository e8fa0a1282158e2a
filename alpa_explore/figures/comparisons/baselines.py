"""The automatic plan beside the baselines: the time of an iteration, and the memory of the fullest device."""

from collections.abc import Sequence

from alpa_explore import units
from alpa_explore.figures.marks import Plots, bars_across, legend_below, note
from alpa_explore.figures.style import OKABE_ITO, Drawing, ink, lines, safe, with_theme
from alpa_explore.plans.phrases import submesh_phrase
from alpa_explore.plans.plan import Plan
from alpa_explore.plans.report.error_bands import bytes_with_band
from alpa_explore.plans.report.iteration import iteration_sum
from alpa_explore.plans.report.tables import comparison_table
from alpa_explore.plans.report.text import fullest

__all__ = ["baselines_figure", "baselines_sentence", "comparison_table"]


@with_theme
def baselines_figure(plans: Sequence[Plan]) -> Drawing:
    """Two panels with a bar for each plan; the first plan, with which the others are compared, at the top.

    Left, the terms of the iteration, T = Σt + (B−1)·t_max; right, the fullest device, with its capacity as a line.
    """
    rows = comparison_table(plans)
    titles = ("iteration", "fullest device")
    figure = Plots(column_widths=[0.62, 0.38], spacing=(0.06, 0.0), shared_y=True, titles=titles)
    names = [safe(row["plan"]) for row in rows]
    hover = [_hover(plan, row["plan"]) for plan, row in zip(plans, rows, strict=True)]
    longest = max((row["iteration_seconds"] for row in rows), default=1.0)
    scale, unit = units.seconds_axis(longest)
    for name, column, color, shape in _TERMS:
        if not rows or column in rows[0]:
            seconds = [row[column] / scale for row in rows]
            figure.add(bars_across(seconds, names, color, shape, name=name, hover=hover))
    for row, name in zip(rows, names, strict=True):
        total = row["iteration_seconds"]
        text = f"{units.seconds(total)} (× {row['times_first']:.3g})"
        figure.note(note(text, total / scale, name, color=None, xanchor="left", xshift=4))
    figure.x(1, 1, title=unit, span=(0, 1.3 * longest / scale))
    capacity = plans[0].device_of(fullest(plans[0])).memory_bytes if plans else 1
    most = max([capacity, *(row["peak_bytes"] for row in rows)])
    scale, unit = units.bytes_axis(most)
    peaks = [row["peak_bytes"] / scale for row in rows]
    figure.add(bars_across(peaks, names, OKABE_ITO[2], name="peak memory", hover=hover, listed=False), col=2)
    figure.x(1, 2, title=unit, span=(0, 1.05 * most / scale))
    figure.y(autorange="reversed", automargin=True)
    height, at = 180 + 34 * len(rows), capacity / scale
    limit = {"type": "line", "xref": "x2", "yref": "y2 domain", "x0": at, "x1": at, "y0": 0, "y1": 1}
    return figure.figure(
        baselines_sentence(plans),
        height=height,
        barmode="stack",
        bargap=0.3,
        shapes=[limit | {"line": {"color": ink, "dash": "dash", "width": 1}}],
        legend=legend_below(0.5 * 120 + 0.1 * height, height, traceorder=None),
        margin={"b": 100, "l": 200},
    )


def baselines_sentence(plans: Sequence[Plan]) -> str:
    """What the figure shows for these plans."""
    if len(plans) < 2:
        return "There is no other plan to compare with."
    first, *others = comparison_table(plans)
    best = min(others, key=lambda row: float(row["iteration_seconds"]))
    ratio = best["times_first"]
    if abs(ratio - 1) < 5e-4:
        return f"The {first['plan']} plan takes as long as {best['plan']}, the fastest of the others."
    difference = f"{units.percent(abs(ratio - 1))} {'longer' if ratio > 1 else 'shorter'}"
    return f"{best['plan']}, the fastest of the others, takes {difference} than the {first['plan']} plan."


def _hover(plan: Plan, name: str) -> str:
    p = plan.predicted
    return lines(
        f"<b>{safe(name)}</b>",
        iteration_sum(plan),
        f"{len(plan.stages)} stages on submeshes "
        + ", ".join(submesh_phrase(s.submesh, s.device) for s in plan.stages),
        f"bubble {units.percent(p.bubble_fraction)}, peak memory {bytes_with_band(plan, p.peak_bytes_per_device)} of "
        f"{units.bytes_(plan.device_of(fullest(plan)).memory_bytes)}",
    )


_TERMS = (
    ("Σt: one microbatch through all stages", "sum_latency_seconds", OKABE_ITO[1], "/"),
    ("(B−1)·t_max: the other microbatches", "waiting_seconds", OKABE_ITO[0], ""),
    ("forward and backward passes", "passes_seconds", OKABE_ITO[0], ""),
    ("waits (bubble)", "bubble_seconds", OKABE_ITO[1], "/"),
    ("sends between stages", "sends_seconds", OKABE_ITO[4], "|"),
    ("gradient sync and update", "update_seconds", OKABE_ITO[7], "-"),
    ("sums of tied weights", "tied_seconds", OKABE_ITO[3], "x"),
    ("overhead of the software", "overhead_seconds", OKABE_ITO[6], "."),
)
"""Name, column of the table, colour, hatching."""
