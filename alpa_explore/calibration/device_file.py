"""Write measured curves as a device file, which `alpa-explore calibrate` writes and `--cluster 1x2:FILE` reads.

The figures that the planner reads:

- The smallest kernel takes `launch_seconds`.
- A matrix product of f FLOPs takes launch + f / (peak × share); `matmul_curve` holds the shares by size.
- A memory-bound kernel takes launch + bytes / (bandwidth × efficiency): the median over the larger half of the sizes.
- A collective of p devices takes r · (p − 1) · (alpha + bytes / p / bandwidth) with r as in `cost.collectives`: one fit
  to all kinds and sizes, by least squares of relative errors.

`measured` keeps every raw point, among them products of other shapes, attention, the host and smaller groups, and
`measured.fitted` what `kernel_fit` makes of them: the fit can be made again from the file alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, astuple, replace
from typing import Any

import numpy as np

from alpa_explore.calibration.kernel_fit import fit_kernels
from alpa_explore.calibration.least_squares import non_negative
from alpa_explore.calibration.measurements import Measurements, Point
from alpa_explore.cluster import Cluster, Device, Link, Software
from alpa_explore.cluster.software_profiles import load_software
from alpa_explore.cost.collectives import collective_seconds
from alpa_explore.errors import OptionError
from alpa_explore.sharding.reshard import StepKind


def device_file(measured: Measurements, *, name: str, like: tuple[Device, Link, Link] | None = None) -> dict[str, Any]:
    """The body of a device file.

    `like` is a preset that provides datasheet peaks, to which the shares then relate, and the links that were not
    measured. OptionError where a link was not measured and there is no `like`.
    """
    launch = min(p.seconds for p in measured.memory)
    peaks = _peaks(measured, launch, like)
    curve = matmul_curve(measured.matmul[measured.main_dtype], launch, peaks[measured.main_dtype])
    bandwidth = _memory_rate(measured.memory, launch)
    datasheet = max(bandwidth, like[0].memory_bandwidth if like is not None else 0.0)
    best = max(share for _, share in curve)
    source = f"Measured by alpa-explore calibrate on {measured.device} ({measured.software})"
    inside, between = _links(measured, like, source)
    by_curve = Device(
        name=name,
        peak_flops=peaks,
        memory_bytes=measured.memory_bytes,
        memory_bandwidth=datasheet,
        matmul_efficiency=best,
        half_efficiency_flops=_half(curve, best),
        memory_efficiency=bandwidth / datasheet,
        launch_seconds=launch,
        matmul_curve=curve,
    )
    by_shape, fits = fit_kernels(measured, by_curve)
    if like is not None and like[0].kernels is not None and by_shape.kernels is not None:
        # Attention is not measured under a mask.
        masked = like[0].kernels.masked_attention
        by_shape = replace(by_shape, kernels=replace(by_shape.kernels, masked_attention=masked))
    # Tiles and waves are those of a GPU; on a CPU the fit is only kept beside its points.
    is_gpu = measured.processors > 1 and measured.products and measured.attention
    return {
        "name": name,
        "aliases": [],
        "source": source + (f"; peaks of {like[0].name}" if like is not None else "; peaks are the best rates seen"),
        "device": _figures(replace(by_shape, software=eager(measured.host_seconds, source)) if is_gpu else by_curve),
        "inside_node": asdict(inside),
        "between_nodes": asdict(between),
        "measured": {
            "ranks": measured.ranks,
            "processors": measured.processors,
            "matmul": {dtype: _pairs(points) for dtype, points in measured.matmul.items()},
            "memory": _pairs(measured.memory),
            "collectives": {kind: _pairs(points) for kind, points in measured.collectives.items()},
            "products": [[p.dtype, p.count, p.m, p.n, p.k, p.seconds] for p in measured.products],
            "attention": [list(astuple(a)) for a in measured.attention],
            "host_seconds": dict(measured.host_seconds),
            "groups": [list(astuple(g)) for g in measured.groups],
            "clocks": dict(measured.clocks),
            "fitted": [asdict(fit) for fit in fits],
        },
    }


def eager(host_seconds: Mapping[str, float], source: str) -> Software:
    """Eager PyTorch with the host times that were measured on this machine, as far as they were."""
    software = load_software("eager")
    if not host_seconds:
        return software
    return replace(
        software,
        attention_factor=1.0,
        attention_keys=0.0,
        source=f"{source}: launches; other figures: {software.source}",
        # Some operators of a model are modules, some are plain functions.
        forward_launch_seconds=(host_seconds["module"] + host_seconds["recorded_operator"]) / 2,
        # The backward pass of a product of two tensors launches two products and a sum.
        backward_launch_seconds=host_seconds["backward_operator"] / 3,
        collective_launch_seconds=host_seconds.get("collective", software.collective_launch_seconds),
    )


def refitted_file(cluster: Cluster, *, name: str, source: str, runs: Sequence[str]) -> dict[str, Any]:
    """The body of a device file with the figures of a cluster that was fitted to runs."""
    figures = _figures(cluster.device)
    return {
        "name": name,
        "aliases": [],
        "source": source,
        "device": figures,
        "inside_node": asdict(cluster.inside_node),
        "between_nodes": asdict(cluster.between_nodes),
        "measured": {"runs": list(runs)},
    }


def matmul_curve(points: Sequence[Point], launch: float, peak: float) -> tuple[tuple[float, float], ...]:
    """(FLOPs, share of the peak), ascending. Seconds without the launch are made monotonic in the size."""
    curve, least = list[tuple[float, float]](), 0.0
    for point in sorted(points, key=lambda p: p.size):
        least = max(least, _net(point, launch), point.size / peak)
        # At the peak, rounding may make the quotient slightly larger than 1.
        curve.append((point.size, min(1.0, point.size / (peak * least))))
    return tuple(curve)


def link_of(collectives: Mapping[str, tuple[Point, ...]], ranks: int) -> tuple[float, float]:
    """(bandwidth, latency_seconds) of the ring that fits the points best."""
    rows, targets = [], []
    for kind, points in collectives.items():
        for p in points:
            latency = collective_seconds(StepKind(kind), 0.0, ranks, 1.0, 1.0)
            bytes_ = collective_seconds(StepKind(kind), p.size, ranks, 1.0, 0.0)
            rows.append((latency / p.seconds, bytes_ / p.seconds))
            targets.append(1.0)
    alpha, beta = non_negative(np.array(rows), np.array(targets)).tolist()
    return 1.0 / max(beta, 1e-15), alpha


def _figures(device: Device) -> dict[str, Any]:
    """The section `device` of a file; without sections that the device has no figures for."""
    figures = {key: value for key, value in asdict(device).items() if key not in ("name", "source", "mirror")}
    if device.kernels is None:
        del figures["kernels"]
    if device.software == Software():
        del figures["software"]
    return figures


def _net(point: Point, launch: float) -> float:
    """Seconds without the launch, at least half of the seconds: the clock is not finer."""
    return max(point.seconds - launch, 0.5 * point.seconds)


def _peaks(measured: Measurements, launch: float, like: tuple[Device, Link, Link] | None) -> dict[str, float]:
    best = {dtype: max(p.size / _net(p, launch) for p in points) for dtype, points in measured.matmul.items()}
    for p in measured.products:
        rate = p.flops / _net(Point(size=p.flops, seconds=p.seconds), launch)
        best[p.dtype] = max(best.get(p.dtype, 0.0), rate)
    if like is None:
        return best
    # No device is faster than its datasheet; if one seems to be, the preset is of another device.
    return {**best, **{d: max(float(rate), best.get(d, 0.0)) for d, rate in like[0].peak_flops.items()}}


def _memory_rate(points: Sequence[Point], launch: float) -> float:
    """The median bytes per second of the larger half of the sizes, which do not fit the caches."""
    large = sorted(points, key=lambda p: p.size)[len(points) // 2 :]
    rates = [p.size / _net(p, launch) for p in large]
    return float(np.median(rates))


def _half(curve: Sequence[tuple[float, float]], best: float) -> float:
    """The FLOPs at which half of the best share is first reached."""
    return next(flops for flops, share in curve if share >= best / 2)


def _links(measured: Measurements, like: tuple[Device, Link, Link] | None, source: str) -> tuple[Link, Link]:
    if measured.collectives:
        bandwidth, latency = link_of(measured.collectives, measured.ranks)
        inside = Link(bandwidth=bandwidth, latency_seconds=latency, source=f"{source}, {measured.ranks} ranks")
    elif like is not None:
        inside = like[1]
    else:
        raise OptionError(
            "One device has no link to measure",
            found=f"{measured.ranks} rank",
            remedy="Give more --ranks, or --like a preset whose links are taken.",
        )
    if like is not None:
        return inside, like[2]
    return inside, Link(
        bandwidth=inside.bandwidth,
        latency_seconds=inside.latency_seconds,
        source="Not measured: as inside a node; correct it before planning for several nodes",
    )


def _pairs(points: Sequence[Point]) -> list[list[float]]:
    return [[p.size, p.seconds] for p in points]
