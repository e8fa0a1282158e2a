"""How the planner knows the rules of a model's operators: by a rule, by discovery, or not at all."""

from collections.abc import Sequence

from alpa_explore import units
from alpa_explore.figures.marks import axis, bars_across
from alpa_explore.figures.style import OKABE_ITO, Drawing, lines, safe, with_theme
from alpa_explore.sharding.splits import KindCoverage

_LOOKS = {"rule": (OKABE_ITO[0], ""), "discovered": (OKABE_ITO[1], "/"), "replicated": (OKABE_ITO[5], "x")}


@with_theme
def coverage_figure(coverage: Sequence[KindCoverage]) -> Drawing:
    """A bar for each kind of operator: how many there are, in the colour of how their rule is known."""
    kinds = sorted(coverage, key=lambda kind: (kind.how != "discovered", -kind.count, kind.kind))
    names = {kind.kind: safe(kind.kind.removesuffix(".default")) for kind in kinds}
    counts, traces = dict.fromkeys(_LOOKS, 0), []
    for how, (color, pattern) in _LOOKS.items():
        own = [kind for kind in kinds if kind.how == how]
        counts[how] = sum(kind.count for kind in own)
        hover = [
            lines(
                safe(kind.kind),
                f"{how}; divisible along {', '.join(kind.factors) or 'nothing'}",
                f"{units.percent(kind.flops_share)} of the FLOPs",
                safe(kind.reason),
            )
            for kind in own
        ]
        x, y = [kind.count for kind in own], [names[kind.kind] for kind in own]
        if own:
            traces.append(bars_across(x, y, color, pattern, name=how, hover=hover))
    whole = counts["replicated"]
    of_all = f"{sum(counts.values())} operators of {len(kinds)} kinds: {counts['discovered']} have a discovered rule, "
    title = of_all + (f"{whole} are replicated on every device" if whole else "none is replicated for want of a rule")
    order = {"categoryorder": "array", "categoryarray": list(names.values()), "autorange": "reversed"}
    axes = {"xaxis": axis("operators of this kind"), "yaxis": order}
    layout = {"barmode": "overlay", "bargap": 0.25, "margin": {"l": 220}, **axes}
    return Drawing(traces, title, height=150 + 20 * len(kinds), **layout)
