"""Timelines of many tasks reduced to a fixed number of intervals of time."""

from itertools import pairwise
from typing import Any

import numpy as np

from alpa_explore.numerics.arrays import Floats
from alpa_explore.schedules.simulator.timeline import Timeline


def busy_share(timeline: Timeline, submesh: int, edges: Floats) -> Floats:
    """Share of each interval between two `edges` (seconds) in which a submesh runs a task."""
    tasks = timeline.submesh(submesh)
    moments = np.stack([timeline.start_seconds[tasks], timeline.end_seconds[tasks]], axis=1).ravel()
    worked = np.cumsum(np.stack([np.zeros(tasks.stop - tasks.start), np.diff(moments)[::2]], axis=1).ravel())
    return np.asarray(np.diff(np.interp(edges, moments, worked)) / np.maximum(np.diff(edges), 1e-300))


def largest_between(moments: Floats, values: Floats, edges: Floats) -> tuple[Floats, Floats]:
    """A step curve (`values[i]` holds from `moments[i]` on) between the first and the last of `edges`.

    Unchanged where it has no more steps there than there are edges, else its maximum in each interval.
    """
    keep = np.append(np.diff(moments) > 0, True)  # of several changes at one moment the last
    moments, values = moments[keep], np.asarray(values)[keep]
    before = max(int(np.searchsorted(moments, edges[0], side="right")) - 1, 0)
    inside = slice(before, int(np.searchsorted(moments, edges[-1], side="right")))
    moments, values = moments[inside], values[inside]
    if len(moments) <= len(edges):
        return np.append(np.maximum(moments, edges[0]), edges[-1]), np.append(values, values[-1:])
    at = np.clip(np.searchsorted(moments, edges, side="right") - 1, 0, len(values) - 1)
    largest = [values[a : max(b, a + 1) + 1].max() for a, b in pairwise(at)]
    return edges, np.append(largest, values[at[-1]])


def rounded(values: Any) -> list[float]:
    """Six significant digits: enough on screen, and a page holds many of them."""
    return [float(f"{v:.6g}") for v in np.asarray(values, dtype=np.float64).tolist()]


def with_gaps(values: Floats) -> list[float | None]:
    """`rounded`, with None for NaN: where a line is interrupted."""
    return [None if v != v else v for v in rounded(values)]
