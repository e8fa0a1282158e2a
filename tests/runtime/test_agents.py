"""Agents of one session are forked from one template, which has imported torch."""

import os
import signal

import psutil
import pytest

from alpa_explore.errors import RunError
from alpa_explore.runtime.launch import launch
from alpa_explore.runtime.targets.local import AgentProcess, environment
from tests.runtime.plans import small_plan
from tests.runtime.states import ended, gone, processes_of, stepped
from tests.waiting import until

pytestmark = pytest.mark.distributed
TEMPLATE = "alpa_explore.runtime.ranks.template"


@pytest.fixture(scope="module")
def plan():
    return small_plan()


def started(plan, folder):
    run = launch(plan, steps=10**6, folder=folder, device="cpu")
    stepped(run)
    return run, processes_of(folder)["agent-0"]


def test_two_runs_at_once_have_one_template_and_each_ends_by_itself(plan, tmp_path, monkeypatch) -> None:
    one, first = started(plan, tmp_path / "one")
    monkeypatch.setenv("A_VARIABLE_OF_THE_RUN", "yes")
    monkeypatch.chdir(tmp_path)
    two, second = started(plan, tmp_path / "two")
    assert first.parent() == second.parent()
    assert TEMPLATE in first.parent().cmdline()
    assert second.cwd() == str(tmp_path)
    one.stop()
    assert ended(one).stopped
    gone(tmp_path / "one")
    steps = len(two.progress.steps)
    stepped(two, steps + 1)
    second.kill()
    with pytest.raises(RunError, match="The agent of rank 0 ended: exit code -9"):
        ended(two)
    gone(tmp_path / "two")


def test_what_torch_reads_at_its_import_is_that_of_the_run(plan, tmp_path, monkeypatch) -> None:
    one, first = started(plan, tmp_path / "one")
    monkeypatch.setenv("TORCH_SHOW_CPP_STACKTRACES", "1")
    two, second = started(plan, tmp_path / "two")
    template, newer = first.parent(), second.parent()
    assert template != newer
    assert newer.environ()["TORCH_SHOW_CPP_STACKTRACES"] == "1"
    assert one.progress.state == "running", "its agent goes on"
    for run in (one, two):
        run.stop()
        assert ended(run).stopped
    until(lambda: not template.is_running() or template.status() == psutil.STATUS_ZOMBIE, "the first template ends")
    assert newer.is_running()


def test_a_template_that_was_killed_is_replaced_and_its_agents_go_on(plan, tmp_path) -> None:
    one, first = started(plan, tmp_path / "one")
    template = first.parent()
    template.kill()
    template.wait()
    two, second = started(plan, tmp_path / "two")
    assert second.parent().is_running()
    one.stop()
    assert ended(one).stopped
    gone(tmp_path / "one")
    two.stop()
    assert ended(two).stopped


def test_a_template_that_cannot_start_says_why_in_the_log(tmp_path) -> None:
    (tmp_path / "torch.py").write_text("raise RuntimeError('a torch that is broken')")
    there, log = environment(), tmp_path / "agent-0.log"
    agent = AgentProcess([], there | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{there['PYTHONPATH']}"}, log)
    assert until(agent.poll, "it has ended") == 1
    assert log.read_text().endswith("RuntimeError: a torch that is broken\n")


def test_an_agent_that_is_stopped_before_it_starts_starts_no_rank(tmp_path) -> None:
    template = _template_of(tmp_path)
    template.send_signal(signal.SIGSTOP)
    (tmp_path / "run.json").write_text('{"options": {"stall_seconds": 60}}')
    agent = AgentProcess([str(tmp_path), "0", "2", "file:store"], environment(), tmp_path / "agent-0.log")
    assert not agent.stop(0.0)
    template.send_signal(signal.SIGCONT)
    until(lambda: (tmp_path / "agent-0.json").exists(), "it has noticed")
    assert (tmp_path / "agent-0.json").read_text() == '{"state": "stopped"}'
    gone(tmp_path)
    assert not list(tmp_path.glob("rank-*"))


def _template_of(folder):
    """The template for the present environment."""
    agent = AgentProcess([str(folder), "0", "0", "file:store"], environment(), folder / "agent-0.log")
    until(lambda: agent.poll() is not None, "an agent without a run has ended")
    running = [p for p in psutil.Process().children() if p.status() != psutil.STATUS_ZOMBIE]
    return max((p for p in running if TEMPLATE in p.cmdline()), key=lambda p: p.create_time())
