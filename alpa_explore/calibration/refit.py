"""Refit the figures of a device and its links to the measured times of the tasks of runs.

    compute seconds of a task      Σ over kernels:      launch + max(a · arithmetic, m · memory)
    collective seconds of a task   Σ over collectives:  rounds · (p − 1) · (alpha + bytes / p · beta)

arithmetic and memory are the seconds by the present figures of the device (`cost.compute`), so that a scales its
efficiency in matrix products at every size and m its memory efficiency; alpha and beta = 1 / bandwidth belong to the
link that a collective uses. Whether arithmetic or memory bounds a kernel depends on a and m, so the fit alternates
between this assignment and the factors. It minimises the squared relative errors, each weighted by the share of the
task in the time of its run. One more row per figure, with weight `tuning.PRIOR`, pulls the figure towards its previous
value, so that figures on which no task depends stay as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from alpa_explore.calibration import tuning
from alpa_explore.calibration.least_squares import non_negative
from alpa_explore.cluster import Cluster, Device, Link
from alpa_explore.cost.collectives import collective_seconds
from alpa_explore.cost.compute import arithmetic_seconds, compute_seconds, memory_seconds
from alpa_explore.cost.kernels import Kernel
from alpa_explore.numerics.arrays import Floats
from alpa_explore.sharding.reshard import StepKind


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkCollective:
    """A collective on a link: its kind, the number of devices, bytes of the larger side on one device."""

    kind: StepKind
    size: int
    bytes: float
    between_nodes: bool
    sharing: int
    """The number of such collectives that share the link at the same time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """A kind of task in a run: its kernels and collectives on one device, and the measured times."""

    name: str
    share: float
    """The share of all tasks of this kind in the time of an iteration."""
    kernels: tuple[Kernel, ...]
    collectives: tuple[LinkCollective, ...]
    compute_seconds: float
    """Measured."""
    collective_seconds: float
    """Measured."""


def refit(cluster: Cluster, observations: Sequence[Observation]) -> Cluster:
    """`cluster` with the device and the links refitted to the observations."""
    computing = [o for o in observations if o.compute_seconds > 0 and not all(k.is_view for k in o.kernels)]
    exchanging = [o for o in observations if o.collective_seconds > 0 and o.collectives]
    device = _device(cluster.device, computing) if computing else cluster.device
    inside, between = _links(cluster, exchanging) if exchanging else (cluster.inside_node, cluster.between_nodes)
    return replace(cluster, device=device, inside_node=inside, between_nodes=between)


def predicted(cluster: Cluster, observation: Observation) -> tuple[float, float]:
    """(compute seconds, collective seconds) of a task by the figures of a cluster."""
    return (
        sum(compute_seconds(cluster.device, kernel) for kernel in observation.kernels),
        sum(
            collective_seconds(e.kind, e.bytes, e.size, link.bandwidth / e.sharing, link.latency_seconds)
            for e in observation.collectives
            for link in [cluster.between_nodes if e.between_nodes else cluster.inside_node]
        ),
    )


def mean_error(cluster: Cluster, observations: Sequence[Observation]) -> float:
    """The mean of |predicted / measured − 1| over the tasks, weighted by their shares."""
    seen = [o for o in observations if o.compute_seconds + o.collective_seconds > 0 and o.share > 0]
    errors = [abs(sum(predicted(cluster, o)) / (o.compute_seconds + o.collective_seconds) - 1.0) for o in seen]
    return float(np.average(errors, weights=[o.share for o in seen])) if seen else 0.0


def _device(device: Device, observations: Sequence[Observation]) -> Device:
    measured, shares = _columns([(o.compute_seconds, o.share) for o in observations])
    launch = device.launch_seconds or tuning.ZERO_LAUNCH_SECONDS
    figures = [
        [(_arithmetic(device, k), memory_seconds(device, k), k.matrix) for k in o.kernels if not k.is_view]
        for o in observations
    ]
    factors = best = np.ones(3)
    least = np.inf
    for _ in range(tuning.ROUNDS):
        rows = np.zeros((len(observations), 3))
        for row, kernels in zip(rows, figures, strict=True):
            row[0] = len(kernels) * launch
            for arithmetic, memory, matrix in kernels:
                by_products = matrix and factors[1] * arithmetic > factors[2] * memory
                row[1 if by_products else 2] += arithmetic if by_products else memory
        error = _error(rows, measured, shares, factors)
        if error < least:
            best, least = factors, error
        # The geometric mean of old and new factors: otherwise a kernel could change sides in every round.
        factors = np.sqrt(factors * _solved(rows, measured, shares))
    factors = best
    slower_launch, a, m = factors.tolist()
    return replace(
        _stretched(device, a),
        launch_seconds=launch * slower_launch,
        memory_bandwidth=device.memory_bandwidth * max(device.memory_efficiency / m, 1.0),
        memory_efficiency=min(device.memory_efficiency / m, 1.0),
    )


def _arithmetic(device: Device, kernel: Kernel) -> float:
    """Seconds for the FLOPs of a kernel alone, by its shape where the device has figures for shapes."""
    if device.kernels is None or not kernel.matrix:
        return arithmetic_seconds(device, kernel)
    return compute_seconds(replace(device, launch_seconds=0.0, memory_bandwidth=np.inf), kernel)


def _stretched(device: Device, a: float) -> Device:
    """The device with matrix products and attention a times as long; peaks stay, unless an efficiency would exceed
    1."""
    kernels = device.kernels
    shares = [share for _, share in device.matmul_curve] or [device.matmul_efficiency]
    if kernels is not None:
        shares = [device.matmul_efficiency, kernels.attention_share, *kernels.shares.values()]
    above = max(max(shares) / a, 1.0)

    def less(share: float) -> float:
        return min(share / a / above, 1.0)

    return replace(
        device,
        peak_flops={dtype: rate * above for dtype, rate in device.peak_flops.items()},
        matmul_efficiency=less(device.matmul_efficiency),
        matmul_curve=tuple((flops, less(share)) for flops, share in device.matmul_curve),
        kernels=None
        if kernels is None
        else replace(
            kernels,
            shares={dtype: less(share) for dtype, share in kernels.shares.items()},
            attention_share=less(kernels.attention_share),
        ),
    )


def _links(cluster: Cluster, observations: Sequence[Observation]) -> tuple[Link, Link]:
    measured, shares = _columns([(o.collective_seconds, o.share) for o in observations])
    links = (cluster.inside_node, cluster.between_nodes)
    figures = [(link.latency_seconds or tuning.ZERO_LATENCY_SECONDS, 1.0 / link.bandwidth) for link in links]
    rows = np.zeros((len(observations), 4))
    for row, o in zip(rows, observations, strict=True):
        for e in o.collectives:
            which = int(e.between_nodes)
            latency, beta = figures[which]
            row[2 * which] += collective_seconds(e.kind, 0.0, e.size, 1.0, latency)
            row[2 * which + 1] += collective_seconds(e.kind, e.bytes * e.sharing, e.size, 1.0 / beta, 0.0)
    factors = _solved(rows, measured, shares)
    observed = [bool(rows[:, 2 * which : 2 * which + 2].any()) for which in range(2)]
    inside, between = (
        replace(link, latency_seconds=latency * slower, bandwidth=1.0 / (beta * narrower)) if seen else link
        for link, seen, (latency, beta), (slower, narrower) in zip(
            links, observed, figures, factors.reshape(2, 2).tolist(), strict=True
        )
    )
    return inside, between


def _columns(pairs: Sequence[tuple[float, float]]) -> tuple[Floats, Floats]:
    """(seconds, shares scaled to a mean of 1)."""
    measured, shares = np.array(pairs).T
    return measured, shares / shares.mean()


def _solved(rows: Floats, measured: Floats, shares: Floats) -> Floats:
    """The factors of all figures by least squares; a factor of 1 leaves its figure unchanged."""
    whole, targets = _with_prior(rows, measured, shares)
    return tuning.LEAST_FACTOR + non_negative(whole, targets - tuning.LEAST_FACTOR * whole.sum(axis=1))


def _error(rows: Floats, measured: Floats, shares: Floats, factors: Floats) -> float:
    """The sum of squares that `_solved` minimises."""
    whole, targets = _with_prior(rows, measured, shares)
    return float(((whole @ factors - targets) ** 2).sum())


def _with_prior(rows: Floats, measured: Floats, shares: Floats) -> tuple[Floats, Floats]:
    weights = np.sqrt(shares)
    scaled = rows * (weights / measured)[:, None]
    # The prior of a figure is scaled by its part in the tasks: otherwise a large change of a figure that hardly matters
    # would outweigh the tasks.
    prior = tuning.PRIOR * np.maximum(np.sqrt((scaled**2).mean(axis=0)), tuning.LEAST_PRIOR)
    return np.vstack([scaled, np.diag(prior)]), np.concatenate([weights, prior])
