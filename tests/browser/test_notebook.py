"""The explorer in Notebook 7."""

from pathlib import Path

import pytest

from tests.browser.harness.explorer import SMALL, first_explorer, seen_figure, slider, tab
from tests.browser.harness.page import DARK, LIGHT, NotebookPage
from tests.browser.test_kernel import KERNEL, check_ended
from tests.plans.example import example_plan

pytestmark = [pytest.mark.browser, pytest.mark.slow]

_CELLS = "() => window.jupyterapp.shell.currentWidget.content.model.cells.length"


def test_in_notebook_7_the_explorer_works_by_keyboard_follows_the_theme_says_that_its_kernel_ended_and_plans_open(
    notebook: NotebookPage,
) -> None:
    notebook.load(notebook.server.write_notebook("seven.ipynb", SMALL))
    notebook.run_all()
    explorer = first_explorer(notebook)

    tab(explorer, "Layers").focus()
    for _ in range(2):
        notebook.page.keyboard.press("ArrowRight")
    notebook.wait_until(lambda: tab(explorer, "t_max").get_attribute("aria-selected") == "true", "arrows choose a tab")
    before = seen_figure(notebook, explorer)["data"]
    handle = slider(explorer, "B, microbatches")
    handle.press("ArrowRight")
    notebook.wait_until(lambda: seen_figure(notebook, explorer)["data"] != before, "an arrow moves B and the figure")
    notebook.rest()
    assert notebook.counts()["asked"] > 0
    assert handle.get_attribute("aria-valuetext") == "12"

    cells = notebook.page.evaluate(_CELLS)
    for key in ("a", "b", "x"):  # add a cell above, below, cut
        handle.press(key)
    assert notebook.page.evaluate(_CELLS) == cells, "letters typed in the explorer are no commands of the notebook"

    def paper() -> str:
        return str(seen_figure(notebook, explorer)["layout"]["paper_bgcolor"])

    light = paper()
    notebook.set_theme(DARK)
    notebook.wait_until(lambda: paper() != light, "the figure is drawn for a dark page")
    notebook.set_theme(LIGHT)
    notebook.wait_until(lambda: paper() == light, "and for a light one again")

    notebook.page.evaluate(f"{KERNEL}.restart()")
    check_ended(notebook, explorer, "Kernel restarted")
    notebook.wait_idle()
    notebook.run_all()
    notebook.wait_until(lambda: notebook.page.get_by_role("alert").count() == 0, "the last explorer is gone")
    first_explorer(notebook)

    example_plan().save(Path(notebook.server.root) / "seven.plan.json")
    notebook.page.goto(notebook.server.address.page("edit/seven.plan.json"))
    notebook.page.get_by_role("heading", name="on 2x4:v100").wait_for()
    assert notebook.page.get_by_role("button", name="Open in the explorer").is_visible()
