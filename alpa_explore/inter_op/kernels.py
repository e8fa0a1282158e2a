"""The inner loops of the recurrence, compiled by numba (the formulas are in `recurrence`).

A row F(k, ·) over numbers of devices is read only between its first and its last finite entry, and latencies above
t_max are skipped before anything is added. Terms are added in the order of the paper's pseudocode. Small problems are
solved by numpy, with the same sums, before numba is imported.
"""

import numpy as np

from alpa_explore.numerics.arrays import Floats, Ints
from alpa_explore.numerics.compiled import compiled


@compiled()
def _add_stage(
    latency: Floats,
    once: Floats,
    devices: Ints,
    t_max: float,
    k: int,
    begin: int,
    end: int,
    rest: Floats,
    spans: Ints,
    out: Floats,
) -> None:
    """out[d] = min over begin ≤ i < end and shapes of latency[i·M + shape] + once[i] + rest[i, d − devices[shape]]."""
    shapes = len(devices)
    most = len(out) - 1
    for i in range(max(begin, k + 1), end):
        low, high = spans[i, 0], spans[i, 1]
        if low > high:
            continue
        row = rest[i]
        for shape in range(shapes):
            seconds = latency[i * shapes + shape]
            if seconds > t_max:
                continue
            used = devices[shape]
            paid = seconds + once[i]
            for d in range(low, min(high, most - used) + 1):
                total = paid + row[d]
                if total < out[d + used]:
                    out[d + used] = total


@compiled()
def _span(row: Floats, span: Ints) -> None:
    """Write the indices of the first and the last finite entry of a row; first > last where there is none."""
    low, high = 0, len(row) - 1
    while low <= high and row[low] == np.inf:
        low += 1
    while high >= low and row[high] == np.inf:
        high -= 1
    span[0], span[1] = low, high


def _steps(latency: Floats, _once: Floats, devices: Ints, total_devices: int, *_others: object) -> int:
    """About the microseconds of `_relaxed_by_numpy` and `_exact_by_numpy`: 6 for each operation on arrays, and 2 ns for
    each entry that it looks at when every stage is feasible."""
    operations: int = latency.size * len(devices) // latency.shape[-1]
    return 6 * operations + latency.size // 2 * (total_devices + 1) // 1000


def _add_stages(paid: Floats, devices: Ints, k: int, rest: Floats, out: Floats) -> None:
    """out[d] = min over k < i and shapes of paid[i, shape] + rest[i, d − devices[shape]]; `paid` is [L + 1, M]."""
    most = len(out)
    for shape, used in enumerate(devices.tolist()):
        if used < most:
            sums = paid[k + 1 :, shape, None] + rest[k + 1 :, : most - used]
            np.minimum(out[used:], sums.min(axis=0), out=out[used:])


def _paid(latency: Floats, once: Floats, devices: Ints, t_max: float) -> Floats:
    """Latency and once, […, L, L + 1, M]; inf above t_max."""
    seconds = np.where(latency > t_max, np.inf, latency).reshape(*latency.shape[:-1], -1, len(devices))
    return seconds + once[:, :, None]


def _relaxed_by_numpy(
    latency: Floats, once: Floats, devices: Ints, total_devices: int, outside: Ints, t_max: float
) -> Floats:
    layers, paid = len(latency), _paid(latency, once, devices, t_max)
    table = np.full((layers + 1, total_devices + 1), np.inf)
    table[layers, 0] = 0.0
    for k in range(layers - 1, -1, -1):
        _add_stages(paid[k], devices, k, table, table[k])
        table[k, outside] = np.inf
    return table


def _exact_by_numpy(
    latency: Floats, once: Floats, devices: Ints, total_devices: int, outside: Ints, t_max: float
) -> Floats:
    places, layers = latency.shape[:2]
    paid = _paid(latency, once, devices, t_max)
    tables = np.full((places + 1, layers + 1, total_devices + 1), np.inf)
    tables[0, layers, 0] = 0.0
    for place in range(1, places + 1):
        for k in range(layers - place + 1):
            _add_stages(paid[place - 1, k], devices, k, tables[place - 1], tables[place, k])
            tables[place, k, outside] = np.inf
    return tables


@compiled(steps=_steps, in_python=_relaxed_by_numpy)
def relaxed_table(
    latency: Floats, once: Floats, devices: Ints, total_devices: int, outside: Ints, t_max: float
) -> Floats:
    """R(k, d; t_max), shape [L + 1, D + 1]; `latency` is [L, (L + 1)·M], `once` is [L, L + 1]. At d in `outside` it is
    inf: see `device_kinds`."""
    layers = len(latency)
    table = np.full((layers + 1, total_devices + 1), np.inf)
    spans = np.empty((layers + 1, 2), np.int64)
    table[layers, 0] = 0.0
    spans[layers] = 0
    for k in range(layers - 1, -1, -1):
        _add_stage(latency[k], once[k], devices, t_max, k, 1, layers + 1, table, spans, table[k])
        for d in outside:
            table[k, d] = np.inf
        _span(table[k], spans[k])
    return table


@compiled(steps=_steps, in_python=_exact_by_numpy)
def exact_tables(
    latency: Floats, once: Floats, devices: Ints, total_devices: int, outside: Ints, t_max: float
) -> Floats:
    """F(s, k, d; t_max), shape [S + 1, L + 1, D + 1]; `latency` is [S, L, (L + 1)·M], `once` is [L, L + 1]."""
    places, layers = latency.shape[0], latency.shape[1]
    tables = np.full((places + 1, layers + 1, total_devices + 1), np.inf)
    spans = np.empty((layers + 1, 2), np.int64)
    tables[0, layers, 0] = 0.0
    for place in range(1, places + 1):
        before = tables[place - 1]
        for i in range(layers + 1):
            _span(before[i], spans[i])
        for k in range(layers - place + 1):
            _add_stage(
                latency[place - 1, k], once[k], devices, t_max, k, 1, layers + 1, before, spans, tables[place, k]
            )
            for d in outside:
                tables[place, k, d] = np.inf
    return tables
