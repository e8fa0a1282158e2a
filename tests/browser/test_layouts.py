"""Layouts in JupyterLab at the size that people have, with real keys and clicks."""

from __future__ import annotations

from typing import Any

import pytest

from tests.browser.harness.explorer import (
    explorer_of,
    finding,
    first_explorer,
    seen_figure,
    show_tab,
    wait_for_finding,
)
from tests.browser.harness.page import LabPage

pytestmark = [pytest.mark.browser, pytest.mark.slow]

TINY = """
from alpa_explore_widgets import explore
explore("llama-tiny", cluster="1x4:h100", num_microbatches=8, num_layers=2)
"""


@pytest.fixture
def tiny(lab: LabPage) -> LabPage:
    """An explorer with the tab on screen, in the default window: the layouts are priced when it is opened."""
    lab.show(TINY)
    show_tab(first_explorer(lab), "Layouts")
    wait_for_finding(lab, "uniform layouts of llama-tiny on 1x4:h100 fit")
    return lab


def named(figure: dict[str, Any], name: str) -> dict[str, Any]:
    return next(trace for trace in figure["data"] if trace.get("name") == name)


def test_layouts_are_priced_when_the_tab_is_opened(tiny: LabPage) -> None:
    explorer = explorer_of(tiny)
    assert "The plan (" in finding(explorer), "the plan is named in the same words"
    figure = seen_figure(tiny, explorer)
    assert named(figure, "fastest")
    assert figure["layout"]["xaxis"]["ticktext"] == ["1", "2", "4"]
    box = explorer.get_by_role("combobox", name="Across")
    box.focus()
    box.select_option("data")
    tiny.wait_until(
        lambda: "DP" in str(seen_figure(tiny, explorer)["layout"]["xaxis"]["title"]), "the columns are DP now"
    )


def test_a_filter_keeps_the_layouts_with_this_value(tiny: LabPage) -> None:
    explorer = explorer_of(tiny)
    choice = explorer.locator(".alpa-panel:visible").get_by_role("combobox", name="recomputation")
    choice.select_option("full")
    layout = explorer.locator(".alpa-panel:visible").get_by_role("combobox", name="Layout")
    tiny.wait_until(lambda: "full recomputation" in layout.inner_text(), "the layouts that can be opened recompute")
    choice.select_option("")
    tiny.wait_until(lambda: "full recomputation" not in layout.locator("option").first.inner_text(), "all again")


def test_a_layout_is_opened_as_a_plan_by_the_keyboard(tiny: LabPage) -> None:
    explorer = explorer_of(tiny)
    panel = explorer.locator(".alpa-panel:visible")
    panel.get_by_role("combobox", name="Layout").focus()
    panel.get_by_role("button", name="Open as plan").press("Enter")
    tiny.wait_until(
        lambda: "the plan" in [t.get("name") for t in seen_figure(tiny, explorer)["data"]],
        "the plan is marked in the heat map",
    )
