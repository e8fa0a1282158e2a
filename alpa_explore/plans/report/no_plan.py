"""What was tried and has no plan, with the reason in a few words."""

from __future__ import annotations

from typing import NamedTuple

from alpa_explore import units
from alpa_explore.errors import AlpaExploreError, InfeasiblePlanError


class NoPlan(NamedTuple):
    """A baseline, or a change of the settings, for which there is no plan."""

    name: str
    """'data-parallel', or 'layers 6 → 12'."""
    reason: str
    """'needs 24.5 GiB of 16 GiB'."""
    model: str
    """The name of the model."""

    def __str__(self) -> str:
        return f"{self.name}: {self.reason}"


def reason_of(error: Exception, memory_bytes: int) -> str:
    """Why there is no plan on devices with this much memory, without the remedy."""
    if isinstance(error, InfeasiblePlanError) and error.over_bytes is not None:
        return f"needs {units.bytes_(memory_bytes + error.over_bytes)} of {units.bytes_(memory_bytes)}"
    if isinstance(error, AlpaExploreError):
        return f"{error.what[0].lower()}{error.what[1:]}: {error.found}"
    return f"{type(error).__name__}: {error}"
