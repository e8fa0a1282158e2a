"""Back, forward, pin, selection, and what is tried aside: all of it in the one state of the session."""

from dataclasses import replace
from typing import Any

import pytest
from alpa_explore_widgets.explorer import Explorer
from alpa_explore_widgets.session.history import Entry, History
from alpa_explore_widgets.session.session import Session
from alpa_explore_widgets.session.tuning import HISTORY_ENTRIES
from hypothesis import given
from hypothesis import strategies as st

from alpa_explore.errors import AlpaExploreError
from alpa_explore.figures.keys import key
from alpa_explore.plans.plan import Plan
from tests.waiting import LIMIT_SECONDS
from tests.widgets.conftest import SETTINGS, make_plan, plan_and_wait, set_and_wait, type_and_wait

PLAN = make_plan()


def entry_of(b: int) -> Entry:
    return Entry(settings=replace(SETTINGS, num_microbatches=b), plan=replace(PLAN))


def test_a_plan_tried_aside_leaves_on_screen_what_was_even_where_the_oldest_has_to_go() -> None:
    entries = [entry_of(b) for b in range(1, HISTORY_ENTRIES + 2)]
    full = History(entries=tuple(entries[:HISTORY_ENTRIES]), position=HISTORY_ENTRIES - 1)
    for place in (1, HISTORY_ENTRIES // 2, HISTORY_ENTRIES - 1):
        tried = full.at(place).add_without_showing(entries[-1])
        assert tried.entries[tried.position] is entries[place]
    assert full.at(0).add_without_showing(entries[-1]).position == 0, "what was on screen is the oldest, and went"
    assert History().add_without_showing(entries[0]).entries == (entries[0],)


@given(st.lists(st.sampled_from(["add", "aside", "instead", "view", "undo", "redo"]), max_size=90))
def test_back_and_forward_are_those_of_a_browser_over_what_was_viewed(steps: list[str]) -> None:
    history = History()
    for number, step in enumerate(steps):
        if step in ("add", "instead", "aside"):
            entry = entry_of(number + 1)
            if step == "aside":
                history = history.add_without_showing(entry)
            else:
                history = history.add(entry, replace_last=step == "instead")
                assert history.entries[history.position] is entry
                assert not history.can_redo, "a new page"
        elif step == "view" and history.entries:
            viewed = history.at(number % len(history.entries))
            if viewed.position != history.position:
                assert viewed.back().position == history.position
                assert not viewed.can_redo
            history = viewed
        elif step == "undo" and history.can_undo:
            assert history.back().forward().position == history.position
            history = history.back()
        elif step == "redo" and history.can_redo:
            assert history.forward().back().position == history.position
            history = history.forward()
        assert len(history.entries) <= HISTORY_ENTRIES
        assert -1 <= history.position < len(history.entries)
        assert (history.position == -1) == (not history.entries)


@given(st.lists(st.tuples(st.sampled_from(["add", "aside", "instead", "undo"]), st.integers(1, 4)), max_size=40))
def test_no_two_plans_of_the_history_answer_the_same(steps: list[tuple[str, int]]) -> None:
    history = History()
    for step, b in steps:
        if step == "undo":
            history = history.back()
            continue
        entry, numbers = entry_of(b), {e.settings: place for place, e in enumerate(history.entries)}
        showing = step != "aside" or history.position < 0
        shown = None if showing else history.entries[history.position].settings
        history = (
            history.add_without_showing(entry)
            if step == "aside"
            else history.add(entry, replace_last=step == "instead")
        )
        asked = [e.settings for e in history.entries]
        assert len(set(asked)) == len(asked)
        assert history.plans[history.place(entry.settings)] is entry.plan, "the newest answer"
        assert history.entries[history.position].settings == (entry.settings if showing else shown)
        if step == "add" and entry.settings in numbers:
            assert history.position == numbers[entry.settings], "a plan keeps its number"


def test_a_pinned_plan_that_is_made_again_stays_pinned_and_a_baseline_is_a_plan_of_its_own() -> None:
    history = History().add(entry_of(8)).keep(0).add(entry_of(16)).add(entry_of(8))
    assert [entry.kept for entry in history.entries] == [True, False]
    assert history.position == 0
    made = replace(PLAN, options=replace(PLAN.options, baseline="zero3"))
    with_baseline = history.add_without_showing(Entry(settings=entry_of(8).settings, plan=made))
    assert len(with_baseline.entries) == 3
    assert with_baseline.place(entry_of(8).settings) == 0
    assert with_baseline.place(entry_of(8).settings, "zero3") == 2


def planned(session: Session, *counts: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("alpa_explore_widgets.session.tuning.SAME_MOVE_SECONDS", 0.0)
    plan_and_wait(session)
    for count in counts:
        set_and_wait(session, num_microbatches=count)


def test_undo_brings_plan_and_settings_back_without_planning(
    session: Session, planner: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned(session, 16, 32, monkeypatch=monkeypatch)
    session.undo()
    state = session.store.state
    assert (state.plan.options.num_microbatches, state.settings.num_microbatches) == (16, 16)
    assert not state.out_of_date
    session.undo()
    session.undo()
    assert session.store.state.settings.num_microbatches == 8
    session.redo()
    session.redo()
    assert session.store.state.settings.num_microbatches == 32
    assert (len(planner.plans), planner.replans) == (1, [16, 32])


def test_a_slider_that_goes_on_moving_leaves_one_entry(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    planned(session, monkeypatch=monkeypatch)
    monkeypatch.setattr("alpa_explore_widgets.session.tuning.SAME_MOVE_SECONDS", 1e9)
    for count in (9, 10, 11):
        set_and_wait(session, num_microbatches=count)
    counts = [entry.settings.num_microbatches for entry in session.store.state.history.entries]
    assert counts == [8, 11]


def test_a_slider_that_comes_back_in_one_move_leaves_the_plan_it_began_with(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned(session, monkeypatch=monkeypatch)
    monkeypatch.setattr("alpa_explore_widgets.session.tuning.SAME_MOVE_SECONDS", 1e9)
    for count, listed in ((9, [8, 9]), (8, [8]), (10, [8, 10]), (8, [8])):
        set_and_wait(session, num_microbatches=count)
        history = session.store.state.history
        assert [entry.settings.num_microbatches for entry in history.entries] == listed
        assert history.can_undo == (count != 8)


def test_a_slider_that_has_rested_leaves_another_entry(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    planned(session, monkeypatch=monkeypatch)
    monkeypatch.setattr("alpa_explore_widgets.session.tuning.SAME_MOVE_SECONDS", 0.05)
    for count in (9, 10):
        set_and_wait(session, num_microbatches=count)
        assert session.planning.end_of_move.wait(LIMIT_SECONDS)
        assert not session.store.state.moving
    counts = [entry.settings.num_microbatches for entry in session.store.state.history.entries]
    assert counts == [8, 9, 10]


def test_schedule_and_mode_are_answered_at_once(session: Session, planner: Any) -> None:
    plan_and_wait(session)
    set_and_wait(session, schedule="gpipe")
    state = set_and_wait(session, paper=False)
    assert state.plan is not None
    assert planner.replans == [(8, {"schedule": "gpipe"}), (8, {"paper": False})]
    assert (state.plan.options.pipeline.schedule, state.plan.options.pipeline.communication) == ("gpipe", True)
    assert not state.out_of_date


def test_only_options_that_differ_from_the_default_reach_the_planner(session: Session, planner: Any) -> None:
    session.set(solver="ilp", submesh_space="power-of-two", rematerialization=False, memory_bytes=2.0**35)
    plan_and_wait(session)
    options = planner.plans[0]
    assert (options["solver"], options["rematerialization"]) == ("ilp", False)
    assert options["pipeline"] == {"submesh_space": "power-of-two"}
    assert session.sources.cluster(session.store.state.settings).device.memory_bytes == 2**35


def test_figures_of_a_device_change_the_cluster_in_proportion(session: Session) -> None:
    plain = session.sources.cluster(SETTINGS)
    settings = replace(SETTINGS, peak_flops=250e12, inside_bandwidth=1e11, between_bandwidth=2e9)
    cluster = session.sources.cluster(settings)
    assert cluster.device.peak("float16") == 250e12
    ratio = cluster.device.peak("float32") / plain.device.peak("float32")
    assert ratio == pytest.approx(250e12 / plain.device.peak("float16"))
    assert (cluster.inside_node.bandwidth, cluster.between_nodes.bandwidth) == (1e11, 2e9)
    assert cluster.inside_node.latency_seconds == plain.inside_node.latency_seconds


def test_a_selection_is_one_value_that_every_figure_gets_and_escape_clears(explorer: Explorer, show_tab: Any) -> None:
    plan_and_wait(explorer.session)
    show_tab("Layers").figure.selection = key(stage=1, layer=2)  # as a click does
    assert explorer.session.store.state.selection == "stage:1/layer:2"
    assert explorer.bridge.selection == "stage:1/layer:2"
    assert "layer 2" in explorer.selected.line.value
    assert show_tab("Cluster").figure.selection == "stage:1/layer:2"
    sharding = show_tab("Sharding")
    assert sharding.stage.value == "1", "a tab about one stage shows the selected one"
    explorer.bridge.selection = ""  # as Escape does
    assert explorer.session.store.state.selection == sharding.figure.selection == ""
    assert explorer.selected.line.value == ""


def test_the_choice_of_a_stage_in_a_tab_selects_it_everywhere(explorer: Explorer, show_tab: Any) -> None:
    plan_and_wait(explorer.session)
    show_tab("Sharding").stage.value = "1"
    assert explorer.session.store.state.selection == "stage:1"


def test_a_key_that_names_nothing_selects_nothing(explorer: Explorer) -> None:
    plan_and_wait(explorer.session)
    explorer.bridge.selection = "stage:77"
    assert explorer.session.store.state.selection == explorer.bridge.selection == ""


def test_pin_compares_and_press_again_stops(explorer: Explorer, plan: Plan) -> None:
    plan_and_wait(explorer.session)
    explorer.toolbar_pressed("pin", {}, [])
    type_and_wait(explorer, num_microbatches=16)
    assert "alpa-better" in explorer.verdict.head.value, "more samples a second"
    assert explorer.toolbar.widget.pressed == ["pin"]
    explorer.toolbar_pressed("pin", {}, [])
    assert "alpa-better" not in explorer.verdict.head.value


def test_baselines_are_added_to_the_history_and_one_without_a_plan_is_counted(session: Session) -> None:
    plan_and_wait(session)
    session.try_baselines(("zero-3", "megatron"))
    assert session.wait(LIMIT_SECONDS)
    state = session.store.state
    assert [plan.options.baseline for plan in state.history.plans] == ["", "zero-3"]
    assert "Tried 2; 1 of them has no plan" in state.activity
    assert state.fault is None


def test_a_plan_that_was_tried_is_shown_by_its_mark(explorer: Explorer, show_tab: Any) -> None:
    plan_and_wait(explorer.session)
    explorer.session.try_baselines(("zero-3",))
    assert explorer.wait(LIMIT_SECONDS)
    search = show_tab("Search")
    search.figure.selection = "plan:1"  # as a click does
    assert explorer.plan.options.baseline == "zero-3"
    assert search.figure.selection == ""


def test_the_other_strategies_of_an_operator_are_found_when_asked(planner: Any, drawn: list[Any]) -> None:
    from alpa_explore_widgets import explore

    import alpa_explore as ax

    plan = ax.plan("mlp-tiny", "1x2:v100", num_microbatches=4, num_layers=2, scheduler="serial")
    explorer = explore(plan)
    stage = plan.stages[0]
    operator = next(o for o in stage.operators if o.phase == "forward" and o.flops)
    explorer.bridge.selection = key(stage=0, layer=operator.layer, operator=operator.name)
    assert explorer.selected.regrets_button.layout.display is None
    explorer.selected.regrets_button.click()
    assert explorer.session.wait(LIMIT_SECONDS)
    table = explorer.selected.table.value
    regrets = ax.regrets(plan, 0, operator.name)
    assert table.count("<tr>") == 1 + len(regrets)
    assert explorer.session.store.state.fault is None
    explorer.bridge.selection = "stage:0"
    assert explorer.selected.table.value == ""
    assert explorer.selected.regrets_button.layout.display == "none"


def test_what_has_no_plan_is_kept_with_its_reason_until_it_is_tried_again(session: Session, planner: Any) -> None:
    plan_and_wait(session)
    session.try_baselines(("data-parallel", "megatron"))
    assert session.wait(LIMIT_SECONDS)
    (failed,) = session.store.state.no_plans
    assert failed == ("megatron", "nothing fits: a test", "gpt-tiny")
    assert session.store.state.activity == "Tried 2; 1 of them has no plan: see Why and Search."

    planner.error = AlpaExploreError("Too many layers", found="8", remedy="None.")
    state = session.store.state
    assert state.plan_settings is not None
    session.try_settings((replace(state.plan_settings, num_layers=8),), ("layers 4 → 8",))
    assert session.wait(LIMIT_SECONDS)
    assert [n.name for n in session.store.state.no_plans] == ["megatron", "layers 4 → 8"]
    planner.error = None
    session.try_baselines(("data-parallel",))
    assert session.wait(LIMIT_SECONDS)
    assert [n.name for n in session.store.state.no_plans] == ["megatron", "layers 4 → 8"], "another one was tried"
    session.try_settings((replace(state.plan_settings, num_layers=8),), ("layers 4 → 8",))
    assert session.wait(LIMIT_SECONDS)
    assert [n.name for n in session.store.state.no_plans] == ["megatron"]
    session.try_baselines(("data-parallel", "zero-1"))
    assert session.wait(LIMIT_SECONDS)
    assert not session.store.state.no_plans, "all baselines are tried anew"


def test_a_moving_slider_replaces_no_plan_that_was_kept(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    planned(session, monkeypatch=monkeypatch)
    monkeypatch.setattr("alpa_explore_widgets.session.tuning.SAME_MOVE_SECONDS", 1e9)
    for count in (9, 10, 11):
        set_and_wait(session, num_microbatches=count)
        if count == 9:
            session.keep(session.store.state.history.position)
    counts = [entry.settings.num_microbatches for entry in session.store.state.history.entries]
    assert counts == [8, 9, 11]
