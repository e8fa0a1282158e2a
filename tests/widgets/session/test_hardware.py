"""Single changes of the hardware: which are offered, how they are answered, and how one becomes the settings."""

from dataclasses import fields, replace
from typing import Any

import pytest
from alpa_explore_widgets.explorer import Explorer
from alpa_explore_widgets.session.hardware import hardware_changes
from alpa_explore_widgets.session.session import Session
from alpa_explore_widgets.session.settings import DEVICE_SETTINGS
from alpa_explore_widgets.session.sources import Sources
from alpa_explore_widgets.tabs.why import answer, planned_gain

from alpa_explore.cluster.presets import load_preset
from alpa_explore.errors import AlpaExploreError
from alpa_explore.plans.records import PlanOperator, PlanStage
from alpa_explore.questions.explain import COMPUTE, Limit, limits, mean_parts, time_parts
from tests.waiting import LIMIT_SECONDS
from tests.widgets.conftest import SETTINGS, make_plan, plan_and_wait


def test_each_change_changes_one_thing_and_keeps_the_layers(planner: Any) -> None:
    plan = make_plan("2x4:h100")
    settings = replace(SETTINGS, nodes=2, device="h100", memory_bytes=64.0 * 2**30)
    found = {c.name: c.settings for c in hardware_changes(settings, plan, Sources(planner.capture))}
    assert {"2 × network", "2 × node links", "2 × memory", "+ 1 node", "2 × nodes", "FP8", "h200 instead"} <= set(found)
    assert "h100 instead" not in found
    for name, changed in found.items():
        assert changed.num_layers == plan.options.num_layers
        differing = {f.name for f in fields(settings) if getattr(changed, f.name) != getattr(settings, f.name)}
        differing -= {"num_layers"}
        assert len(differing - set(DEVICE_SETTINGS) if "instead" in name else differing) == 1, name
    assert found["h200 instead"].memory_bytes is None, "figures of another device do not carry over"
    assert found["2 × network"].between_bandwidth == 2 * plan.cluster.between_nodes.bandwidth


def test_links_that_no_collective_crosses_save_nothing_and_memory_at_most_its_limit(planner: Any) -> None:
    plan = make_plan("2x4:h100")
    settings = replace(SETTINGS, nodes=2, device="h100")

    def most() -> dict[str, float | None]:
        return {c.name: c.most for c in hardware_changes(settings, plan, Sources(planner.capture))}

    assert "compute and collectives" in {limit.name for limit in limits(plan)}, "an old plan: what crosses is not known"
    assert most()["2 × network"] is None
    plan.memo["limits"] = tuple(
        Limit(name=name, iteration_seconds=1.0, gain=gain, how="")
        for name, gain in (("links inside a node", 0.25), ("memory of a device", 0.125))
    )
    assert most()["2 × network"] == 0.0
    assert most()["2 × node links"] == 0.25
    assert most()["2 × memory"] == 0.125
    assert most()["+ 1 node"] is None


def summed(stage: PlanStage) -> PlanOperator:
    """An operator of the stage with a collective of a millisecond over each mesh axis."""
    return PlanOperator(
        name="a",
        op="matmul",
        phase="forward",
        module="",
        layer=stage.layers[0],
        strategy="--",
        inputs=(),
        output="RR",
        outputs=("RR",),
        compute_seconds=0.0,
        communication_seconds=0.001,
        communication=(),
        flops=0,
        output_shape=(1,),
        axis_seconds=tuple(0.001 for size in stage.logical_mesh if size > 1),
    )


def test_more_nodes_and_other_devices_have_a_bound_before_they_are_planned(planner: Any) -> None:
    plan = make_plan("2x4:h100")
    plan = replace(plan, stages=tuple(replace(stage, operators=(summed(stage),)) for stage in plan.stages))
    settings, sources = replace(SETTINGS, nodes=2, device="h100"), Sources(planner.capture)
    found = {c.name: c for c in hardware_changes(settings, plan, sources)}
    total = plan.predicted.iteration_seconds
    computing = mean_parts(time_parts(plan))[COMPUTE]
    assert 0 < computing < total
    assert found["+ 1 node"].most == pytest.approx(1 - computing / total * 2 / 3)
    assert found["2 × nodes"].most == pytest.approx(1 - computing / total / 2)
    flops = plan.model.model_flops * plan.options.num_microbatches
    for name, device, dtype in (
        ("h200 instead", load_preset("h200")[0], plan.model.precision),
        ("FP8", plan.cluster.device, "float8_e4m3fn"),
    ):
        assert found[name].most == pytest.approx(1 - flops / 8 / device.peak(dtype) / total), name
    assert all(change.why_most for change in found.values())
    again = replace(plan, stages=tuple(replace(stage, recomputation="full") for stage in plan.stages))
    more = next(c for c in hardware_changes(settings, again, sources) if c.name == "2 × nodes")
    assert more.most == pytest.approx(1 - computing / total / 2 * 2 / 3), "nothing need be computed twice there"


def test_what_the_hardware_does_not_have_is_not_offered(planner: Any) -> None:
    names = {c.name for c in hardware_changes(SETTINGS, make_plan(), Sources(planner.capture))}
    assert not names & {"2 × network", "2 × nodes", "FP8"}, "one node of V100"
    alone = replace(SETTINGS, device="1x4:h100+1x4:a100-80gb")
    assert hardware_changes(alone, make_plan(), Sources(planner.capture)) == ()


def test_changes_are_planned_aside_and_a_press_shows_the_plan_that_was_made(session: Session, planner: Any) -> None:
    plan_and_wait(session)
    before = session.store.state
    changes = session.hardware_changes()
    assert all(planned_gain(before, change) is None for change in changes)
    assert {answer(before, change)[1] for change in changes} == {"pending"}
    session.try_hardware()
    assert session.wait(LIMIT_SECONDS)
    state = session.store.state
    assert state.plan is before.plan
    assert len(planner.plans) == 1 + len(changes)
    assert [answer(state, change) for change in changes] == [("±0", "")] * len(changes), "the test's planner"
    session.try_hardware()
    assert session.wait(LIMIT_SECONDS)
    assert len(planner.plans) == 1 + len(changes), "what is known is not planned again"
    session.choose_hardware("+ 1 node")
    state = session.store.state
    assert state.settings.nodes == 2
    assert not state.out_of_date
    assert len(planner.plans) == 1 + len(changes)


def test_a_press_on_a_change_without_an_answer_plans_it(session: Session, planner: Any) -> None:
    plan_and_wait(session)
    session.choose_hardware("2 × memory")
    assert session.wait(LIMIT_SECONDS)
    assert session.store.state.plan.cluster.device.memory_bytes == 32 * 2**30
    session.choose_hardware("no such change")
    assert len(planner.plans) == 2


def test_a_change_without_a_plan_says_why_and_a_faster_one_how_much(session: Session, planner: Any) -> None:
    plan_and_wait(session)
    change = session.hardware_changes()[0]
    planner.error = AlpaExploreError("Nothing fits", found="a test", remedy="None.")
    session.try_hardware()
    assert session.wait(LIMIT_SECONDS)
    text, tone = answer(session.store.state, change)
    assert text.startswith("no plan: ")
    assert tone == "worse"
    state = session.store.state
    assert state.plan is not None
    fast = replace(
        state.plan,
        predicted=replace(state.plan.predicted, iteration_seconds=state.plan.predicted.iteration_seconds / 2),
    )
    entry = replace(state.history.entries[0], settings=change.settings, plan=fast)
    assert answer(replace(state, history=state.history.add_without_showing(entry)), change) == ("−50 %", "better")


def test_the_changes_stand_in_why_and_cancel_keeps_what_is_known(explorer: Explorer, planner: Any) -> None:
    plan_and_wait(explorer.session)
    explorer.go_to_tab("Why")
    why: Any = explorer.panels[explorer.tabs.selected]
    planner.started.acquire()
    names = [name for name, *_ in why.changes.items]
    planner.gate.clear()
    why.plan_all.click()
    for _ in range(1):
        assert planner.started.acquire(timeout=LIMIT_SECONDS)
    planner.gate.set()
    assert planner.started.acquire(timeout=LIMIT_SECONDS)
    planner.gate.clear()
    explorer.session.cancel()
    assert explorer.wait(LIMIT_SECONDS)
    answers = {name: text for name, text, *_ in why.changes.items}
    assert answers[names[0]] == "±0"
    assert sum(text == "±0" for text in answers.values()) < len(names)
    assert not why.plan_all.disabled
    why.changes.receive(None, {"kind": "press", "name": names[0]}, None)
    assert explorer.settings == explorer.session.store.state.plan_settings


@pytest.mark.parametrize("content", [{"kind": "press"}, {"kind": "press", "name": "x"}, {}])
def test_a_press_on_nothing_does_nothing(explorer: Explorer, content: dict[str, str]) -> None:
    plan_and_wait(explorer.session)
    explorer.go_to_tab("Why")
    settings, why = explorer.settings, explorer.panels[explorer.tabs.selected]
    why.changes.receive(None, content, None)  # type: ignore[attr-defined]  # a WhyPanel
    assert explorer.settings == settings
