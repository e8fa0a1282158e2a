"""The Run tab before, during and after a run; with simulated runs, and with a real one."""

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from alpa_explore_widgets import explore
from alpa_explore_widgets.explorer import Explorer
from alpa_explore_widgets.session import tuning as session_tuning
from alpa_explore_widgets.tabs.run import RunPanel

import alpa_explore as ax
from alpa_explore.cluster import Cluster
from alpa_explore.errors import AlpaExploreError, RunError
from alpa_explore.inter_op.options import PipelineOptions
from alpa_explore.questions.better_plan import BetterPlan
from alpa_explore.runtime.attempts import Retry
from alpa_explore.runtime.checkpoints.keeper import Kept
from alpa_explore.runtime.drift import Drift, LinkDrift
from alpa_explore.runtime.reports import StepReport
from alpa_explore.runtime.run import RunProgress, RunResult
from tests.runtime.states import gone
from tests.waiting import LIMIT_SECONDS, until
from tests.widgets.conftest import HeldPlanner, make_plan


@dataclass
class HeldRun:
    """A run whose steps and end are triggered by the test."""

    folder: Path = Path("/runs/mine")
    steps: tuple[StepReport, ...] = ()
    state: str = "running"
    error: AlpaExploreError | None = None
    stops: int = 0
    ends_when_stopped: bool = True
    ended: threading.Event = field(default_factory=threading.Event)
    measured_drift: Drift | None = None
    asked: list[int] = field(default_factory=list)
    kept: tuple[Kept, ...] = ()
    retries: tuple[Retry, ...] = ()

    @property
    def progress(self) -> RunProgress:
        first = self.steps[0].step if self.steps else 0
        done = {"steps": self.steps, "checkpoints": self.kept, "retries": self.retries}
        return RunProgress(state=self.state, total=20, first_step=first, **done)

    def drift(self) -> Drift | None:
        return self.measured_drift

    def checkpoint(self) -> int:
        self.asked.append(len(self.steps) + 2)
        return self.asked[-1]

    def step(self) -> None:
        self.steps = (*self.steps, StepReport(step=len(self.steps), loss=5.0 - len(self.steps), seconds=0.5))

    def end(self, state: str, error: AlpaExploreError | None = None) -> None:
        self.state, self.error = state, error
        self.ended.set()

    def stop(self) -> None:
        self.stops += 1
        if self.ends_when_stopped:
            self.end("stopped")

    def wait(self, timeout: float | None = None) -> bool:
        return self.ended.wait(timeout)

    def result(self) -> RunResult:
        if self.error is not None:
            raise self.error
        return RunResult(steps=self.steps, folder=self.folder, stopped=self.state == "stopped")


@dataclass
class Tab:
    """An explorer that shows the tab, and the arguments of its launches."""

    explorer: Explorer
    launches: list[dict[str, Any]]
    handle: HeldRun
    """Of the first launch."""
    next_handle: HeldRun | None = None
    """Of the launches after it."""

    @property
    def panel(self) -> RunPanel:
        return next(p for p in self.explorer.panels if isinstance(p, RunPanel))

    @property
    def status(self) -> str:
        return self.panel.status.value

    def says(self, *words: str) -> None:
        until(lambda: all(word in self.status for word in words), f"{words} in {self.status}")


def show_run(explorer: Explorer) -> None:
    explorer.tabs.selected = [p.title for p in explorer.panels].index("Run")


@pytest.fixture
def tab_of(planner: HeldPlanner) -> Iterator[Callable[..., Tab]]:
    """Makes a tab, with functions of the backend replaced."""
    tabs: list[Tab] = []

    def make(**functions: Any) -> Tab:
        launches: list[dict[str, Any]] = []

        def launch(plan: Any, **given: Any) -> HeldRun:
            launches.append({"plan": plan, **given})
            return tabs[0].next_handle or tabs[0].handle

        backend = replace(planner.functions(), launch=launch, check_run=lambda plan, **given: None, **functions)
        explorer = explore(make_plan(), backend=backend)
        show_run(explorer)
        tabs.append(Tab(explorer=explorer, launches=launches, handle=HeldRun()))
        return tabs[0]

    yield make
    for made in tabs:
        made.explorer.close()
        for handle in (made.handle, made.next_handle):
            if handle is not None:
                handle.ended.set()
        assert made.explorer.session.runs.wait(LIMIT_SECONDS), "a thread of the run is left over"


@pytest.fixture
def tab(tab_of: Callable[..., Tab]) -> Tab:
    return tab_of()


@pytest.mark.slow
def test_a_run_is_started_watched_and_stopped_without_blocking(tab: Tab) -> None:
    panel = tab.panel
    tab.says("Ready", "4 ranks")
    assert (panel.start.disabled, panel.stop.disabled) == (False, True)
    panel.steps.value, panel.device.value = 7, "cpu"
    assert panel.start.description == "Start 7 steps"
    panel.start.click()
    tab.says("0 of 7 steps")
    where = {"target": "local", "device": "cpu", "scheduler": None}
    kept = {"checkpoint_every": None, "retries": 0, "resume": None}
    assert tab.launches == [{"plan": tab.explorer.plan, "steps": 7, **kept, **where}]
    assert (panel.start.disabled, panel.stop.disabled) == (True, False)
    tab.handle.step()
    tab.says("1 of 7 steps")
    until(lambda: "the loss is 5" in panel.finding.value, panel.finding.value)
    tab.handle.ends_when_stopped = False
    panel.stop.click()
    tab.says("stopping")
    tab.handle.end("stopped")
    tab.says("Stopped after 1 of 7 steps", "/runs/mine")
    assert (panel.start.disabled, panel.stop.disabled, tab.handle.stops > 0) == (False, True, True)


def test_a_run_continues_when_the_plan_changes_and_names_its_plan(tab: Tab) -> None:
    tab.panel.start.click()
    tab.handle.step()
    tab.says("1 of 20 steps")
    assert "another plan" not in tab.status
    tab.explorer.controls["num_microbatches"].value = 16
    assert tab.explorer.wait(LIMIT_SECONDS)
    tab.says("another plan", "B = 8", 'data-alpa-key="plan:0"')
    tab.handle.step()
    tab.says("2 of 20 steps")
    assert not tab.panel.figure.busy
    tab.explorer.bridge.selection = "plan:0"
    tab.says("2 of 20 steps")
    assert "another plan" not in tab.status


def test_a_failure_shows_its_reason_and_the_end_of_the_log_in_place(tab: Tab) -> None:
    tab.panel.start.click()
    tab.handle.step()
    tab.says("1 of 20 steps")
    tab.handle.end(
        "failed", RunError("Rank 2 died", found="signal 9", remedy="Look at its log.\nTraceback\nMemoryError: <b>")
    )
    tab.says("Rank 2 died:", "signal 9", "Look at its log. 1 of 20 steps were done.", 'role="alert"')
    tab.says(
        "<details open><summary>The end of its log</summary>", "<span>Traceback\nMemoryError: &lt;b&gt;</span></pre>"
    )
    assert not tab.panel.start.disabled


def test_a_run_is_retried_where_it_has_checkpoints_and_each_failure_is_a_line(tab: Tab) -> None:
    panel = tab.panel
    panel.retries.value = 3
    assert (panel.retries.layout.display, panel.run_settings().retries) == ("none", 0)
    panel.every.value = 4
    until(lambda: panel.retries.layout.display == "", "retries can be chosen")
    assert panel.run_settings().retries == 3
    panel.where.value = "slurm"
    assert panel.run_settings().retries == 0
    panel.where.value = "local"
    panel.start.click()
    for _ in range(6):
        tab.handle.step()
    tab.says("6 of 20 steps")
    assert tab.launches[0]["retries"] == 3
    assert "<li>" not in tab.status
    tab.handle.retries = tuple(
        Retry(
            attempt=number,
            reason=f"Rank {number} <died>: signal 9.",
            first_step=4 * number,
            lost_steps=lost,
            where=where,
            folder=Path("/runs/mine-2"),
        )
        for number, lost, where in ((1, 2, ""), (2, 1, "1 stage"))
    )
    tab.says(
        "<li>Attempt 1 failed: Rank 1 &lt;died&gt;: signal 9. It went on from step 4 (2 steps were lost).</li>",
        "<li>Attempt 2 failed: Rank 2 &lt;died&gt;: signal 9. It went on from step 8 (1 step was lost), 1 stage.",
    )
    tab.handle.end("failed", RunError("Rank 3 died", found="signal 9", remedy="Look at its log."))
    tab.says("Rank 3 died", "Attempt 2 failed")


@pytest.mark.parametrize("end", ["close", "reset"])
def test_closing_and_resetting_the_explorer_end_the_run(tab: Tab, end: str) -> None:
    tab.panel.start.click()
    tab.says("0 of 20 steps")
    if end == "close":
        tab.explorer.close()
    else:
        tab.explorer.toolbar.widget._handle_custom_msg({"kind": "reset"}, [])
    until(lambda: tab.handle.stops > 0, "the run is stopped")


@pytest.fixture
def pass_time(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Lets so many seconds pass for the explorer's timers."""
    waiting: list[tuple[float, Callable[[], None]]] = []

    class HeldTimer:
        daemon = False

        def __init__(self, seconds: float, function: Callable[[], None]) -> None:
            self.start = lambda: waiting.append((now[0] + seconds, function))

    now = [0.0]

    def passed(seconds: float) -> None:
        now[0] += seconds
        for due in [timer for timer in waiting if timer[0] <= now[0]]:
            waiting.remove(due)
            due[1]()

    monkeypatch.setattr("alpa_explore_widgets.explorer.threading.Timer", HeldTimer)
    return passed


def stopping(tab: Tab) -> bool:
    run = tab.explorer.session.runs.run
    return run is not None and (run.stopping or run.finished)


def test_a_run_ends_when_its_explorer_is_removed_but_not_when_the_cell_is_moved(
    tab: Tab, pass_time: Callable[[float], None]
) -> None:
    tab.panel.start.click()
    tab.says("0 of 20 steps")

    def tell(*kinds: str) -> None:
        for kind in kinds:
            tab.explorer.bridge._handle_custom_msg({"kind": kind}, [])

    tell("shown", "gone", "shown")
    pass_time(session_tuning.HIDDEN_SECONDS)
    assert not stopping(tab)
    tell("gone")
    pass_time(session_tuning.HIDDEN_SECONDS - 0.1)
    assert not stopping(tab)
    pass_time(0.1)
    assert stopping(tab)


def test_a_run_survives_a_reload_of_its_page_and_ends_when_the_page_stays_away(
    tab: Tab, pass_time: Callable[[float], None]
) -> None:
    tab.panel.start.click()
    tab.says("0 of 20 steps")

    def tell(kind: str) -> None:
        tab.explorer.bridge._handle_custom_msg({"kind": kind}, [])

    tell("shown")
    tell("left")
    pass_time(session_tuning.RELOAD_SECONDS - 0.1)
    assert not stopping(tab), "it may be loading"
    tell("shown")
    pass_time(session_tuning.RELOAD_SECONDS)
    assert not stopping(tab), "it came back"
    tell("left")
    pass_time(session_tuning.RELOAD_SECONDS)
    assert stopping(tab)


def test_the_next_page_of_a_browser_tab_replaces_the_previous_one_even_without_its_last_message(tab: Tab) -> None:
    bridge = tab.explorer.bridge

    def tell(kind: str, of_tab: str, page: str) -> int:
        bridge._handle_custom_msg({"kind": kind, "tab": of_tab, "page": page}, [])
        return bridge.views

    assert tell("shown", "a", "1") == 1
    assert tell("shown", "a", "1") == 2, "a second view of the same page"
    assert tell("shown", "b", "1") == 3, "another tab"
    assert tell("shown", "a", "2") == 2, "loaded again"
    assert tell("gone", "a", "1") == 2, "the page before comes late"
    assert tell("gone", "a", "2") == 1
    assert tell("left", "b", "1") == 0
    assert tell("shown", "b", "2") == 1


def test_a_script_is_written_and_the_tab_says_how_to_run_it(tab: Tab) -> None:
    tab.handle.end("written")
    tab.panel.where.value = "slurm"
    assert tab.panel.start.description == "Write a script of 20 steps"
    tab.panel.start.click()
    tab.says("nothing was started", "sbatch /runs/mine/slurm.sh", "compare-run /runs/mine")


def test_a_dask_cluster_needs_an_address_and_is_not_contacted_before_start(tab: Tab) -> None:
    assert tab.panel.scheduler.layout.display == "none"
    tab.panel.where.value = "dask"
    tab.says("no address", "dask scheduler")
    assert (tab.panel.start.disabled, tab.panel.scheduler.layout.display) == (True, "")
    tab.panel.scheduler.value = "tcp://127.0.0.1:1"
    assert "no address" not in tab.status
    assert not tab.panel.start.disabled
    tab.panel.start.click()
    tab.says("0 of 20 steps")
    assert (tab.launches[0]["target"], tab.launches[0]["scheduler"]) == ("dask", "tcp://127.0.0.1:1")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda plan: make_plan("64x8:v100"), "more devices than are attached"),
        (lambda plan: replace(plan, model=replace(plan.model, recipe=None)), "Give explore the module"),
        (lambda plan: replace(plan, model=replace(plan.model, recipe="theirs:model")), "allow_import=True"),
        (
            lambda plan: replace(
                plan, options=replace(plan.options, pipeline=PipelineOptions(schedule="interleaved-1f1b"))
            ),
            "has no known cost",
        ),
    ],
)
def test_a_plan_that_cannot_run_says_why_and_what_to_do_before_start(
    change: Any, message: str, planner: HeldPlanner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.sysconf", lambda name: 2**24)  # so that memory suffices
    explorer = explore(change(make_plan()), backend=planner.functions())
    show_run(explorer)
    panel = next(p for p in explorer.panels if isinstance(p, RunPanel))
    until(lambda: message in panel.status.value, f"{message} in {panel.status.value}")
    assert panel.start.disabled
    assert 'role="alert"' in panel.status.value


def test_a_module_of_the_notebook_is_sent_with_its_inputs_and_its_loss(planner: HeldPlanner) -> None:
    import torch

    launches: list[dict[str, Any]] = []
    handle = HeldRun()
    handle.end("stopped")
    functions = replace(
        planner.functions(),
        launch=lambda plan, **given: launches.append(given) or handle,
        check_run=lambda *_, **__: None,
    )
    module, inputs, loss = torch.nn.Linear(4, 4), (torch.zeros(8, 4), torch.zeros(8, 4)), torch.nn.functional.mse_loss
    explorer = explore(module, example_inputs=inputs, loss=loss, cluster="1x4:v100", backend=functions)
    assert explorer.session.wait(LIMIT_SECONDS)
    mine = replace(explorer.plan, model=replace(explorer.plan.model, name="Linear", recipe=None))
    explorer.session.store.change(plan=mine)
    show_run(explorer)
    panel = next(p for p in explorer.panels if isinstance(p, RunPanel))
    panel.start.click()
    until(lambda: "Stopped" in panel.status.value, panel.status.value)
    assert launches[0]["model"] is module
    assert launches[0]["example_inputs"] is inputs
    assert launches[0]["loss"] is loss
    assert "in another order at each step" in panel.status.value
    explorer.close()


def slow_link(ratio: float) -> Drift:
    link = LinkDrift(nodes=(0, 1), names=("node1", "node2"), predicted_seconds=1.0, measured_seconds=ratio)
    return Drift(steps=5, iteration_seconds=2.0, stages=(), links=(link,), cluster=Cluster.parse("1x4:v100"))


@pytest.mark.slow
def test_drift_is_said_and_the_run_goes_on_under_the_better_plan(
    tab_of: Callable[..., Tab], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_tuning, "DRIFT_SECONDS", 0.01)
    best = make_plan(num_layers=2)
    asked: list[float] = []

    def better_plan(plan: Any, drift: Drift, *, cancel: threading.Event) -> BetterPlan:
        asked.append(drift.links[0].ratio)
        if drift.links[0].ratio < 2:
            return BetterPlan(present=plan, present_seconds=2.0, best=plan, best_seconds=2.0)
        return BetterPlan(present=plan, present_seconds=2.0, best=best, best_seconds=1.64)

    tab = tab_of(better_plan=better_plan)
    panel, first = tab.panel, tab.handle
    panel.steps.value = 20
    panel.start.click()
    first.step()
    tab.says("1 of 20 steps")
    assert (panel.change.layout.display, panel.change.disabled) == ("none", True)
    first.measured_drift = slow_link(1.4)
    tab.says("Link node1 – node2 takes 1.4 times the predicted; with that the present plan stays the best.")
    assert panel.change.disabled
    first.measured_drift = slow_link(3.1)
    tab.says("takes 3.1 times the predicted; with that plan B, 2 stages on 2 devices each, would be 18 % faster.")
    assert asked == [1.4, 3.1], "the same figures are priced once"
    assert (panel.change.layout.display, panel.change.disabled) == ("", False)

    shown = tab.explorer.plan
    panel.change.click()
    tab.says("writing a checkpoint")
    assert panel.change.disabled
    assert tab.explorer.plan is best is not shown
    until(lambda: first.asked == [3], str(first.asked))
    assert first.stops == 0, "it trains until the checkpoint is whole"
    second = tab.next_handle = HeldRun(folder=Path("/runs/second"))
    second.steps = (StepReport(step=3, loss=1.0, seconds=0.5),)
    first.step()
    first.step()
    first.step()
    first.kept = (Kept(kind="state", step=3, folder=first.folder / "checkpoints/step-000003", bytes=1, seconds=0.1),)
    tab.says("This plan took over after step 3", "4 of 20 steps")
    assert (len(tab.launches), tab.launches[1]["plan"], tab.launches[1]["resume"]) == (2, best, first.folder)
    run = tab.explorer.session.store.state.run
    assert run is not None
    assert [(s.step, s.loss) for s in run.steps] == [(0, 5.0), (1, 4.0), (2, 3.0), (3, 1.0)]
    panel.stop.click()
    tab.says("Stopped after 4 of 20 steps", "/runs/second")
    assert first.stops > 0


@pytest.mark.distributed
def test_a_real_run_is_measured_against_its_prediction_and_leaves_no_process_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    plan = ax.baseline("gpt-tiny", "1x2:cpu", "inter-only", num_microbatches=2, num_layers=2, delta=1.0)
    explorer = explore(plan)
    show_run(explorer)
    panel = next(p for p in explorer.panels if isinstance(p, RunPanel))
    panel.device.value = "cpu"
    panel.dry.click()
    until(lambda: "stage 1 on rank 1" in panel.status.value, panel.status.value)
    assert list(tmp_path.iterdir()) == [], "a dry run writes nothing"
    panel.steps.value = 2
    panel.start.click()
    until(lambda: "Done: 2 steps" in panel.status.value, panel.status.value)
    run = explorer.session.store.state.run
    assert run is not None
    assert run.measured is not None
    assert [step.step for step in run.steps] == [0, 1]
    assert run.predicted_seconds == run.measured.predicted_iteration_seconds
    assert panel.shown.value == "measured"
    assert "× the" in panel.finding.value
    assert {row["stage"] for row in panel.rows(explorer.session.store.state)} == {0, 1}
    explorer.close()
    assert run.folder is not None
    gone(run.folder)
