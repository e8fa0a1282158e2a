"""What an iteration takes with other nodes, microbatches or sequences, from the work of a device: an estimate."""

from __future__ import annotations

from typing import TYPE_CHECKING

from alpa_explore.sharding.rules.attention import HEAVY
from alpa_explore_widgets.session.settings import SCALED_SETTINGS

if TYPE_CHECKING:
    from alpa_explore.plans.plan import Plan
    from alpa_explore_widgets.session.state import State


def estimated_seconds(state: State) -> float | None:
    """Seconds of an iteration while the planner runs for settings that only scale the work of a device (no more is
    known of them); None where the plan on screen, or nothing, answers.

    T = once + Σt + (B − 1) · t_max, in which t grows with the FLOPs of a microbatch and shrinks with the devices, and
    `once`, what is paid once an iteration, stays.
    """
    plan, old, new = state.plan, state.plan_settings, state.settings
    if plan is None or old is None or not state.following or old.equal_in(SCALED_SETTINGS, new):
        return None
    if old.waits_for_plan(new) or new.sequence is None is not old.sequence:
        return None
    tokens = new.microbatch / old.microbatch
    if new.sequence is not None and new.sequence != old.sequence:
        tokens *= _sequence_work(plan, new.sequence / (plan.model.tokens / plan.model.samples))
    devices = new.nodes * new.devices_per_node / (old.nodes * old.devices_per_node)
    predicted, b = plan.predicted, plan.options.num_microbatches
    work = predicted.sum_latency_seconds + (b - 1) * predicted.t_max_seconds
    new_work = predicted.sum_latency_seconds + (new.num_microbatches - 1) * predicted.t_max_seconds
    return predicted.iteration_seconds - work + new_work * tokens / devices


def _sequence_work(plan: Plan, longer: float) -> float:
    """The FLOPs of a sample with so many times the tokens over those of now: those of attention grow with their
    square."""
    if plan.details is None:
        return longer
    operators = plan.details.graph.operators
    share = sum(o.flops for o in operators if o.kind in HEAVY) / sum(o.flops for o in operators)
    return longer * (1.0 - share + share * longer)
