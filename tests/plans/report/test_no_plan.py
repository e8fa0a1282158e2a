"""Why something that was tried has no plan, in a few words."""

from alpa_explore.errors import InfeasiblePlanError, OptionError
from alpa_explore.plans.report.compare import NoPlan, reason_of

GIB = 2**30


def test_the_reason_is_what_it_needs_of_what_there_is_or_what_is_not_possible() -> None:
    too_large = InfeasiblePlanError("It does not fit", found="x", remedy="y", over_bytes=8.5 * GIB)
    assert reason_of(too_large, 16 * GIB) == "needs 24.5 GiB of 16 GiB"
    refused = OptionError("A pipeline of single devices needs a layer for each", found="6 layers on 2x4", remedy="y")
    assert reason_of(refused, 16 * GIB) == "a pipeline of single devices needs a layer for each: 6 layers on 2x4"
    assert reason_of(ValueError("what"), 16 * GIB) == "ValueError: what"
    assert str(NoPlan("inter-only", "no", "gpt")) == "inter-only: no"
