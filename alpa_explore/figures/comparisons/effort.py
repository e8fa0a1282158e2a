"""What the planner did for a plan: the stages that it could have and those that were priced, the sharding problems
behind them, the candidates for t_max, and the seconds of each pass."""

from itertools import groupby
from typing import Any

from alpa_explore import units
from alpa_explore.figures.marks import Plots, bars_across, sums
from alpa_explore.figures.style import OKABE_ITO, Drawing, faint, lines, safe, with_theme
from alpa_explore.plans.plan import Plan
from alpa_explore.plans.report.tables import Row

_ROW = 26
"""Pixels of a bar."""
_LEAST_WIDTH = 640
"""Pixels at which no count reaches into the names of the passes."""


@with_theme
def effort_figure(plan: Plan) -> Drawing:
    """Left a bar for each count, as long as its share of the first one of its kind; right the seconds of each pass."""
    rows, passes = effort_table(plan), plan.statistics.seconds
    figure = Plots(column_widths=[0.56, 0.44], spacing=(0.24, 0.0))
    for color, (_, of_kind) in zip(OKABE_ITO, groupby(rows, key=lambda row: str(row["of"])), strict=False):
        group = list(of_kind)
        shares = [row["count"] / max(group[0]["count"], 1) for row in group]
        hover = [lines(f"<b>{row['count']:,} {row['what']}</b>", row["meaning"]) for row in group]
        names = [row["what"] for row in group]
        figure.add(bars_across(shares, names, color, hover=hover), sums(shares, names, _counts(group)))
    longest = max((seconds for _, seconds in passes), default=1.0)
    scale, unit = units.seconds_axis(longest)
    names = [safe(name) for name, _ in passes]
    seconds, texts = [s / scale for _, s in passes], [units.seconds(s) for _, s in passes]
    figure.add(bars_across(seconds, names, faint, hover=texts), sums(seconds, names, texts), col=2)
    figure.x(1, 1, span=(0, 1.2), visible=False)
    figure.x(1, 2, title=f"time of the planner ({unit})", span=(0, 1.35 * longest / scale))
    most = max(len(rows), len(passes))
    figure.y(span=(most - 0.5, -0.5), automargin=True)
    height = _ROW * most
    looks: dict[str, Any] = {"barmode": "overlay", "bargap": 0.3, "around": {"l": 140, "b": 56}, "showlegend": False}
    looks["meta"] = {"least_width": _LEAST_WIDTH}
    return figure.figure(effort_sentence(plan), height=height, **looks)


def effort_sentence(plan: Plan) -> str:
    """What was done, and how long that took."""
    count = {str(row["what"]): int(row["count"]) for row in effort_table(plan)}
    seconds = sum(seconds for _, seconds in plan.statistics.seconds)
    took = f", in {units.seconds(seconds)}" if seconds else ""
    return (
        f"{count['priced']:,} of {count['possible stages']:,} stages priced, by {count['distinct ones']:,} sharding "
        f"problems{took}."
    )


def effort_table(plan: Plan) -> list[Row]:
    """A row for each count."""
    costs, statistics = plan.costs, plan.statistics
    priced = {stage for stage, candidates in costs.candidates.items() if candidates}
    evaluated = sum(not tried.pruned for tried in plan.t_max_sweep)
    possible = costs.num_layers * (costs.num_layers + 1) // 2 * len(costs.submeshes)
    counts = (
        ("stages", "possible stages", possible, "any run of layers on any submesh"),
        ("stages", "priced", len(priced), "with the cost of their choices"),
        ("stages", "only bounded", len(costs.screened.keys() - priced), "too slow for the best pipeline, by a bound"),
        ("stages", "in the plan", len(plan.stages), "the pipeline with the least T"),
        ("problems", "sharding problems", statistics.solves, "a stage on a logical mesh"),
        ("problems", "distinct ones", statistics.distinct_solves, "equal layers have equal problems"),
        ("problems", "from the cache", statistics.cached_solves, "solved before on this machine"),
        ("t_max", "t_max candidates", len(plan.t_max_sweep), "each latency that a slowest stage can have"),
        ("t_max", "evaluated", evaluated, "the others cannot give a smaller T"),
    )
    return [{"of": kind, "what": what, "count": count, "meaning": meaning} for kind, what, count, meaning in counts]


def _counts(rows: list[Row]) -> list[str]:
    return [f"{row['count']:,}" for row in rows]
