"""The JupyterLab extension: plan files open by double click, and a notebook with the explorer is one press away."""

from pathlib import Path

import pytest

from tests.browser.harness.page import LabPage
from tests.plans.example import example_plan

pytestmark = [pytest.mark.browser, pytest.mark.slow]

_OPEN = "(path) => window.jupyterapp.commands.execute('docmanager:open', { path }).then(() => null)"
_SOURCE = """() => {
  const { context } = window.jupyterapp.shell.currentWidget ?? {};
  return context?.path.endsWith('.ipynb') ? [context.model.toJSON().cells[0]?.source].flat().join('') : '';
}"""
"""The first cell of the visible notebook."""


def test_a_plan_file_opens_by_double_click_in_a_view_that_leads_to_the_explorer(lab: LabPage) -> None:
    plan = example_plan(mark="<img src=x onerror=alert(1)>")
    plan.save(Path(lab.server.root) / "mine.v2.plan.json")
    (Path(lab.server.root) / "bad.plan.json").write_text('{"format": 1}')
    lab.page.evaluate(_OPEN, "bad.plan.json")
    lab.page.get_by_text("not a plan of alpa_explore").wait_for()
    lab.page.locator(".jp-DirListing-item", has_text="mine.v2.plan.json").dblclick()
    view = lab.page.locator(".jp-RenderedHTMLCommon:visible", has=lab.page.get_by_role("heading"))
    view.wait_for()
    assert "on 2x4:v100" in view.inner_text()
    assert f"per iteration of {plan.options.num_microbatches} microbatches" in view.inner_text()
    assert "time per microbatch" in view.inner_text()
    assert view.locator("tbody tr").count() == len(plan.stages)
    assert view.locator("img").count() == 0, "a name is text"
    view.get_by_role("button", name="Open in the explorer").press("Enter")
    expected = 'explore(ax.load_plan("mine.v2.plan.json"))'
    lab.wait_until(lambda: expected in lab.page.evaluate(_SOURCE), "a notebook opens that shows it")


def test_the_palette_and_the_launcher_make_a_notebook_with_the_explorer(lab: LabPage) -> None:
    lab.page.evaluate("void window.jupyterapp.commands.execute('apputils:activate-command-palette')")
    lab.page.locator(".lm-CommandPalette-input").focus()
    lab.page.keyboard.type("Plan Explorer")
    lab.page.locator(".lm-CommandPalette-item", has_text="Plan Explorer").click()
    lab.wait_until(lambda: "explore(" in lab.page.evaluate(_SOURCE), "a notebook opens")
    lab.page.evaluate("void window.jupyterapp.commands.execute('launcher:create')")
    card = lab.page.locator(".jp-LauncherCard:visible", has_text="Plan Explorer")
    drawn = "(image) => image.complete && image.naturalWidth > 0"
    lab.wait_until(lambda: card.locator("img").evaluate(drawn), "the card has a picture rather than a letter")
    card.press("Enter")
    lab.wait_until(lambda: "explore(" in lab.page.evaluate(_SOURCE), "another notebook opens")
