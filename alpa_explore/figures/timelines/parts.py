"""Which parts of an iteration are shown, and where each of them stands on the axis of time.

An iteration of a thousand microbatches is a thousand times nearly the same: what differs is how the pipeline fills and
how it empties. The default shows these two and some microbatches between them, side by side at one scale.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from alpa_explore.figures import tuning
from alpa_explore.numerics.arrays import Flags, Floats
from alpa_explore.schedules.simulator.timeline import Timeline

Window: TypeAlias = "tuple[float, float] | Literal['parts', 'whole', 'start', 'middle', 'end']"
"""From, to as shares of the longest makespan; or by name. 'parts' is the default: warm-up, steady, drain."""
Span: TypeAlias = tuple[float, float]
"""From, to in seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A part of an iteration that is shown without a gap."""

    start: float
    end: float
    """Seconds."""
    at: float
    """Where it begins on the axis, in seconds; other than `start` where something before it is left out."""
    label: str = ""

    @property
    def shift(self) -> float:
        """What is added to a moment to get its place on the axis."""
        return self.at - self.start

    def overlaps(self, start: Floats, end: Floats) -> Flags:
        """Which of some spans of time are in this part, at least partly."""
        return np.asarray((end > self.start) & (start < self.end))


def shown_parts(timelines: Sequence[Timeline], window: Window) -> list[tuple[Part, ...]]:
    """For each timeline the parts that `window` means; equally long for all, so that they can be compared."""
    longest = max(t.makespan_seconds for t in timelines)
    if window == "parts":
        broken = _broken(timelines, longest)
        if broken is not None:
            return broken
        window = "whole"
    start, end = _span(window, longest, timelines)
    return [(Part(start=start, end=end, at=start),)] * len(timelines)


def _span(window: Window, longest: float, timelines: Sequence[Timeline]) -> Span:
    """The seconds of a window without a gap, of an axis that ends at `longest`."""
    if not isinstance(window, str):
        return window[0] * longest, window[1] * longest
    if window == "whole":
        return 0.0, longest
    width = min(0.25, 0.8 * tuning.TIMELINE_TASKS / max(len(t.start_seconds) for t in timelines)) * longest
    start = {"start": 0.0, "middle": (longest - width) / 2, "end": longest - width}[window]
    return start, start + width


def _broken(timelines: Sequence[Timeline], longest: float) -> list[tuple[Part, ...]] | None:
    """Warm-up, steady and drain of each timeline; None where that is nearly the whole iteration."""
    widths = np.max([_widths(t) for t in timelines], axis=0)
    if widths.sum() > tuning.TIMELINE_WHOLE_SHARE * longest:
        return None
    tasks = max(
        sum(part.overlaps(t.start_seconds, t.end_seconds).sum() for part in _parts(t, widths)) for t in timelines
    )
    widths *= min(1.0, tuning.TIMELINE_TASKS / int(tasks))
    return [_parts(t, widths) for t in timelines]


def _widths(timeline: Timeline) -> tuple[float, float, float]:
    """Seconds that the pipeline needs to fill, of some steady microbatches, and that it needs to empty."""
    schedule, total = timeline.schedule, timeline.makespan_seconds
    each = total / schedule.num_microbatches
    first_backward, last_forward = timeline.phases(0)
    most = (schedule.num_stages + 2) * each
    fill, drain = (min(seconds + 0.5 * each, most) for seconds in (first_backward, total - last_forward))
    turns = schedule.num_submeshes if _turn(timeline) is not None else 0
    return fill, (tuning.TIMELINE_STEADY_MICROBATCHES + turns) * each, drain


def _turn(timeline: Timeline) -> float | None:
    """Under a schedule with all forward passes first: when the last submesh turns to backward passes."""
    first_backward, last_forward = timeline.phases(timeline.schedule.num_submeshes - 1)
    return first_backward if timeline.schedule.num_microbatches > 1 and last_forward <= first_backward else None


def _parts(timeline: Timeline, widths: Floats) -> tuple[Part, ...]:
    fill, steady, drain = widths.tolist()
    total, turn = timeline.makespan_seconds, _turn(timeline)
    gap = tuning.TIMELINE_GAP_SHARE * (fill + steady + drain)
    middle = (total / 2 if turn is None else turn) - steady / 2
    return (
        Part(start=0.0, end=fill, at=0.0, label="warm-up"),
        Part(start=middle, end=middle + steady, at=fill + gap, label="steady" if turn is None else "turn"),
        Part(start=total - drain, end=total, at=fill + steady + 2 * gap, label="drain"),
    )
