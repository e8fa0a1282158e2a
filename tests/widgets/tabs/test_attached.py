"""Attached hosts on the Run tab, with hosts that the test gives and with none that can be reached."""

import threading
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from alpa_explore_widgets import explore
from alpa_explore_widgets.explorer import Explorer
from alpa_explore_widgets.panels.hosts import AttachedPanel
from alpa_explore_widgets.tabs.run import RunPanel

from alpa_explore.attached.attach import Attached
from alpa_explore.attached.hosts import Host, MeasuredLink, Versions
from alpa_explore.errors import CancelledError, ExecutorError
from alpa_explore.execution.progress import Progress
from tests.waiting import LIMIT_SECONDS, until
from tests.widgets.conftest import HeldPlanner, make_plan

VERSIONS = Versions(python="3.13.1", torch="2.13.0", alpa_explore="0.1.0 aaaaaaaa")


def some_hosts(**changes: Any) -> Attached:
    """Two hosts, the second with `changes`, and links of 1 GB/s between them."""
    hosts = [
        Host(
            name=f"h{i}",
            address=f"10.0.0.{i}",
            workers=(f"tcp://10.0.0.{i}:1",),
            versions=VERSIONS,
            cpu="A <b>CPU</b>",
            cores=4,
            memory_bytes=2**34,
            free_bytes=2**33,
            machine=f"m{i}",
            namespace=f"n{i}",
        )
        for i in (1, 2)
    ]
    hosts[1] = replace(hosts[1], **changes)
    links = tuple(
        MeasuredLink(source=a, target=b, latency_seconds=1e-4, points=((2**22, 1e-4 + 2**22 / 1e9),))
        for a, b in (("h1", "h1"), ("h2", "h2"), ("h1", "h2"), ("h2", "h1"))
    )
    return Attached(scheduler="tcp://10.0.0.1:8786", here=VERSIONS, hosts=tuple(hosts), links=links)


@dataclass
class HeldAttach:
    """`ax.attach`, whose measurement of links waits for the test."""

    nodes: Attached = field(default_factory=some_hosts)
    gate: threading.Event = field(default_factory=threading.Event)
    addresses: list[str] = field(default_factory=list)
    error: Exception | None = None

    def __call__(self, address: str, *, found: Any, progress: Any, cancel: threading.Event) -> Attached:
        self.addresses.append(address)
        if self.error is not None:
            raise self.error
        found(replace(self.nodes, links=()))
        progress(Progress(pass_name="measuring links", done=0, total=4, elapsed_seconds=0.0))
        until(lambda: self.gate.is_set() or cancel.is_set(), "the test lets it go on")
        if not self.gate.is_set():
            raise CancelledError("Cancelled", found="a test", remedy="None.")
        return self.nodes


@dataclass
class Tab:
    explorer: Explorer
    attach: HeldAttach
    planner: HeldPlanner

    @property
    def run(self) -> RunPanel:
        return next(p for p in self.explorer.panels if isinstance(p, RunPanel))

    @property
    def panel(self) -> AttachedPanel:
        return self.run.attached

    def start(self) -> None:
        self.panel.address.value = "tcp://10.0.0.1:8786"
        self.panel.attach.click()

    def says(self, *words: str) -> None:
        until(lambda: all(word in self.panel.found.value for word in words), f"{words}: {self.panel.found.value}")


@pytest.fixture
def tab(planner: HeldPlanner, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("ALPA_EXPLORE_CALIBRATIONS", str(tmp_path))
    attach = HeldAttach()
    functions = replace(planner.functions(), attach=attach, check_run=lambda plan, **given: None)
    explorer = explore(make_plan(), backend=functions)
    explorer.tabs.selected = [p.title for p in explorer.panels].index("Run")
    yield Tab(explorer=explorer, attach=attach, planner=planner)
    attach.gate.set()
    explorer.close()
    assert explorer.session.attaching.worker.wait(LIMIT_SECONDS), "a thread is left over"
    assert explorer.session.runs.wait(LIMIT_SECONDS)


def buttons(tab: Tab) -> tuple[bool, bool, bool]:
    """Which of Attach, Cancel and Plan for these can be pressed."""
    panel = tab.panel
    return not panel.attach.disabled, not panel.cancel.disabled, not panel.plan_for_these.disabled


def test_hosts_are_shown_before_their_links_and_planned_for(tab: Tab) -> None:
    assert buttons(tab) == (True, False, False)
    tab.start()
    tab.says("measuring links: 0 of 4", "10.0.0.2", "4 cores of A &lt;b&gt;CPU&lt;/b&gt;", "8 of 16 GiB")
    assert buttons(tab) == (False, True, False)
    assert "h1 → h2" not in tab.panel.found.value
    tab.attach.gate.set()
    tab.says("As a cluster", "2x4:attached-cpu", "h1 → h2", "1 GB/s")
    assert buttons(tab) == (True, False, True)
    tab.panel.plan_for_these.click()
    plan = tab.explorer.wait(LIMIT_SECONDS)
    assert tab.planner.plans[-1]["cluster"] == "2x4:attached-cpu"
    assert plan.cluster.between_nodes.bandwidth == pytest.approx(1e9, rel=1e-6)
    assert plan.cluster.device.memory_bytes == 2**31
    assert (tab.run.run_settings().target, tab.run.run_settings().scheduler) == ("dask", "tcp://10.0.0.1:8786")
    controls = tab.explorer.controls
    assert (controls["nodes"].value, controls["devices_per_node"].value, controls["device"].value) == (
        2,
        "4",
        "attached-cpu",
    )
    assert ["attached-cpu", "attached-cpu", ""] in controls["device"].choices
    assert 'cluster = ax.attach("tcp://10.0.0.1:8786").cluster(4)' in tab.explorer.toolbar.widget.code
    tab.explorer.session.undo()
    assert "ax.attach" not in tab.explorer.toolbar.widget.code
    assert tab.explorer.settings.device == "v100"


def test_unlike_hosts_are_told_at_once_and_cannot_be_planned_for(tab: Tab) -> None:
    tab.attach.nodes = some_hosts(versions=replace(VERSIONS, torch="2.0.0"))
    tab.start()
    tab.says("measuring links", "Hosts differ. torch: 2.0.0 on h2; 2.13.0 on h1.", "Hosts differ from this kernel.")
    tab.attach.gate.set()
    tab.says("The hosts are not alike", "2.0.0 on h2", "h1 → h2")
    assert buttons(tab) == (True, False, False)


def test_a_scheduler_that_cannot_be_reached_is_said_and_another_attach_forgets_it(tab: Tab) -> None:
    tab.attach.error = ExecutorError("The Dask scheduler cannot be reached", found="refused", remedy="Check it.")
    tab.start()
    tab.says("cannot be reached", "refused", "Check it.")
    tab.attach.error = None
    tab.start()
    tab.says("measuring links")
    tab.panel.cancel.click()
    tab.says("Cancelled", "not measured", "10.0.0.2")
    assert buttons(tab) == (True, False, False)
    tab.panel.address.value = ""
    tab.panel.attach.click()
    tab.says("Hosts are attached by the address")
    assert tab.attach.addresses == ["tcp://10.0.0.1:8786"] * 2
