"""Data, tensor and pipeline parallelism on four devices: which weights and which samples each device holds.

A model of four layers is drawn as four rows; every row is a weight matrix, cut into four slices. Four samples are four
circles. Along a *data* axis devices share the samples, along a *tensor* axis the slices of every matrix, along a
*pipeline* axis the layers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go

from alpa_explore import units
from alpa_explore.figures.course.states import State, menu_figure
from alpa_explore.figures.style import HOVER_TEXT, OKABE_ITO, empty, faint, ink

DEVICES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """How four devices divide the work: dp · tp · pp = 4."""

    name: str
    dp: int
    tp: int
    pp: int
    sends: str
    """What is sent, and how often."""

    def layers(self, device: int) -> list[int]:
        """The layers that a device holds."""
        size = DEVICES // self.pp
        stage = device // (self.dp * self.tp)
        return list(range(stage * size, (stage + 1) * size))

    def slices(self, device: int) -> list[int]:
        """The slices of every matrix that it holds."""
        size = DEVICES // self.tp
        rank = device % self.tp
        return list(range(rank * size, (rank + 1) * size))

    def samples(self, device: int) -> list[int]:
        """The samples that it computes."""
        size = DEVICES // self.dp
        rank = device // self.tp % self.dp
        return list(range(rank * size, (rank + 1) * size))

    @property
    def weight_share(self) -> float:
        """Of the weights, on one device."""
        return 1 / (self.tp * self.pp)


_GRADIENTS = "gradients are summed once an iteration"
_ACTIVATIONS = "activations are summed in every layer"
_SENDS = "activations pass from stage to stage"
WAYS = (
    Way(name="one device's work", dp=1, tp=1, pp=1, sends="nothing is sent, and three devices are idle"),
    Way(name="data", dp=4, tp=1, pp=1, sends=_GRADIENTS),
    Way(name="tensor", dp=1, tp=4, pp=1, sends=_ACTIVATIONS),
    Way(name="pipeline", dp=1, tp=1, pp=4, sends=_SENDS),
    Way(name="data × tensor", dp=2, tp=2, pp=1, sends=f"{_ACTIVATIONS}, {_GRADIENTS}"),
    Way(name="data × pipeline", dp=2, tp=1, pp=2, sends=f"{_SENDS}, {_GRADIENTS}"),
    Way(name="tensor × pipeline", dp=1, tp=2, pp=2, sends=f"{_ACTIVATIONS}, {_SENDS}"),
)


def ways_figure(weight_bytes: float, ways: Sequence[Way] = WAYS, theme: str = "light") -> go.Figure:
    """A button for each way: filled cells are the weights that a device holds, filled circles the samples that it
    computes. `weight_bytes` are those of the whole model."""
    states = []
    for way in ways:
        busy = DEVICES if way.dp * way.tp * way.pp == DEVICES else 1
        held = weight_bytes * way.weight_share
        sentence = f"{way.name.capitalize()}: a device holds {units.bytes_(held)} for the model; {way.sends}."
        states.append(State(label=way.name, sentence=sentence, traces=_devices(way, busy, theme)))
    hidden = {"visible": False, "fixedrange": True}
    titles = [
        {
            "x": device * 5.2 + 1.5,
            "y": -0.9,
            "text": f"<b>device {device}</b>",
            "showarrow": False,
            "font": {"size": 13, "color": ink(theme)},
        }
        for device in range(DEVICES)
    ]
    rows = [
        {"x": -0.7, "y": layer, "xanchor": "right", "text": f"layer {layer}", "showarrow": False} for layer in range(4)
    ]
    rows.append({"x": -0.7, "y": 4.5, "xanchor": "right", "text": "samples", "showarrow": False})
    return menu_figure(
        states,
        start=1,
        theme=theme,
        height=440,
        xaxis={"range": [-3.2, 19.6], **hidden},
        yaxis={"range": [5.2, -1.4], **hidden},
        annotations=titles + rows,
        showlegend=False,
        margin={"l": 8},
    )


def _devices(way: Way, busy: int, theme: str) -> list[dict[str, Any]]:
    marks: list[tuple[float, float, bool, bool, str]] = []
    for device in range(DEVICES):
        works = device < busy
        for layer in range(4):
            for part in range(4):
                held = works and layer in way.layers(device) and part in way.slices(device)
                words = f"device {device} {'holds' if held else 'does not hold'} slice {part} of layer {layer}"
                marks.append((device * 5.2 + part, float(layer), held, False, words))
        for sample in range(4):
            computed = works and sample in way.samples(device)
            words = f"device {device} {'computes' if computed else 'does not compute'} sample {sample}"
            marks.append((device * 5.2 + sample, 4.5, computed, True, words))
    return [
        {
            "type": "scatter",
            "x": [x for x, *_ in marks],
            "y": [y for _, y, *_ in marks],
            "mode": "markers",
            "marker": {
                "symbol": ["circle" if sample else "square" for *_, sample, _ in marks],
                "size": 26,
                "color": [OKABE_ITO[1 if sample else 0] if held else empty(theme) for _, _, held, sample, _ in marks],
                "line": {"width": 1, "color": faint(theme)},
            },
            "hovertext": [words for *_, words in marks],
            "hovertemplate": HOVER_TEXT,
        }
    ]
