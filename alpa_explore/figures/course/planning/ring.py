"""An all-reduce on a ring of p devices, chunk by chunk: a reduce-scatter, then an all-gather.

Each device cuts its tensor into p chunks. In step k of the reduce-scatter, device i sends chunk i − k to device i + 1,
which adds it to its own; after p − 1 steps every device has one chunk of the sum. In the all-gather the sums travel on
in the same way for p − 1 steps (all numbers modulo p). Each step moves 1/p of the bytes from every device:

    t = 2 (p − 1) · (alpha + bytes / p / bandwidth)                             `cost.collectives.collective_seconds`
"""

from dataclasses import dataclass

from alpa_explore import units
from alpa_explore.figures.course.interactive import InteractiveFigure, of_states, steady
from alpa_explore.figures.marks import HIDDEN_AXIS, at, axis, bars, labels, note, on_circle, points
from alpa_explore.figures.style import OKABE_ITO, Trace, empty, faint, heat_scale

_CHUNK = 0.17
"""Width of a chunk, where the radius of the ring is 1."""
_LEAST_WIDTH = 680
"""Pixels; the chunks of a device would cover each other on fewer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RingState:
    """The ring after some steps."""

    steps: int
    summed: tuple[tuple[frozenset[int], ...], ...]
    """[device][chunk]: the devices whose values are in this sum."""
    phase: str
    """'start', 'reduce-scatter' or 'all-gather': of the last step."""


def ring_states(devices: int) -> list[RingState]:
    """The ring before the first step and after each of its 2 (p − 1) steps."""
    summed = [[frozenset({device})] * devices for device in range(devices)]
    states = [RingState(steps=0, summed=tuple(map(tuple, summed)), phase="start")]
    for step in range(2 * (devices - 1)):
        adding = step < devices - 1
        sent = [((chunk + step) % devices, chunk) for chunk in range(devices)]
        before = [row.copy() for row in summed]
        for sender, chunk in sent:
            receiver = (sender + 1) % devices
            old = before[receiver][chunk] if adding else frozenset()
            summed[receiver][chunk] = old | before[sender][chunk]
        phase = "reduce-scatter" if adding else "all-gather"
        states.append(RingState(steps=step + 1, summed=tuple(map(tuple, summed)), phase=phase))
    return states


def ring_figure(devices: int, tensor_bytes: float, bandwidth: float, latency_seconds: float) -> InteractiveFigure:
    """The ring on the left, the seconds so far on the right; a slider moves, and plays, the steps.

    A cell is a chunk on a device: its number says how many devices' values are in it, Σ that all are.
    """
    alpha, beta = latency_seconds, tensor_bytes / devices / bandwidth
    moved, total = units.bytes_(tensor_bytes / devices), 2 * (devices - 1) * (alpha + beta)
    sentences = {
        "start": f"{devices} devices hold {units.bytes_(tensor_bytes)} each, cut into {devices} chunks.",
        "reduce-scatter": f"Reduce-scatter: each device sends {moved} to the next, which adds it.",
        "all-gather": f"All-gather: each device passes a finished chunk of {moved} to the next.",
    }
    _, unit = units.seconds_axis(total)
    common: Trace = {
        "height": 480,
        "xaxis": {"domain": [0, 0.62], "range": [-1.55, 1.55], **HIDDEN_AXIS},
        "yaxis": {"range": [-1.35, 1.35], **HIDDEN_AXIS},
        "xaxis2": axis("step", domain=[0.74, 1.0], anchor="y2", dtick=1),
        "yaxis2": axis(f"time so far ({unit})", (0, 1.05 * total / units.seconds_axis(total)[0]), anchor="x2"),
        "annotations": _arrows(devices),
        "barmode": "stack",
        "bargap": 0.15,
        "legend": {"x": 0.74},
        "meta": {"least_width": _LEAST_WIDTH},
    }
    states = {}
    for state in ring_states(devices):
        spent = units.seconds(state.steps * (alpha + beta))
        words = f"{sentences[state.phase]} {spent} of {units.seconds(total)}."
        traces = [_cells(state, devices), _moving(state, devices), *_time(state, devices, alpha, beta)]
        states[str(state.steps)] = steady(traces, words, **common)
    return of_states("An all-reduce on a ring, step by step", "Steps done", states, plays=True)


def _cell(device: int, chunk: int, devices: int) -> tuple[float, float]:
    x, y = on_circle(device, devices)
    return x + (chunk - (devices - 1) / 2) * _CHUNK, y


def _cells(state: RingState, devices: int) -> Trace:
    cells = [(device, chunk) for device in range(devices) for chunk in range(devices)]
    places = [_cell(device, chunk, devices) for device, chunk in cells]
    counts = [len(state.summed[device][chunk]) for device, chunk in cells]
    hover = [
        f"device {d}, chunk {c}: the values of devices {', '.join(map(str, sorted(state.summed[d][c])))}"
        for d, c in cells
    ]
    inks = ["#000000" if 2 * c > devices + 1 else "#ffffff" for c in counts]
    texts = labels(["Σ" if count == devices else str(count) for count in counts], None, 12, inks)
    trace = points([x for x, _ in places], [y for _, y in places], counts, "square", 26, hover=hover, listed=False)
    scale = {"colorscale": heat_scale, "cmin": 1, "cmax": devices}
    return trace | texts | {"mode": "markers+text", "marker": trace["marker"] | scale}


def _moving(state: RingState, devices: int) -> Trace:
    """Chunk j, which has arrived at device j + steps, in a frame."""
    places = [_cell((chunk + state.steps) % devices, chunk, devices) for chunk in range(devices)]
    looks = {"name": "just moved", "listed": False, "edge": (None, 3)}
    return points([x for x, _ in places], [y for _, y in places], OKABE_ITO[5], "square-open", 30, **looks)


def _time(state: RingState, devices: int, alpha: float, beta: float) -> list[Trace]:
    """Of each step the seconds so far: messages' latency and bytes, stacked; steps to come are empty."""
    scale, unit = units.seconds_axis(2 * (devices - 1) * (alpha + beta))
    steps = list(range(1, 2 * devices - 1))
    traces: list[Trace] = []
    parts = (("latency, α a step", alpha, OKABE_ITO[1], "/"), ("bytes, n/p·β a step", beta, OKABE_ITO[0], ""))
    for name, part, color, shape in parts:
        values = [step * part / scale if step <= state.steps else 0.0 for step in steps]
        hover = f"after step %{{x}}: %{{y:.4g}} {unit} of {name.split(',')[0]}"
        traces.append(bars(steps, values, color, shape, edge=(faint, 1), name=name, hover=hover, **at(2)))
    rest = [0.0 if step <= state.steps else step * (alpha + beta) / scale for step in steps]
    return [*traces, bars(steps, rest, empty, listed=False, **at(2))]


def _arrows(devices: int) -> list[Trace]:
    """The links of the ring, and the names of the devices."""
    arrows: list[Trace] = []
    looks = {"axref": "x", "ayref": "y", "showarrow": True, "arrowhead": 2, "arrowwidth": 2, "arrowcolor": faint}
    for device in range(devices):
        (ax, ay), (bx, by) = on_circle(device, devices), on_circle((device + 1) % devices, devices)
        head, tail = (0.26 * ax + 0.74 * bx, 0.26 * ay + 0.74 * by), (0.74 * ax + 0.26 * bx, 0.74 * ay + 0.26 * by)
        arrows.append(note("", *head, ax=tail[0], ay=tail[1], **looks))
        arrows.append(note(f"device {device}", ax, ay + 0.2, size=13))
    return arrows
