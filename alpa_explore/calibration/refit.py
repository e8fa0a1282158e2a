"""The figures of a device and its links, fitted again to what tasks of runs took.

    a task computes for          Σ over kernels:      launch + max(a · arithmetic, m · memory)
    and is in collectives for    Σ over collectives:  rounds · (p − 1) · (alpha + bytes / p · beta)

arithmetic and memory are the seconds that the device as it is takes (`compute`), so a stretches its efficiency in
matrix products at every size and m that of its memory; alpha and beta = 1 / bandwidth are those of the link that a
collective takes. Which of the two a kernel waits for follows from a and m, so they are found in rounds. Least squares
of relative errors, each weighted by the share of such tasks in the time of their run, with one row more for each figure
that asks for what it was, by weight `tuning.PRIOR`: what the tasks do not tell stays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from alpa_explore.calibration import tuning
from alpa_explore.calibration.least_squares import non_negative
from alpa_explore.cluster import Cluster, Device, Link
from alpa_explore.cost.collectives import collective_seconds
from alpa_explore.cost.compute import Kernel, arithmetic_seconds, compute_seconds, memory_seconds
from alpa_explore.numerics.arrays import Floats
from alpa_explore.sharding.reshard import StepKind


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkCollective:
    """A collective: its kind, how many devices take part, bytes of the larger side on one of them."""

    kind: StepKind
    size: int
    bytes: float
    between_nodes: bool
    sharing: int
    """How many such collectives share the link at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """A task of a kind in a run: what it did on one device, and how long that took."""

    name: str
    share: float
    """Of all tasks like this in the time of an iteration."""
    kernels: tuple[Kernel, ...]
    collectives: tuple[LinkCollective, ...]
    compute_seconds: float
    """Measured; likewise the next."""
    collective_seconds: float


def refit(cluster: Cluster, observations: Sequence[Observation]) -> Cluster:
    """`cluster` with a device and links that explain the observations better."""
    computing = [o for o in observations if o.compute_seconds > 0 and not all(k.is_view for k in o.kernels)]
    exchanging = [o for o in observations if o.collective_seconds > 0 and o.collectives]
    device = _device(cluster.device, computing) if computing else cluster.device
    inside, between = _links(cluster, exchanging) if exchanging else (cluster.inside_node, cluster.between_nodes)
    return replace(cluster, device=device, inside_node=inside, between_nodes=between)


def predicted(cluster: Cluster, observation: Observation) -> tuple[float, float]:
    """(seconds of computing, of collectives) by the figures of a cluster."""
    return (
        sum(compute_seconds(cluster.device, kernel) for kernel in observation.kernels),
        sum(
            collective_seconds(e.kind, e.bytes, e.size, link.bandwidth / e.sharing, link.latency_seconds)
            for e in observation.collectives
            for link in [cluster.between_nodes if e.between_nodes else cluster.inside_node]
        ),
    )


def mean_error(cluster: Cluster, observations: Sequence[Observation]) -> float:
    """Mean of |predicted / measured − 1| over the tasks, by their shares."""
    seen = [o for o in observations if o.compute_seconds + o.collective_seconds > 0 and o.share > 0]
    errors = [abs(sum(predicted(cluster, o)) / (o.compute_seconds + o.collective_seconds) - 1.0) for o in seen]
    return float(np.average(errors, weights=[o.share for o in seen])) if seen else 0.0


def _device(device: Device, observations: Sequence[Observation]) -> Device:
    measured, shares = _columns([(o.compute_seconds, o.share) for o in observations])
    launch = device.launch_seconds or tuning.ZERO_LAUNCH_SECONDS
    figures = [
        [(arithmetic_seconds(device, k), memory_seconds(device, k), k.matrix) for k in o.kernels if not k.is_view]
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
        # Halfway: what changes sides with every round would never come to rest.
        factors = np.sqrt(factors * _solved(rows, measured, shares))
    factors = best
    slower_launch, a, m = factors.tolist()
    return replace(
        _stretched(device, a),
        launch_seconds=launch * slower_launch,
        memory_bandwidth=device.memory_bandwidth * max(device.memory_efficiency / m, 1.0),
        memory_efficiency=min(device.memory_efficiency / m, 1.0),
    )


def _stretched(device: Device, a: float) -> Device:
    """Products take a times as long; peaks stay, unless a share of them would be above 1."""
    shares = [share for _, share in device.matmul_curve] or [device.matmul_efficiency]
    above = max(max(shares) / a, 1.0)
    return replace(
        device,
        peak_flops={dtype: rate * above for dtype, rate in device.peak_flops.items()},
        matmul_efficiency=min(device.matmul_efficiency / a / above, 1.0),
        matmul_curve=tuple((flops, min(share / a / above, 1.0)) for flops, share in device.matmul_curve),
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
    """Seconds and shares, the shares so that they are 1 on average."""
    measured, shares = np.array(pairs).T
    return measured, shares / shares.mean()


def _solved(rows: Floats, measured: Floats, shares: Floats) -> Floats:
    """Factors of all figures; where a factor is 1 a figure is what it was."""
    whole, targets = _with_prior(rows, measured, shares)
    return tuning.LEAST_FACTOR + non_negative(whole, targets - tuning.LEAST_FACTOR * whole.sum(axis=1))


def _error(rows: Floats, measured: Floats, shares: Floats, factors: Floats) -> float:
    """What `_solved` makes as small as can be."""
    whole, targets = _with_prior(rows, measured, shares)
    return float(((whole @ factors - targets) ** 2).sum())


def _with_prior(rows: Floats, measured: Floats, shares: Floats) -> tuple[Floats, Floats]:
    weights = np.sqrt(shares)
    scaled = rows * (weights / measured)[:, None]
    # A figure counts by its part in the tasks: a factor of ten in what hardly matters is no reason to keep another.
    prior = tuning.PRIOR * np.maximum(np.sqrt((scaled**2).mean(axis=0)), tuning.LEAST_PRIOR)
    return np.vstack([scaled, np.diag(prior)]), np.concatenate([weights, prior])
