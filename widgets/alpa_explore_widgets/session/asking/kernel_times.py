"""The kernels of the plan on screen, timed in the background on this machine or on the attached hosts; then the planner
runs with their times."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from alpa_explore.cluster import Cluster
from alpa_explore_widgets.session import tuning
from alpa_explore_widgets.session.backend import Backend
from alpa_explore_widgets.session.background import NewestWins
from alpa_explore_widgets.session.fault import fault_of
from alpa_explore_widgets.session.state import StateStore
from alpa_explore_widgets.session.training_run import KernelTimes


class Profiling:
    """Times kernels, one plan after the other; the newest request wins. `plan_on` plans on the cluster with the kernels
    that were timed, also where it was cancelled."""

    def __init__(self, store: StateStore, backend: Backend, plan_on: Callable[[Cluster], None]) -> None:
        self._store, self._backend, self._plan_on = store, backend, plan_on
        self.worker: NewestWins[KernelTimes] = NewestWins(self._profile, "alpa-explore profile")

    def start(self, seconds: float) -> None:
        """Time kernels of the plan on screen for about so many seconds."""
        with self._store.lock:
            plan, attachment = self._store.state.plan, self._store.state.attachment
            if plan is None:
                return
            nodes = None if attachment is None else attachment.nodes
            times = KernelTimes(plan=plan, scheduler="" if nodes is None else nodes.scheduler, seconds=seconds)
            self._store.change(kernel_times=times)
        self.worker.submit(times)

    def cancel(self) -> None:
        """Stop after the kernel that is being timed, and plan with what was found."""
        self.worker.cancel()

    def _profile(self, times: KernelTimes, cancel: threading.Event) -> None:
        plan, last_report = times.plan, 0.0

        def update(**changes: Any) -> None:
            nonlocal times
            times = replace(times, **changes)
            if not self.worker.has_newer:
                self._store.change(kernel_times=times)

        def report(done: int, kernels: int, share: float) -> None:
            nonlocal last_report
            if time.monotonic() - last_report >= tuning.REPORT_SECONDS:
                last_report = time.monotonic()
                update(done=done, kernels=kernels, share=share)

        try:
            where = {"scheduler": times.scheduler} if times.scheduler else {}
            known = plan.cluster.device.measured
            found = self._backend.profile(
                plan, seconds=times.seconds, store=known, progress=report, cancel=cancel, **where
            )
        except Exception as error:  # a background thread has no cell in which to show it
            update(fault=fault_of(error, "The kernels could not be timed"), busy=False)
            return
        with self._store.lock:
            if found.timed and self._store.state.plan is plan:
                self._plan_on(plan.cluster.with_changes(measured=found.store))
            update(found=found, share=found.plan_share, busy=False)
