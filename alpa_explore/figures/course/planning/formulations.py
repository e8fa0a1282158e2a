"""Formulations of one sharding problem beside each other, for several stages: size, and gap to the optimum."""

import math
from collections.abc import Mapping

from alpa_explore import units
from alpa_explore.figures import tuning
from alpa_explore.figures.course.interactive import InteractiveFigure, of_states, steady
from alpa_explore.figures.marks import axis, bars_across, labels
from alpa_explore.figures.style import OKABE_ITO, Trace
from alpa_explore.formulations.comparison import Comparison

_ROOM = 0.75
"""Decades to the right of the longest bar of a logarithmic axis: the values stand there."""


def formulations_figure(comparisons: Mapping[str, Comparison]) -> InteractiveFigure:
    """A list of the stages; two panels: variables (hatched: constraints), and the gap of the answer (hatched: before
    its repair)."""
    rows = [row for comparison in comparisons.values() for row in comparison.rows]
    gaps = [gap for c in comparisons.values() for row in c.rows for gap in (c.gap(row), c.gap_before(row) or 0.0)]
    counts = [size for row in rows for size in (row.variables, row.constraints) if size]
    sizes = [math.floor(math.log10(min(counts))), math.log10(max(counts)) + _ROOM]
    small, decades = {"standoff": 6, "size": 12}, {"type": "log", "dtick": 1}
    gap_span = (0.0, 140 * max(*gaps, 1e-3))
    common: Trace = {
        "height": 420,
        "barmode": "group",
        "bargap": 0.25,
        "showlegend": False,
        "meta": {"least_width": tuning.LABELLED_PIXELS},
        "xaxis": axis("variables; hatched: constraints", sizes, domain=[0.0, 0.44], **decades, **small),
        "xaxis2": axis("% above the optimum; hatched: before repair", gap_span, domain=[0.52, 0.94], nticks=5, **small),
        "yaxis": {"autorange": "reversed", "showgrid": False},
        "margin": {"l": 96},
    }
    states = {}
    for name, comparison in comparisons.items():
        worst = max(comparison.rows, key=comparison.gap)
        gap = comparison.gap(worst)
        missed = f"{worst.solver} misses the optimum by {units.percent(gap)}"
        sentence = (
            f"{name}: Eq. 1 has {comparison.pairs:,} variables for {comparison.nodes} nodes and {comparison.edges} "
            f"edges; {missed if gap > 0 else 'every formulation reaches the optimum'}."
        )
        states[name] = steady(_bars(comparison, 1.01 * 10.0 ** sizes[0]), sentence, **common)
    return of_states("Formulations of the sharding problem of a stage: size and gap", "Stage", states, listed=True)


def _bars(comparison: Comparison, least: float) -> list[Trace]:
    """The bars of a stage; `least` is where the axis of variables begins, where a method without an ILP is named."""
    rows = comparison.rows
    before, after = [comparison.gap_before(row) for row in rows], [comparison.gap(row) for row in rows]
    variables, constraints = [row.variables for row in rows], [row.constraints for row in rows]
    columns = (
        ("x", "variables", variables, [units.count(n) if n else "no ILP" for n in variables], 0, ""),
        ("x", "constraints", constraints, [units.count(n) if n else "" for n in constraints], 4, "/"),
        ("x2", "before the repair", before, ["illegal" if g is None else units.percent(g) for g in before], 1, "/"),
        ("x2", "above the optimum", after, [units.percent(g) for g in after], 5, ""),
    )
    traces = []
    for x, name, values, texts, color, shape in columns:
        lengths = [100 * (v or 0.0) for v in values] if x == "x2" else [v or least for v in values]
        looks = {"constraintext": "none", "cliponaxis": False, "xaxis": x, **labels(texts, "outside", 11)}
        hover = f"%{{y}}: %{{text}} {name}"
        names = [row.solver for row in rows]
        traces.append(bars_across(lengths, names, OKABE_ITO[color], shape, name=name, hover=hover, **looks))
    return traces
