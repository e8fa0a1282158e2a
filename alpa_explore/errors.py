"""The errors that a user can meet. Each states what failed, the value that caused it, and what to do next."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class AlpaExploreError(Exception):
    """Base of every error that is shown to users.

    `what` failed, `found` is the value that caused it, `remedy` is the next thing to try; none may be empty.
    `exit_code` is what the command line returns: 1 when no plan exists, 2 when the input is at fault.
    """

    exit_code = 2
    option = ""
    """The option of `ax.plan` that is at fault, for errors that are about one; '' otherwise."""
    may_pass = False
    """Whether the same may go well when it is tried again, as after the death of a process or a host."""
    lost: tuple[str, ...] = ()
    """The workers that did not answer, so that nobody need wait for them again."""

    def __init__(self, what: str, *, found: str, remedy: str) -> None:
        assert all((what, found, remedy)), "an error without a remedy helps nobody"
        self.what, self.found, self.remedy = what, found, remedy
        super().__init__(f"{what}: {found}. {remedy}")

    def __reduce__(self) -> tuple[object, ...]:
        # Exception's own pickling drops keyword arguments, and errors travel between Dask processes.
        return (_rebuild, (type(self), self.what, self.found, self.remedy))


def _rebuild(kind: type[AlpaExploreError], what: str, found: str, remedy: str) -> AlpaExploreError:
    return kind(what, found=found, remedy=remedy)


class CaptureError(AlpaExploreError):
    """A model that could not be turned into a training graph."""


class BatchError(CaptureError):
    """A training graph that cannot be rescaled to another batch size."""


class ClusterError(AlpaExploreError):
    """A cluster or device description that is not valid."""


class OptionError(AlpaExploreError):
    """An option outside its range, or two options that contradict each other."""


class UnknownNameError(AlpaExploreError):
    """A model, device or cluster name that is not in the catalogue."""


class LayeringError(AlpaExploreError):
    """Operators that cannot be clustered as requested."""


class LayerCountError(LayeringError):
    """More layers than operators."""

    option = "num_layers"


class BalanceError(LayeringError):
    """A delta that no clustering into so many layers satisfies."""

    option = "delta"


class SolverError(AlpaExploreError):
    """A sharding problem that a solver could not finish."""


class NoChoiceError(AlpaExploreError):
    """Choices, made one node after the other, that leave a later node of a stage no legal strategy."""


class ScheduleError(AlpaExploreError):
    """A schedule that cannot run (tasks missing, a deadlock), or one that does not exist for this pipeline."""


class ProgramError(AlpaExploreError):
    """A plan that cannot be lowered, or a program that cannot run."""


class RunError(AlpaExploreError):
    """A run of a plan that failed: a rank died or hangs, memory ran out, the loss is NaN or infinite."""

    exit_code = 1


class CheckpointError(AlpaExploreError):
    """A checkpoint that is missing, not complete, damaged, of another model or of a newer format."""


class ExecutorError(AlpaExploreError):
    """Workers, or their scheduler, that cannot be reached or died repeatedly."""

    may_pass = True


class MachineMemoryError(AlpaExploreError):
    """The machine that plans has too little memory for a problem; what was finished stays in the cache."""


class PlanFileError(AlpaExploreError):
    """A file that is not a plan, is damaged, or was written by a newer version."""


class RecipeError(AlpaExploreError):
    """A model that cannot be rebuilt from the recipe in its plan."""


class CourseError(AlpaExploreError):
    """A lesson that cannot be run or shown, or a website of the course that cannot be written."""

    exit_code = 1


class MissingPackageError(AlpaExploreError):
    """An optional package is not installed; the remedy is the pip command."""


class InfeasiblePlanError(AlpaExploreError):
    """No plan fits in memory, or satisfies the constraints; the remedy names the nearest change that does."""

    exit_code = 1

    def __init__(self, what: str, *, found: str, remedy: str, over_bytes: float | None = None) -> None:
        super().__init__(what, found=found, remedy=remedy)
        self.over_bytes = over_bytes
        """By how many bytes the nearest plan exceeds a device's memory; None when memory is not the reason."""

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild_infeasible, (self.what, self.found, self.remedy, self.over_bytes))


def _rebuild_infeasible(what: str, found: str, remedy: str, over_bytes: float | None) -> InfeasiblePlanError:
    return InfeasiblePlanError(what, found=found, remedy=remedy, over_bytes=over_bytes)


class CancelledError(AlpaExploreError):
    """The user cancelled the work; problems that were already solved stay in the cache."""

    exit_code = 1
    known: object = None
    """What was found until then and is not proven: the best plan so far, from `ax.plan`; None where there is none."""


def nearest_names(name: str, available: Iterable[str], count: int = 3) -> str:
    """A remedy that suggests the available names closest to `name`, or lists the first of them when none is close."""
    names = sorted(available)
    close = difflib.get_close_matches(name.lower(), names, n=count, cutoff=0.3)
    if close:
        return "Did you mean " + " or ".join(repr(n) for n in close) + "?"
    more = ", …" if len(names) > _MOST_NAMES else ""
    return f"Known: {', '.join(names[:_MOST_NAMES])}{more}."


_MOST_NAMES = 20
