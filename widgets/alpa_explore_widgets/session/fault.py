"""An error as the explorer shows it: what failed, what was found, what to do about it, and offers to do so."""

import traceback
from dataclasses import dataclass
from typing import Any

from alpa_explore.errors import AlpaExploreError


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Why there is no new plan, or why a training run failed, in words for the user."""

    what: str
    found: str
    remedy: str
    detail: str = ""
    """The traceback of an unexpected exception, or the end of the log of a failed run."""
    setting: str = ""
    """The setting that is at fault; '' if it is not one."""


def fault_of(error: Exception, unexpected: str = "The planner failed") -> Fault:
    """The fault for an exception. Anything but an AlpaExploreError is a bug of alpa_explore: `unexpected` says what
    failed, and the traceback is the detail."""
    if isinstance(error, AlpaExploreError):
        remedy, _, log = error.remedy.partition("\n")
        return Fault(what=error.what, found=error.found, remedy=remedy, detail=log, setting=error.option)
    return Fault(
        what=unexpected,
        found=f"{type(error).__name__}: {error}",
        remedy="This is a fault of alpa_explore: please report it with the details below.",
        detail="".join(traceback.format_exception(error)),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """A change of settings with which the model fits."""

    found: str
    """What was found: 'Needs 16 × v100: 2 nodes of 8'."""
    button: str
    """'Plan on 2 × 8'."""
    changes: tuple[tuple[str, Any], ...]
    """(setting, value)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offers:
    """The offers so far."""

    offers: tuple[Offer, ...] = ()
    at_least: str = ""
    """A cluster that is needed at least, where none was found that fits."""
    searching: bool = True
