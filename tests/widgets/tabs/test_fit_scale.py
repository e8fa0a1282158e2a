"""The Fit & scale tab: what it asks about first."""

import pytest
from alpa_explore_widgets.tabs.layouts.fit_scale import nodes_around


@pytest.mark.parametrize(
    ("own", "offered"),
    [(1, "1, 2, 4, 8"), (2, "1, 2, 4, 8"), (3, "1, 2, 3, 4, 8"), (8, "2, 4, 8, 16"), (16, "4, 8, 16, 32")],
)
def test_the_nodes_that_are_offered_lie_around_those_of_the_plan(own: int, offered: str) -> None:
    assert nodes_around(own) == offered
