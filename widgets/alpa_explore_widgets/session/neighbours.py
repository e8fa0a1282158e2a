"""Settings one step away from those of a plan: what "Try neighbours" plans for."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from alpa_explore.plans.plan import Plan
    from alpa_explore_widgets.session.state import Settings

DELTAS = (0.1, 0.25, 0.5, 1.0)


def neighbours(settings: Settings, plan: Plan) -> tuple[Settings, ...]:
    """Another δ (the next smaller and larger), half and twice the layers, recomputation the other way, and nothing
    with spec constraints.

    `settings` are those that `plan` answers.
    """
    layers, delta = plan.options.num_layers, settings.delta
    lower = max((d for d in DELTAS if d < delta), default=None)
    higher = min((d for d in DELTAS if d > delta), default=None)
    operators = sum(len(layer.operators) for layer in plan.layers)
    counts = [count for count in (layers // 2, 2 * layers) if 1 <= count <= operators]
    # Layers as they are: the planner would choose others for another δ, and that would be two changes.
    fixed = replace(settings, num_layers=layers)
    return (
        *(replace(fixed, delta=value) for value in (lower, higher) if value is not None),
        *(replace(fixed, num_layers=count) for count in counts),
        replace(fixed, rematerialization=not plan.model.rematerialization),
        *([replace(fixed, spec_constraints=())] if fixed.spec_constraints else []),
    )
