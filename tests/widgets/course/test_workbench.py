"""The workbench: clicks, lists and buttons change the choice, and the figure says what it costs."""

import json

import numpy as np
import pytest
from alpa_explore_widgets.course import Workbench

from alpa_explore.intra_op.problem.sharding_problem import ShardingProblem


@pytest.fixture
def bench() -> Workbench:
    """The problem on which greedy fails: it pays 5, the optimum is 2."""
    problem = ShardingProblem(
        name="two nodes",
        node_costs=(np.array([0.0, 1.0]), np.array([0.0, 1.0])),
        edges=((0, 1),),
        edge_costs=(np.array([[5.0, 5.0], [5.0, 0.0]]),),
    )
    return Workbench(problem)


def title(bench: Workbench) -> str:
    return json.loads(bench.figure.figure_json)["layout"]["title"]["text"]


def test_a_click_on_a_strategy_chooses_it_and_selects_nothing(bench: Workbench) -> None:
    bench.choose((0, 0))
    bench.figure.selection = "operator:1.1"
    assert (bench.choices, bench.cost) == ((0, 1), 6.0)
    assert bench.figure.selection == ""
    assert "ost 6" in title(bench)
    assert bench.lists[1].value == 1


def test_a_list_chooses_for_those_who_use_the_keyboard(bench: Workbench) -> None:
    assert bench.cost == 6.0, "work begins with the dearest choice"
    bench.lists[0].value = 1
    bench.lists[1].value = 1
    assert (bench.choices, bench.cost) == ((1, 1), 2.0)
    assert "this is the optimum" in title(bench)


def test_the_buttons_show_what_each_method_chooses(bench: Workbench) -> None:
    greedy, relaxation, optimum = bench.buttons
    greedy.click()
    assert bench.cost == 5.0
    optimum.click()
    assert bench.cost == 2.0
    bench.choose((0, 0))
    relaxation.click()
    assert "ost 2" in title(bench), "two nodes form a tree: the relaxation reaches the optimum"
    assert bench.choices == (1, 1), "a relaxation that divides nothing is a choice"
    assert [widget.value for widget in bench.lists] == [1, 1]


def test_the_lists_are_blank_where_the_relaxation_divides_a_node() -> None:
    disagree = np.array([[1.0, 0.0], [0.0, 1.0]])
    triangle = ShardingProblem(
        name="triangle",
        node_costs=(np.array([0.0, 0.0]),) * 3 + (np.array([0.0, 1.0]),),
        edges=((0, 1), (1, 2), (0, 2)),
        edge_costs=(disagree,) * 3,
    )
    bench = Workbench(triangle)
    bench.choose((0, 1, 0, 1))
    bench.buttons[1].click()
    assert "in part" in title(bench)
    assert [widget.value for widget in bench.lists] == [None, None, None, 0], "as the figure shows"
    assert bench.choices == (0, 1, 0, 1), "shares are no choice"
    bench.lists[0].value = 1
    assert bench.choices == (1, 1, 0, 1)
    assert [widget.value for widget in bench.lists] == [1, 1, 0, 1], "what the figure shows again"
