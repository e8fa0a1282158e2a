"""Levers: which are offered, in which order they are asked, and how they are answered in Why."""

import re
from dataclasses import fields, replace
from typing import Any

import pytest
from alpa_explore_widgets.explorer import Explorer
from alpa_explore_widgets.panels.aside import estimated_gain, planned_gain, ranked_html
from alpa_explore_widgets.session.levers import levers
from alpa_explore_widgets.session.session import Session
from alpa_explore_widgets.session.settings import DEVICE_SETTINGS
from alpa_explore_widgets.session.sources import Sources
from alpa_explore_widgets.session.state import State

from alpa_explore.cluster.presets import load_preset
from alpa_explore.errors import AlpaExploreError
from alpa_explore.figures.keys import aside_key
from alpa_explore.plans.records import PlanOperator, PlanStage
from alpa_explore.plans.report.compare import change_text
from alpa_explore.questions.explain import COMPUTE, Limit, limits, mean_parts, time_parts
from tests.waiting import LIMIT_SECONDS
from tests.widgets.conftest import SETTINGS, make_plan, plan_and_wait


def test_each_lever_changes_one_thing_and_keeps_layers_and_batch(planner: Any) -> None:
    plan = make_plan("2x4:h100")
    settings = replace(SETTINGS, nodes=2, device="h100", memory_bytes=64.0 * 2**30)
    found = {c.name: c.settings for c in levers(settings, plan, Sources(planner.capture))}
    assert {"2 × network", "2 × node links", "2 × memory", "+ 1 node", "2 × nodes", "FP8", "h200 instead"} <= set(found)
    assert "h100 instead" not in found
    assert {"microbatches of 4, B 8 → 16", "no recomputation", "δ 0.5 → 0.25", "layers 4 → 2"} <= set(found)
    before = replace(settings, num_layers=plan.options.num_layers)
    for name, changed in found.items():
        differing = {f.name for f in fields(before) if getattr(changed, f.name) != getattr(before, f.name)}
        if "microbatches" in name:
            assert differing == {"microbatch", "num_microbatches"}
            assert changed.microbatch * changed.num_microbatches == before.microbatch * before.num_microbatches
        else:
            assert len(differing - set(DEVICE_SETTINGS) if "instead" in name else differing) == 1, name
    assert found["h200 instead"].memory_bytes is None, "figures of another device do not carry over"
    assert found["2 × network"].between_bandwidth == 2 * plan.cluster.between_nodes.bandwidth


def test_links_that_no_collective_crosses_promise_nothing_and_memory_at_most_its_limit(planner: Any) -> None:
    plan = make_plan("2x4:h100")
    settings = replace(SETTINGS, nodes=2, device="h100")

    def most() -> dict[str, float]:
        return {c.name: c.promise for c in levers(settings, plan, Sources(planner.capture))}

    assert "compute and collectives" in {limit.name for limit in limits(plan)}, "an old plan: what crosses is not known"
    assert most()["2 × network"] == 0.0
    plan.memo["limits"] = tuple(
        Limit(name=name, iteration_seconds=1.0, gain=gain, how="")
        for name, gain in (("links inside a node", 0.25), ("memory of a device", 0.125))
    )
    assert most()["2 × network"] == 0.0
    assert most()["2 × node links"] == 0.25
    assert most()["2 × memory"] == 0.125
    assert most()["+ 1 node"] == 0.0, "not known"


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


def test_more_nodes_and_other_devices_promise_what_they_can_save_at_most(planner: Any) -> None:
    plan = make_plan("2x4:h100")
    plan = replace(plan, stages=tuple(replace(stage, operators=(summed(stage),)) for stage in plan.stages))
    settings, sources = replace(SETTINGS, nodes=2, device="h100"), Sources(planner.capture)
    found = {c.name: c for c in levers(settings, plan, sources)}
    total = plan.predicted.iteration_seconds
    computing = mean_parts(time_parts(plan))[COMPUTE]
    assert 0 < computing < total
    assert found["+ 1 node"].promise == pytest.approx(1 - computing / total * 2 / 3)
    assert found["2 × nodes"].promise == pytest.approx(1 - computing / total / 2)
    flops = plan.model.model_flops * plan.options.num_microbatches
    peak = load_preset("h200")[0].peak(plan.model.precision)
    assert found["h200 instead"].promise == pytest.approx(1 - flops / 8 / peak / total)
    again = replace(plan, stages=tuple(replace(stage, recomputation="full") for stage in plan.stages))
    more = next(c for c in levers(settings, again, sources) if c.name == "2 × nodes")
    assert more.promise == pytest.approx(1 - computing / total / 2 * 2 / 3), "nothing need be computed twice there"


def test_what_the_hardware_does_not_have_is_not_offered(planner: Any) -> None:
    names = {c.name for c in levers(SETTINGS, make_plan(), Sources(planner.capture))}
    assert not names & {"2 × network", "2 × nodes", "FP8"}, "one node of V100"
    alone = replace(SETTINGS, device="1x4:h100+1x4:a100-80gb")
    assert all(lever.free for lever in levers(alone, make_plan(), Sources(planner.capture)))


def shown(state: State, session: Session) -> dict[str, str]:
    """Lever -> its answer in Why, with what can be pressed."""
    found = session.levers()
    gains = {lever.name: gain for lever in found if (gain := planned_gain(state, lever)) is not None}
    rows = re.findall(r"<li>(.*?)</li>", ranked_html(state, found, gains).partition("<h4>Yours")[0])
    texts = [re.findall(r">([^<]+)<", re.sub("<em>.*?</em>", "", row)) for row in rows]
    return {name: " · ".join(said) for name, *said in texts}


def test_levers_are_planned_aside_in_the_order_of_their_promise_and_their_answers_open(
    session: Session, planner: Any
) -> None:
    plan_and_wait(session)
    before, found = session.store.state, session.levers()
    known = {lever.name: estimated_gain(before, lever) for lever in found}
    for name, said in shown(before, session).items():
        guess = f"≈ {change_text(-(known[name] or 0.0))}, an estimate · exact in about 1 s · Try"
        assert said == ("not asked yet · about 1 s · Try" if known[name] is None else guess), name
    assert known["+ 1 node"] == pytest.approx(0.5), "of the work of one node each of two does half"
    assert known["layers 4 → 2"] is None
    session.select(aside_key("lever", "+ 1 node"))
    assert session.wait(LIMIT_SECONDS)
    state = session.store.state
    assert state.plan is before.plan
    assert shown(state, session)["+ 1 node"] == "±0 · Open"
    session.try_levers(free=True)
    assert session.wait(LIMIT_SECONDS)
    free = [lever for lever in found if lever.free]
    assert len(planner.plans) == 2 + len(free)
    session.try_levers()
    assert session.wait(LIMIT_SECONDS)
    assert len(planner.plans) == 1 + len(found), "what is known is not planned again"
    promised = [lever.name for lever in sorted(found, key=lambda lever: -lever.promise) if not lever.free]
    made = [entry.settings for entry in session.store.state.history.entries]
    bought = sorted((lever for lever in found if not lever.free), key=lambda lever: made.index(lever.settings))
    assert [lever.name for lever in bought] == ["+ 1 node", *(name for name in promised if name != "+ 1 node")]
    answer = re.search(r'"(plan:\d+)"', ranked_html(session.store.state, [found[-1]], {found[-1].name: 0.0}))
    assert answer is not None
    opened = answer[1]
    session.select(opened)
    assert session.store.state.settings == found[-1].settings
    assert not session.store.state.out_of_date


def test_a_lever_without_a_plan_says_why_and_a_faster_one_how_much(session: Session, planner: Any) -> None:
    plan_and_wait(session)
    lever = session.levers()[0]
    planner.error = AlpaExploreError("Nothing fits", found="a test", remedy="None.")
    session.try_levers(lever.name)
    assert session.wait(LIMIT_SECONDS)
    state = session.store.state
    assert shown(state, session)[lever.name].startswith("no plan: ")
    assert state.plan is not None
    half = replace(state.plan.predicted, iteration_seconds=state.plan.predicted.iteration_seconds / 2)
    entry = replace(state.history.entries[0], settings=lever.settings, plan=replace(state.plan, predicted=half))
    faster = replace(state, history=state.history.add_without_showing(entry))
    assert shown(faster, session)[lever.name] == "−50 % · Open"


def test_the_levers_stand_in_why_below_every_cost_and_cancel_keeps_what_is_known(
    explorer: Explorer, planner: Any
) -> None:
    plan_and_wait(explorer.session)
    explorer.go_to_tab("Why")
    why: Any = explorer.panels[explorer.tabs.selected]
    for name, _ in time_parts(explorer.plan)[0].parts:
        # The least of them are behind "all else".
        assert f"</i>{name} <b>" in why.list.value or f"{name} " in why.list.value.split('<span title="')[1], name
    planner.started.acquire()
    planner.gate.clear()
    why.plan_all.click()
    assert planner.started.acquire(timeout=LIMIT_SECONDS)
    assert "planning…" in why.list.value
    planner.gate.set()
    assert planner.started.acquire(timeout=LIMIT_SECONDS)
    planner.gate.clear()
    explorer.session.cancel()
    assert explorer.wait(LIMIT_SECONDS)
    assert why.list.value.count(">Open<") >= 1
    assert ">Try<" in why.list.value
    assert not why.plan_all.disabled
