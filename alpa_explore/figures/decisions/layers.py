"""Layers: the forward operators in order, their FLOPs, and the bytes that a cut behind each of them would send.

A layer is a run of consecutive forward operators (Alpa, §5.2, Eq. 6).
"""

from itertools import accumulate, pairwise
from typing import NamedTuple

from alpa_explore import units
from alpa_explore.figures import tuning
from alpa_explore.figures.keys import key
from alpa_explore.figures.marks import Plots, bars, bars_across, end_of_most, gaps, inside, labels, line, points, words
from alpa_explore.figures.style import Drawing, Trace, faint, ink, lines, safe, stage_ink, stage_marker, with_theme
from alpa_explore.plans.phrases import layers_phrase
from alpa_explore.plans.plan import Plan
from alpa_explore.plans.report.tables import layers_table, stage_of_layer

__all__ = ["layers_figure", "layers_sentence", "layers_table"]

_NARROW, _CHARACTER = 480, 7.0
"""Width of the strip of stages and layers, a narrow one, and of a character in it, in pixels."""
_LABEL_SHARE = 0.12
"""Of the width of the figure, about that of the bytes of a cut: a label with less room stands lower than the one before
it."""


@with_theme
def layers_figure(plan: Plan) -> Drawing:
    """FLOPs of each operator as bars in its stage's colour, above the bytes that would cross a cut behind it."""
    figure = Plots([0.13, 0.52, 0.35], spacing=(0.0, 0.05), shared_x=True)
    _strip(figure, plan)
    _flops(figure, plan)
    _cuts(figure, plan)
    figure.x(span=(-0.5, sum(len(layer.operators) for layer in plan.layers) - 0.5), bare=True)
    figure.x(3, title="forward operators in order of execution")
    looks = {"barmode": "overlay", "showlegend": False, "meta": {"least_width": tuning.LABELLED_PIXELS}}
    return figure.figure(layers_sentence(plan), height=560, **looks)


def layers_sentence(plan: Plan) -> str:
    """What the figure shows for this plan."""
    layers = plan.layers
    count, step = sum(len(layer.operators) for layer in layers), _operators_per_mark(plan)
    sharing = "" if step == 1 else f" Each mark stands for up to {step} operators."
    if len(layers) == 1:
        return f"One layer holds all {count:,} forward operators.{sharing}"
    mean = sum(layer.flops for layer in layers) / len(layers)
    above = max(layer.flops for layer in layers) / mean - 1 if mean else 0.0
    most = units.bytes_(max(layer.cut_bytes for layer in layers))
    return (
        f"{len(layers)} layers hold {count:,} forward operators: the largest computes {units.percent(above)} more than "
        f"the mean (delta allows {units.percent(plan.options.delta)}), and at most {most} cross a cut.{sharing}"
    )


def _ends(plan: Plan) -> list[int]:
    """For each layer, the index of the operator that follows its last one."""
    return list(accumulate(len(layer.operators) for layer in plan.layers))


def _strip(figure: Plots, plan: Plan) -> None:
    """Two rows of boxes at the top: the stages, and the layers in them; in each the first of two labels that fits."""
    ends = [0, *_ends(plan)]
    for s in plan.stages:
        name, click, (first, last) = f"stage {s.index}", f"click: selects stage {s.index}", s.layers
        hover = [lines(f"<b>{name}</b>", layers_phrase(s.layers), f"{len(s.devices)} devices", click)]
        starts, stops, keys, named = [ends[first]], [ends[last + 1]], [key(stage=s.index)], [(name, f"{s.index}")]
        for layer in plan.layers[first : last + 1]:
            number, flops = layer.index, units.flops(layer.flops)
            text = lines(
                f"<b>layer {number}</b>, {name}",
                f"{len(layer.operators)} forward operators",
                flops,
                f"{units.bytes_(layer.cut_bytes)} cross the cut behind it",
                f"click: selects layer {number}",
            )
            hover.append(text)
            starts.append(ends[number])
            stops.append(ends[number + 1])
            keys.append(key(stage=s.index, layer=number))
            named.append((f"{number} · {flops}", f"{number}"))
        lengths, rows = [b - a for a, b in zip(starts, stops, strict=True)], ["stage", *["layer"] * (last + 1 - first)]
        room = [length * _NARROW / (ends[-1] or 1) / _CHARACTER for length in lengths]
        fitting = [[text for text in of if len(text) <= most] for of, most in zip(named, room, strict=True)]
        texts = inside([(found or [""])[0] for found in fitting], stage_ink(s.index), 13, whole=True)
        looks = {"hover": hover, "keys": keys, "width": 0.9, "base": [start - 0.5 for start in starts], **texts}
        figure.add(bars_across(lengths, rows, None, name=name, marker=stage_marker(s.index, 1), **looks))
    figure.y(1, categoryorder="array", categoryarray=["layer", "stage"], showgrid=False)


class _Mark(NamedTuple):
    """One bar: an operator, or, of a very long model, some neighbours in one layer."""

    layer: int
    first: int
    """Index of its first operator."""
    operators: int
    flops: int
    """Of all its operators."""
    crossing_bytes: int
    """Across the cheapest cut behind one of its operators."""
    text: str
    key: str


def _marks(plan: Plan) -> list[_Mark]:
    step = _operators_per_mark(plan)
    stage_of, place, marks = stage_of_layer(plan), 0, []
    for layer in plan.layers:
        for at in range(0, len(layer.operators), step):
            names = [safe(name) for name in layer.operators[at : at + step]]
            flops, crossing = sum(layer.operator_flops[at : at + step]), min(layer.operator_cut_bytes[at : at + step])
            single = len(names) == 1
            own = {"operator": layer.operators[at]} if single else {}
            text = lines(
                f"<b>{names[0]}</b>" if single else f"<b>{names[0]}</b> to {names[-1]}",
                f"layer {layer.index}",
                units.flops(flops),
                f"{'cut behind it' if single else 'cheapest cut among them'}: {units.bytes_(crossing)}",
            )
            keys = key(stage=stage_of[layer.index], layer=layer.index, **own)
            marks.append(_Mark(layer.index, place, len(names), flops, crossing, text, keys))
            place += len(names)
    return marks


def _operators_per_mark(plan: Plan) -> int:
    return -(-sum(len(layer.operators) for layer in plan.layers) // tuning.LAYER_MARKS) or 1


def _flops(figure: Plots, plan: Plan) -> None:
    marks = _marks(plan)
    most = max((mark.flops for mark in marks), default=0)
    click = "this operator" if _operators_per_mark(plan) == 1 else "their layer"
    divisor, unit = units.flops_axis(end_of_most([mark.flops for mark in marks], 1.0))
    for stage in plan.stages:
        own = [mark for mark in marks if stage.layers[0] <= mark.layer <= stage.layers[1]]
        x, y = [mark.first + (mark.operators - 1) / 2 for mark in own], [mark.flops / divisor for mark in own]
        hover = {"hover": f"%{{hovertext}}<br>click: selects {click}", "hovertext": [mark.text for mark in own]}
        looks = {"width": [mark.operators for mark in own], "keys": [mark.key for mark in own], **hover}
        figure.add(bars(x, y, None, name=f"stage {stage.index}", marker=stage_marker(stage.index), **looks), row=2)
    top = end_of_most([mark.flops for mark in marks], 1.05) / divisor or 1.0
    figure.add(_boundaries(plan, top), row=2)
    largest = max(marks, key=lambda mark: mark.flops, default=None)
    if largest is not None and most / divisor > top:
        figure.add(_cut_off(largest, top, units.flops(most)), row=2)
    figure.y(2, title=unit, span=(0, top))


def _cuts(figure: Plots, plan: Plan) -> None:
    """Bytes that a cut behind each operator would send (C of Eq. 6), and the cuts that were made."""
    crossing, marks = [c for layer in plan.layers for c in layer.operator_cut_bytes], _marks(plan)
    divisor, unit = units.bytes_axis(end_of_most(crossing, 1.0))
    x, y = [mark.first + mark.operators - 0.5 for mark in marks], [mark.crossing_bytes / divisor for mark in marks]
    fill = {"fill": "tozeroy", "fillcolor": "rgba(123,135,148,0.18)", "hover": [mark.text for mark in marks]}
    figure.add(line(x, y, faint, 1.2, shape="hvh", name="bytes across a cut", **fill), row=3)
    top = end_of_most(crossing, 1.25) / divisor or 1.0
    figure.add(_boundaries(plan, top), row=3)
    largest = max(marks, key=lambda mark: mark.crossing_bytes, default=None)
    if largest is not None and largest.crossing_bytes / divisor > top:
        figure.add(_cut_off(largest, 0.8 * top, units.bytes_(largest.crossing_bytes)), row=3)
    ends = [end for end in _ends(plan)[:-1] if end]
    cut, places = [crossing[end - 1] for end in ends], [end - 0.5 for end in ends]
    hover = [f"cut behind layer {i}: {units.bytes_(c)}" for i, c in enumerate(cut)]
    common = {"hover": hover, "name": "cuts"}
    figure.add(points(places, [c / divisor for c in cut], ink, "diamond", cliponaxis=False, **common), row=3)
    if len(ends) <= tuning.LABELLED_CUTS:
        texts = [f" {units.bytes_(c)}" for c in cut]
        near = [after - before < _LABEL_SHARE * len(crossing) for before, after in pairwise(places)]
        low = accumulate(near, lambda was_low, close: close and not was_low, initial=False)
        figure.add(
            words(places, [(0.76 if lower else 0.9) * top for lower in low], texts, "middle right", **common), row=3
        )
    figure.y(3, title=f"{unit} across a cut here", span=(0, top))


def _cut_off(mark: _Mark, top: float, size: str) -> Trace:
    """The size of a mark that reaches beyond the axis, readable across a boundary."""
    written = labels([f"{size} ↑ "], "bottom left", over_lines=True)
    return words([mark.first], [0.98 * top], "", name="cut off") | written


def _boundaries(plan: Plan, top: float) -> Trace:
    upright = [[(end - 0.5, 0), (end - 0.5, top)] for end in _ends(plan)[:-1]]
    return line(*gaps(*upright), ink, 1, "dot", name="layer boundaries")
