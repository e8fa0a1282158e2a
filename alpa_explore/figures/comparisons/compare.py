"""Two plans beside each other: their stages, where their time goes, and their headline figures."""

from __future__ import annotations

from itertools import accumulate

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from alpa_explore import units
from alpa_explore.figures import tuning
from alpa_explore.figures.keys import key
from alpa_explore.figures.style import (
    HOVER_TEXT,
    OKABE_ITO,
    dress,
    empty,
    faint,
    ink,
    ink_on,
    lines,
    safe,
    stage_color,
    stage_marker,
)
from alpa_explore.figures.time_bars import time_bars
from alpa_explore.plans.plan import Plan
from alpa_explore.plans.records import PlanStage
from alpa_explore.plans.report.compare import PlanComparison, compare_plans
from alpa_explore.plans.report.headline import HeadlineFigure, against
from alpa_explore.plans.report.tables import Row, stage_of_layer
from alpa_explore.plans.report.text import layers_phrase
from alpa_explore.plans.value import PlanValue
from alpa_explore.questions.explain import mean_parts, time_parts

THIS = "this plan"
_DIFFERENT = "sharded<br>differently"
"""Row of the layers in the upper panel."""
_HEADLINE = ("FLOP/s of a device", "device-hours", "bubble", "peak memory")
"""Headline figures that are drawn beside the one for speed (iteration, or samples/s where the batches differ)."""


def compare_figure(plan: Plan, other: Plan, theme: str = "light", *, other_name: str = "the other plan") -> go.Figure:
    """Above, the stages of both plans along the model and, by layer, the operators that are sharded differently; below,
    the parts of the time of the average device, and the change of each headline figure."""
    comparison = compare_plans(other, plan)
    figure = make_subplots(
        rows=2,
        cols=2,
        specs=[[{"colspan": 2}, None], [{}, {}]],
        row_heights=[0.32, 0.68],
        vertical_spacing=0.2,
        horizontal_spacing=0.24,
        column_widths=[0.54, 0.46],
        subplot_titles=("", "where the time of the average device goes", f"against {safe(other_name)}"),
    )
    figure.update_annotations(font_size=13)
    for shown, name in ((other, other_name), (plan, THIS)):
        _stages(figure, shown, safe(name), theme, selectable=shown is plan)
    if comparison.common:
        _differences_by_layer(figure, comparison, theme)
    figure.update_xaxes(title="the model, by FLOPs (%)", range=[0, 100], row=1, col=1)
    figure.update_yaxes(autorange="reversed", row=1, col=1)
    parts = {safe(name): _parts(shown, comparison) for shown, name in ((other, other_name), (plan, THIS))}
    scale, unit = units.seconds_axis(max(sum(row.values()) for row in parts.values()))
    whole = "an iteration" if comparison.equal_batches else "a sample"
    for bar in time_bars(parts, scale=scale, theme=theme, of=whole):
        figure.add_trace(bar, row=2, col=1)
    figure.update_xaxes(title=f"{whole} ({unit})", row=2, col=1, zeroline=False)
    figure.update_yaxes(autorange="reversed", row=2, col=1)
    _headline(figure, comparison, theme)
    figure = dress(figure, _sentence(comparison, other_name), theme=theme, height=510, barmode="stack", bargap=0.25)
    below = {"traceorder": "normal", "x": 0, "xanchor": "left", "y": -0.15, "yanchor": "top"}
    return figure.update_layout(margin={"l": 96, "r": 40, "b": 90}, legend=below)


def compare_sentence(plan: Plan, other: Plan, *, other_name: str = "the other plan") -> str:
    """What the figure shows for these plans."""
    return _sentence(compare_plans(other, plan), other_name)


def compare_table(plan: Plan, other: Plan) -> list[Row]:
    """A row for each setting that differs, each headline figure, each stage, each part of the time, and each operator
    that is sharded differently: in `other` (before) and in `plan` (now)."""
    comparison = compare_plans(other, plan)
    rows: list[Row] = [_row("setting", d.name, d.old, d.new) for d in comparison.settings]
    rows += [_row("result", now.name, old.text, now.text) for old, now in comparison.headline]
    for place in range(max(len(plan.stages), len(other.stages))):
        before, now = (_stage_text(p.stages[place]) if place < len(p.stages) else "–" for p in (other, plan))
        rows.append(_row("stage", f"stage {place}", before, now, stage=place if place < len(plan.stages) else None))
    old_parts, parts = (_parts(p, comparison) for p in (other, plan))
    rows += [
        _row("time", name, units.seconds(old_parts.get(name, 0.0)), units.seconds(parts.get(name, 0.0)))
        for name in {**parts, **old_parts}
    ]
    return rows + [
        _row("sharding", f"{o.name} ({o.op}, {o.phase})", o.old, o.new, layer=o.layer) for o in comparison.operators
    ]


def _row(about: str, what: str, before: str, now: str, *, stage: int | None = None, layer: int | None = None) -> Row:
    return {"about": about, "what": what, "stage": stage, "layer": layer, "before": before, "now": now}


def _stages(figure: go.Figure, plan: Plan, name: str, theme: str, *, selectable: bool) -> None:
    ends = _layer_ends(plan)
    for stage in plan.stages:
        start, end = (ends[stage.layers[0] - 1] if stage.layers[0] else 0.0), ends[stage.layers[1]]
        figure.add_trace(
            go.Bar(
                orientation="h",
                y=[name],
                x=[end - start],
                base=[start],
                showlegend=False,
                name=f"stage {stage.index}",
                marker=stage_marker(stage.index, theme) | {"line": {"width": 1.5, "color": empty(theme)}},
                text=f"{stage.index}: {'×'.join(map(str, stage.logical_mesh))}",
                textposition="inside",
                insidetextanchor="middle",
                textangle=0,
                textfont={"color": ink_on(stage_color(stage.index, theme)), "size": 12},
                customdata=[key(stage=stage.index)] if selectable else None,
                hovertext=lines(f"<b>{name}, stage {stage.index}</b>", _stage_text(stage)),
                hovertemplate=HOVER_TEXT,
            ),
            row=1,
            col=1,
        )


def _stage_text(stage: PlanStage) -> str:
    mesh, submesh = ("×".join(map(str, shape)) for shape in (stage.logical_mesh, stage.submesh))
    return (
        f"{layers_phrase(stage.layers)} on {submesh} as {mesh}, {units.seconds(stage.latency_seconds)} a microbatch, "
        f"{units.bytes_(stage.peak_bytes)} a device"
    )


def _differences_by_layer(figure: go.Figure, comparison: PlanComparison, theme: str) -> None:
    """For each layer, how many of the operators that both plans have are sharded differently."""
    ends = _layer_ends(comparison.new)
    layers = range(len(ends))
    starts = [0.0, *ends[:-1]]
    counts = [sum(o.layer == layer for o in comparison.operators) for layer in layers]
    totals = [comparison.common.get(layer, 0) for layer in layers]
    stage_of = stage_of_layer(comparison.new)
    figure.add_trace(
        go.Bar(
            orientation="h",
            y=[_DIFFERENT] * len(ends),
            x=[b - a for a, b in zip(starts, ends, strict=True)],
            base=starts,
            showlegend=False,
            name="sharded differently",
            marker={
                "color": [OKABE_ITO[6] if count else empty(theme) for count in counts],
                "line": {"width": 1.5, "color": ["#1f2933" if count else faint(theme) for count in counts]},
            },
            text=[f"{c} of {n}" for c, n in zip(counts, totals, strict=True)],
            textposition="inside",
            textangle=0,
            insidetextanchor="middle",
            textfont={"color": [ink_on(OKABE_ITO[6]) if count else ink(theme) for count in counts], "size": 12},
            customdata=[key(stage=stage_of[layer], layer=layer) for layer in layers],
            hovertext=[
                f"<b>layer {k}</b><br>{c} of {n} operators are sharded differently"
                for k, c, n in zip(layers, counts, totals, strict=True)
            ],
            hovertemplate=HOVER_TEXT,
        ),
        row=1,
        col=1,
    )


def _layer_ends(plan: PlanValue) -> list[float]:
    """Where each layer ends, in percent of the FLOPs of the forward pass."""
    total = sum(layer.flops for layer in plan.layers) or 1
    return [100 * end / total for end in accumulate(layer.flops for layer in plan.layers)]


def _parts(plan: PlanValue, comparison: PlanComparison) -> dict[str, float]:
    """Seconds of an iteration of the average device, or of a sample where the batches differ."""
    divisor = 1 if comparison.equal_batches else plan.global_batch
    return {name: seconds / divisor for name, seconds in mean_parts(time_parts(plan)).items()}


def _headline(figure: go.Figure, comparison: PlanComparison, theme: str) -> None:
    drawn = ("iteration" if comparison.equal_batches else "samples/s", *_HEADLINE)
    pairs = [(old, now) for old, now in comparison.headline if now.name in drawn]
    verdicts = [against(now, old) for old, now in pairs]
    looks = {1: (OKABE_ITO[2], " better"), -1: (OKABE_ITO[5], " worse"), 0: (faint(theme), "")}
    changes = [_change(old, now) for old, now in pairs]
    figure.add_trace(
        go.Bar(
            orientation="h",
            y=[f"{safe(now.name)}<br>{_from_to(old, now)}" for old, now in pairs],
            x=changes,
            marker={"color": [looks[tone][0] for _, tone in verdicts]},
            name="headline",
            showlegend=False,
            cliponaxis=False,
            text=[f"{words or '±0'}{looks[tone][1]}" for words, tone in verdicts],
            textposition="outside",
            textfont={"color": ink(theme)},
            hovertext=[safe(now.why) for _, now in pairs],
            hovertemplate=HOVER_TEXT,
        ),
        row=2,
        col=2,
    )
    low, high = min([*changes, -1.0]), max([*changes, 1.0])
    room = 0.8 * (high - low)  # for the text beside the bars
    figure.update_xaxes(title="%", range=[low - (room if low < -1 else 0), high + room], row=2, col=2)
    figure.update_yaxes(autorange="reversed", automargin=True, tickfont_size=11, row=2, col=2)


def _change(old: HeadlineFigure, now: HeadlineFigure) -> float:
    """Percent; of the bubble, itself a share, percentage points."""
    if now.name == "bubble":
        return 100 * (now.value - old.value)
    return 100 * (now.value / old.value - 1) if old.value else 0.0


def _from_to(old: HeadlineFigure, now: HeadlineFigure) -> str:
    """'3.39 → 3.6 GFLOP/s'."""
    (before, _, unit), (after, _, new_unit) = old.text.partition(" "), now.text.partition(" ")
    return safe(f"{before}{'' if unit == new_unit else f' {unit}'} → {after} {new_unit}".strip())


def _sentence(comparison: PlanComparison, other_name: str) -> str:
    settings = [str(d) for d in comparison.settings]
    more = len(settings) - tuning.COMPARE_SETTINGS
    named = "; ".join(settings[: tuning.COMPARE_SETTINGS]) + (f"; and {more} more" if more > 0 else "")
    stages = _stages_phrase(comparison)
    if comparison.common:
        different, total = len(comparison.operators), sum(comparison.common.values())
        stages += f"; {different:,} of {total:,} operators are sharded differently"
    sentences = [
        _time_phrase(comparison, other_name),
        f"Different settings: {named}" if settings else "Both have the same settings",
        stages,
    ]
    return ". ".join(sentences) + "."


def _time_phrase(comparison: PlanComparison, other_name: str) -> str:
    """'An iteration takes 2 s, 5 % less than the 2.1 s of …; the largest difference is in …'."""
    old_parts, parts = _parts(comparison.old, comparison), _parts(comparison.new, comparison)
    before, now = sum(old_parts.values()), sum(parts.values())
    change = now / before - 1
    noticeable = abs(change) >= tuning.NOTICEABLE_SHARE
    size = f"{units.percent(abs(change))} {'less' if change < 0 else 'more'} than" if noticeable else "as long as"
    phrase = (
        f"{'An iteration' if comparison.equal_batches else 'A sample'} takes {units.seconds(now)}, {size} the "
        f"{units.seconds(before)} of {other_name}"
    )
    if noticeable:
        differences = {name: parts.get(name, 0.0) - old_parts.get(name, 0.0) for name in {**old_parts, **parts}}
        largest = max(differences, key=lambda name: abs(differences[name]))
        sign = "+" if differences[largest] > 0 else "−"
        phrase += f"; the largest difference is in {largest} ({sign}{units.seconds(abs(differences[largest]))})"
    return phrase


def _stages_phrase(comparison: PlanComparison) -> str:
    old, new = ([(s.layers, s.submesh, s.logical_mesh) for s in p.stages] for p in (comparison.old, comparison.new))
    count = f"{len(new)} stage{'' if len(new) == 1 else 's'}"
    if old == new:
        return f"The {count} {'has' if len(new) == 1 else 'have'} the same layers and submeshes in both"
    if len(old) == len(new):
        return f"The {count} {'differs' if len(new) == 1 else 'differ'} in layers or submeshes"
    return f"{count} instead of {len(old)}"
