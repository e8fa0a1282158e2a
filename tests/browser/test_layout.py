"""Where things stand in JupyterLab's default window (1400 × 900, file browser open) and in a narrow one (900 × 900)."""

import pytest
from playwright.sync_api import Locator

from tests.browser.harness.boxes import Box, box, boxes, rows
from tests.browser.harness.explorer import figure_tabs, show_again, show_baseline, show_tab, slider
from tests.browser.harness.page import WIDE, LabPage
from tests.daily import today

pytestmark = [pytest.mark.browser, pytest.mark.slow]

NARROW = (900, 900)
HIGH = 200
"""Pixels below the top of the explorer at which a figure begins."""
ASKING = ("Fit & scale", "Layouts")
"""Tabs that price hundreds of layouts when they are shown: `check_places` is called in test_asking.py."""
EIGHT_STAGES = {"tp": 1, "dp": 1, "pp": 8, "num_microbatches": 64, "num_layers": 8}
VISIBLE = ".alpa-panel:visible .alpa-figure"
PICTURE = ".alpa-figure, .alpa-flow"
"""A figure, or the graph of a stage."""
TITLES = (".xtitle", ".x2title", ".x3title", ".x4title", ".ytitle", ".y2title", ".y3title", ".y4title")
SHOW_TOP = "(e) => e.closest('.jp-Cell-outputWrapper').scrollIntoView({ block: 'start' })"
SCROLLED = ".jp-WindowedPanel-outer"


@pytest.fixture
def wide(lab_as_left: LabPage) -> LabPage:
    """An explorer of eight stages in the default window."""
    show_baseline(lab_as_left, show_again, **EIGHT_STAGES)
    _resize(lab_as_left, WIDE)
    return lab_as_left


@pytest.fixture
def narrow(wide: LabPage) -> LabPage:
    """The same in a window of 900 pixels: the file browser leaves half of it to the explorer."""
    _resize(wide, NARROW)
    return wide


def test_everything_above_the_figure_takes_one_row(wide: LabPage) -> None:
    explorer = _explorer(wide)
    assert 900 < box(wide.page.locator("body"), ".alpa-explorer").width < 1000, "the file browser is open"
    for what, count in (
        (".alpa-toolbar > button, .alpa-menu > button", 9),
        (".alpa-fact", 4),
        (".alpa-stages button", 8),
    ):
        found = boxes(explorer, what)
        assert len(found) == count, what
        assert rows(found) == 1, what
        assert max(b.right for b in found) <= box(explorer, ".alpa-main").right + 1, f"{what} fit"
    assert box(explorer, ".alpa-verdict").height <= 46, "two lines"
    assert box(explorer, ".alpa-tab-bar").height <= 28, "one line"


def test_in_every_tab_the_figure_begins_high_nothing_covers_a_legend_and_a_selection_moves_nothing(
    wide: LabPage,
) -> None:
    explorer = _explorer(wide)
    names = _tabs(explorer)
    of_today = names[today().toordinal() % 3 :: 3]
    many_entries = ("t_max", "Cluster", "Microbatches", "Timeline")  # once more, after the width has changed
    for size, some in ((WIDE, names), (NARROW, names), (WIDE, many_entries)):
        _resize(wide, size)
        for name in some:
            _show_tab(wide, name)
            if size == WIDE:
                _check_begins_high(wide, name)
            wide.wait_until(lambda: not _covered(explorer), f"nothing is covered in {name} at {size}")
            # What a selection adds is above the tabs, so few of them show what it does: on a wide page others each day.
            if some is names and (name in ("Layers", "Sharding") or (size == WIDE and name in of_today)):
                _check_a_selection_moves_nothing(wide, name)


def _check_begins_high(wide: LabPage, name: str) -> None:
    explorer = _explorer(wide)
    top = box(wide.page.locator("body"), ".alpa-explorer").top
    assert _figure(explorer).top - top <= HIGH, name


def _check_a_selection_moves_nothing(lab: LabPage, name: str) -> None:
    explorer = _explorer(lab)
    stage, selected = explorer.locator(".alpa-stages button").first, explorer.locator(".alpa-selected")
    before = _figure(explorer).top
    stage.click()
    selected.wait_for()
    assert abs(_figure(explorer).top - before) <= 1, f"{name}: selected by a click"
    lab.page.keyboard.press("Escape")
    lab.wait_until(lambda: selected.count() == 0, "nothing is selected")
    stage.press("Enter")
    selected.wait_for()
    assert abs(_figure(explorer).top - before) <= 1, f"{name}: selected by a key"
    stage.press("Escape")
    lab.wait_until(lambda: selected.count() == 0, "nothing is selected")
    assert abs(_figure(explorer).top - before) <= 1, f"{name}: cleared"


def test_the_strip_covers_nothing_that_is_last_in_a_tab(wide: LabPage) -> None:
    explorer = _explorer(wide)
    for name in ("Timeline", "Costs", "Sharding"):
        _show_tab(wide, name)
        wide.wait_until(
            lambda: _figure(explorer).bottom <= box(explorer, ".alpa-strip").top + 1,
            f"{name}: the strip covers the figure",
        )


def test_the_plan_button_is_always_in_sight_and_covers_no_control_that_has_the_focus(wide: LabPage) -> None:
    explorer = _explorer(wide)
    for height in (900, 640):
        _resize(wide, (WIDE[0], height))
        _show_tab(wide, "Cluster")
        view = _view(wide)
        button = box(explorer, ".alpa-plan-button")
        assert button.bottom <= view.bottom + 1
        assert button.top >= box(explorer, ".alpa-sliders").bottom
        explorer.get_by_label("Recompute", exact=True).focus()
        for _ in range(4):
            wide.page.keyboard.press("Tab")
            focused = wide.page.evaluate(
                "() => { const b = document.activeElement.getBoundingClientRect(); return [b.top, b.bottom]; }"
            )
            top = box(explorer, ".alpa-plan-button").top
            inside = wide.page.evaluate("() => Boolean(document.activeElement.closest('.alpa-plan-button'))")
            assert inside or focused[1] <= top + 1, f"{height}: {focused} under {top}"


def test_exports_are_in_a_menu_that_works_by_keyboard(wide: LabPage) -> None:
    explorer = _explorer(wide)
    page = wide.page
    button, menu = explorer.get_by_role("button", name="Export"), explorer.get_by_role("menu", name="Export")
    focused = "() => document.activeElement.textContent.trim()"
    assert button.get_attribute("aria-haspopup") == "menu"
    assert button.get_attribute("aria-expanded") == "false"
    button.focus()
    for key, item in (
        ("Enter", "Save plan"),
        ("ArrowDown", "HTML"),
        ("End", "DTensor code"),
        ("ArrowDown", "Save plan"),
        ("ArrowUp", "DTensor code"),
        ("Home", "Save plan"),
        ("c", "CSV"),
    ):
        page.keyboard.press(key)
        assert page.evaluate(focused) == item, key
    assert button.get_attribute("aria-expanded") == "true"
    assert menu.get_by_role("menuitem").count() == 12
    page.keyboard.press("Escape")
    assert menu.count() == 0
    assert button.evaluate("(e) => e === document.activeElement"), "the focus returns"
    assert button.get_attribute("aria-expanded") == "false"

    page.keyboard.press("ArrowUp")
    assert page.evaluate(focused) == "DTensor code"
    page.keyboard.press("Tab")
    assert menu.count() == 0, "Tab leaves the menu"
    button.click()
    explorer.locator(".alpa-verdict").click(position={"x": 5, "y": 5})
    assert menu.count() == 0, "a click elsewhere closes it"

    button.focus()
    page.keyboard.press("ArrowDown")
    with page.expect_download() as waiting:
        page.keyboard.press("Enter")
    assert waiting.value.suggested_filename.endswith(".plan.json")
    assert menu.count() == 0


def test_the_tools_of_a_figure_appear_with_the_pointer_or_the_focus(wide: LabPage) -> None:
    explorer = _explorer(wide)
    _show_tab(wide, "Layers")
    bar = explorer.locator(f"{VISIBLE} .modebar-group").first
    opacity = "(e) => Number(getComputedStyle(e).opacity)"
    wide.page.mouse.move(0, 0)
    wide.wait_until(lambda: bar.evaluate(opacity) == 0, "no tools without the pointer")
    explorer.locator(f"{VISIBLE}-graph").hover()
    wide.wait_until(lambda: bar.evaluate(opacity) == 1, "the tools appear")
    wide.page.mouse.move(0, 0)
    wide.wait_until(lambda: bar.evaluate(opacity) == 0, "and go")
    bar.get_by_role("button").first.focus()
    wide.wait_until(lambda: bar.evaluate(opacity) == 1, "the tools appear for the keyboard")


def test_an_operator_and_its_other_strategies_move_no_figure(wide: LabPage) -> None:
    explorer = _explorer(wide)
    _show_tab(wide, "Sharding")
    explorer.locator(".alpa-panel:visible").get_by_role("combobox", name="View").select_option("matrix")
    graph = wide.figure(explorer.locator(".alpa-panel:visible"))
    before = _figure(explorer).top
    graph = wide.figure(explorer.locator(".alpa-panel:visible"))
    graph.evaluate(
        """(g) => { const keys = g.data.flatMap((t) => (t.customdata ?? []).flat(2));
          const key = keys.find((k) => String(k).includes('operator:'));
          g.emit('plotly_click', { points: [{ customdata: key, data: {} }] }); }"""
    )
    explorer.locator(".alpa-selected", has_text="operator").wait_for()
    explorer.get_by_role("button", name="Pin spec").wait_for()
    assert abs(_figure(explorer).top - before) <= 1
    explorer.locator(".alpa-stages button").first.press("Escape")
    wide.wait_until(lambda: explorer.locator(".alpa-selected").count() == 0, "nothing is selected")
    assert abs(_figure(explorer).top - before) <= 1


def test_on_a_narrow_page_b_its_effect_and_the_figure_are_seen_together(lab: LabPage) -> None:
    show_baseline(lab, **EIGHT_STAGES)
    _resize(lab, NARROW)
    narrow, explorer = lab, _explorer(lab)
    for name in ("Layers", "Timeline", "Sharding"):
        _show_tab(narrow, name)
        handle = slider(explorer, "B, microbatches")
        handle.focus()
        tile = explorer.locator(".alpa-time")
        before = tile.inner_text()
        narrow.page.keyboard.press("ArrowRight")
        narrow.wait_until(lambda: tile.inner_text() != before, "the iteration time follows B")  # noqa: B023
        view = _view(narrow)
        for part in (".alpa-sliders", ".alpa-time", ".alpa-tabs"):
            first = boxes(explorer, part)[0]
            assert view.top - 1 <= first.top, f"{name}: {part}"
            assert first.bottom <= view.bottom + 1, f"{name}: {part}"
        assert view.overlap(_figure(explorer))[1] >= 250, name
        narrow.page.keyboard.press("ArrowLeft")
        narrow.wait_until(lambda: tile.inner_text() == before, "as before")  # noqa: B023


def test_on_a_narrow_page_the_sliders_stay_on_top_while_the_page_is_scrolled(narrow: LabPage) -> None:
    explorer = _explorer(narrow)
    _show_tab(narrow, "Cluster")
    narrow.page.mouse.move(600, 700)
    narrow.page.mouse.wheel(0, 300)
    view = _view(narrow)
    narrow.wait_until(lambda: box(explorer, ".alpa-verdict").top < view.top, "the page is scrolled")
    assert abs(box(explorer, ".alpa-sliders").top - view.top) < 4


def test_on_a_narrow_page_all_other_controls_are_in_a_drawer(narrow: LabPage) -> None:
    explorer = _explorer(narrow)
    model = explorer.get_by_label("Model", exact=True)
    assert not model.is_visible()
    handle = explorer.get_by_role("button", name="Settings")
    handle.focus()
    narrow.page.keyboard.press("Enter")
    model.wait_for()
    narrow.page.keyboard.press("Tab")
    assert model.evaluate("(e) => e === document.activeElement"), "its controls come next"
    handle.focus()
    narrow.page.keyboard.press("Enter")
    narrow.wait_until(lambda: not model.is_visible(), "the drawer is closed")


def test_the_selected_tab_is_in_view_where_not_all_fit(narrow: LabPage) -> None:
    explorer = _explorer(narrow)
    row, more = ".alpa-tabs", explorer.locator(".alpa-more")
    explorer.locator(f"{row} [aria-selected=true]").focus()
    for key in ("Home", "ArrowLeft"):
        narrow.page.keyboard.press(key)
        chosen, bar = boxes(explorer, f"{row} [aria-selected=true]")[0], box(explorer, row)
        assert bar.top - 1 <= chosen.top, key
        assert chosen.bottom <= bar.bottom + 1, key
        assert (more.get_attribute("aria-expanded") == "true") is (key == "ArrowLeft"), (
            "the last one is in another line"
        )
    narrow.page.keyboard.press("Escape")
    assert box(explorer, row).height <= 28, "the other lines are hidden"
    assert more.inner_text().startswith("Accuracy"), "the chosen tab is named"
    more.click()
    explorer.get_by_role("tab", name="Overview", exact=True).click()
    assert more.inner_text().startswith("More")


def test_the_explorer_follows_the_width_of_the_page(wide: LabPage) -> None:
    explorer = _explorer(wide)
    _show_tab(wide, "Timeline")
    toggle = "window.jupyterapp.commands.execute('application:toggle-left-area')"
    for change in (NARROW, WIDE, toggle, toggle):
        if isinstance(change, str):
            wide.page.evaluate(change)
        else:
            _resize(wide, change)
        _fits(wide, explorer)


def check_places(lab: LabPage, name: str) -> None:
    """Nothing covers a legend in this tab, and a selection moves nothing, in both windows."""
    for size in (WIDE, NARROW):
        _resize(lab, size)
        _show_tab(lab, name)
        lab.wait_until(lambda: not _covered(_explorer(lab)), f"nothing is covered in {name} at {size}")
        _check_a_selection_moves_nothing(lab, name)
    _resize(lab, WIDE)


def _covered(explorer: Locator) -> list[tuple[Box, Box]]:
    """What lies over something else in the figure on screen: legends, tools, titles, colour bars, plots."""
    figure = explorer.locator(VISIBLE)
    legends, bars, plots = (boxes(figure, what) for what in (".legend", ".modebar", ".nsewdrag"))
    others = boxes(figure, ".gtitle", ".infolayer .colorbar", *TITLES)
    pairs = [(a, b) for a in legends for b in others + bars + plots] + [(a, b) for a in bars for b in others]
    return [(a, b) for a, b in pairs if a.covers(b)]


def _fits(lab: LabPage, explorer: Locator) -> None:
    """The figure is as wide as its place, nothing is wider than the page, and no part covers another one."""
    lab.wait_until(lambda: _fills(explorer), "the figure has the width of its place")
    assert explorer.evaluate("(e) => e.scrollWidth <= e.clientWidth")
    assert explorer.evaluate(
        "(e) => { const o = e.closest('.jp-Cell-outputArea'); return o.scrollWidth <= o.clientWidth; }"
    )
    parts = boxes(explorer, ".alpa-sliders", ".alpa-plan-button", ".alpa-main")
    if handle := boxes(explorer, ".alpa-drawer-handle"):  # in one column; in two the button may lie over controls
        parts += handle + boxes(explorer, ".alpa-drawer")
    column = boxes(explorer, ".alpa-verdict", ".alpa-stages", ".alpa-tab-bar", ".alpa-panel-head", PICTURE)
    head = boxes(explorer, ".alpa-toolbar", ".alpa-words", ".alpa-time")
    for group in (parts, column, head, boxes(explorer, ".alpa-panel-head .alpa-finding", ".alpa-panel-controls > *")):
        covered = [(a, b) for i, a in enumerate(group) for b in group[i + 1 :] if a.covers(b)]
        assert not covered


def _fills(explorer: Locator) -> bool:
    """Whether the figure has been drawn for the width that it has."""
    if boxes(explorer, ".alpa-flow"):
        return bool(boxes(explorer, ".alpa-flow-canvas"))
    place = box(explorer, ".alpa-figure-graph")
    return all(abs(drawn.width - place.width) < 1.5 for drawn in boxes(explorer, ".alpa-figure-graph .main-svg"))


def _explorer(lab: LabPage) -> Locator:
    return lab.page.locator(".alpa-explorer").first


def _tabs(explorer: Locator) -> list[str]:
    return [name for name in figure_tabs(explorer) if name not in ASKING]


def _figure(explorer: Locator) -> Box:
    return box(explorer, PICTURE)


def _view(lab: LabPage) -> Box:
    """What is seen of the notebook."""
    return box(lab.page.locator(".jp-NotebookPanel"), SCROLLED)


def _show_tab(lab: LabPage, name: str) -> None:
    """Select a tab, wait for its figure, scroll to the top of the output, and wait until nothing moves."""
    explorer = _explorer(lab)
    show_tab(explorer, name)
    lab.wait_until(lambda: len(boxes(explorer, PICTURE)) == 1, f"{name} is shown")
    if name == "Sharding":
        explorer.locator(".alpa-flow-canvas:visible").wait_for()
    else:
        lab.figure(explorer.locator(".alpa-panel:visible"))
    # Layouts and Fit & scale ask when they are shown; the line of progress above their figure goes with the answer.
    asking = explorer.locator(".alpa-panel .alpa-progress:visible")
    lab.wait_until(lambda: asking.count() == 0, f"{name} asks for nothing more")
    lab.wait_until(lambda: _fills(explorer), f"{name} has the width of its place")
    _rest(lab)


def _rest(lab: LabPage) -> None:
    """Scroll to the top of the output, once all is drawn that changes a height."""
    lab.rest()
    _explorer(lab).evaluate(SHOW_TOP)
    lab.wait_drawn()


def _resize(lab: LabPage, size: tuple[int, int]) -> None:
    """Change the window's size, and wait until the page has it."""
    lab.page.set_viewport_size({"width": size[0], "height": size[1]})
    lab.wait_until(lambda: bool(lab.page.evaluate("(w) => innerWidth === w", size[0])), "the window has its size")
    _rest(lab)
