"""Data, tensor and pipeline parallelism on four devices: which weights and which samples each device holds.

A model of four layers is drawn as four rows; every row is a weight matrix, cut into four slices. Four samples are four
circles. Along a *data* axis devices share the samples, along a *tensor* axis the slices of every matrix, along a
*pipeline* axis the layers.
"""

from dataclasses import dataclass
from itertools import product

from alpa_explore import units
from alpa_explore.figures.course.interactive import InteractiveFigure, of_states, steady
from alpa_explore.figures.marks import HIDDEN_AXIS, note, points
from alpa_explore.figures.style import OKABE_ITO, Color, Trace, empty, faint

DEVICES = 4


def _part(place: int, parts: int) -> list[int]:
    """One of some equal parts of four layers, slices or samples."""
    size = DEVICES // parts
    return list(range(place * size, (place + 1) * size))


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
        return _part(device // (self.dp * self.tp), self.pp)

    def slices(self, device: int) -> list[int]:
        """The slices of every matrix that it holds."""
        return _part(device % self.tp, self.tp)

    def samples(self, device: int) -> list[int]:
        """The samples that it computes."""
        return _part(device // self.tp % self.dp, self.dp)

    @property
    def weight_share(self) -> float:
        """Of the weights, on one device."""
        return 1 / (self.tp * self.pp)


_LEAST_WIDTH = 660
"""Pixels; the squares of a device would cover each other on fewer."""
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


def ways_figure(weight_bytes: float) -> InteractiveFigure:
    """A list of the ways: filled cells are the weights that a device holds, filled circles the samples that it
    computes. `weight_bytes` are those of the whole model."""
    place = {"color": None, "xanchor": "right"}
    notes = [note(f"<b>device {device}</b>", device * 5.2 + 1.5, -0.9, size=13) for device in range(DEVICES)]
    notes += [note(f"layer {layer}", -0.7, layer, size=13, **place) for layer in range(4)]
    common: Trace = {
        "height": 360,
        "xaxis": {"range": [-3.2, 19.6], **HIDDEN_AXIS},
        "yaxis": {"range": [5.2, -1.4], **HIDDEN_AXIS},
        "annotations": [*notes, note("samples", -0.7, 4.5, size=13, **place)],
        "showlegend": False,
        "margin": {"l": 8, "b": 16},
        "meta": {"least_width": _LEAST_WIDTH},
    }
    states = {}
    for way in WAYS:
        held = units.bytes_(weight_bytes * way.weight_share)
        sentence = f"{way.name.capitalize()}: a device holds {held} for the model; {way.sends}."
        states[way.name] = steady([_marks(way)], sentence, **common)
    label = "The weights and samples of four devices, by how they share the work"
    return of_states(label, "Shared by", states, WAYS[1].name, listed=True)


def _marks(way: Way) -> Trace:
    """A cell for each slice of each layer on each device, and a circle for each sample."""
    busy = DEVICES if way.dp * way.tp * way.pp == DEVICES else 1
    places: list[tuple[float, float]] = []
    colors, symbols, words = list[Color](), [], []
    for device, row, part in product(range(DEVICES), range(5), range(4)):
        sample = row == 4
        if sample:
            own, what, verbs = part in way.samples(device), f"sample {part}", ("computes", "does not compute")
        else:
            own = row in way.layers(device) and part in way.slices(device)
            what, verbs = f"slice {part} of layer {row}", ("holds", "does not hold")
        own = own and device < busy
        places.append((device * 5.2 + part, 4.5 if sample else float(row)))
        colors.append(OKABE_ITO[1 if sample else 0] if own else empty)
        symbols.append("circle" if sample else "square")
        words.append(f"device {device} {verbs[0] if own else verbs[1]} {what}")
    x, y = [x for x, _ in places], [y for _, y in places]
    return points(x, y, colors, symbols, 26, edge=(faint, 1), hover=words)
