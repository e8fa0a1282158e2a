"""Two plans beside each other: what changed, and what that did to time, memory and every stage."""

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

from alpa_explore import units
from alpa_explore.figures import tuning
from alpa_explore.figures.keys import key
from alpa_explore.figures.marks import HIDDEN_AXIS, Plots, bars, bars_across, inside, legend_below, words
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
    stage_ink,
    stage_marker,
    with_theme,
)
from alpa_explore.plans.phrases import logical_mesh_phrase, on_submesh, submesh_phrase
from alpa_explore.plans.plan import Plan
from alpa_explore.plans.records import PlanStage
from alpa_explore.plans.report.compare import CutOtherwise, PlanComparison, compare_plans
from alpa_explore.plans.report.headline import against
from alpa_explore.plans.report.tables import Row, stage_of_layer
from alpa_explore.plans.report.text import pace_setter
from alpa_explore.plans.value import PlanValue
from alpa_explore.questions.explain import COLLECTIVES, COMPUTE, UNKNOWN, mean_parts, time_parts, without_axes

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
    `results`."""
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
        looks = {"marker": stage_marker(stage.index, 1.5), "keys": [key(stage=stage.index)] if new else None}
        looks |= {"hover": [lines(f"<b>{name}, stage {stage.index}</b>", stage_text(stage))]}
        looks |= inside(f"{stage.index}{place}", stage_ink(stage.index))
        figure.add(_along_the_model([end - start], name, [start], f"stage {stage.index}", **looks), row=2)


def _cuts_by_layer(comparison: PlanComparison) -> Trace:
    """For each layer, how many of the operators that both plans have are cut differently."""
    ends = _layer_ends(comparison.new)
    layers, starts = range(len(ends)), [0.0, *ends[:-1]]
    counts = [sum(o.layer == layer for o in comparison.operators) for layer in layers]
    totals = [comparison.common.get(layer, 0) for layer in layers]
    stage_of = stage_of_layer(comparison.new)
    edges = {"width": 1.5, "color": ["#1f2933" if count else faint for count in counts]}
    marker = {"color": [OKABE_ITO[6] if count else empty for count in counts], "line": edges}
    texts = [f"{c:,}" if n else "?" for c, n in zip(counts, totals, strict=True)]
    hover = [_layer_text(comparison, *of_layer) for of_layer in zip(layers, counts, totals, strict=True)]
    keys = [key(stage=stage_of[layer], layer=layer) for layer in layers]
    lengths = [b - a for a, b in zip(starts, ends, strict=True)]
    looks = {"hover": hover, "keys": keys, "marker": marker}
    looks |= inside(texts, [ink_on(OKABE_ITO[6]) if count else ink for count in counts])
    return _along_the_model(lengths, _CUT, starts, _CUT, **looks)


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


def _along_the_model(lengths: Any, row: str, starts: Any, name: str, **looks: Any) -> Trace:
    looks |= {"base": starts, "name": name, "offsetgroup": "along the model", "listed": False}
    return bars_across(lengths, [row] * len(lengths), None, **looks)


A_SAMPLE = "a sample, on average"
"""The time that the parts of two plans with different batches add up to."""
_VERDICTS = {1: " better", -1: " worse", 0: ""}


def compare_sentence(plan: Plan, other: Plan, *, other_name: str = "the other plan") -> str:
    """What the figure shows for these plans."""
    return comparison_sentence(compare_plans(other, plan), other_name)


def compare_table(plan: Plan, other: Plan) -> list[Row]:
    """In `other` (before) and in `plan` (now): a row for each setting that differs, each headline figure, each stage,
    each part of the time, each group of operators that are cut differently, and each of these operators."""
    comparison = compare_plans(other, plan)
    rows: list[Row] = [_row("setting", d.name, d.old, d.new) for d in comparison.settings]
    figures = len(comparison.headline)
    rows += [
        _row("result" if place < figures else "time", name, before, now, change=change)
        for place, (name, before, now, change, _) in enumerate(results(comparison))
    ]
    for place in range(max(len(plan.stages), len(other.stages))):
        before, now = (stage_text(p.stages[place]) if place < len(p.stages) else "–" for p in (other, plan))
        rows.append(_row("stage", f"stage {place}", before, now, stage=place if place < len(plan.stages) else None))
    rows += [_row("cut", _group_text(group), group[0].old, group[0].new) for group in comparison.groups]
    return rows + [
        _row("operator", f"{o.name} ({o.phase})", o.old, o.new, layer=o.layer)
        for group in comparison.groups
        for o in group
    ]


def comparison_sentence(comparison: PlanComparison, other_name: str) -> str:
    """The time, the settings, the stages and the operators, a sentence each."""
    settings = [str(d) for d in comparison.settings]
    more = len(settings) - tuning.COMPARE_SETTINGS
    named = "; ".join(settings[: tuning.COMPARE_SETTINGS]) + (f"; and {more} more" if more > 0 else "")
    sentences = [
        _time_phrase(comparison, other_name),
        f"Changed: {named}" if settings else "The settings are the same",
        _stages_phrase(comparison),
        _cuts_phrase(comparison),
    ]
    return " ".join(f"{sentence}." for sentence in sentences if sentence)


def both_parts(comparison: PlanComparison) -> tuple[dict[str, float], dict[str, float]]:
    """(old, new): seconds of an iteration of the average device, or of a sample where the batches differ.

    Where one plan does not know its strategies, compute and collectives are one part in both.
    """
    plans = (comparison.old, comparison.new)
    both = [without_axes(mean_parts(time_parts(p))) for p in plans]
    if any(UNKNOWN in parts for parts in both):
        both = [_together(parts) for parts in both]
    samples = [1 if comparison.equal_batches else p.global_batch for p in plans]
    old, new = ({name: s / n for name, s in parts.items()} for parts, n in zip(both, samples, strict=True))
    return old, new


def _together(parts: Mapping[str, float]) -> dict[str, float]:
    """Compute and collectives as one part, before the others."""
    rest = {name: s for name, s in parts.items() if name not in (UNKNOWN, COMPUTE) and not name.startswith(COLLECTIVES)}
    return {UNKNOWN: sum(s for name, s in parts.items() if name not in rest), **rest}


def results(comparison: PlanComparison) -> list[tuple[str, str, str, str, int]]:
    """(name, before, now, change, 1 for better or −1 for worse) of each headline figure and each part of the time."""
    rows = []
    for old, now in comparison.headline:
        words, tone = against(now, old)
        if now.name == "iteration" and not comparison.equal_batches:  # not the same work
            ratio = comparison.new.global_batch / comparison.old.global_batch
            words, tone = f"{ratio:.3g} × the samples", 0
        rows.append((now.name, old.with_band, now.with_band, f"{words}{_VERDICTS[tone]}", tone))
    old_parts, parts = both_parts(comparison)
    whole = sum(old_parts.values())
    if not comparison.equal_batches:
        old_parts, parts = ({A_SAMPLE: sum(of.values()), **of} for of in (old_parts, parts))
    for name in {**parts, **old_parts}:
        before, after = old_parts.get(name, 0.0), parts.get(name, 0.0)
        apart, texts = after - before, (units.seconds(before), units.seconds(after))
        tone = 0 if abs(apart) < tuning.NOTICEABLE_SHARE * whole else (1 if apart < 0 else -1)
        words = f"{signed(apart)}{_VERDICTS[tone]}"
        rows.append((name, *texts, words, tone) if texts[0] != texts[1] else (name, *texts, "", 0))
    return rows


def signed(seconds: float) -> str:
    """'−589 µs'."""
    return f"{'+' if seconds > 0 else '−'}{units.seconds(abs(seconds))}"


def stage_text(stage: PlanStage) -> str:
    """'layers 0–2 on 1×4 (logical mesh 2×2), 203 ms per microbatch, 6.3 GiB per device'."""
    seen_as = f" ({logical_mesh_phrase(stage.logical_mesh)})" if stage.logical_mesh != stage.submesh else ""
    where = on_submesh(stage.layers, stage.submesh, stage.device)
    return (
        f"{where}{seen_as}, {units.seconds(stage.latency_seconds)} per microbatch, "
        f"{units.bytes_(stage.peak_bytes)} per device"
    )


def _row(about: str, what: str, before: str, now: str, **more: object) -> Row:
    plain = {"about": about, "what": what, "stage": None, "layer": None, "before": before, "now": now, "change": ""}
    return plain | more


def _time_phrase(comparison: PlanComparison, other_name: str) -> str:
    """'An iteration takes 2 s, 5 % less than with the other plan (2.1 s), mostly less …'."""
    old_parts, parts = both_parts(comparison)
    before, now = sum(old_parts.values()), sum(parts.values())
    share = now / before - 1
    what = f"{'An iteration' if comparison.equal_batches else 'A sample'} takes {units.seconds(now)}"
    if abs(share) < tuning.NOTICEABLE_SHARE:
        return f"{what}, as long as with {other_name}"
    phrase = (
        f"{what}, {units.percent(abs(share))} {'less' if share < 0 else 'more'} than with {other_name} "
        f"({units.seconds(before)})"
    )
    apart = {name: parts.get(name, 0.0) - old_parts.get(name, 0.0) for name in {**old_parts, **parts}}
    largest = max(apart, key=lambda name: abs(apart[name]))
    return f"{phrase}; the largest difference is in {largest}: {signed(apart[largest])}"


def _stages_phrase(comparison: PlanComparison) -> str:
    old, new = comparison.old.stages, comparison.new.stages
    count = f"{len(new)} stage{'' if len(new) == 1 else 's'}"
    if len(old) != len(new):
        return f"{count} instead of {len(old)}"
    pairs = list(zip(old, new, strict=True))
    apart = {
        "layers": [b.index for a, b in pairs if a.layers != b.layers],
        "submesh": [b.index for a, b in pairs if a.submesh != b.submesh],
        "devices": [b.index for a, b in pairs if a.device != b.device],
        "logical mesh": [b.index for a, b in pairs if a.submesh == b.submesh and a.logical_mesh != b.logical_mesh],
    }
    named = [f"{what} in {_numbers(stages)}" for what, stages in apart.items() if stages]
    if not named:
        return f"{count} as before, on the same submeshes"
    return f"{count} as before, with other {', other '.join(named)}"


def _numbers(stages: Sequence[int]) -> str:
    """'stage 2', 'stages 0, 3', '5 of them'."""
    if len(stages) > tuning.COMPARE_STAGES:
        return f"{len(stages)} of them"
    return f"stage{'' if len(stages) == 1 else 's'} {', '.join(map(str, stages))}"


def _cuts_phrase(comparison: PlanComparison) -> str:
    """'12 of 168 operators are cut differently: 8 addmm, 4 bmm'."""
    total, count = sum(comparison.common.values()), len(comparison.operators)
    if not total:
        return ""
    known = sum(len(stage.operators) for stage in comparison.new.stages)
    compared = f"{total:,} operators" if total == known else f"{total:,} operators that can be compared"
    moved = f"; {comparison.moved:,} have the same cut on other devices" if comparison.moved else ""
    if not count:
        return f"None of the {compared} is cut differently{moved}"
    kinds: dict[str, int] = {}
    for group in comparison.groups:
        kinds[_kind(group[0].op)] = kinds.get(_kind(group[0].op), 0) + len(group)
    shown = list(kinds.items())[: tuning.COMPARE_KINDS]
    rest = count - sum(number for _, number in shown)
    named = ", ".join([f"{number:,} {kind}" for kind, number in shown] + ([f"{rest:,} others"] if rest else []))
    return f"{count:,} of {compared} {'is' if count == 1 else 'are'} cut differently: {named}{moved}"


def _kind(op: str) -> str:
    """'aten.addmm.default' -> 'addmm'."""
    return op.split(".")[1] if "." in op else op


def _group_text(group: tuple[CutOtherwise, ...]) -> str:
    """'6 × addmm (forward), layers 0, 1, 2'."""
    layers = sorted({o.layer for o in group})
    where = f"layer{'' if len(layers) == 1 else 's'} {', '.join(map(str, layers))}"
    return f"{len(group)} × {_kind(group[0].op)} ({group[0].phase}), {where}"
