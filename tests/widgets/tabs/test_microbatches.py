"""The Microbatches tab shows the plan at once, other B once they are known, and looks for them once for all B."""

import json
from threading import Event

import pytest
from alpa_explore_widgets import tab_groups
from alpa_explore_widgets.session.state import State
from alpa_explore_widgets.tab_groups import MicrobatchesPanel

from alpa_explore.planner.microbatches import microbatches_from_costs
from alpa_explore.planner.replan import replan
from alpa_explore.plans.plan import Plan
from tests.plans.example import example_plan
from tests.waiting import LIMIT_SECONDS, until
from tests.widgets.conftest import SETTINGS


def drawn(panel: MicrobatchesPanel) -> list[str]:
    """The values of B."""
    figure = panel.figure.figure_json
    return list(json.loads(figure)["data"][0]["x"]) if figure else []


def test_other_b_come_when_they_are_known_and_serve_every_b(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, gate = [], Event()

    def found(plan: Plan) -> tuple[object, ...]:
        asked.append(plan.options.num_microbatches)
        assert gate.wait(LIMIT_SECONDS)
        return microbatches_from_costs(plan)

    monkeypatch.setattr(tab_groups, "microbatches_from_costs", found)
    plan, panel = example_plan(), MicrobatchesPanel()
    panel.show(State(settings=SETTINGS, plan=plan), "light")
    assert drawn(panel) == ["32"]
    assert panel.busy(State(settings=SETTINGS, plan=plan))
    gate.set()
    until(lambda: len(drawn(panel)) == 11, "all B are drawn")
    other = replan(plan, num_microbatches=48)
    panel.show(State(settings=SETTINGS, plan=other), "light")
    assert drawn(panel) == sorted(
        [*(str(2**i) for i in range(10)), "48", "1,024"], key=lambda b: int(b.replace(",", ""))
    )
    assert asked == [32]
    rows = {row["num_microbatches"]: row for row in panel.rows(State(settings=SETTINGS, plan=other))}
    assert rows[48]["chosen"]
    assert rows[16]["iteration_seconds"] == replan(plan, num_microbatches=16).predicted.iteration_seconds
    assert not panel.busy(State(settings=SETTINGS, plan=other))


def test_rows_that_take_a_moment_are_drawn_at_once() -> None:
    panel = MicrobatchesPanel()
    panel.show(State(settings=SETTINGS, plan=example_plan(num_layers=2, blocks=2)), "light")
    until(lambda: len(drawn(panel)) == 11, "all B are drawn")
