"""Random plans equal one process: loss, every gradient and every updated weight of two steps.

Each day has other plans. A failure names its seed and the file of the plan, as small as it could be shrunk.
"""

import pytest

import alpa_explore as ax
from alpa_explore.random_plans.families import OPTIMIZER_OF
from tests.daily import today

SEED = today().toordinal()
FAMILIES = tuple(OPTIMIZER_OF)
AT_ONCE, PLANS, SWEPT = 5, 5, 30
"""Families whose turn it is on a day, plans of each, and plans of every family in the sweep."""
TURN = [FAMILIES[(SEED * AT_ONCE + n) % len(FAMILIES)] for n in range(AT_ONCE)]


def equal(family, plans, folder):
    print(f"seed {SEED}, of {today()}")
    campaign = ax.verify_random(plans, seed=SEED, workers=1, families=[family], folder=folder)
    assert campaign.passed, (SEED, campaign.failures)
    assert campaign.plans == plans
    assert campaign.compared > 10 * plans
    assert campaign.worst[0] > 0
    assert list(folder.iterdir()) == [], "only failures leave a file"


@pytest.mark.slow
@pytest.mark.parametrize("family", TURN)
def test_plans_of_today_equal_one_process(family, tmp_path) -> None:
    equal(family, PLANS, tmp_path)


@pytest.mark.slow
@pytest.mark.sweep(kept=0)
@pytest.mark.parametrize("family", FAMILIES)
def test_many_plans_equal_one_process(family, tmp_path) -> None:
    equal(family, SWEPT, tmp_path)
