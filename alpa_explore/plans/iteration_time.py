"""The time of an iteration: T, and beside it the sends between stages.

    T          Eq. 2 for the plan (`predicted.iteration_seconds`): what every figure calls the iteration time
    sends      simulated seconds of an iteration − simulated seconds of the same tasks where sends take no time
    unequal    simulated seconds without sends − T without the sends that it counts

    simulated = T − counted + unequal + sends

`counted` are the sends that T contains already: those of a plan with the option `communication`, else 0. `unequal` is
0 for equal stages, whose forward and backward passes take what the formula of the schedule assumes. Else it is small:
Eq. 2 spreads gradient sync and update over the microbatches, and ZB-H1 assumes a third of t for each of three passes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from alpa_explore.errors import ScheduleError
from alpa_explore.inter_op.schedule_terms import SCHEDULES, SIMULATED_AS, ScheduleTerms
from alpa_explore.plans.value import PlanValue

if TYPE_CHECKING:
    from alpa_explore.schedules.simulator.timeline import Timeline

_KEY = "iteration time"


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


def iteration_time(plan: PlanValue) -> IterationTime | None:
    """Under the schedule that the plan was made for, simulated once per plan value.

    None where the plan has no timeline: an interleaved plan from a file that lacks the costs of its stages.
    """
    if _KEY not in plan.memo:
        from alpa_explore.plans.timeline import plan_timeline  # late: the simulator loads more slowly than a plan

        try:
            plan.memo[_KEY] = iteration_time_of(plan, plan_timeline(plan))
        except ScheduleError:
            plan.memo[_KEY] = None
    found: IterationTime | None = plan.memo[_KEY]
    return found


def iteration_time_of(plan: PlanValue, timeline: Timeline) -> IterationTime:
    """Under the schedule of `timeline`, which may be another than the plan's: T is then that of the same stages."""
    from alpa_explore.schedules.simulator.simulate import without_sends  # late: as above

    terms, once = _terms(plan, timeline), plan.once_seconds
    planned = terms.iteration_seconds([s.latency_seconds for s in plan.stages], once)
    if terms == plan.terms:
        planned = plan.predicted.iteration_seconds
    no_receiving = terms.iteration_seconds([s.latency_seconds - s.receive_seconds for s in plan.stages], once)
    return IterationTime(
        schedule=timeline.schedule.name,
        planned_seconds=planned,
        counted_seconds=planned - no_receiving if any(s.receive_seconds for s in plan.stages) else 0.0,
        without_sends_seconds=without_sends(timeline).makespan_seconds,
        simulated_seconds=timeline.makespan_seconds,
    )


def _terms(plan: PlanValue, timeline: Timeline) -> ScheduleTerms:
    """The terms of Eq. 2 under the schedule of a timeline; those of the plan for a schedule from a file."""
    schedule = timeline.schedule
    name = {simulated: name for name, simulated in SIMULATED_AS.items()}.get(schedule.name, schedule.name)
    if name not in SCHEDULES or len(plan.stages) == 1:
        return plan.terms
    turns = schedule.num_stages // schedule.num_submeshes
    turns = turns if name == "interleaved-1f1b" else plan.terms.stages_per_submesh
    return replace(plan.terms, schedule=name, stages_per_submesh=turns)
