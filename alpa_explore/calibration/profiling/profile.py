"""Time the kernels of a plan on the attached device, what matters most first, and keep them in a store."""

from __future__ import annotations

import datetime
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from alpa_explore.calibration import tuning
from alpa_explore.calibration.measuring.clock import Clock
from alpa_explore.calibration.measuring.identity import device_name, driver_version, software_versions
from alpa_explore.calibration.profiling.timing import timed
from alpa_explore.calibration.profiling.wanted import name_of, wanted_kernels
from alpa_explore.cluster.kernel_store import KernelStore, MeasuredKernel
from alpa_explore.cost.measured import measured_kernel
from alpa_explore.errors import OptionError
from alpa_explore.plans.plan import Plan


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


def profile(
    plan: Plan,
    *,
    seconds: float = 30.0,
    kind: str | None = None,
    store: KernelStore | None = None,
    progress: Callable[[int, int, float], None] | None = None,
    cancel: threading.Event | None = None,
) -> Profile:
    """Time kernels of `plan` and of its search for about so many `seconds` on a device of `kind` ('cpu' or 'cuda';
    default: CUDA if available), and add them to `store`. Those of the plan come first, by their share of its time.
    `progress` is told (kernels done, kernels, share of the plan's kernel time that is timed).

    OptionError where there is no such device, or the store is of another device. A store of another driver or torch is
    used.
    """
    kind = kind or ("cuda" if torch.cuda.is_available() else "cpu")
    if kind == "cuda" and not torch.cuda.is_available():
        raise OptionError("No CUDA device is attached", found="torch.cuda.is_available() is False", remedy="Use 'cpu'.")
    name = device_name(kind)
    if store is not None and store.device != name:
        raise OptionError(
            "The store has the kernels of another device",
            found=f"{store.device}, and this is {name}",
            remedy="Name another file: a store is of one kind of device.",
        )
    if store is None:
        store = KernelStore(
            device=name,
            driver=driver_version(kind),
            software=software_versions(kind),
            date=datetime.datetime.now(datetime.UTC).date().isoformat(),
            kernels={},
        )
    every = wanted_kernels(plan)
    clock, end = Clock(kind, 1, tuning.PROFILE_RUN_SECONDS), time.monotonic() + seconds
    whole = sum(wanted.plan_seconds for wanted in every) or 1.0
    known = {name_of(wanted) for wanted in every} & store.kernels.keys()
    covered = sum(wanted.plan_seconds for wanted in every if name_of(wanted) in known)
    found: dict[str, MeasuredKernel] = {}
    failed: list[tuple[str, str]] = []
    unsteady: list[str] = []
    for wanted in every:
        if name_of(wanted) in known:
            continue
        if time.monotonic() > end or (cancel is not None and cancel.is_set()):
            break
        try:
            measured = timed(wanted, clock)
            if measured.spread > tuning.STEADY:
                measured = min(measured, timed(wanted, clock), key=lambda each: each.spread)
        except (RuntimeError, IndexError, ValueError, TypeError, NotImplementedError) as error:
            failed.append((name_of(wanted), (str(error).strip().splitlines() or [type(error).__name__])[0]))
            continue
        if measured.spread > tuning.STEADY:
            unsteady.append(name_of(wanted))
        assert wanted.kernel.name is not None, "a wanted kernel has a name"
        found[name_of(wanted)] = measured_kernel(wanted.kernel, wanted.kernel.name, **measured._asdict())
        covered += wanted.plan_seconds
        if progress is not None:
            progress(len(known) + len(found) + len(failed), len(every), covered / whole)
    return Profile(
        store=store.with_kernels(tuple(found.values())),
        timed=len(found),
        known=len(known),
        left=len(every) - len(known) - len(found) - len(failed),
        plan_share=covered / whole,
        failed=tuple(failed),
        unsteady=tuple(unsteady),
    )
