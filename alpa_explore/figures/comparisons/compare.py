"""Two plans beside each other: what changed, and what that did to time, memory and every stage."""

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from alpa_explore import units
from alpa_explore.figures.comparisons.compare_words import (
    compare_sentence,
    compare_table,
    comparison_sentence,
    results,
    stage_text,
)
from alpa_explore.figures.keys import key
from alpa_explore.figures.marks import (
    HIDDEN_AXIS,
    HOVER_TEXT,
    Plots,
    bars,
    bars_across,
    inside,
    legend_below,
    outline,
    words,
)
from alpa_explore.figures.style import (
    OKABE_ITO,
    Drawing,
    Trace,
    empty,
    faint,
    ink,
    ink_on,
    lines,
    safe,
    stage_color,
    stage_marker,
    with_theme,
)
from alpa_explore.plans.phrases import submesh_phrase
from alpa_explore.plans.plan import Plan
from alpa_explore.plans.report.compare import PlanComparison, compare_plans
from alpa_explore.plans.report.tables import stage_of_layer
from alpa_explore.plans.report.text import pace_setter
from alpa_explore.plans.value import PlanValue

__all__ = ["compare_figure", "compare_sentence", "compare_table"]

THIS = "this plan"
_CUT = "cut differently"
"""Row of the layers in the panel of the stages."""
_BETTER, _WORSE = "rgba(0, 158, 115, 0.22)", "rgba(213, 94, 0, 0.22)"
"""Grounds of a result that is better or worse; the words say it too."""
_ROW, _GAP = 24, 74
"""Pixels of a row of the table, and of the room between the panels."""
_LABELLED = 8.0
"""Percent of the model above which a stage has its submesh written on it."""
_COLUMNS = (0.0, 0.49, 0.68, 0.7)
"""Places of the columns of the table, as shares of its width: the first and last begin there, the others end there."""
_TINTED = 0.69
"""Where the colour of better and worse begins, likewise."""
_LEAST_WIDTH = 720
"""Pixels at which no column of the table reaches into the next one."""


@with_theme
def compare_figure(plan: Plan, other: Plan, *, other_name: str = "the other plan") -> Drawing:
    """Above, the latency of each stage, and a table of the headline figures and the parts of the time of both plans;
    below, both plans along the model with the number of operators that are cut differently in each layer."""
    comparison = compare_plans(other, plan)
    rows = [row for row in results(comparison) if row[0] != "tokens/s"]  # changes as samples/s does
    heights = [_ROW * (len(rows) + 1) + 4, 26 * (3 if comparison.common else 2)]
    height = sum(heights) + _GAP
    figure = Plots(heights, [0.26, 0.74], spacing=(0.02, _GAP / height), last_alone=True)
    _results_table(figure, comparison, rows, other_name.removeprefix("the "))
    for shown, name in ((other, safe(other_name)), (plan, THIS)):
        _stages(figure, shown, name, new=shown is plan)
    if comparison.common:
        figure.add(_cuts_by_layer(comparison), row=2)
    figure.x(2, 1, title="the model, by FLOPs (%)", span=(0, 100), domain=[0.1, 1])
    figure.y(2, 1, autorange="reversed")
    return figure.figure(
        comparison_sentence(comparison, other_name),
        height=height,
        around={"l": 60, "r": 8, "b": 56},
        bargap=0.25,
        meta={"least_width": _LEAST_WIDTH},
        barmode="group",
        legend=legend_below(-1.01, 1) | {"yanchor": "bottom"},
    )


def _results_table(
    figure: Plots, comparison: PlanComparison, rows: Sequence[tuple[str, str, str, str, int]], other_name: str
) -> None:
    """A table as text marks: its lines are never wrapped or scrolled out of sight, whatever the width. `rows`: see
    `compare_words.results`."""
    names, before, now, changes, tones = zip(*rows, strict=True)
    why = {figure.name: safe(figure.why) for _, figure in comparison.headline}
    tints = {1: _BETTER, -1: _WORSE, 0: empty}
    hover = [lines(f"<b>{safe(name)}</b>", why.get(name, "")) for name in names]
    for start, colors in ((0.0, "rgba(0, 0, 0, 0)"), (_TINTED, [tints[tone] for tone in tones])):
        width = (1.0 if start else _TINTED) - start
        looks = {"base": [start] * len(rows), "width": 0.92, "offset": -0.46, "edge": (None, 0), "listed": False}
        y = list(range(1, len(rows) + 1))
        figure.add(bars_across([width] * len(rows), y, colors, name="results", hover=hover, **looks), col=2)
    # Without the error bands: there is no room for them, and the headline has them.
    plain = ([text.partition(" ± ")[0] for text in texts] for texts in (before, now))
    columns = (["", *names], *([n, *t] for n, t in zip((other_name, THIS), plain, strict=True)))
    last = ["change", *(text or "same" for text in changes)]
    for place, side, column in zip(_COLUMNS, ("right", "left", "left", "right"), (*columns, last), strict=True):
        texts = [f"<b>{safe(column[0])}</b>", *map(safe, column[1:])]
        x, y = [place] * len(column), list(range(len(column)))
        figure.add(words(x, y, texts, f"middle {side}", name="table"), col=2)
    figure.x(1, 2, span=(0, 1), **HIDDEN_AXIS)
    figure.y(1, 2, span=(len(rows) + 0.5, -0.5), **HIDDEN_AXIS)


def _stages(figure: Plots, plan: Plan, name: str, *, new: bool) -> None:
    """The latency of each stage, and its part of the model; a stage of the new plan can be selected."""
    slowest, keys = pace_setter(plan), [key(stage=stage.index) for stage in plan.stages]
    scale, unit = units.seconds_axis(slowest.latency_seconds)
    hover = [
        lines(
            f"<b>{name}, stage {stage.index}</b>",
            stage_text(stage),
            "the slowest: it sets the pace" if stage is slowest else "",
        )
        for stage in plan.stages
    ]
    look = (OKABE_ITO[0], "") if new else (faint, "/")
    x, y = [str(stage.index) for stage in plan.stages], [s.latency_seconds / scale for s in plan.stages]
    figure.add(bars(x, y, *look, name=name, hover=hover, keys=keys if new else None))
    figure.y(1, 1, title=f"latency per microbatch ({unit})", rangemode="tozero")
    figure.x(1, 1, type="category", title="stage")
    ends = [0.0, *_layer_ends(plan)]
    for stage in plan.stages:
        start, end = ends[stage.layers[0]], ends[stage.layers[1] + 1]
        place = f": {submesh_phrase(stage.submesh, stage.device)}" if end - start > _LABELLED else ""
        marker = stage_marker(stage.index) | outline((empty, 1.5))
        text = inside(f"{stage.index}{place}", ink_on(stage_color(stage.index)))
        own = [key(stage=stage.index)] if new else None
        about = lines(f"<b>{name}, stage {stage.index}</b>", stage_text(stage))
        box = _along_the_model([end - start], name, [start], f"stage {stage.index}", about, own)
        figure.add(box | {"marker": marker} | text, row=2)


def _cuts_by_layer(comparison: PlanComparison) -> Trace:
    """For each layer, how many of the operators that both plans have are cut differently."""
    ends = _layer_ends(comparison.new)
    layers, starts = range(len(ends)), [0.0, *ends[:-1]]
    counts = [sum(o.layer == layer for o in comparison.operators) for layer in layers]
    totals = [comparison.common.get(layer, 0) for layer in layers]
    stage_of = stage_of_layer(comparison.new)
    edges = outline((["#1f2933" if count else faint for count in counts], 1.5))
    marker = {"color": [OKABE_ITO[6] if count else empty for count in counts], **edges}
    texts = [f"{c:,}" if n else "?" for c, n in zip(counts, totals, strict=True)]
    hover = [_layer_text(comparison, *of_layer) for of_layer in zip(layers, counts, totals, strict=True)]
    keys = [key(stage=stage_of[layer], layer=layer) for layer in layers]
    lengths = [b - a for a, b in zip(starts, ends, strict=True)]
    inks = [ink_on(OKABE_ITO[6]) if count else ink for count in counts]
    return _along_the_model(lengths, _CUT, starts, _CUT, hover, keys) | {"marker": marker} | inside(texts, inks)


def _layer_text(comparison: PlanComparison, layer: int, count: int, total: int) -> str:
    if not total:
        return f"<b>layer {layer}</b><br>its specs are not known in both plans"
    own = [o for o in comparison.operators if o.layer == layer]
    listed = [f"{safe(o.name)}: {safe(o.old)}<br>   now {safe(o.new)}" for o in own[:3]]
    return lines(
        f"<b>layer {layer}</b>",
        f"{count:,} of {total:,} operators are cut differently",
        *listed,
        f"and {len(own) - 3:,} more: see Tables" if len(own) > 3 else "",
    )


def _layer_ends(plan: PlanValue) -> list[float]:
    """Where each layer ends, in percent of the FLOPs of the forward pass."""
    total = sum(layer.flops for layer in plan.layers) or 1
    return [100 * end / total for end in accumulate(layer.flops for layer in plan.layers)]


def _along_the_model(lengths: Any, row: str, starts: Any, name: str, hover: Any, keys: Any) -> Trace:
    looks = {"hovertext": hover, "hovertemplate": HOVER_TEXT, "keys": keys, "listed": False}
    return bars_across(
        lengths, [row] * len(lengths), empty, base=starts, name=name, offsetgroup="along the model", **looks
    )
