"""Where the search for the fastest choices at every B looks for another one."""

from types import SimpleNamespace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from alpa_explore.intra_op.stage.stage_totals import StageTotals
from alpa_explore.pricing import tuning
from alpa_explore.pricing.envelope import corner_between

PARTS = st.floats(0.1, 10.0)


def sample(line: tuple[float, float], inverse_b: float) -> SimpleNamespace:
    """A choice whose seconds are line[0] + line[1] / B, solved exactly at one B."""
    totals = StageTotals(
        microbatch_seconds=line[0], iteration_seconds=line[1], weight_bytes=0, activation_bytes=0, workspace_bytes=0
    )
    return SimpleNamespace(
        point=SimpleNamespace(totals=totals), inverse_b=inverse_b, bound=line[0] + line[1] * inverse_b
    )


@given(flat=PARTS, steep=PARTS, low=st.floats(0.0, 0.3), high=st.floats(0.7, 1.0))
def test_a_corner_is_looked_at_where_a_choice_between_may_be_clearly_lower(flat, steep, low, high) -> None:
    few, many = (1.0, 10.0 + steep), (10.0 + flat, 0.5)  # the first is the faster one at a small 1/B
    crossing = (many[0] - few[0]) / (few[1] - many[1])
    assume(low + 0.05 < crossing < high - 0.05)
    found = corner_between(sample(few, low), sample(many, high))
    share = (crossing - low) / (high - low)
    chord = (1 - share) * (few[0] + few[1] * low) + share * (many[0] + many[1] * high)
    lines = few[0] + few[1] * crossing
    if lines * (1 - 2 * tuning.TOLERANCE) > chord:
        assert found == pytest.approx(crossing)
    else:
        assert found is None


def test_no_corner_is_looked_at_outside_of_two_samples_or_of_one_choice() -> None:
    few, many = (1.0, 10.0), (6.0, 1.0)
    assert corner_between(sample(few, 0.7), sample(many, 0.9)) is None, "they cross at 5/9"
    assert corner_between(sample(few, 0.1), sample(few, 0.9)) is None
