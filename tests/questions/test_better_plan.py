"""A plan is better only where it saves more than predictions can tell."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import alpa_explore as ax
from alpa_explore.graph import TrainingGraph
from alpa_explore.plans.plan import Plan
from alpa_explore.questions import tuning
from tests.plans.example import example_plan

PRESENT, *OTHERS = (example_plan(name=name) for name in ("present", "without", "with"))
MODULE = sys.modules[ax.better_plan.__module__]


@given(st.tuples(*[st.sampled_from([-0.5, 0.0, 0.2, 0.99, 1.01, 3.0])] * 2))
def test_of_two_plans_that_save_a_share_the_first_that_saves_enough_or_clearly_more_is_the_best(
    saved: tuple[float, float],
) -> None:
    """Without sends in T and with them the planner makes a plan each; the shares are in units of the threshold."""
    seconds = {id(plan): 1.0 - tuning.BETTER * share for plan, share in zip(OTHERS, saved, strict=True)}
    made = iter(OTHERS)

    def planned(*_: Any, **__: Any) -> Plan:
        return next(made)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MODULE, "plan_anew", planned)
        patch.setattr(MODULE, "reprice", lambda plan, *_, **__: plan)
        patch.setattr(MODULE, "simulated_seconds", lambda plan: seconds.get(id(plan), 1.0))
        found = ax.better_plan(PRESENT, PRESENT.cluster, graph=object.__new__(TrainingGraph))
    best, least = PRESENT, 1.0
    for other in OTHERS:
        if 1.0 - seconds[id(other)] / least > tuning.BETTER:
            best, least = other, seconds[id(other)]
    assert found.best is best
    assert found.faster == pytest.approx(1.0 - least)
    assert (str(found) == "the present plan stays the best") is (best is PRESENT)
