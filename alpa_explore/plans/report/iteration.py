"""The iteration time in words: T, and the sends between stages as a named share, the same everywhere."""

from __future__ import annotations

from alpa_explore import units
from alpa_explore.plans.iteration_time import IterationTime

_NOTICEABLE = 5e-4
"""Share of T below which a part is not shown: it would not change a figure of three digits."""


def sends_share(time: IterationTime | None) -> str:
    """'+ 7.4 % sends', to stand beside T; 'sends counted' where T contains them; '' where there are none."""
    if time is None or not _noticeable(time, time.sends_seconds):
        return ""
    return "sends counted" if time.counted_seconds else f"+ {units.percent(time.sends_fraction)} sends"


def sends_phrase(time: IterationTime) -> str:
    """'6.03 s of sends between stages (7.4 %)'."""
    return f"{units.seconds(time.sends_seconds)} of sends between stages ({units.percent(time.sends_fraction)})"


def counted_phrase(time: IterationTime) -> str:
    """'1.4 s of sends between stages (5.2 % of T), as if nothing ran beside them; simulated, they add 477 ms = …': of
    a plan whose T counts sends, what it counts and what they cost."""
    share = time.counted_seconds / max(time.planned_seconds, 1e-300)
    return (
        f"{units.seconds(time.counted_seconds)} of sends between stages ({units.percent(share)} of T), as if nothing "
        f"ran beside them; simulated, they add {units.seconds(time.sends_seconds)} = {sends_sum(time)}"
    )


def iteration_phrase(time: IterationTime) -> str:
    """'81.6 s + 6.03 s of sends between stages (7.4 %) = 87.6 s': T, what is not in it, and their sum, simulated."""
    parts, total = iteration_parts(time), units.seconds(time.simulated_seconds)
    if time.counted_seconds:
        return f"{parts}; simulated {total}"
    return parts if parts == units.seconds(time.planned_seconds) else f"{parts} = {total}"


def iteration_parts(time: IterationTime) -> str:
    """`iteration_phrase` without the sum; '81.6 s' where T is all there is."""
    parts = units.seconds(time.planned_seconds)
    if time.counted_seconds:
        return f"{parts}, {units.seconds(time.counted_seconds)} of it sends between stages"
    if _noticeable(time, time.sends_seconds):
        parts += f" + {sends_phrase(time)}"
    if _noticeable(time, time.unequal_seconds):
        sign = "+" if time.unequal_seconds > 0 else "−"
        parts += f" {sign} {units.seconds(abs(time.unequal_seconds))} for unequal tasks"
    return parts


def sends_sum(time: IterationTime) -> str:
    """How the sends are computed, with numbers: '87.6 s simulated with sends − 81.6 s without'."""
    return (
        f"{units.seconds(time.simulated_seconds)} simulated with sends − "
        f"{units.seconds(time.without_sends_seconds)} without"
    )


def _noticeable(time: IterationTime, seconds: float) -> bool:
    return abs(seconds) >= _NOTICEABLE * time.planned_seconds
