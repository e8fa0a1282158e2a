"""Settings that differ in one value from those of a plan; "Try neighbours" plans them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from alpa_explore_widgets.session import tuning

if TYPE_CHECKING:
    from alpa_explore.plans.plan import Plan
    from alpa_explore_widgets.session.settings import Settings


def neighbours(settings: Settings, plan: Plan) -> tuple[Settings, ...]:
    """The next smaller and larger δ, half and twice the layers, the other choice of rematerialisation, and, where there
    are spec constraints, none of them.

    `settings` are those that `plan` was made with.
    """
    num_layers, delta = plan.options.num_layers, settings.delta
    smaller_delta = max((value for value in tuning.NEIGHBOUR_DELTAS if value < delta), default=None)
    larger_delta = min((value for value in tuning.NEIGHBOUR_DELTAS if value > delta), default=None)
    num_operators = sum(len(layer.operators) for layer in plan.layers)
    layer_counts = [count for count in (num_layers // 2, 2 * num_layers) if 1 <= count <= num_operators]
    # With num_layers=None the planner could choose another number for another δ, which would change two things at once.
    fixed_layers = replace(settings, num_layers=num_layers)
    return (
        *(replace(fixed_layers, delta=value) for value in (smaller_delta, larger_delta) if value is not None),
        *(replace(fixed_layers, num_layers=count) for count in layer_counts),
        replace(fixed_layers, rematerialization=not plan.model.rematerialization),
        *([replace(fixed_layers, spec_constraints=())] if fixed_layers.spec_constraints else []),
    )


def change_in_words(before: Settings | None, after: Settings) -> str:
    """'layers 6 → 12': what "Try neighbours" changed in `before`; 'other settings' where it is not known."""
    if before is None:
        return "other settings"
    if before.delta != after.delta:
        return f"δ {before.delta:g} → {after.delta:g}"
    if before.num_layers != after.num_layers:
        return f"layers {before.num_layers} → {after.num_layers}"
    if before.spec_constraints != after.spec_constraints:
        return "without spec constraints"
    return f"recomputation {'on' if after.rematerialization else 'off'}"
