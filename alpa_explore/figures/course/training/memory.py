"""What a replica of a model keeps for its parameters under ZeRO stages 0 to 3 (Rajbhandari et al., arXiv 1910.02054).

Adam in mixed precision keeps for each of N parameters 2 bytes of weight, g bytes of gradient (2 in half precision, 4 in
fp32) and 12 bytes of optimizer state: the fp32 weight and two moments. Of d replicas stage 1 divides the optimizer
state, stage 2 the gradients too, stage 3 the weights too; gathered blocks are not counted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from alpa_explore import units
from alpa_explore.errors import OptionError
from alpa_explore.figures.course.interactive import Control, InteractiveFigure
from alpa_explore.figures.style import OKABE_ITO, dress, ground, hatching, ink
from alpa_explore.models.catalog import entry

if TYPE_CHECKING:
    import plotly.graph_objects as go

ZERO_STAGES = ("no ZeRO", "ZeRO-1", "ZeRO-2", "ZeRO-3")
WEIGHT_BYTES, OPTIMIZER_BYTES = 2, 12
"""For each parameter."""
_H100_BYTES = 80 * 2.0**30
MODELS = ("llama-3.2-1b", "llama-3-8b", "llama-3-70b")
_PARTS = ("weights", "gradients", "optimizer state")


def zero_bytes(parameters: float, replicas: int, stage: int, *, gradient_bytes: int = 4) -> dict[str, float]:
    """Bytes of a device by part, for so many parameters on each of `replicas` devices; gathered weights not counted."""
    if stage not in range(4) or replicas < 1:
        raise OptionError(
            "There is no such stage of ZeRO", found=f"stage {stage} of {replicas} replicas", remedy="Choose 0 to 3."
        )
    share = [1 / replicas if stage >= first else 1.0 for first in (3, 2, 1)]
    each = (WEIGHT_BYTES, gradient_bytes, OPTIMIZER_BYTES)
    return {name: parameters * size * part for name, size, part in zip(_PARTS, each, share, strict=True)}


def zero_figure(model: str, replicas: int, gradients: str, *, theme: str = "light") -> go.Figure:
    """A bar for each stage of ZeRO, and the memory of an H100."""
    parameters = entry(model).parameter_count
    size = 4 if gradients == "fp32" else 2
    bars = {
        name: zero_bytes(parameters, replicas, stage, gradient_bytes=size) for stage, name in enumerate(ZERO_STAGES)
    }
    fits = [name for name, parts in bars.items() if sum(parts.values()) <= _H100_BYTES]
    title = f"{model} on {replicas} replicas, gradients in {gradients}: " + (
        f"weights, gradients and optimizer state fit with {fits[0]}" + (" or more" if fits[0] != "ZeRO-3" else "")
        if fits
        else "they do not fit, whatever is divided"
    )
    return stacked_bytes_figure(bars, title, limit_bytes=_H100_BYTES, theme=theme)


def stacked_bytes_figure(
    bars: Mapping[str, Mapping[str, float]], title: str, *, limit_bytes: float, theme: str = "light"
) -> go.Figure:
    """Stacked bars of bytes by part, with the memory of a device as a line. `bars`: name of the bar -> part -> "
    "bytes."""
    import plotly.graph_objects as go

    parts = list(dict.fromkeys(part for bar in bars.values() for part in bar))
    hatched = dict(zip(parts, ("", "/", ".", "x", "\\", "+", "-"), strict=False))
    traces: list[dict[str, Any]] = []
    for place, part in enumerate(parts):
        sizes = [bar.get(part, 0.0) for bar in bars.values()]
        marker: dict[str, Any] = {
            "color": OKABE_ITO[place % len(OKABE_ITO)],
            "line": {"width": 1, "color": ground(theme)},
        }
        if hatched[part]:
            marker["pattern"] = hatching(hatched[part]) | {"solidity": 0.6}
        traces.append(
            {
                "type": "bar",
                "x": list(bars),
                "y": [size / 2**30 for size in sizes],
                "name": part,
                "marker": marker,
                "customdata": [units.bytes_(size) for size in sizes],
                "hovertemplate": f"{part}: %{{customdata}}<extra></extra>",
            }
        )
    totals = [sum(bar.values()) for bar in bars.values()]
    traces.append(
        {
            "type": "scatter",
            "mode": "text",
            "x": list(bars),
            "y": [total / 2**30 for total in totals],
            "text": [units.bytes_(total) for total in totals],
            "textposition": "top center",
            "showlegend": False,
            "hoverinfo": "skip",
        }
    )
    limit = limit_bytes / 2**30
    line = {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": limit, "y1": limit}
    return dress(
        go.Figure(traces),
        title,
        theme=theme,
        height=400,
        barmode="stack",
        bargap=0.35,
        yaxis={"title": {"text": "GiB on a device"}, "range": [0, 1.12 * max(limit, *(t / 2**30 for t in totals))]},
        shapes=[line | {"line": {"color": ink(theme), "dash": "dash", "width": 2}}],
        annotations=[
            {
                "xref": "paper",
                "x": 1,
                "y": limit,
                "text": f"a device has {units.bytes_(limit_bytes)}",
                "showarrow": False,
                "xanchor": "right",
                "yanchor": "bottom",
            }
        ],
    )


def zero() -> InteractiveFigure:
    """The bars with controls."""
    return InteractiveFigure(
        draw=zero_figure,
        label="Bytes of weights, gradients and optimizer state on a device under ZeRO",
        controls=(
            Control(name="model", label="Model", values=MODELS, start="llama-3-8b"),
            Control(name="replicas", label="Replicas (data-parallel devices)", values=(1, 2, 4, 8, 16, 64), start=8),
            Control(name="gradients", label="Gradients", values=("fp32", "half precision"), start="fp32"),
        ),
    )
