"""Every uniform layout of a model as a mark: bytes of the fullest device against seconds of an iteration.

The steps of the recipe of lesson 17 leave fewer and fewer of them: all; those that fit; of those, the ones that keep
tensor parallelism in a node and compute nothing again; the ones within a tenth of the fastest.
"""

from collections.abc import Callable
from functools import partial

from alpa_explore import units
from alpa_explore.baselines.layout import Axis
from alpa_explore.figures.course.interactive import Control, InteractiveFigure, with_controls
from alpa_explore.figures.marks import axis, line, points
from alpa_explore.figures.style import OKABE_ITO, Drawing, Trace, faint, ink, with_theme
from alpa_explore.uniform_layouts.ranking import Layouts, PricedLayout

_NEAR = 1.1
"""Of the least seconds."""
STEPS = ("all layouts", "1: it fits", "2: nothing again, sums in a node", "3: a tenth from the fastest")
_COLOURS: dict[str, Axis] = {
    "tensor parallel": "tensor",
    "pipeline stages": "pipeline",
    "ZeRO stage": "zero_stage",
    "context parallel": "context",
}
_SYMBOLS = ("circle", "square", "diamond", "cross", "x", "triangle-up", "star", "hexagon")


def kept(asked: Layouts, step: str) -> tuple[PricedLayout, ...]:
    """The layouts that are left after a step."""
    node = asked.cluster.devices_per_node
    tests: tuple[Callable[[PricedLayout], bool], ...] = (
        lambda _: True,
        lambda priced: priced.fits,
        lambda priced: priced.layout.tensor <= node and priced.layout.recompute == "none",
        lambda priced: asked.best is not None and priced.seconds <= _NEAR * asked.best.seconds,
    )
    passed = tests[: STEPS.index(step) + 1]
    return tuple(priced for priced in asked.ranked if all(test(priced) for test in passed))


def _layout_cloud(asked: Layouts, step: str, coloured: str) -> Drawing:
    """The layouts of a step in colour, the others grey."""
    left, gib = kept(asked, step), 2.0**30
    others = [priced for priced in asked.ranked if priced not in left]
    chosen, limit = _COLOURS[coloured], asked.cluster.device.memory_bytes / gib
    traces: list[Trace] = [
        points([p.bytes / gib for p in others], [p.seconds for p in others], faint, size=4, name="not left", hover=None)
    ]
    for place, value in enumerate(asked.values(chosen)):
        own = [priced for priced in left if getattr(priced.layout, chosen) == value]
        hover = [f"{p.words}: {units.seconds(p.seconds)}, {units.bytes_(p.bytes)}" for p in own]
        looks = {"name": f"{coloured} {value}", "hover": hover, "size": 8}
        symbol, colour = _SYMBOLS[place % len(_SYMBOLS)], OKABE_ITO[place % len(OKABE_ITO)]
        traces.append(points([p.bytes / gib for p in own], [p.seconds for p in own], colour, symbol, **looks))
    fastest = min((priced.seconds for priced in left if priced.fits), default=0.0)
    slowest = 4 * (asked.best.seconds if asked.best else max(priced.seconds for priced in left))
    traces.append(line([limit, limit], [0, slowest], ink, 2, "dash", name="memory of a device", listed=False))
    return Drawing(
        traces,
        f"{asked.model} on {asked.cluster}, {step}: {len(left):,} of {len(asked.ranked):,} layouts; "
        f"the fastest that fits takes {units.seconds(fastest)}",
        height=480,
        xaxis=axis("GiB of the fullest device", (0, 3 * limit)),
        yaxis=axis("seconds of an iteration", (0, slowest)),
    )


def layout_cloud(asked: Layouts) -> InteractiveFigure:
    """The same with controls."""
    steps = Control("step", "Step", STEPS, STEPS[0])
    coloured = Control("coloured", "Coloured by", tuple(_COLOURS), "tensor parallel")
    return with_controls("Memory and time of every uniform layout of a model", steps, coloured)(
        partial(_layout_cloud, asked)
    )


layout_cloud_figure = with_theme(_layout_cloud)
