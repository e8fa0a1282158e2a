"""Timed kernels on the Run tab, with times that the test gives."""

import threading
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from alpa_explore_widgets import explore
from alpa_explore_widgets.explorer import Explorer
from alpa_explore_widgets.panels.hosts import ProfilePanel
from alpa_explore_widgets.tabs.run import RunPanel

from alpa_explore.calibration.profiling.profile import Profile
from alpa_explore.cluster.kernel_store import KernelStore
from alpa_explore.errors import OptionError
from tests.waiting import LIMIT_SECONDS, until
from tests.widgets.conftest import HeldPlanner, make_plan

STORE = KernelStore(device="Tesla <V100>", driver="1", software="torch", date="2026-11-30", kernels={})


@dataclass
class HeldProfile:
    """`ax.profile`, which tells of one kernel and goes on when the test lets it."""

    gate: threading.Event = field(default_factory=threading.Event)
    calls: list[dict[str, Any]] = field(default_factory=list)
    error: Exception | None = None

    def __call__(self, _plan: object, *, progress: Any, cancel: threading.Event, **given: Any) -> Profile:
        self.calls.append(given)
        if self.error is not None:
            raise self.error
        progress(1, 40, 0.25)
        until(lambda: self.gate.is_set() or cancel.is_set(), "the test lets it go on")
        failed = (("aten.<mm>", "the device is full"),) if self.gate.is_set() else ()
        timed = 39 if self.gate.is_set() else 1
        untimed = (("aten.sub", "an index is too large"),)
        return Profile(
            store=STORE,
            timed=timed,
            known=0,
            left=0,
            plan_share=0.97,
            failed=failed,
            untimed=untimed,
            unsteady=("aten.add",),
        )


@dataclass
class Tab:
    explorer: Explorer
    profile: HeldProfile
    planner: HeldPlanner

    @property
    def panel(self) -> ProfilePanel:
        return next(p for p in self.explorer.panels if isinstance(p, RunPanel)).profile

    def says(self, *words: str) -> None:
        until(lambda: all(word in self.panel.found.value for word in words), f"{words}: {self.panel.found.value}")


@pytest.fixture
def tab(planner: HeldPlanner) -> Any:
    profile = HeldProfile()
    functions = replace(planner.functions(), profile=profile, check_run=lambda plan, **given: None)
    explorer = explore(make_plan(), backend=functions)
    explorer.tabs.selected = [p.title for p in explorer.panels].index("Run")
    yield Tab(explorer=explorer, profile=profile, planner=planner)
    profile.gate.set()
    explorer.close()
    assert explorer.session.profiling.worker.wait(LIMIT_SECONDS), "a thread is left over"


def test_kernels_are_timed_and_planned_with(tab: Tab) -> None:
    panel = tab.panel
    panel.seconds.value = 7
    panel.start.click()
    tab.says("1 of 40 kernels", "25 % of the plan's kernel time", "this machine", 'value="0.2500"')
    assert (panel.start.disabled, panel.cancel.disabled) == (True, False)
    tab.profile.gate.set()
    tab.says("39 kernels timed", "97 %", "1 vary by more than 20 %", "aten.&lt;mm&gt;: the device is full")
    tab.says("no price:</p><ul><li>aten.&lt;mm&gt;", "priced by formulas:</p><ul><li>aten.sub: an index is too large")
    assert tab.profile.calls == [{"seconds": 7.0, "store": None}]
    plan = tab.explorer.wait(LIMIT_SECONDS)
    assert plan.cluster.device.measured == STORE
    assert "measured=ax.profile(plan).store" in tab.explorer.toolbar.widget.code
    tab.says("were timed on this kind of device, Tesla &lt;V100&gt; (2026-11-30, torch)")
    assert (panel.start.disabled, panel.cancel.disabled) == (False, True)
    panel.start.click()
    until(lambda: len(tab.profile.calls) == 2, "it is profiled again")
    assert tab.profile.calls[1]["store"] == STORE, "what is known is not timed again"


def test_a_cancelled_profile_keeps_what_was_timed(tab: Tab) -> None:
    tab.panel.start.click()
    tab.says("1 of 40 kernels")
    tab.panel.cancel.click()
    tab.says("1 kernels timed")
    assert tab.explorer.wait(LIMIT_SECONDS).cluster.device.measured == STORE


def test_a_profile_that_is_refused_says_why_and_plans_nothing(tab: Tab) -> None:
    tab.profile.error = OptionError("The plan is for v100", found="x86_64 CPU", remedy="Attach one.")
    tab.panel.start.click()
    tab.says("The plan is for v100", "x86_64 CPU", "Attach one.")
    assert not tab.planner.plans
    assert not tab.panel.start.disabled
