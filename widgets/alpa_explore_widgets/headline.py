"""The top of the explorer as HTML, from the plan alone: a sentence, six figures, and the stages with their colours."""

from __future__ import annotations

import re
from html import escape
from typing import TYPE_CHECKING

from alpa_explore import units
from alpa_explore.figures.style import stage_color
from alpa_explore.plans import text

if TYPE_CHECKING:
    from alpa_explore.plans.plan import Plan, PlanStage


def sentence(plan: Plan) -> str:
    """The plan in words, how it is divided in bold."""
    said = escape(text.sentence(plan), quote=False)
    return re.sub(r"^(One stage|\d+ stages)", r"<b>\1</b>", said)


def tiles(plan: Plan) -> str:
    """Six figures, each with the formula behind it, numbers put in, as its tooltip."""
    p, limit = plan.predicted, plan.cluster.device.memory_bytes
    beside = {
        "FLOP/s of a device": (f"{units.percent(plan.flops_utilization)} of peak", plan.flops_utilization),
        "bubble": ("", p.bubble_fraction),
        "peak memory": (f"of {units.bytes_(limit)}", p.peak_bytes_per_device / limit),
    }
    cells = [_tile(name, value, why, *beside.get(name, ("", None))) for name, value, why in text.figures_of(plan)]
    where = "; ".join(f"stage {s.index}: {named_layers(s.layers)} on {_devices(s)}" for s in plan.stages)
    cells.append(_tile("stages", f"{len(plan.stages)} stages", where, f"on {_count(plan.cluster.devices)}", None))
    return f'<div class="alpa-tiles">{"".join(cells)}</div>'


def stages(plan: Plan, theme: str) -> str:
    """The legend of all figures: one colour a stage, everywhere."""
    items = [
        f'<li title="stage {s.index}: {_devices(s)} as logical mesh {_mesh(s.logical_mesh)}, '
        f'{units.seconds(s.latency_seconds)} a microbatch, {units.bytes_(s.peak_bytes)} a device">'
        f'<i style="background:{stage_color(s.index, theme)}"></i>stage {s.index} '
        f"<span>{named_layers(s.layers)} · {_mesh(s.submesh)}</span></li>"
        for s in plan.stages
    ]
    return f'<ul class="alpa-stages" aria-label="Stages and their colours">{"".join(items)}</ul>'


def _tile(name: str, value: str, why: str, beside: str, share: float | None) -> str:
    number, _, unit = value.partition(" ")
    width = 0.0 if share is None else min(max(share, 0.0), 1.0)
    meter = "" if share is None else f'<div class="alpa-meter"><i style="width:{100 * width:.1f}%"></i></div>'
    small = "".join(f" <small>{escape(part)}</small>" for part in (unit, beside) if part and part != name)
    return (
        f'<div class="alpa-tile" title="{escape(why)}"><span>{escape(name)}</span><b>{number}{small}</b>{meter}</div>'
    )


def named_layers(layers: tuple[int, int]) -> str:
    """'layer 3', 'layers 0–2'."""
    return f"layer{'' if layers[0] == layers[1] else 's'} {text.run_of_layers(layers)}"


def _mesh(shape: tuple[int, ...]) -> str:
    return "×".join(map(str, shape))


def _count(devices: int) -> str:
    return "1 device" if devices == 1 else f"{devices:,} devices"


def _devices(stage: PlanStage) -> str:
    return f"{_count(len(stage.devices))} ({_mesh(stage.submesh)})"
