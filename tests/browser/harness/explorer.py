"""The explorer on a page of JupyterLab, Notebook or voila: its controls, its tabs, and the visible figure."""

import zlib
from collections.abc import Callable
from typing import Any

from alpa_explore_widgets.tab_kinds.panel import css_name
from playwright.sync_api import Locator

from alpa_explore.plans.file.document import plan_text
from alpa_explore.plans.plan import Plan
from tests.browser.harness.page import GuardedPage, LabPage

SMALL = """
from alpa_explore_widgets import explore
explore("mlp-tiny", cluster="1x4:v100", num_microbatches=8, num_layers=2, b_keeps="microbatch")
"""
"""A cell whose plan takes a moment."""
LOADED = """
import alpa_explore as ax
from alpa_explore_widgets import explore
explore(ax.load_plan({file!r}))
"""
"""A cell that shows a plan file: nothing is planned."""
BASELINE = """
from pathlib import Path
import alpa_explore as ax
from alpa_explore_widgets import explore
file = Path({file!r})
if not file.exists():
    ax.baseline("gpt-tiny", "2x4:v100", "megatron", **{options}, delta=1.0).save(file)
explore(ax.load_plan(file))
"""
"""The same for a plan that is made when it is first shown."""
_NOTE = "_first = Out[1].session.store.state, Out[1].tabs.selected"
_AS_AT_FIRST = """
explorer, (first, tab) = Out[1], _first
now = explorer.session.store.state
assert (now.plan, now.settings) == (first.plan, first.settings), "it shows something else now"
explorer.tabs.selected = tab
answers = ("layouts", "scaling")  # of questions that take a while and whose answers stay true
explorer.session.store.change(**{name: value for name, value in vars(first).items() if name not in answers})
"""
_IS_HIDDEN = """(tab) => !tab.isConnected ? null : tab.offsetTop > tab.parentElement.firstElementChild.offsetTop + 3
  && !tab.closest('.alpa-tab-bar').classList.contains('alpa-open')"""
_TO_THE_TOP = """(explorer) => {
  document.activeElement?.blur();
  for (let part = explorer; part; part = part.parentElement) part.scrollTop = 0;
}"""


def show_again(lab: LabPage, cell: str) -> Locator:
    """The explorer of a cell for a test that looks, selects and opens tabs, but changes neither the settings nor what a
    tab of its own remembers: the one of the test before, where that showed the same."""
    if lab.shown == (cell,) and not lab.do(_AS_AT_FIRST):
        explorer = explorer_of(lab)
        for name in ("Tables", "Teach"):
            if (pressed := explorer.get_by_role("button", name=name, exact=True, pressed=True)).count():
                pressed.press("Enter")
        explorer.evaluate(_TO_THE_TOP)
        lab.rest()
        return explorer
    explorer = show_explorer(lab, cell)
    assert not (error := lab.do(_NOTE)), error
    lab.shown = (cell,)
    return explorer


def show_plan(lab: LabPage, plan: Plan, show: Callable[[LabPage, str], Locator] | None = None) -> Locator:
    """The explorer of a finished plan in place of the notebook's cells."""
    text = plan_text(plan)
    file = lab.server.root / f"{zlib.crc32(text.encode())}.plan.json"
    file.write_text(text)
    return (show or show_explorer)(lab, LOADED.format(file=file.name))


def show_baseline(lab: LabPage, show: Callable[[LabPage, str], Locator] | None = None, **options: int) -> Locator:
    """The same for Megatron's plan of gpt-tiny on 2×4 V100 with these options of `ax.baseline`."""
    name = "-".join(f"{name}{value}" for name, value in options.items())
    return (show or show_explorer)(lab, BASELINE.format(file=f"{name}.plan.json", options=options))


def show_explorer(lab: LabPage, cell: str) -> Locator:
    """The explorer of a cell in place of the notebook's cells, once it shows a plan."""
    lab.show(cell)
    explorer = explorer_of(lab)
    explorer.locator(".alpa-verdict").wait_for()
    lab.wait_guarded()
    return explorer


def first_explorer(page: GuardedPage) -> Locator:
    """The first explorer of the page, once it has a plan and its visible figure is drawn: that of the tab that was
    chosen, in place of the overview that of Layers."""
    explorer = explorer_of(page)
    explorer.get_by_text("Planned in").wait_for()
    page.wait_guarded()
    leave_overview(explorer)
    page.figure(explorer.locator(".alpa-panel:visible"))
    return explorer


def leave_overview(explorer: Locator, title: str = "Layers") -> None:
    """Select a tab with a figure of plotly in place of the overview, if that is what is shown."""
    explorer.locator('[role="tab"]').first.wait_for()
    if is_chosen(explorer, "Overview"):
        show_tab(explorer, title)


def type_number(explorer: Locator, name: str, text: str, key: str = "Enter") -> Locator:
    """Replace the text of a number's box by real keys and press `key`; returns the box."""
    return type_text(explorer.get_by_role("spinbutton", name=name), text, key)


def type_text(box: Locator, text: str, key: str = "Enter") -> Locator:
    """The same for any box."""
    box.focus()
    for pressed in ("Control+a", "Delete", *text, key):
        box.page.keyboard.press(pressed)
    return box


def note_of(box: Locator) -> str:
    """The line below a field, as a screen reader reads it with the box; '' if there is none."""
    described = box.get_attribute("aria-describedby")
    return box.page.locator(f"#{described}").inner_text() if described else ""


def slider(explorer: Locator, name: str) -> Locator:
    return explorer.get_by_role("slider", name=name)


def tab(explorer: Locator, title: str) -> Locator:
    """The tab with this title; where it is in a line that is hidden, that is opened first."""
    found = explorer.locator(".alpa-tabs").get_by_role("tab", name=title, exact=True)
    found.wait_for()
    while (is_hidden := found.evaluate(_IS_HIDDEN)) is None:
        pass  # the bar was drawn anew in between
    if is_hidden:
        explorer.locator(".alpa-more").click()
    return found


def show_tab(explorer: Locator, title: str, key: str = "") -> None:
    """Select a tab by the mouse, or by a key, and wait for its panel: until the kernel has made it, that of the tab
    before stays, faded."""
    chosen = tab(explorer, title)
    if key:
        chosen.press(key)
    else:
        chosen.click()
    explorer.locator(f".alpa-panel-{css_name(title)}.alpa-shown-panel:not(.alpa-late-panel)").wait_for()


def tab_titles(explorer: Locator) -> list[str]:
    """The titles of all tabs, in order."""
    return explorer.locator(".alpa-tabs").get_by_role("tab").all_text_contents()


def figure_tabs(explorer: Locator) -> list[str]:
    """Those with a figure of plotly, also while there is one plan and no run."""
    return [title for title in tab_titles(explorer) if title not in ("Overview", "Why", "Compare", "Run")]


def is_chosen(explorer: Locator, title: str) -> bool:
    """Whether the tab with this title is selected; selects nothing."""
    return explorer.locator('.alpa-tabs [aria-selected="true"]').all_text_contents() == [title]


def seen_figure(page: GuardedPage, explorer: Locator) -> dict[str, Any]:
    """Data and layout of the figure of the selected tab."""
    return page.read_figure(page.figure(explorer.locator(".alpa-panel:visible")))


def explorer_of(page: GuardedPage) -> Locator:
    """The first explorer of the page."""
    return page.page.locator(".alpa-explorer").first


def finding(explorer: Locator) -> str:
    """What the tab on screen says it found."""
    return explorer.locator(".alpa-finding:visible").inner_text()


def wait_for_finding(page: GuardedPage, words: str) -> None:
    """Until the finding of the first explorer has these words; the error says what it has instead."""
    explorer = explorer_of(page)
    page.wait_until(lambda: words in finding(explorer), lambda: f"{words}; it says: {finding(explorer)}")
