"""Time the kernels of a plan on the attached device, what matters most first, and keep them in a store."""

from __future__ import annotations

import datetime
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch

from alpa_explore.calibration import tuning
from alpa_explore.calibration.measuring.identity import attached_kind, device_name, driver_version, software_versions
from alpa_explore.calibration.profiling.timing import NotTimed, Timed, timed
from alpa_explore.calibration.profiling.wanted import WantedKernel, plan_kernels, wanted_kernels
from alpa_explore.cluster.kernel_store import KernelStore, MeasuredKernel, this_host
from alpa_explore.cluster.presets import preset_names
from alpa_explore.cost.measured import measured_kernel
from alpa_explore.errors import CancelledError, OptionError
from alpa_explore.numerics.memory import freed_memory_kept
from alpa_explore.planner.interface import planned
from alpa_explore.planner.request import PlanRequest
from alpa_explore.planner.resources import Running
from alpa_explore.plans.plan import Plan
from alpa_explore.plans.rebuild import details_of

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
    """Of the kernel time of the plan that was last made: the share of the kernels in the store."""
    failed: tuple[tuple[str, str], ...]
    """(kernel, why it cannot run on the device): it is in the store, and strategies that need it have no price."""
    untimed: tuple[tuple[str, str], ...]
    """(kernel, why it could not be timed): its price is that of the formulas."""
    unsteady: tuple[str, ...]
    """Kernels whose runs differed by more than `tuning.STEADY`, also when they were timed again: another program may
    use the device. The next profile with the store times them anew."""


class Profiling:
    """The kernels of a plan and its search that are not in a store yet, and what was found of them. Those of a GPU have
    no views, which take its host's time alone.

    Formulas that promise too much draw a plan to kernels that were not timed. So a plan is made anew with what was
    found, and its kernels are timed next, until a new plan has none that matter and are not known.
    """

    def __init__(
        self,
        plan: Plan,
        store: KernelStore,
        seconds: float,
        progress: ProfileProgress | None = None,
        cancel: threading.Event | None = None,
        *,
        kind: str,
    ) -> None:
        self._has_views = kind == "cpu"
        self._every = {wanted.name: wanted for wanted in self._timed(wanted_kernels(plan))}
        steady = {name for name, kernel in store.kernels.items() if kernel.spread <= tuning.STEADY}
        self._known = frozenset(steady & self._every.keys())
        self._store, self._progress, self._cancel = store, progress, cancel
        self._end = time.monotonic() + seconds
        self._plan, self._of_plan = plan, self._timed(plan_kernels(plan))
        self._found: dict[str, MeasuredKernel] = {}
        self._failed: dict[str, str] = {}
        self._untimed: dict[str, str] = {}
        self._unsteady: list[str] = []

    def waiting(self) -> Iterator[WantedKernel]:
        """The kernels to time, what matters most first, until the time is over or the work is cancelled."""
        given = set(self._known)

        def of(kernels: Iterable[WantedKernel]) -> Iterator[WantedKernel]:
            for wanted in kernels:
                if self._is_over():
                    return
                if wanted.is_compiled and any(why.startswith(_NO_COMPILER) for why in self._untimed.values()):
                    continue  # nor would it be compiled
                if wanted.name not in given:
                    given.add(wanted.name)
                    yield wanted

        yield from of(wanted for wanted in self._of_plan if wanted.kernel.is_view)
        while True:
            yield from of(mattering(self._of_plan))
            if self._is_over() or not self._planned_anew():
                break
            if all(wanted.name in given for wanted in mattering(self._of_plan)):
                break
        # Formulas know the bytes of an optimizer's step; on small weights it takes the time of dozens of calls.
        yield from of(wanted for wanted in self._of_plan if wanted.update)
        yield from of(self._of_plan)
        yield from of(tuple(self._every.values()))

    def add(self, wanted: WantedKernel, found: Timed | NotTimed) -> None:
        """What was measured of a kernel, or why it was not."""
        self._every.setdefault(wanted.name, wanted)
        if isinstance(found, NotTimed):
            (self._untimed if found.runs else self._failed)[wanted.name] = found.why
            return
        assert wanted.kernel.name is not None, "a wanted kernel has a name"
        self._found[wanted.name] = measured_kernel(wanted.kernel, wanted.kernel.name, **found._asdict())
        if found.spread > tuning.STEADY:
            self._unsteady.append(wanted.name)
        if self._progress is not None:
            self._progress(len(self._every) - self._left(), len(self._every), self._plan_share())

    def result(self) -> Profile:
        """What is known now."""
        return Profile(
            store=self._store_now(),
            timed=len(self._found),
            known=len(self._known),
            left=self._left(),
            plan_share=self._plan_share(),
            failed=tuple(self._failed.items()),
            untimed=tuple(self._untimed.items()),
            unsteady=tuple(self._unsteady),
        )

    def _timed(self, kernels: Sequence[WantedKernel]) -> tuple[WantedKernel, ...]:
        return tuple(wanted for wanted in kernels if self._has_views or not wanted.kernel.is_view)

    def _left(self) -> int:
        return len(self._every) - len(self._known) - len(self._found) - len(self._failed) - len(self._untimed)

    def _is_over(self) -> bool:
        return time.monotonic() > self._end or (self._cancel is not None and self._cancel.is_set())

    def _planned_anew(self) -> bool:
        """Whether there is a new plan with what was found; none of choices that were made by hand, nor where making
        one took longer than the time that is left."""
        plan, graph = self._plan, details_of(self._plan).graph
        took = sum(seconds for name, seconds in plan.statistics.seconds if name != "capture")
        if plan.options.baseline or time.monotonic() + took > self._end or not self._store_now().kernels:
            return False
        device = replace(plan.cluster.device, measured=self._store_now())
        cluster = replace(plan.cluster, device=device)
        request = PlanRequest.again(plan.options, graph, cluster, graph.zigzag)
        try:
            self._plan = planned(request, Running(cache=False, cancel=self._cancel))
        except CancelledError:
            return False
        self._of_plan = self._timed(plan_kernels(self._plan))
        return True

    def _store_now(self) -> KernelStore:
        return self._store.with_kernels(tuple(self._found.values()), self._failed)

    def _plan_share(self) -> float:
        kernels = {**self._store.kernels, **self._found}
        took = [
            (w.calls * kernels[w.name].seconds, True) if w.name in kernels else (w.plan_seconds, False)
            for w in self._of_plan
        ]
        return sum(seconds for seconds, known in took if known) / (sum(seconds for seconds, _ in took) or 1.0)


def mattering(of_plan: Sequence[WantedKernel]) -> tuple[WantedKernel, ...]:
    """The first kernels of a plan, which take `tuning.MATTERING` of its kernel time."""
    whole, before = sum(wanted.plan_seconds for wanted in of_plan), 0.0
    for place, wanted in enumerate(of_plan):
        if before >= tuning.MATTERING * whole:
            return tuple(of_plan[:place])
        before += wanted.plan_seconds
    return tuple(of_plan)


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
    kind = attached_kind(kind)
    profiling = Profiling(plan, checked_store(plan, store, device(kind)), seconds, progress, cancel, kind=kind)
    with freed_memory_kept():  # that of one kernel serves the next
        for wanted in profiling.waiting():
            profiling.add(wanted, timed_or_why(wanted, kind))
    return profiling.result()


_NO_COMPILER = "torch.compile finds no compiler"
_CANNOT_RUN = re.compile(r"out of memory|can't allocate memory|not implemented|not supported|CUDA error", re.IGNORECASE)
"""In torch's words; not that an input has a value that the kernel does not take."""


def timed_or_why(wanted: WantedKernel, kind: str) -> Timed | NotTimed:
    """The time of a kernel on a device of `kind`, measured again where its runs differ much; or why it cannot be
    timed."""
    try:
        measured = timed(wanted, kind)
        if measured.spread > tuning.STEADY:
            measured = min(measured, timed(wanted, kind), key=lambda each: each.spread)
    except (RuntimeError, IndexError, ValueError, TypeError, NotImplementedError) as error:
        if type(getattr(error, "inner_exception", error)).__name__ in ("InvalidCxxCompiler", "TritonMissing"):
            remedy = "Install g++ (apt install g++), for a GPU Triton (pip install triton), and profile again"
            return NotTimed(f"{_NO_COMPILER}, so fused kernels keep the price of the formulas. {remedy}.", runs=True)
        why = (str(error).strip().splitlines() or [type(error).__name__])[0]
        cannot = isinstance(error, torch.OutOfMemoryError | NotImplementedError) or _CANNOT_RUN.search(str(error))
        return NotTimed(why, runs=not cannot)
    return measured


def device(kind: str) -> dict[str, str]:
    """What a store says of the device of this process."""
    return {
        "device": device_name(kind),
        "driver": driver_version(kind),
        "software": software_versions(kind),
        "host": this_host(),
    }


def checked_store(plan: Plan, store: KernelStore | None, device: dict[str, str]) -> KernelStore:
    """`store`, or a new one for this device. OptionError where the plan or the store is of another device; kernels of
    another driver, torch or machine are kept, and the store names both."""
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    here = KernelStore(date=today, kernels={}, **device)  # type: ignore[arg-type]  # texts alone
    name = plan.cluster.device.name
    if name in preset_names() and not here.may_be_of(name):
        raise OptionError(
            f"The plan is for {name}, which is not attached",
            found=here.device,
            remedy="Plan for the device that is attached (as 1x2:cpu), or attach workers that have the other.",
        )
    if store is None:
        return here
    if store.device != here.device:
        raise OptionError(
            "The store has the kernels of another device",
            found=f"{store.device}, and this is {here.device}",
            remedy="Name another file: a store is of one kind of device.",
        )
    return replace(
        store,
        driver=_both(store.driver, here.driver),
        software=_both(store.software, here.software),
        host=_both(store.host, here.host),
    )


def _both(before: str, now: str) -> str:
    return before if now in before.split("; ") else f"{before or 'unknown'}; {now}"
