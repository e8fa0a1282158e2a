"""Time the kernels of a plan on the attached device, what matters most first, and keep them in a store."""

from __future__ import annotations

import datetime
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch

from alpa_explore.calibration import tuning
from alpa_explore.calibration.measuring.clock import Clock
from alpa_explore.calibration.measuring.identity import device_name, driver_version, software_versions
from alpa_explore.calibration.profiling.timing import Timed, timed
from alpa_explore.calibration.profiling.wanted import WantedKernel, name_of, wanted_kernels
from alpa_explore.cluster.kernel_store import KernelStore, MeasuredKernel
from alpa_explore.cost.measured import measured_kernel
from alpa_explore.errors import OptionError
from alpa_explore.plans.plan import Plan

ProfileProgress = Callable[[int, int, float], None]
"""Is told (kernels done, kernels, share of the plan's kernel time that is timed)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """What was timed."""

    store: KernelStore
    timed: int
    """Kernels that were timed now."""
    known: int
    """Kernels that the store had already."""
    left: int
    """Kernels for which there was no time."""
    plan_share: float
    """Of the kernel time of the plan, by the formulas: the share of the kernels in the store."""
    failed: tuple[tuple[str, str], ...]
    """(kernel, why it could not be timed)."""
    unsteady: tuple[str, ...]
    """Kernels whose runs differed by more than `tuning.STEADY`, also when they were timed again: another program may
    use the device."""


class Profiling:
    """The kernels of a plan and its search that are not in a store yet, and what was found of them."""

    def __init__(self, plan: Plan, store: KernelStore, progress: ProfileProgress | None = None) -> None:
        self._every = wanted_kernels(plan)
        self._known = store.kernels.keys() & {name_of(wanted) for wanted in self._every}
        self._store, self._progress = store, progress
        self._found: dict[str, MeasuredKernel] = {}
        self._failed: dict[str, str] = {}
        self._unsteady: list[str] = []

    def waiting(self) -> Iterator[WantedKernel]:
        """The kernels to time, what matters most first."""
        return (wanted for wanted in self._every if name_of(wanted) not in self._known)

    def add(self, wanted: WantedKernel, found: Timed | str) -> None:
        """What was measured of a kernel, or why it was not."""
        name = name_of(wanted)
        if isinstance(found, str):
            self._failed[name] = found
            return
        assert wanted.kernel.name is not None, "a wanted kernel has a name"
        self._found[name] = measured_kernel(wanted.kernel, wanted.kernel.name, **found._asdict())
        if found.spread > tuning.STEADY:
            self._unsteady.append(name)
        if self._progress is not None:
            done = len(self._known) + len(self._found) + len(self._failed)
            self._progress(done, len(self._every), self._plan_share())

    def result(self) -> Profile:
        """What is known now."""
        return Profile(
            store=self._store.with_kernels(tuple(self._found.values())),
            timed=len(self._found),
            known=len(self._known),
            left=len(self._every) - len(self._known) - len(self._found) - len(self._failed),
            plan_share=self._plan_share(),
            failed=tuple(self._failed.items()),
            unsteady=tuple(self._unsteady),
        )

    def _plan_share(self) -> float:
        known = self._known | self._found.keys()
        covered = sum(wanted.plan_seconds for wanted in self._every if name_of(wanted) in known)
        return covered / (sum(wanted.plan_seconds for wanted in self._every) or 1.0)


def profile_here(
    plan: Plan,
    *,
    seconds: float,
    kind: str | None = None,
    store: KernelStore | None = None,
    progress: ProfileProgress | None = None,
    cancel: threading.Event | None = None,
) -> Profile:
    """`attached.profile` on a device of this machine, of `kind` 'cpu' or 'cuda' (default: CUDA if available)."""
    kind = ("cuda" if torch.cuda.is_available() else "cpu") if kind is None else kind
    if not isinstance(kind, str) or kind not in ("cpu", "cuda"):
        raise OptionError("Unknown kind of device", found=repr(kind)[:80], remedy="Use 'cpu' or 'cuda'.")
    if kind == "cuda" and not torch.cuda.is_available():
        raise OptionError("No CUDA device is attached", found="torch.cuda.is_available() is False", remedy="Use 'cpu'.")
    profiling = Profiling(plan, checked_store(store, device(kind)), progress)
    clock, end = Clock(kind, 1, tuning.PROFILE_RUN_SECONDS), time.monotonic() + seconds
    for wanted in profiling.waiting():
        if time.monotonic() > end or (cancel is not None and cancel.is_set()):
            break
        profiling.add(wanted, timed_or_why(wanted, clock))
    return profiling.result()


def timed_or_why(wanted: WantedKernel, clock: Clock) -> Timed | str:
    """The time of a kernel, measured again where its runs differ much; or why it cannot be timed."""
    try:
        measured = timed(wanted, clock)
        if measured.spread > tuning.STEADY:
            measured = min(measured, timed(wanted, clock), key=lambda each: each.spread)
    except (RuntimeError, IndexError, ValueError, TypeError, NotImplementedError) as error:
        return (str(error).strip().splitlines() or [type(error).__name__])[0]
    return measured


def device(kind: str) -> dict[str, str]:
    """What a store says of the device of this process."""
    return {"device": device_name(kind), "driver": driver_version(kind), "software": software_versions(kind)}


def checked_store(store: KernelStore | None, device: dict[str, str]) -> KernelStore:
    """`store`, or a new one for this device. OptionError for a store of another device; one of another driver or torch
    is used."""
    if store is None:
        return KernelStore(**device, date=datetime.datetime.now(datetime.UTC).date().isoformat(), kernels={})
    if store.device != device["device"]:
        raise OptionError(
            "The store has the kernels of another device",
            found=f"{store.device}, and this is {device['device']}",
            remedy="Name another file: a store is of one kind of device.",
        )
    return store
