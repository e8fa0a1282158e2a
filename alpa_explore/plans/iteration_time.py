"""What an iteration takes: T, and its parts.

    T = passes + sends + sync and update + tied weights + overhead + waits

T is the end of the simulated timeline of the plan under its schedule. The parts are those of the submesh that ends
last: the forward and backward passes of its microbatches; sends, by how much T would be less if they took no time;
gradient sync and update, once; the sums of tied weights; what the software adds to an iteration; and waits, the rest:
the pipeline fills, drains, and waits for its slowest stage. So T is no more than the sum of what it names, and no less.

The pipeline DP minimises Eq. 2, which is near T: it counts sends as if nothing ran beside them, and spreads what is
paid once an iteration over the microbatches. This is the *objective*.

In the paper's mode (`PipelineOptions.paper`), and in plan files of versions before 0.4, T is Eq. 2 itself. Then

    simulated = T − counted + unequal + sends

where `counted` are the sends that T contains already (0 unless `communication` is on), `sends` the simulated seconds
less those where sends take no time, and `unequal` is 0 for equal stages, small else.

Of many microbatches a few are simulated: each further round of them adds the same time.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from alpa_explore.errors import ScheduleError
from alpa_explore.inter_op.schedule_terms import SCHEDULES, SIMULATED_AS, ScheduleTerms
from alpa_explore.plans.schedule_stages import planned_schedule
from alpa_explore.plans.value import PlanValue

if TYPE_CHECKING:
    from alpa_explore.plans.timeline import Shares
    from alpa_explore.schedules.simulator.timeline import Timeline

_MOST_TASKS = 2**16
"""Microbatches × stages up to which an iteration is simulated whole, in about 0.1 s."""
PASSES, SENDS, UPDATE = "forward and backward passes", "sends between stages", "gradient sync and update"
TIED, OVERHEAD, WAITS = "sums of tied weights", "overhead of the software", "waits (bubble)"


@dataclass(frozen=True, slots=True, kw_only=True)
class IterationTime:
    """One iteration under one schedule; see the module's docstring."""

    schedule: str
    planned_seconds: float
    """T."""
    counted_seconds: float
    """Of T: seconds of sends."""
    without_sends_seconds: float
    """Simulated, sends take no time."""
    simulated_seconds: float
    """Simulated, with sends."""
    mode: str = ""
    """`PipelineOptions.mode`: empty where T is what is simulated, and not Eq. 2."""
    objective_seconds: float = 0.0
    """Eq. 2 of the same stages."""
    bubble_fraction: float = 0.0
    """Share of the simulated iteration in which the average submesh runs no task."""
    parts: tuple[tuple[str, float], ...] = ()
    """(part, seconds) of T; () where T is Eq. 2."""

    @property
    def sends_seconds(self) -> float:
        """How much longer an iteration takes because of the sends between stages."""
        return self.simulated_seconds - self.without_sends_seconds

    @property
    def sends_fraction(self) -> float:
        """`sends_seconds` as a share of T."""
        return self.sends_seconds / max(self.planned_seconds, 1e-300)

    @property
    def unequal_seconds(self) -> float:
        """What the simulation differs from T by, sends aside."""
        return self.without_sends_seconds - (self.planned_seconds - self.counted_seconds)


def objective_seconds(plan: PlanValue) -> float:
    """Eq. 2 of the plan's stages, as the pipeline DP minimises it."""
    return plan.terms.iteration_seconds([s.latency_seconds for s in plan.stages], plan.once_seconds)


def iteration_time(plan: PlanValue) -> IterationTime | None:
    """Under the schedule that the plan was made for, simulated once per plan value.

    None where the plan has no timeline: an interleaved plan from a file that lacks the costs of its stages.
    """

    def simulated() -> IterationTime | None:
        with suppress(ScheduleError):
            return iteration(plan)
        return None

    found = plan.remembered("iteration time", simulated)
    if found is None or not found.mode or found.planned_seconds == plan.predicted.iteration_seconds:
        return found
    return replace(found, planned_seconds=plan.predicted.iteration_seconds)


def iteration(plan: PlanValue, shares: Shares | None = None) -> IterationTime:
    """What an iteration of a plan takes under its schedule. ScheduleError where it cannot run.

    With `shares` (of forward and backward pass, by layer) no operator is described; else those of the plan's own.
    """
    from alpa_explore.plans.timeline import plan_timeline  # late: the simulator loads more slowly than a plan

    b, submeshes = plan.options.num_microbatches, len(plan.stages)
    most = _MOST_TASKS // (submeshes * plan.terms.turns)
    if b <= max(most, 8 * submeshes):
        return iteration_time_of(plan, plan_timeline(plan, shares=shares))
    # The sends of an unequal pipeline that share a link settle slowly, and into long periods: half of them go by first.
    period = 2 * submeshes
    step = max(most // 2 // period, 2) * period
    first = step + b % period
    few, more = (
        iteration_time_of(at_b, plan_timeline(at_b, shares=shares))
        for at_b in (_at(plan, first), _at(plan, first + step))
    )
    return _extended(plan, few, more, (b - first) / step)


def iteration_time_of(plan: PlanValue, timeline: Timeline) -> IterationTime:
    """Under the schedule of `timeline`, which may be another than the plan's: T is then that of the same stages."""
    from alpa_explore.schedules.simulator.simulate import without_sends  # late: as above

    terms, once = _terms(plan, timeline), plan.once_seconds
    objective = terms.iteration_seconds([s.latency_seconds for s in plan.stages], once)
    simulated = timeline.makespan_seconds
    free = without_sends(timeline).makespan_seconds if timeline.has_sends else simulated
    mode = plan.options.pipeline.mode
    planned, counted = simulated, simulated - free
    if mode:
        own = terms == plan.terms and plan.predicted.iteration_seconds
        planned = plan.predicted.iteration_seconds if own else objective
        no_receiving = terms.iteration_seconds([s.latency_seconds - s.receive_seconds for s in plan.stages], once)
        counted = objective - no_receiving if any(s.receive_seconds for s in plan.stages) else 0.0
    return IterationTime(
        schedule=timeline.schedule.name,
        planned_seconds=planned,
        counted_seconds=counted,
        without_sends_seconds=free,
        simulated_seconds=simulated,
        mode=mode,
        objective_seconds=objective,
        bubble_fraction=timeline.bubble_fraction,
        parts=() if mode else _parts(plan, timeline, simulated - free),
    )


def _parts(plan: PlanValue, timeline: Timeline, sends: float) -> tuple[tuple[str, float], ...]:
    """The parts of T, of the submesh that ends last."""
    starts = timeline.schedule.starts
    last = max(range(len(starts) - 1), key=lambda p: float(timeline.end_seconds[starts[p] : starts[p + 1]].max()))
    tasks = timeline.submesh(last)
    updates = sum(
        t.update_seconds for s, t in enumerate(timeline.times) if timeline.schedule.submesh_of_stage[s] == last
    )
    waited = sum(
        float(sum(timeline.times[s].send_wait_seconds)) * timeline.schedule.num_microbatches / timeline.schedule.copies
        for s, submesh in enumerate(timeline.schedule.submesh_of_stage)
        if submesh == last
    )
    passes = float((timeline.end_seconds[tasks] - timeline.start_seconds[tasks]).sum()) - updates - waited
    overhead, tied = plan.overhead_seconds, plan.stages[last].tied_seconds
    found = {PASSES: passes, SENDS: sends, UPDATE: max(updates - tied - overhead, 0.0), TIED: tied, OVERHEAD: overhead}
    found[WAITS] = max(timeline.makespan_seconds - sum(found.values()), 0.0)
    return tuple((name, seconds) for name, seconds in found.items() if seconds > 0 or name in (PASSES, WAITS))


def _at(plan: PlanValue, num_microbatches: int) -> PlanValue:
    return replace(plan, options=replace(plan.options, num_microbatches=num_microbatches))


def _extended(plan: PlanValue, few: IterationTime, more: IterationTime, rounds: float) -> IterationTime:
    """`few` with so many times the microbatches that `more` has more."""

    def on(name: str) -> float:
        at_few: float = getattr(few, name)
        at_more: float = getattr(more, name)
        return at_few + rounds * (at_more - at_few)

    simulated = on("simulated_seconds")
    objective = objective_seconds(plan)
    idle = few.bubble_fraction * few.simulated_seconds
    idle += rounds * (more.bubble_fraction * more.simulated_seconds - idle)
    ahead = dict(more.parts)
    return replace(
        few,
        planned_seconds=objective if few.mode else simulated,
        counted_seconds=on("counted_seconds"),
        without_sends_seconds=on("without_sends_seconds"),
        simulated_seconds=simulated,
        objective_seconds=objective,
        bubble_fraction=idle / max(simulated, 1e-300),
        parts=tuple((name, at + rounds * (ahead.get(name, at) - at)) for name, at in few.parts),
    )


def _terms(plan: PlanValue, timeline: Timeline) -> ScheduleTerms:
    """The terms of Eq. 2 under the schedule of a timeline; those of the plan for a schedule from a file."""
    schedule = timeline.schedule
    if schedule.name == planned_schedule(plan):
        return plan.terms
    name = {simulated: name for name, simulated in SIMULATED_AS.items()}.get(schedule.name, schedule.name)
    if name not in SCHEDULES or len(plan.stages) == 1:
        return plan.terms
    turns = schedule.num_stages // schedule.num_submeshes
    turns = turns if name == "interleaved-1f1b" else plan.terms.stages_per_submesh
    return replace(plan.terms, schedule=name, stages_per_submesh=turns)
