"""A figure of the course with its sliders in JupyterLab: the button beside a slider plays it."""

import pytest

from tests.browser.harness.page import LabPage

pytestmark = [pytest.mark.browser, pytest.mark.slow]

CELL = """\
import numpy as np
from alpa_explore_widgets.course import sliders

from alpa_explore.figures.course.planning.stage_table_player import stage_table_player

latency = np.full((2, 3, 2, 2), np.inf)
latency[0, 1, 0], latency[1, 2, 0], latency[0, 2, 1] = 0.04, 0.05, 0.06
table = sliders(stage_table_player(latency, [1, 2], 2, 8, ["1×1", "1×2"]))
table"""


def test_a_slider_is_played_to_its_end(lab: LabPage) -> None:
    lab.show(CELL)
    plot = lab.figure()

    def title() -> str:
        return str(plot.evaluate("(plot) => plot.layout.title.text")).replace("<br>", " ")

    assert title().endswith("440 ms in 2 stages, the least of all.")
    t_max, step = lab.page.get_by_role("slider").all()
    t_max.press("ArrowRight")
    lab.wait_until(lambda: title().endswith("480 ms in 1 stage."), "T of the next t_max")
    step.press("Home")
    lab.wait_until(lambda: "all cells are empty" in title(), "the empty table")
    lab.page.get_by_role("button", name="Play").press("Enter")
    lab.wait_until(lambda: "F(1, 1, 1) = 50 ms" in title(), "the first cell")
    lab.wait_until(lambda: title().endswith("480 ms in 1 stage."), "the last cell, and T")
    assert lab.ask("table.fields[1].label") == "'all: T'"
