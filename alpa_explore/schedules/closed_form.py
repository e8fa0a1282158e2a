"""The iteration time of each schedule in closed form, for comparison with the simulation.

f, b, t = f + b: forward, backward and both of one stage and microbatch; u: update; B microbatches, P submeshes.

gpipe             Σ(f + send) + (B−1)·max(f, send) + Σ(b + send) + (B−1)·max(b, send) + u: two flow shops in sequence
                  whose machines are stages and links. Exact when all updates take equally long.
1f1b, eager-1f1b  Σt + (B−1)·max t + u, Eq. 2 of Alpa. Exact when stages are equal and sends take no time.
interleaved-1f1b  B·t + (P−1)·t / v + u with t the sum over the v stages of a submesh. Exact as above.
zb-h1             B·t + (P−1)·(f + i − w) + u with i + w = b. Exact when also f = i = w and B ≥ P.
zb-v, dualpipe-v  B·t + (P−1)·t / 6 + u with t the sum over the two stages of a submesh. Exact as zb-h1.
v-half            B·t + (3P−4)·t / 6 + u; for P = 2 it is 3 sixths, for P = 1 none. Exact as zb-h1.
v-min             B·t + (4P−5)·t / 6 + u, 4P−3 sixths where 3 divides P; for P = 1 none. Exact as zb-h1.
dualpipe          B·t + (P/2−1)·t / 3 + u with t of one stage: B/2 microbatches run through two of them. Exact as zb-h1.

The V shapes are published as about 0, p/2 and 2p/3 of t (Qi et al. 2024), DualPipe as (P/2−1)(F&B + B − 3w): a third of
t more, since here the previous stage waits for i, not for the whole of b.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from alpa_explore.schedules.simulator.times import StageTimes
from alpa_explore.schedules.task import Schedule


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosedForm:
    """A makespan by formula."""

    seconds: float
    formula: str
    exact: bool
    """Whether the formula is exact for these times."""
    bubble_fraction: float
    """1 − mean busy seconds of a submesh / seconds."""


def closed_form(schedule: Schedule, times: Sequence[StageTimes]) -> ClosedForm | None:
    """The formula for the schedule of this name, evaluated; None when it has none (a schedule from a file)."""
    if schedule.name not in _FORMULAS:
        return None
    b, submeshes = schedule.num_microbatches, schedule.num_submeshes
    updates = [t.update_seconds for t in times]
    seconds, formula, exact = _FORMULAS[schedule.name](times, b, submeshes)
    total = seconds + max(updates)
    busy = sum(b / schedule.copies * t.microbatch_seconds + t.update_seconds for t in times) / submeshes
    bubble = max(1.0 - busy / total, 0.0) if total else 0.0
    return ClosedForm(seconds=total, formula=formula, exact=exact and _close(updates), bubble_fraction=bubble)


_Formula = tuple[float, str, bool]
"""(seconds without the update, the formula as text, whether it is exact)."""


def _gpipe(times: Sequence[StageTimes], b: int, _submeshes: int) -> _Formula:
    forward = [t.forward_seconds for t in times] + [t.send_forward_seconds for t in times[:-1]]
    backward = [t.backward_seconds for t in times] + [t.send_backward_seconds for t in times[1:]]
    seconds = sum(forward) + sum(backward) + (b - 1) * (max(forward) + max(backward))
    return seconds, "Σf + (B−1)·max f + Σb + (B−1)·max b, sends counted", True


def _one_f_one_b(times: Sequence[StageTimes], b: int, _submeshes: int) -> _Formula:
    latency = [t.microbatch_seconds for t in times]
    return sum(latency) + (b - 1) * max(latency), "Σt + (B−1)·max t", _equal(times)


def _interleaved(times: Sequence[StageTimes], b: int, submeshes: int) -> _Formula:
    latency = [sum(t.microbatch_seconds for t in times[p::submeshes]) for p in range(submeshes)]
    turns = len(times) // submeshes
    return b * max(latency) + (submeshes - 1) * max(latency) / turns, "B·t + (P−1)·t / v", _equal(times)


def _zero_bubble(times: Sequence[StageTimes], b: int, submeshes: int) -> _Formula:
    slow = max(times, key=lambda t: t.microbatch_seconds)
    forward, of_input, of_weight = slow.thirds
    seconds = b * slow.microbatch_seconds + (submeshes - 1) * (forward + of_input - of_weight)
    return seconds, "B·t + (P−1)·(f + i − w)", _equal_thirds(times) and b >= submeshes


def _zero_bubble_v(times: Sequence[StageTimes], b: int, submeshes: int) -> _Formula:
    return _v_shape(times, b, submeshes - 1, "B·t + (P−1)·t / 6")


def _v_half(times: Sequence[StageTimes], b: int, submeshes: int) -> _Formula:
    return _v_shape(times, b, {1: 0, 2: 3}.get(submeshes, 3 * submeshes - 4), "B·t + (3P−4)·t / 6")


def _v_min(times: Sequence[StageTimes], b: int, submeshes: int) -> _Formula:
    less = 5 if submeshes % 3 else 3
    return _v_shape(times, b, 4 * submeshes - less if submeshes > 1 else 0, f"B·t + (4P−{less})·t / 6")


def _v_shape(times: Sequence[StageTimes], b: int, sixths: int, formula: str) -> _Formula:
    """`times` are those of stages 0 … 2P − 1, of which k and 2P − 1 − k run on one submesh."""
    latency = max(a.microbatch_seconds + z.microbatch_seconds for a, z in zip(times, reversed(times), strict=True))
    return b * latency + sixths * latency / 6, formula, _equal_thirds(times) and 2 * b >= len(times)


def _dual_pipe(times: Sequence[StageTimes], b: int, submeshes: int) -> _Formula:
    latency = max(t.microbatch_seconds for t in times)
    return b * latency + (submeshes / 2 - 1) * latency / 3, "B·t + (P/2−1)·t / 3", _equal_thirds(times)


_FORMULAS = {
    "gpipe": _gpipe,
    "1f1b": _one_f_one_b,
    "eager-1f1b": _one_f_one_b,
    "interleaved-1f1b": _interleaved,
    "zb-h1": _zero_bubble,
    "zb-v": _zero_bubble_v,
    "v-half": _v_half,
    "v-min": _v_min,
    "dualpipe-v": _zero_bubble_v,
    "dualpipe": _dual_pipe,
}
_CLOSE = 1e-9
"""Relative difference up to which times count as equal."""


def _equal(times: Sequence[StageTimes]) -> bool:
    """Whether all stages are equal and sends take no time."""
    if not all(map(_close, zip(*(t.thirds for t in times), strict=True))):
        return False
    return not any(t.send_forward_seconds for t in times[:-1]) and not any(t.send_backward_seconds for t in times[1:])


def _equal_thirds(times: Sequence[StageTimes]) -> bool:
    """Whether, besides, forward, backward to inputs and backward to weights are equally long."""
    return _equal(times) and _close(times[0].thirds)


def _close(seconds: Sequence[float]) -> bool:
    return max(seconds) - min(seconds) <= _CLOSE * max(seconds)
