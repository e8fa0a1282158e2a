"""The fields by keyboard, with the keys that a person presses: what is typed is taken, or the field says why not."""

import pytest
from playwright.sync_api import Locator

from tests.browser.harness.explorer import SMALL, first_explorer, note_of, show_tab, slider, tab, type_number, type_text
from tests.browser.harness.page import LabPage

pytestmark = [pytest.mark.browser, pytest.mark.slow]

B = "B, microbatches"
RUNS = "() => window.jupyterapp.shell.currentWidget.content.model.toJSON().cells.map((cell) => cell.execution_count)"


CELLS = (SMALL, "ran_below = True")


@pytest.fixture
def shown(lab_as_left: LabPage) -> LabPage:
    """A page with an explorer, whose values are put back by `explorer`, for the tests share it."""
    if lab_as_left.shown != CELLS:
        lab_as_left.show(*CELLS)
    return lab_as_left


@pytest.fixture
def explorer(shown: LabPage) -> Locator:
    """An explorer with B = 8 and δ = 0.5, which shows Layers."""
    explorer = first_explorer(shown)
    show_tab(explorer, "Layers")
    type_number(explorer, "FLOP tolerance", "0.5")
    set_b(shown, explorer, 8)
    shown.rest()
    return explorer


def has_focus(box: Locator) -> bool:
    return bool(box.evaluate("(box) => box === document.activeElement"))


def set_b(lab: LabPage, explorer: Locator, value: int, key: str = "Enter") -> Locator:
    """Type B and wait until the plan has it."""
    box = type_number(explorer, B, str(value), key)
    lab.wait_until(lambda: str(value) == lab.ask("Out[1].plan.options.num_microbatches"), f"B is {value}")
    return box


def test_enter_takes_a_typed_number_and_keeps_the_focus_and_tab_takes_it_and_leaves(
    shown: LabPage, explorer: Locator
) -> None:
    box = set_b(shown, explorer, 64)
    assert has_focus(box)
    assert slider(explorer, B).get_attribute("aria-valuetext") == "64"
    box = set_b(shown, explorer, 24, "Tab")
    assert not has_focus(box)
    type_number(explorer, "FLOP tolerance", "0.33")
    shown.wait_until(lambda: shown.ask("Out[1].plan.options.delta") == "0.33", "δ is taken")


def test_arrow_keys_step_a_number_by_one_or_to_the_next_stop(shown: LabPage, explorer: Locator) -> None:
    box = set_b(shown, explorer, 12)
    box.press("ArrowUp")
    shown.wait_until(lambda: shown.ask("Out[1].plan.options.num_microbatches") == "13", "one up")
    type_number(explorer, B, "1").press("ArrowDown")
    assert box.input_value() == "1", "there is nothing below"
    assert not box.get_attribute("aria-invalid")
    delta = explorer.get_by_role("spinbutton", name="FLOP tolerance")
    delta.press("ArrowUp")
    assert delta.input_value() == "0.6"
    delta.press("ArrowDown")
    assert delta.input_value() == "0.5"


def test_escape_restores_the_value_and_only_then_clears_the_selection(shown: LabPage, explorer: Locator) -> None:
    explorer.locator(".alpa-stages button").first.press("Enter")
    selected = explorer.locator(".alpa-selected")
    selected.wait_for()
    box = explorer.get_by_role("spinbutton", name=B)
    for typed in ("99", "0"):  # one that could be taken, one that is refused
        type_number(explorer, B, typed, "Escape")
        assert box.input_value() == "8"
        assert has_focus(box)
        assert selected.count() == 1
    type_number(explorer, B, "0").press("Escape")
    assert (box.input_value(), box.get_attribute("aria-invalid")) == ("8", None)
    assert selected.count() == 1
    box.press("Escape")
    shown.wait_until(lambda: selected.count() == 0, "nothing is left to restore, so Escape clears the selection")
    assert shown.ask("Out[1].settings.num_microbatches") == "8"


def test_a_refused_number_stays_in_the_box_with_the_reason(shown: LabPage, explorer: Locator) -> None:
    for typed, says in (
        ("0", "B: 1 to 65,536. 0 was typed; still 8."),
        ("65537", "B: 1 to 65,536. 65,537 was typed; still 8."),
        ("2.5", "B: a whole number, 1 to 65,536. 2.5 was typed; still 8."),
        ("-", "B: 1 to 65,536. That is not a number; still 8."),
        ("", "B: 1 to 65,536. Nothing was typed; still 8."),
    ):
        box = type_number(explorer, B, typed)
        assert box.get_attribute("aria-invalid") == "true", typed
        assert says in note_of(box)
        if typed != "-":  # a browser does not tell the text of a box that holds no number
            assert box.input_value() == typed
        assert shown.ask("Out[1].settings.num_microbatches") == "8"
    set_b(shown, explorer, 16)
    assert box.get_attribute("aria-invalid") is None
    assert "samples an iteration" in note_of(box)


def test_a_slider_move_replaces_a_refused_number(shown: LabPage, explorer: Locator) -> None:
    box = type_number(explorer, B, "0", "Tab")
    assert box.input_value() == "0"
    slider(explorer, B).press("ArrowRight")
    assert (box.input_value(), box.get_attribute("aria-invalid")) == ("12", None)


def test_what_python_refuses_is_said_in_the_field(shown: LabPage, explorer: Locator) -> None:
    box = type_number(explorer, "Layers", "500")
    explorer.get_by_role("button", name="Plan", exact=True).press("Enter")
    shown.wait_until(lambda: box.get_attribute("aria-invalid") == "true", "the field is marked")
    assert "Choose at most 13 layers" in note_of(box)
    type_number(explorer, "Layers", "2")
    shown.wait_until(lambda: box.get_attribute("aria-invalid") is None, "the mark is gone with the value")
    explorer.get_by_role("button", name="Plan", exact=True).press("Enter")
    explorer.get_by_text("Planned in").wait_for()


def test_no_key_in_the_explorer_runs_the_cell_or_leaves_it(shown: LabPage, explorer: Locator) -> None:
    before = shown.page.evaluate(RUNS)
    for place in (
        explorer.get_by_role("spinbutton", name=B),
        slider(explorer, B),
        explorer.get_by_role("combobox", name="Schedule"),
        tab(explorer, "Layers"),
        explorer.get_by_role("button", name="More options"),
    ):
        place.focus()
        for key in ("Shift+Enter", "Control+Enter", "Alt+Enter"):
            shown.page.keyboard.press(key)
            assert has_focus(place), key
    assert shown.page.evaluate(RUNS) == before
    box = type_number(explorer, B, "32", "Shift+Enter")
    shown.wait_until(lambda: shown.ask("Out[1].plan.options.num_microbatches") == "32", "Shift-Enter takes the number")
    assert has_focus(box)
    assert shown.page.evaluate(RUNS) == before


def test_lists_buttons_and_folds_by_keyboard(shown: LabPage, explorer: Locator) -> None:
    schedule = explorer.get_by_role("combobox", name="Schedule")
    schedule.focus()
    shown.page.keyboard.type("gpi")
    shown.wait_until(lambda: shown.ask("Out[1].plan.options.pipeline.schedule") == "'gpipe'", "letters choose")
    shown.page.keyboard.press("ArrowUp")
    shown.page.keyboard.press("ArrowUp")
    shown.wait_until(lambda: shown.ask("Out[1].plan.options.pipeline.schedule") == "'1f1b'", "arrows choose")
    fold = explorer.get_by_role("button", name="Device figures")
    memory = explorer.get_by_role("spinbutton", name="Memory")
    for key in ("Enter", "Space"):
        fold.press(key)
        memory.wait_for()
        fold.press(key)
        memory.wait_for(state="hidden")
        layers = type_number(explorer, "Layers", "3")
        explorer.get_by_text("Out of date").wait_for()
        explorer.get_by_role("button", name="Plan", exact=True).press(key)
        explorer.get_by_text("Out of date").wait_for(state="hidden")
        assert layers.input_value() == "3"
        type_number(explorer, "Layers", "2")
        explorer.get_by_role("button", name="Plan", exact=True).press(key)
        shown.wait_until(lambda: shown.ask("Out[1].plan.options.num_layers") == "2", "planned by keyboard")


def test_a_model_is_found_by_its_letters_and_taken_by_key_or_mouse(shown: LabPage, explorer: Locator) -> None:
    box = explorer.get_by_role("combobox", name="Model")
    listed = explorer.get_by_role("listbox").get_by_role("option")
    chosen = lambda: shown.ask("Out[1].settings.model")  # noqa: E731  # read again each time
    box.focus()
    shown.page.keyboard.press("ArrowDown")
    shown.wait_until(lambda: listed.count() > 24, "all models")
    assert listed.and_(shown.page.locator("[aria-selected=true]")).inner_text() == "mlp-tiny"
    shown.page.keyboard.type("70b llama")
    assert listed.all_inner_texts() == ["llama-2-70b", "llama-3-70b"], "words in any order"
    shown.page.keyboard.press("ArrowDown")
    assert box.get_attribute("aria-activedescendant") == listed.nth(1).get_attribute("id")
    shown.page.keyboard.press("Escape")
    assert (box.input_value(), listed.count(), chosen()) == ("mlp-tiny", 0, "'mlp-tiny'")
    box.press("Control+a")
    shown.page.keyboard.type("no such model")
    explorer.get_by_role("listbox").get_by_text("nothing has these words").wait_for()
    shown.page.keyboard.press("Enter")
    shown.page.keyboard.press("Tab")
    assert (box.input_value(), chosen()) == ("mlp-tiny", "'mlp-tiny'")
    box.click()
    shown.page.keyboard.type("vit-t")
    shown.page.keyboard.press("Enter")
    shown.wait_until(lambda: chosen() == "'vit-tiny'", "Enter takes it")
    explorer.get_by_text("ViT: 4 layers").wait_for()
    box.click()
    box.press("Control+a")
    shown.page.keyboard.type("mlp")
    listed.filter(has_text="mlp-tiny").click()
    shown.wait_until(lambda: chosen() == "'mlp-tiny'", "a click takes it")
    assert (box.input_value(), listed.count()) == ("mlp-tiny", 0)


def test_a_line_of_text_is_taken_by_enter_and_restored_by_escape(shown: LabPage, explorer: Locator) -> None:
    show_tab(explorer, "Run")
    where = explorer.get_by_role("combobox", name="Where")
    where.focus()
    shown.page.keyboard.type("a D")
    scheduler = explorer.get_by_role("textbox", name="Scheduler")
    scheduler.wait_for()
    value = "next(p for p in Out[1].panels if p.title == 'Run').scheduler.value"
    type_text(scheduler, "tcp://127.0.0.1:1")
    shown.wait_until(lambda: shown.ask(value) == "'tcp://127.0.0.1:1'", "Enter takes the address")
    assert has_focus(scheduler)
    type_text(scheduler, "nowhere", "Escape")
    assert scheduler.input_value() == "tcp://127.0.0.1:1"
    type_text(scheduler, "tcp://127.0.0.1:2", "Tab")
    shown.wait_until(lambda: shown.ask(value) == "'tcp://127.0.0.1:2'", "Tab takes it, too")
    type_number(explorer, "Steps", "7")
    explorer.get_by_role("button", name="7 steps").wait_for()
