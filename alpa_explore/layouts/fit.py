"""Fit the software figures of a machine to measured iterations.

Minimises, by a damped Gauss–Newton method (Levenberg–Marquardt) over the logarithms x of the figures,

    Σ_rows ρ(w · log(predicted / measured)) + (x − x₀)ᵀ (x − x₀) · τ²,    ρ(r) = 2 s² (√(1 + (r / s)²) − 1)

ρ (Charbonnier loss) grows like |r|, so that outliers count linearly. The second term keeps figures that the rows do not
determine near their start values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from alpa_explore.layouts import tuning
from alpa_explore.layouts.iteration import iteration_time
from alpa_explore.layouts.layout import Layout
from alpa_explore.layouts.machine import FITTED, Machine, Software
from alpa_explore.numerics.arrays import Floats

START = Software(
    matmul_efficiency=0.8,
    unaligned_efficiency=0.5,
    attention_traffic=1.5,
    forward_launch_seconds=30e-6,
    backward_launch_seconds=15e-6,
    collective_launch_seconds=30e-6,
    collective_latency_seconds=80e-6,
    collective_bandwidth=230e9,
    microbatch_seconds=1e-3,
    iteration_seconds=1e-3,
    shared_node_slowdown=0.04,
)
"""Start values: round figures of the right magnitude."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A layout and the measured seconds of its iteration."""

    layout: Layout
    seconds: float


def fit(rows: Sequence[Measured], machine: Machine, *, start: Software = START, iterations: int = 60) -> Machine:
    """`machine` with its software figures fitted to `rows`; its other figures are unchanged."""
    begin = np.log([getattr(start, name) for name in FITTED])
    weight = np.array(
        [tuning.SEVERAL_NODES_WEIGHT if r.layout.devices > machine.devices_per_node else 1.0 for r in rows]
    )
    measured = np.log([r.seconds for r in rows])

    def residuals(x: Floats) -> Floats:
        with_x = _with(machine, x)
        predicted = np.log([iteration_time(r.layout, with_x).seconds for r in rows])
        return np.concatenate([_charbonnier(weight * (predicted - measured)), tuning.PRIOR_WEIGHT * (x - begin)])

    x, damping, step_size = begin, 1e-2, tuning.DIFFERENCE_STEP
    now = residuals(x)
    for _ in range(iterations):
        jacobian = np.stack(
            [(residuals(x + step_size * axis) - now) / step_size for axis in np.eye(len(x))],
            axis=1,
        )
        normal, gradient = jacobian.T @ jacobian, jacobian.T @ now
        before = float(now @ now)
        while damping < 1e6:
            step = np.linalg.solve(normal + damping * np.diag(np.diag(normal)), -gradient).clip(-1.0, 1.0)
            then = residuals(x + step)
            if then @ then < before:
                break
            damping *= 4
        else:
            break
        x, now, damping = x + step, then, max(damping / 5, 1e-7)
        if before - float(now @ now) < 1e-6 * before:
            break
    return _with(machine, x)


def _with(machine: Machine, x: Floats) -> Machine:
    figures = dict(zip(FITTED, np.exp(x).tolist(), strict=True))
    return replace(machine, software=Software(**figures), calibrated=True)


def _charbonnier(residual: Floats) -> Floats:
    """Signed square roots of ρ, for least squares."""
    root = np.sqrt(2 * (np.sqrt(1 + (residual / tuning.ROBUST_SCALE) ** 2) - 1)) * tuning.ROBUST_SCALE
    return np.asarray(np.sign(residual) * root)
