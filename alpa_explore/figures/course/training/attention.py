"""Causal attention divided among devices along the sequence: who computes how much, and what a ring waits for.

Query i sees the keys 0 … i, so that half of all pairs of a query and a key are computed. A device with one run of the
sequence has more pairs the later its run is; in zig-zag order device d of p has the chunks d and 2p − 1 − d of 2p, and
all have equally many.
"""

from dataclasses import dataclass

import numpy as np

from alpa_explore import units
from alpa_explore.cluster import Cluster
from alpa_explore.cluster.group import device_group
from alpa_explore.cost.collectives import exposed_seconds
from alpa_explore.cost.group_collectives import group_seconds
from alpa_explore.cost.kernels import KernelKind, ring_keys
from alpa_explore.errors import OptionError
from alpa_explore.figures.course.interactive import Control, with_controls
from alpa_explore.figures.course.training.block import kernel_seconds
from alpa_explore.figures.marks import at, axis, bars, bars_across
from alpa_explore.figures.style import Color, Drawing, Trace, empty, ground, stage_color
from alpa_explore.numerics.arrays import Floats, Ints
from alpa_explore.sharding.reshard import StepKind

ORDERS = ("one run each", "zig-zag")
_HALF = 2
"""Bytes of an element of keys and values."""


def chunk_devices(devices: int, order: str) -> Ints:
    """The device of each of the 2p chunks of the sequence."""
    if order not in ORDERS:
        raise OptionError("Unknown order of the sequence", found=repr(order), remedy=f"Choose one of {ORDERS}.")
    chunks = np.arange(2 * devices)
    return chunks // 2 if order == ORDERS[0] else np.minimum(chunks, 2 * devices - 1 - chunks)


def causal_shares(devices: int, order: str) -> Floats:
    """The share of all visible pairs that each device computes, in the limit of a long sequence."""
    owner, chunks = chunk_devices(devices, order), 2 * devices
    pairs = np.arange(chunks) + 0.5  # of a chunk's queries with the chunks before it, and half of its own
    return np.asarray(np.bincount(owner, weights=pairs, minlength=devices) / pairs.sum())


@with_controls(
    "Which device computes which part of causal attention",
    Control("devices", "Devices", (2, 4, 8), 4),
    Control("order", "Order of the sequence", ORDERS, ORDERS[0]),
)
def causal_balance_figure(devices: int, order: str) -> Drawing:
    """The mask in blocks, coloured by the device that computes them, and the pairs of each device over the mean."""
    owner, relative = chunk_devices(devices, order), causal_shares(devices, order) * devices
    chunks, names = len(owner), [f"device {device}" for device in range(devices)]
    traces = []
    for device, name in enumerate(names):
        rows = [row for row in range(chunks) if owner[row] == device]
        hover = f"{name}: queries of chunk %{{y}} see %{{x}} chunks of keys"
        texts = {"text": [name] * len(rows), "textposition": "inside", "insidetextanchor": "start"}
        looks = {"width": 0.96, "edge": (ground, 1), "name": name, "hover": hover, "listed": False, **texts}
        traces.append(bars_across([row + 0.5 for row in rows], rows, stage_color(device), **looks))
    colors, hover = [stage_color(d) for d in range(devices)], "%{x} computes %{y:.3f} times the mean"
    looks = {"text": [f"{r:.2f}" for r in relative], "hover": hover, "listed": False, **at(2)}
    most = relative.max()
    busiest = f"the busiest computes {most:.2f} times the mean, and all wait for it"
    return Drawing(
        [*traces, bars(names, relative.tolist(), colors, **looks)],
        f"{devices} devices, {order}: {busiest if most > 1 + 1e-9 else 'all compute equally much'}",
        height=360,
        uniformtext={"minsize": 10, "mode": "hide"},
        xaxis=axis("keys, in chunks of the sequence", (0, chunks), domain=[0, 0.55]),
        yaxis=axis("queries, in chunks", (chunks - 0.5, -0.5), dtick=1),
        xaxis2={"domain": [0.65, 1]},
        yaxis2=axis("pairs over the mean", (0, 2.1), anchor="x2"),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RingTimes:
    """Attention of one block of a model on one device of a ring, forward, for one sample."""

    computing_seconds: float
    exchanging_seconds: float
    """In which keys and values of all other devices pass by."""
    exposed_seconds: float
    """Of the exchange, those that computing does not hide."""


def ring_times(cluster: Cluster, sequence: int, devices: int, *, stride: int = 1, kv_heads: int = 8) -> RingTimes:
    """The times of a causal ring in zig-zag order, with 32 heads of 128 as Llama-3-8B, which has 8 of keys and values.

    The ring has every `stride`-th device: with the number of devices of a node each stands on another node. Raises
    OptionError for a sequence that does not divide.
    """
    if sequence % (2 * devices):
        raise OptionError(
            "The sequence does not divide into two chunks a device",
            found=f"{sequence:,} positions on {devices} devices",
            remedy=f"Choose a multiple of {2 * devices}.",
        )
    length, heads, head = sequence // devices, 32, 128
    pairs = heads * length * sequence / 2
    moved = float(_HALF * length * head * (2 * heads + 2 * kv_heads))
    sizes = (heads, length, ring_keys(length, devices), head)
    computing = kernel_seconds(cluster, KernelKind.ATTENTION, 4.0 * pairs * head, moved, sizes)
    keys_and_values = float(_HALF * 2 * kv_heads * head * sequence)
    exchanging = group_seconds(StepKind.RING, keys_and_values, device_group(cluster, devices, stride))
    return RingTimes(
        computing_seconds=computing,
        exchanging_seconds=exchanging,
        exposed_seconds=exposed_seconds(exchanging, computing, devices),
    )


LINKS = {"inside a node": 1, "between nodes": 8}
"""The stride of a ring on 8 nodes of 8 devices, by the link that it uses."""
_CLUSTER = "8x8:h100"


@with_controls(
    "Computing and exchange of ring attention over time",
    Control("sequence", "Positions of the sequence", (8192, 16384, 32768, 65536, 131072), 8192),
    Control("devices", "Devices of the ring", (2, 4, 8), 8),
    Control("link", "Link", tuple(LINKS), "between nodes"),
)
def ring_figure(sequence: int, devices: int, link: str) -> Drawing:
    """The steps of the ring on one device: a block of attention, and beside it the keys and values of the next one."""
    if link not in LINKS:
        raise OptionError("Unknown link", found=repr(link), remedy=f"Choose one of {', '.join(map(repr, LINKS))}.")
    times = ring_times(Cluster.parse(_CLUSTER), sequence, devices, stride=LINKS[link])
    block, step = times.computing_seconds / devices, times.exchanging_seconds / (devices - 1)
    starts, arrivals = [0.0], [step * (i + 1) for i in range(devices - 1)]
    for arrival in arrivals:
        starts.append(max(starts[-1] + block, arrival))
    rows = ("attention", "keys and values")
    waits = [(starts[i] + block, starts[i + 1]) for i in range(devices - 1) if starts[i + 1] > starts[i] + block]
    traces = [
        _bars(rows[0], starts, [block] * devices, stage_color(0), "compute"),
        _bars(rows[1], [step * i for i in range(devices - 1)], [step] * (devices - 1), stage_color(1), "receive"),
    ]
    if waits:
        traces.append(_bars(rows[0], [a for a, _ in waits], [b - a for a, b in waits], empty, "wait"))
    hidden = times.exposed_seconds <= 0.005 * times.computing_seconds
    title = (
        f"{sequence:,} positions on {devices} devices, {link}: {units.seconds(times.computing_seconds)} of attention, "
        f"{units.seconds(times.exchanging_seconds)} of exchange, "
        + ("all hidden" if hidden else f"{units.seconds(times.exposed_seconds)} not hidden")
    )
    time = axis("time", rangemode="tozero", tickformat="~s", ticksuffix="s")
    axes = {"xaxis": time, "yaxis": {"autorange": "reversed"}}
    return Drawing(traces, title, height=260, barmode="overlay", **axes)


def _bars(row: str, starts: list[float], lengths: list[float], color: Color, name: str) -> Trace:
    looks = {"base": starts, "width": 0.7, "edge": ("#888888", 1), "hover": f"{name}: %{{x:.3s}}s"}
    return bars_across(lengths, [row] * len(starts), color, name=name, **looks)
