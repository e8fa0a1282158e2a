"""Tokens on their way to experts: who sends how many to whom, and who computes most.

Every token goes to its k best experts. The router's preferences are drawn from a seed: expert e is chosen with a
probability proportional to (e + 1)^−skew, so that a skew of 0 is balanced in the mean.
"""

import numpy as np

from alpa_explore import units
from alpa_explore.errors import OptionError
from alpa_explore.figures.course.interactive import Control, with_controls
from alpa_explore.figures.marks import axis, bars, mark
from alpa_explore.figures.style import Drawing, heat_scale, ink, stage_color
from alpa_explore.numerics.arrays import Ints

_TOKENS = 512
"""Tokens of each device."""
_SEED = 20260


def routed_tokens(devices: int, experts: int, topk: int, skew: float, *, tokens: int = _TOKENS) -> Ints:
    """How many tokens of each device go to each expert, shape [devices, experts]."""
    if experts % devices or not 1 <= topk <= experts:
        raise OptionError(
            "These experts cannot be shared by these devices",
            found=f"{experts} experts, top {topk}, {devices} devices",
            remedy="Choose a number of devices that divides the experts, and at most as many choices as experts.",
        )
    generator = np.random.default_rng(_SEED)
    preference = -skew * np.log(np.arange(experts) + 1.0)
    counts = np.zeros((devices, experts), dtype=np.int64)
    for device in range(devices):
        # The k largest of log-probabilities with Gumbel noise are a draw without replacement.
        scores = preference + generator.gumbel(size=(tokens, experts))
        chosen = np.argpartition(-scores, topk - 1, axis=1)[:, :topk]
        counts[device] = np.bincount(chosen.ravel(), minlength=experts)
    return counts


def busiest_over_mean(counts: Ints, devices: int) -> float:
    """Rows of the device that computes most over the mean, where each has experts / devices of them."""
    rows = counts.sum(axis=0).reshape(devices, -1).sum(axis=1)
    return float(rows.max() / rows.mean())


@with_controls(
    "Tokens from devices to experts, and the rows that each device computes",
    Control("devices", "Devices that share the experts", (2, 4, 8), 4),
    Control("topk", "Experts of a token", (1, 2, 4), 2),
    Control("skew", "Skew of the router", (0.0, 0.25, 0.5, 1.0), 0.0),
)
def routing_figure(devices: int, topk: int, skew: float, *, experts: int = 16) -> Drawing:
    """The counts as a heat map (from device, to expert), and the rows that each device computes."""
    counts = routed_tokens(devices, experts, topk, skew)
    each = experts // devices
    rows = counts.sum(axis=0).reshape(devices, each).sum(axis=1)
    stays = sum(int(counts[d, d * each : (d + 1) * each].sum()) for d in range(devices))
    names = [f"expert {e}<br>on device {e // each}" for e in range(experts)]
    bar = {"title": {"text": "tokens"}, "len": 0.55, "y": 1, "yanchor": "top"}
    hover = "device %{y} sends %{z} tokens to %{text}"
    heat = {"colorscale": heat_scale, "zmin": 0, "text": [names] * devices, "hover": hover, "colorbar": bar}
    places, relative = [(d + 0.5) * each - 0.5 for d in range(devices)], (rows / rows.mean()).tolist()
    texts = {"text": [f"device {d}: {r:.2f}" for d, r in enumerate(relative)], "textposition": "inside"}
    looks = {"width": [each * 0.9] * devices, "yaxis": "y2", "hover": "%{text} times the mean", "listed": False}
    mean = {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "yref": "y2", "y0": 1, "y1": 1}
    return Drawing(
        [
            mark("heatmap", list(range(experts)), list(range(devices)), z=counts.tolist(), **heat),
            bars(places, relative, [stage_color(d) for d in range(devices)], **looks, **texts),
        ],
        f"{devices} devices, {experts} experts, top {topk}: {units.percent(1 - stays / counts.sum())} of the rows "
        f"leave their device; the busiest has {busiest_over_mean(counts, devices):.2f} times the mean",
        height=420,
        xaxis=axis("to expert", dtick=1, anchor="y2"),
        yaxis=axis("from device", dtick=1, domain=[0.46, 1], autorange="reversed"),
        yaxis2=axis("rows over the mean", domain=[0, 0.38], rangemode="tozero"),
        shapes=[mean | {"line": {"color": ink, "dash": "dash", "width": 1}}],
    )
