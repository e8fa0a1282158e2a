"""How the planner knows the rules of a model's operators: by a rule, by discovery, or not at all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from alpa_explore import units
from alpa_explore.figures.style import HOVER_TEXT, OKABE_ITO, dress, hatching, lines, safe

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from alpa_explore.sharding.coverage import KindCoverage

_LOOKS = {"rule": (OKABE_ITO[0], ""), "discovered": (OKABE_ITO[1], "/"), "replicated": (OKABE_ITO[5], "x")}


def coverage_figure(coverage: Sequence[KindCoverage], *, theme: str = "light") -> go.Figure:
    """A bar for each kind of operator: how many there are, in the colour of how their rule is known."""
    import plotly.graph_objects as go

    kinds = sorted(coverage, key=lambda kind: (kind.how != "discovered", -kind.count, kind.kind))
    traces: list[dict[str, Any]] = []
    for how, (color, pattern) in _LOOKS.items():
        own = [kind for kind in kinds if kind.how == how]
        if not own:
            continue
        marker: dict[str, Any] = {"color": color}
        if pattern:
            marker["pattern"] = hatching(pattern)
        traces.append(
            {
                "type": "bar",
                "orientation": "h",
                "y": [_short(kind.kind) for kind in own],
                "x": [kind.count for kind in own],
                "name": how,
                "marker": marker,
                "hovertext": [_text(kind) for kind in own],
                "hovertemplate": HOVER_TEXT,
            }
        )
    discovered = sum(kind.count for kind in kinds if kind.how == "discovered")
    whole = sum(kind.count for kind in kinds if kind.how == "replicated")
    title = (
        f"{sum(kind.count for kind in kinds)} operators of {len(kinds)} kinds: {discovered} have a discovered rule, "
        + (f"{whole} are replicated on every device" if whole else "none is replicated for want of a rule")
    )
    names = [_short(kind.kind) for kind in kinds]
    return dress(
        go.Figure(traces),
        title,
        theme=theme,
        height=150 + 20 * len(kinds),
        barmode="overlay",
        bargap=0.25,
        xaxis={"title": {"text": "operators of this kind"}},
        yaxis={"categoryorder": "array", "categoryarray": names, "autorange": "reversed"},
        margin={"l": 220},
    )


def _short(kind: str) -> str:
    """'aten.mm' of 'aten.mm.default'."""
    return safe(kind.removesuffix(".default"))


def _text(kind: KindCoverage) -> str:
    factors = ", ".join(kind.factors) or "nothing"
    return lines(
        safe(kind.kind),
        f"{kind.how}; divisible along {factors}",
        f"{units.percent(kind.flops_share)} of the FLOPs",
        safe(kind.reason),
    )
