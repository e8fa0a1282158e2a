"""The plan that figures are drawn from."""

import pytest

from alpa_explore.plans.plan import Plan
from tests.plans.example import example_plan

HOSTILE = '</script><script>alert(1)</script><img src=x onerror=alert(2)><a href="javascript:alert(3)">'


@pytest.fixture(scope="session")
def plan() -> Plan:
    """Four stages on 2 × 4 devices, 172 forward operators."""
    return example_plan()


@pytest.fixture(scope="session")
def deep_plan() -> Plan:
    """Twelve stages: more than there are colours."""
    return example_plan("2x8:v100", num_layers=12, num_microbatches=512)


@pytest.fixture(scope="session")
def long_plan() -> Plan:
    """10,094 operators, 5,044 of them forward ones."""
    return example_plan("8x8:h100", blocks=360)


@pytest.fixture(scope="session")
def hostile_plan() -> Plan:
    """A plan from a stranger."""
    return example_plan(mark=HOSTILE)
