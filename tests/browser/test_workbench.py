"""The workbench of the course in JupyterLab: strategies chosen by keyboard and by a click, and what methods choose."""

import pytest

from tests.browser.harness.page import LabPage

pytestmark = [pytest.mark.browser, pytest.mark.slow]

CELL = """\
from alpa_explore.course.examples import MLP
from alpa_explore_widgets.course import Workbench

mlp = MLP(cluster="1x4:a100@alpa", tokens=8192, num_microbatches=2)
bench = Workbench(mlp.problem, mlp.names, seconds=True)
bench"""
TRIANGLE = """\
import numpy as np

from alpa_explore.intra_op.problem.sharding_problem import ShardingProblem
from alpa_explore_widgets.course import Workbench

problem = ShardingProblem(
    name="triangle",
    node_costs=(np.zeros(2),) * 3,
    edges=((0, 1), (1, 2), (0, 2)),
    edge_costs=(np.eye(2),) * 3,
)
bench = Workbench(problem)
bench"""
# A click on a box: pixels depend on fonts, so the event that plotly would send is emitted instead.
CLICK = """(plot, key) => {
  const data = plot.data.find((t) => t.customdata?.includes(key));
  plot.emit('plotly_click', { points: [{ customdata: key, data }] });
}"""

FOCUS_AT_ONCE = """() => {
  const watcher = new MutationObserver(() => {
    const list = document.querySelector('.jp-OutputArea select');
    list?.focus();
    if (list && document.activeElement === list) watcher.disconnect();
  });
  watcher.observe(document.body, { childList: true, subtree: true });
}"""


def test_strategies_are_chosen_and_methods_compared(lab: LabPage) -> None:
    lab.show(CELL)
    plot = lab.figure()
    lab.wait_guarded()

    def title() -> str:
        return str(plot.evaluate("(plot) => plot.layout.title.text"))

    def after(act) -> str:
        before = title()
        act()
        lab.wait_until(lambda: title() != before, "the figure says the cost of another choice")
        return title()

    def button(name: str):
        return lab.page.get_by_role("button", name=name)

    assert title().endswith("a cheaper choice exists.")
    up = lab.page.get_by_role("combobox", name="up")
    up.focus()
    after(lambda: up.press("ArrowUp"))
    assert lab.ask("bench.choices[0]") == up.evaluate("(list) => String(list.selectedIndex)")
    after(lambda: plot.evaluate(CLICK, "operator:0.0"))
    assert lab.ask("bench.choices[0]") == "0"
    lab.wait_until(lambda: up.evaluate("(list) => list.selectedIndex") == 0, "the list follows the click")

    assert after(lambda: button("Greedy").press("Enter")).endswith("a cheaper choice exists.")
    optimum = after(lambda: button("Optimum").press("Enter"))
    assert optimum.endswith("this is the optimum.")
    assert float(lab.ask("bench.cost")) == pytest.approx(
        float(lab.ask("min(mlp.problem.evaluate((i, j)) for i in range(3) for j in range(3))"))
    )


def test_a_list_that_had_the_focus_before_the_page_was_ready_has_its_keys(lab: LabPage) -> None:
    """What is focused before the bridge has started is no place of commands of the notebook either."""
    lab.page.evaluate(FOCUS_AT_ONCE)
    lab.show(TRIANGLE)
    plot = lab.figure()
    lab.wait_guarded()
    before = plot.evaluate("(plot) => plot.layout.title.text")
    assert lab.page.evaluate("document.activeElement.tagName") == "SELECT"
    lab.page.keyboard.press("ArrowDown")
    lab.wait_until(lambda: plot.evaluate("(plot) => plot.layout.title.text") != before, "another strategy is chosen")


def test_lists_are_blank_while_strategies_are_chosen_in_part(lab: LabPage) -> None:
    lab.show(TRIANGLE)
    plot = lab.figure()
    lab.wait_guarded()
    lists = [lab.page.get_by_role("combobox", name=f"node {v}") for v in range(3)]

    def chosen() -> list[int]:
        return [node.evaluate("(list) => list.selectedIndex") for node in lists]

    assert -1 not in chosen()
    lab.page.get_by_role("button", name="LP relaxation").press("Enter")
    lab.wait_until(lambda: "in part" in plot.evaluate("(plot) => plot.layout.title.text"), "the relaxation is drawn")
    lab.wait_until(lambda: chosen() == [-1, -1, -1], "no strategy is chosen whole")
    lists[0].focus()
    lists[0].select_option("1")
    lab.wait_until(lambda: -1 not in chosen(), "the choice is whole again")
    assert lab.ask("bench.choices[0]") == "1"
