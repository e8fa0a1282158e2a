"""What a replica of a model keeps for its parameters under ZeRO stages 0 to 3 (Rajbhandari et al., arXiv 1910.02054).

Adam in mixed precision keeps for each of N parameters 2 bytes of weight, g bytes of gradient (2 in half precision, 4 in
fp32) and 12 bytes of optimizer state: the fp32 weight and two moments. Of d replicas stage 1 divides the optimizer
state, stage 2 the gradients too, stage 3 the weights too; gathered blocks are not counted.
"""

from collections.abc import Mapping

from alpa_explore import units
from alpa_explore.errors import OptionError
from alpa_explore.figures.course.interactive import Control, with_controls
from alpa_explore.figures.marks import axis, bars, note, words
from alpa_explore.figures.style import OKABE_ITO, Drawing, ground, ink, with_theme
from alpa_explore.models.catalog import entry

ZERO_STAGES = ("no ZeRO", "ZeRO-1", "ZeRO-2", "ZeRO-3")
WEIGHT_BYTES, OPTIMIZER_BYTES = 2, 12
"""For each parameter."""
_H100_BYTES = 80 * 2.0**30
MODELS = ("llama-3.2-1b", "llama-3-8b", "llama-3-70b")
_BAR_PIXELS = 90
"""Of a bar with its name and its bytes, which would run into the next on fewer."""
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


@with_controls(
    "Bytes of weights, gradients and optimizer state on a device under ZeRO",
    Control("model", "Model", MODELS, "llama-3-8b"),
    Control("replicas", "Replicas (data-parallel devices)", (1, 2, 4, 8, 16, 64), 8),
    Control("gradients", "Gradients", ("fp32", "half precision"), "fp32"),
)
def zero_figure(model: str, replicas: int, gradients: str) -> Drawing:
    """A bar for each stage of ZeRO, and the memory of an H100."""
    parameters = entry(model).parameter_count
    size = 4 if gradients == "fp32" else 2
    columns = {
        name: zero_bytes(parameters, replicas, stage, gradient_bytes=size) for stage, name in enumerate(ZERO_STAGES)
    }
    fits = [name for name, parts in columns.items() if sum(parts.values()) <= _H100_BYTES]
    verdict = "they do not fit, whatever is divided"
    if fits:
        least = fits[0] + (" or more" if fits[0] != "ZeRO-3" else "")
        verdict = f"weights, gradients and optimizer state fit with {least}"
    title = f"{model} on {replicas} replicas, gradients in {gradients}: {verdict}"
    return stacked_bytes(columns, title, limit_bytes=_H100_BYTES)


def stacked_bytes(columns: Mapping[str, Mapping[str, float]], title: str, *, limit_bytes: float) -> Drawing:
    """Stacked bars of bytes by part, with the memory of a device as a line. `columns`: name of the bar -> part ->
    bytes."""
    parts = list(dict.fromkeys(part for column in columns.values() for part in column))
    names, traces = list(columns), []
    for place, (part, shape) in enumerate(zip(parts, ("", "/", ".", "x", "\\", "+", "-"), strict=False)):
        sizes = [column.get(part, 0.0) for column in columns.values()]
        hover, keys = f"{part}: %{{customdata}}", [units.bytes_(size) for size in sizes]
        looks = {"name": part, "edge": (ground, 1), "keys": keys, "hover": hover}
        bar = bars(names, [size / 2**30 for size in sizes], OKABE_ITO[place % len(OKABE_ITO)], shape, **looks)
        if shape:
            bar["marker"]["pattern"]["solidity"] = 0.6
        traces.append(bar)
    totals = [sum(column.values()) for column in columns.values()]
    texts = [units.bytes_(total) for total in totals]
    traces.append(words(names, [total / 2**30 for total in totals], texts, "top center", 13, None))
    limit = limit_bytes / 2**30
    line = {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": limit, "y1": limit}
    place_of = {"size": 13, "color": None, "refs": ("paper", "y"), "xanchor": "right", "yanchor": "bottom"}
    return Drawing(
        traces,
        title,
        height=400,
        barmode="stack",
        bargap=0.35,
        meta={"least_width": 96 + _BAR_PIXELS * len(names)},
        yaxis=axis("GiB on a device", (0, 1.12 * max(limit, *(total / 2**30 for total in totals)))),
        shapes=[line | {"line": {"color": ink, "dash": "dash", "width": 2}}],
        annotations=[note(f"a device has {units.bytes_(limit_bytes)}", 1, limit, **place_of)],
    )


stacked_bytes_figure = with_theme(stacked_bytes)
