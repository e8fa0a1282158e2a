"""The iteration time in words, the same everywhere: T with its sends and other parts; in the paper's mode that T is
ideal, and the sends beside it."""

from alpa_explore import units
from alpa_explore.plans.iteration_time import IterationTime, iteration_time, objective_seconds
from alpa_explore.plans.value import PlanValue
from alpa_explore.units import SMALL

_APART = 0.01
"""Share of T from which on the objective of the pipeline DP is shown beside it."""


def sends_share(time: IterationTime | None) -> str:
    """'of which 6.03 s sends', to stand beside T; in the paper's mode what T is, and '+ 7.4 % sends'; '' for nothing to
    say."""
    if time is None:
        return ""
    sends = _noticeable(time, time.sends_seconds)
    if not time.mode:
        return f"of which {units.seconds(time.sends_seconds)} sends" if sends else ""
    more = f", + {units.percent(time.sends_fraction)} sends" if sends and not time.counted_seconds else ""
    return f"{time.mode}{more}"


def sends_phrase(time: IterationTime) -> str:
    """'6.03 s of sends between stages (7.4 %)'."""
    return f"{units.seconds(time.sends_seconds)} of sends between stages ({units.percent(time.sends_fraction)})"


def iteration_phrase(time: IterationTime) -> str:
    """'87.6 s, of which 6.03 s are sends between stages (6.9 %)'; in the paper's mode '81.6 s (ideal, as in the paper)
    + 6.03 s of sends between stages (7.4 %) = 87.6 s': T, what is not in it, and their sum, simulated."""
    parts, total = iteration_parts(time), units.seconds(time.simulated_seconds)
    if time.mode and time.counted_seconds:
        return f"{parts}; simulated {total}"
    alone = not time.mode or parts == f"{units.seconds(time.planned_seconds)} ({time.mode})"
    return parts if alone else f"{parts} = {total}"


def iteration_parts(time: IterationTime) -> str:
    """`iteration_phrase` without the sum; '81.6 s' where T is all there is."""
    parts = units.seconds(time.planned_seconds)
    if not time.mode:
        return f"{parts}, of which {sends_phrase(time)}" if _noticeable(time, time.sends_seconds) else parts
    parts += f" ({time.mode})"
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


def sends_meaning(time: IterationTime) -> str:
    """What of the sends is in T and how they are computed: 'in T: 6.03 s of … = 87.6 s simulated with sends − …'."""
    if time.mode and time.counted_seconds:
        share = time.counted_seconds / max(time.planned_seconds, 1e-300)
        return (
            f"in T: {units.seconds(time.counted_seconds)} of sends between stages ({units.percent(share)} of T), as if "
            f"nothing ran beside them; simulated, they add {units.seconds(time.sends_seconds)} = {sends_sum(time)}"
        )
    return f"{'not in T' if time.mode else 'in T'}: {sends_phrase(time)} = {sends_sum(time)}"


def iteration_sum(plan: PlanValue) -> str:
    """The parts of T with their numbers; in the paper's mode Eq. 2 in symbols and with its numbers."""
    time = iteration_time(plan)
    if time is None or not time.parts:
        return eq_2_sum(plan)
    shown = [(name, s) for name, s in time.parts if _noticeable(time, s)]
    numbers = " + ".join(f"{units.seconds(seconds)} {name}" for name, seconds in shown)
    return f"T, simulated, = {numbers}" + (f"; {words}" if (words := objective_words(plan)) else "")


def eq_2_sum(plan: PlanValue) -> str:
    """Eq. 2 for this plan, in symbols and with its numbers."""
    p, terms, second = plan.predicted, plan.terms, units.seconds
    symbols = f"T = Σt{terms.share} + {terms.rounds_symbols}·t_max"
    numbers = (
        f"{second(p.sum_latency_seconds / terms.bubble_divisor)} + {terms.rounds_text} × {second(p.t_max_seconds)}"
    )
    if plan.tied_seconds:
        symbols, numbers = f"{symbols} + sums of tied weights", f"{numbers} + {second(plan.tied_seconds)}"
    if plan.overhead_seconds:
        symbols, numbers = f"{symbols} + overhead", f"{numbers} + {second(plan.overhead_seconds)}"
    return f"{symbols} = {numbers}"


def objective_words(plan: PlanValue) -> str:
    """'objective 12.61 s, predicted 12.80 s', where what the pipeline DP minimised differs from T by more than a
    little; else ''."""
    total, objective = plan.predicted.iteration_seconds, objective_seconds(plan)
    if plan.options.pipeline.mode or abs(objective - total) <= _APART * total:
        return ""
    return f"objective {units.seconds(objective)}, predicted {units.seconds(total)}"


def _noticeable(time: IterationTime, seconds: float) -> bool:
    return abs(seconds) >= SMALL * time.planned_seconds
