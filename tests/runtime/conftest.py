"""What several tests of runs compare with."""

from __future__ import annotations

import pytest

from alpa_explore.runtime.launch import launch
from tests.runtime.plans import small_plan
from tests.runtime.states import ended


@pytest.fixture(scope="session")
def losses(tmp_path_factory):
    """Of two steps of `small_plan` by the local target: what others must give, too, on whatever machines."""
    run = launch(small_plan(), steps=2, folder=tmp_path_factory.mktemp("local"), device="cpu")
    return [step.loss for step in ended(run).steps]
