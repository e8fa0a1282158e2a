"""Modules of every kind train by their plans as they do alone, or are refused by name.

Each day a tenth of them is tried, and two of these by ranks; the sweep tries all.
"""

import pytest

import alpa_explore as ax
from tests.daily import today
from tests.zoo.built import REFUSED, ZOO
from tests.zoo.training import launched, planned, verified

DAY = today().toordinal()
ACCEPTED = [name for name in ZOO if name not in REFUSED]
TURN = ACCEPTED[DAY % 10 :: 10]
LAUNCHED = [TURN[(DAY + n * len(TURN) // 2) % len(TURN)] for n in range(2)]


def check(name: str) -> None:
    found = verified(ZOO[name]())
    assert found.passed, found
    assert found.steps == 2
    assert found.differences


@pytest.mark.slow
@pytest.mark.parametrize("name", TURN)
def test_modules_of_today_train_by_a_plan_as_alone(name: str) -> None:
    check(name)


@pytest.mark.slow
@pytest.mark.sweep(kept=0)
@pytest.mark.parametrize("name", ACCEPTED)
def test_modules_train_by_a_plan_as_alone(name: str) -> None:
    check(name)


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_captured_is_refused_by_name(name: str) -> None:
    with pytest.raises(ax.AlpaExploreError, match=REFUSED[name]):
        planned(ZOO[name]())


@pytest.mark.distributed
@pytest.mark.parametrize("name", LAUNCHED)
def test_ranks_train_modules_of_today_and_go_on_from_a_checkpoint(name: str, tmp_path) -> None:
    launched(ZOO[name](), tmp_path)


@pytest.mark.distributed
@pytest.mark.sweep(kept=0)
@pytest.mark.parametrize("name", ACCEPTED)
def test_ranks_train_every_module_and_go_on_from_a_checkpoint(name: str, tmp_path) -> None:
    launched(ZOO[name](), tmp_path)
