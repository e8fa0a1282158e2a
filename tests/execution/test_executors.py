"""Running tasks in this process, in threads and on local workers."""

import asyncio
import itertools
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from alpa_explore.errors import CancelledError, ExecutorError, OptionError, SolverError
from alpa_explore.execution import dask_pool, tuning
from alpa_explore.execution.executors import Executor
from tests.execution.tasks import (
    die_always,
    die_once,
    fail_at_three,
    identity_of,
    noted,
    plus,
    process_of,
    raise_unpicklable,
    read,
    run_tasks,
    slow,
    square,
)
from tests.waiting import limit_seconds, until

IN_PROCESS = ["serial", "threads", "auto"]
PLACES = [*IN_PROCESS, pytest.param("processes", marks=pytest.mark.distributed)]


def children():
    return {child.pid for child in psutil.Process().children(recursive=True)}


def starting():
    """Whether a thread of this process is starting workers."""
    return any(thread.name == "alpa-explore-start" for thread in threading.enumerate())


@pytest.mark.parametrize("place", PLACES)
def test_every_place_gives_the_same_results(place):
    assert run_tasks(square, {f"key {n}": n for n in range(50)}, scheduler=place, workers=2) == {
        f"key {n}": n * n for n in range(50)
    }
    assert run_tasks(plus, {(n, n): n for n in range(5)}, scheduler=place, workers=2, shared=10) == {
        (n, n): 10 + n for n in range(5)
    }


@pytest.mark.parametrize("place", PLACES)
def test_no_tasks_give_no_results_and_one_progress_call(place):
    seen = []
    assert run_tasks(square, {}, scheduler=place, progress=seen.append) == {}
    assert [(p.done, p.total) for p in seen] == [(0, 0)]


@pytest.mark.parametrize("place", PLACES)
def test_progress_counts_each_task(place):
    seen = []
    with Executor(place, workers=2) as executor:
        for _ in executor.map(square, {n: n for n in range(30)}, name="sharding", progress=seen.append):
            pass
    assert [p.done for p in seen] == list(range(31))
    assert {(p.pass_name, p.total) for p in seen} == {("sharding", 30)}
    assert seen[-1].eta_seconds == 0.0
    assert all(b.elapsed_seconds >= a.elapsed_seconds for a, b in itertools.pairwise(seen))


@pytest.mark.parametrize("place", PLACES)
def test_an_error_of_a_task_keeps_its_type_and_what_was_done_before(place):
    kept = {}
    with Executor(place, workers=1) as executor:
        with pytest.raises(SolverError) as caught:
            read(executor.map(fail_at_three, {n: n for n in range(6)}, batch_size=6), kept)
        assert dict(executor.map(square, {2: 2})) == {2: 4}, "the executor is still of use"
    assert (caught.value.found, caught.value.remedy) == ("three", "Take another number.")
    assert {0, 1, 2} <= set(kept) <= {0, 1, 2, 4, 5}


@pytest.mark.parametrize("place", PLACES)
def test_cancel_stops_between_tasks_and_keeps_results(place):
    cancel, kept = threading.Event(), {}
    with Executor(place, workers=2) as executor:
        with pytest.raises(CancelledError):
            read(executor.map(slow, {n: n for n in range(200)}, cancel=cancel, batch_size=2), kept, 6, cancel.set)
        assert len(kept) == 6 if place in ("serial", "auto") else 6 <= len(kept) < 100
        assert all(value == key * 7 for key, value in kept.items())
        cancel.clear()
        assert dict(executor.map(square, {3: 3}, cancel=cancel)) == {3: 9}


@pytest.mark.parametrize("place", PLACES)
def test_a_caller_may_stop_reading(place, tmp_path):
    folder, gate = tmp_path / "noted", tmp_path / "gate"
    folder.mkdir()
    os.mkfifo(gate)
    with Executor(place, workers=2) as executor:
        for _ in executor.map(noted, {n: (str(folder), str(gate), n) for n in range(300)}, batch_size=2):
            break
        opened = os.open(gate, os.O_RDWR)
        assert len(dict(executor.map(square, {n: n for n in range(4)}))) == 4
        assert len(list(folder.iterdir())) < 200, "the tasks that nobody reads should not be run first"
    os.close(opened)


def test_an_unknown_scheduler_and_no_workers_are_option_errors():
    with pytest.raises(OptionError, match="serial"):
        Executor("sreial")
    with pytest.raises(OptionError):
        Executor("serial", workers=0)
    with Executor(3.5) as executor, pytest.raises(OptionError):
        list(executor.map(square, {1: 1}))


def test_a_scheduler_that_does_not_answer_is_a_clear_error(monkeypatch):

    monkeypatch.setattr(tuning, "CONNECT_SECONDS", 0.5)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound but not listening: connections are refused
        address = f"tcp://127.0.0.1:{taken.getsockname()[1]}"
        with Executor(address) as executor, pytest.raises(ExecutorError, match=address):
            list(executor.map(square, {1: 1}))


def test_importing_the_executors_does_not_import_dask():
    code = (
        "import sys, alpa_explore.execution.executors; sys.exit('dask' in sys.modules or 'distributed' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_auto_stays_here_for_short_work_and_when_workers_cannot_be_started(monkeypatch):
    monkeypatch.setattr(tuning, "AUTO_STAY_SECONDS", 0.0)
    monkeypatch.setattr(tuning, "AUTO_LEFT_SECONDS", 1e-9)

    def fail(self):
        raise OSError("no more processes")

    monkeypatch.setattr(Executor, "start", fail)
    with Executor("auto", workers=2) as executor:
        assert dict(executor.map(square, {n: n for n in range(9)})) == {n: n * n for n in range(9)}
    assert len(executor.warnings) == 1
    assert "no more processes" in executor.warnings[0]


def test_on_few_cores_auto_executes_compiled_tasks_in_threads_of_this_process(monkeypatch):
    monkeypatch.setattr(tuning, "MOST_THREADS", 2)
    both = threading.Barrier(2, timeout=limit_seconds())

    def where(_):
        both.wait()
        return os.getpid(), threading.get_ident()

    with Executor("auto", workers=2) as executor:
        found = dict(executor.map(where, {n: n for n in range(2)}, compiled=True))
    assert {process for process, _ in found.values()} == {os.getpid()}
    assert len({thread for _, thread in found.values()}) == 2
    for workers in (1, 3):
        with Executor("auto", workers=workers) as executor:
            found = dict(executor.map(lambda _: threading.get_ident(), {1: 1}, compiled=True))
        assert found == {1: threading.get_ident()}


@pytest.mark.distributed
def test_auto_moves_long_work_to_processes(monkeypatch):
    monkeypatch.setattr(tuning, "AUTO_STAY_SECONDS", 0.1)
    monkeypatch.setattr(tuning, "AUTO_LEFT_SECONDS", 0.5)

    def where(value):  # the first ones compute, for what waits is not moved; then they take their time
        end = time.thread_time() + 0.05 * (value < 10)
        while time.thread_time() < end:
            pass
        return process_of(value + 1)

    with Executor("auto", workers=2) as executor:
        found = dict(executor.map(where, {n: n for n in range(200)}))
    assert os.getpid() in found.values()
    assert len(set(found.values())) == 3
    assert set(found) == set(range(200))


@pytest.mark.distributed
def test_workers_are_started_while_what_they_will_do_is_prepared(monkeypatch):
    with Executor("auto", workers=2) as executor:
        monkeypatch.setattr(tuning, "PREPARING_SECONDS", 1000.0)
        with executor.preparing():
            pass
        assert not starting(), "what is quickly prepared is small"
        monkeypatch.setattr(tuning, "PREPARING_SECONDS", 0.01)
        with executor.preparing():
            until(starting, "workers are being started")
        until(lambda: not starting(), "workers are started")
        found = dict(executor.map(process_of, {n: n + 1 for n in range(40)}))
    assert len(set(found.values()) - {os.getpid()}) == 2


@pytest.mark.distributed
def test_closing_does_not_wait_for_workers_that_nobody_needs_and_leaves_none_behind(monkeypatch):
    # A wait for them would last until this test is ended.
    for limit in ("CONNECT_SECONDS", "WORKERS_SECONDS"):
        monkeypatch.setattr(tuning, limit, 10**6)
    monkeypatch.setattr(tuning, "PREPARING_SECONDS", 0.01)
    launched, popen = [], subprocess.Popen

    def never_ready(_command, **options):
        launched.append(popen([sys.executable, "-c", "import time; time.sleep(10**6)"], **options))
        return launched[-1]

    monkeypatch.setattr(subprocess, "Popen", never_ready)
    with Executor("auto", workers=2) as executor, executor.preparing():
        until(lambda: len(launched) == 2, "workers are started, as preparing takes long")
    assert all(process.poll() is not None for process in launched)
    assert executor.warnings == []
    executor.close()


class AtOnce:
    """A timer whose time is over when it is started."""

    def __init__(self, _seconds, function):
        self.start, self.cancel = function, lambda: None


def prepare(executor):
    with executor.preparing():
        pass


def test_closing_while_the_starting_thread_is_about_to_run_waits_for_it(monkeypatch):
    about, go, errors, seen = threading.Event(), threading.Event(), [], []

    class SlowToStart(threading.Thread):
        def start(self):
            about.set()
            until(go.is_set, "the thread may start")
            super().start()

    def close():
        try:
            executor.close()
        except RuntimeError as error:  # before: "cannot join thread before it is started"
            errors.append(error)

    def waits():
        """Whether the closing thread was at the same place in five looks."""
        seen.append(getattr(sys._current_frames().get(closing.ident), "f_lasti", None))
        return len(seen) > 5 and len(set(seen[-5:])) == 1

    executor = Executor("auto", workers=2)
    preparing, closing = threading.Thread(target=prepare, args=(executor,)), threading.Thread(target=close)
    pool = SimpleNamespace(wait=lambda _: 1, close=lambda: None)
    monkeypatch.setattr(dask_pool, "open_pool", lambda *_: pool)
    monkeypatch.setattr(threading, "Timer", AtOnce)
    monkeypatch.setattr(threading, "Thread", SlowToStart)
    preparing.start()
    until(about.is_set, "the starting thread is about to run")
    closing.start()
    until(lambda: not closing.is_alive() or waits(), "closing waits for it")
    go.set()
    until(lambda: not (preparing.is_alive() or closing.is_alive() or starting()), "all threads have ended")
    assert (errors, executor.warnings) == ([], [])

    about.clear()
    prepare(executor)
    assert not about.is_set(), "nothing is started for an executor that is closed"


@pytest.mark.distributed
@pytest.mark.parametrize("moment", ["at once", "a thread starts them", "one is started", "both are started", "ready"])
def test_closing_at_any_moment_of_the_start_leaves_no_process_behind(moment, monkeypatch):
    monkeypatch.setattr(tuning, "PREPARING_SECONDS", 0.0)
    before = children()
    reached = {
        "at once": lambda: True,
        "a thread starts them": starting,
        "one is started": lambda: children() - before,
        "both are started": lambda: len(children() - before) >= 2,
        "ready": lambda: children() - before and not starting(),
    }
    with Executor("auto", workers=2) as executor, executor.preparing():
        until(reached[moment], moment)
    assert executor.warnings == []
    until(lambda: children() <= before, "no process is left")


@pytest.mark.distributed
def test_a_shared_value_is_one_object_on_each_worker_and_threads_are_single():
    before = dict(os.environ)
    with Executor("processes", workers=2) as executor:
        seen = set(dict(executor.map(identity_of, {n: n for n in range(40)}, shared=list(range(1000)))).values())
        assert len({pid for pid, _ in seen}) == 2
        assert len(seen) == 2
        threads = dict(executor.map(lambda _: os.environ["OMP_NUM_THREADS"], {0: 0}))
    assert threads == {0: "1"}
    assert dict(os.environ) == before, "the user's own libraries keep their threads"


@pytest.mark.distributed
def test_a_killed_worker_changes_nothing_in_the_answer(tmp_path):
    tasks = {n: (n, str(tmp_path / "killed")) for n in range(40)}
    for workers in (1, 2):
        (tmp_path / "killed").unlink(missing_ok=True)
        seen = []
        with Executor("processes", workers=workers) as executor:
            found = dict(executor.map(die_once, tasks, progress=seen.append))
        assert (tmp_path / "killed").exists()
        assert found == {n: n * n for n in range(40)}
        assert [p.done for p in seen] == list(range(41))


@pytest.mark.distributed
def test_a_shared_value_survives_the_death_of_every_worker(tmp_path):
    def task(shared, value):
        if value == 3 and not Path(shared[0]).exists():
            Path(shared[0]).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return shared[1] + value

    with Executor("processes", workers=1) as executor:
        found = dict(executor.map(task, {n: n for n in range(10)}, shared=(str(tmp_path / "killed"), 100)))
    assert found == {n: 100 + n for n in range(10)}


@pytest.mark.distributed
def test_a_task_that_kills_every_worker_is_a_clear_error():
    with Executor("processes", workers=2) as executor, pytest.raises(ExecutorError, match="every worker"):
        list(executor.map(die_always, {0: 0}))


@pytest.mark.distributed
def test_an_error_that_cannot_be_pickled_comes_back_as_text():
    with Executor("processes", workers=1) as executor, pytest.raises(RuntimeError, match="Unpicklable: xy"):
        list(executor.map(raise_unpicklable, {0: 0}))


@pytest.mark.distributed
def test_nothing_listens_beyond_this_machine():
    with Executor("processes", workers=2) as executor:
        pids = set(dict(executor.map(process_of, {n: n + 1 for n in range(20)})).values())
        listening = [
            connection.laddr.ip
            for pid in (os.getpid(), *pids)
            for connection in psutil.Process(pid).net_connections(kind="inet")
            if connection.status == psutil.CONN_LISTEN
        ]
    assert len(pids) == 2
    assert listening
    assert set(listening) == {"127.0.0.1"}
    assert not any(psutil.pid_exists(pid) and psutil.Process(pid).status() != "zombie" for pid in pids), (
        "ended at close"
    )


@pytest.mark.distributed
def test_it_works_where_an_event_loop_runs_as_in_a_notebook():
    async def cell():
        return run_tasks(square, {n: n for n in range(6)}, scheduler="processes", workers=1)

    assert asyncio.run(cell()) == {n: n * n for n in range(6)}


SCRIPT = """
from alpa_explore.execution.executors import Executor
print("loaded")
def double(value):
    return 2 * value
with Executor("processes", workers=2) as executor:
    print(dict(sorted(executor.map(double, {n: n for n in range(5)}))))
"""


@pytest.mark.distributed
def test_a_script_needs_no_main_guard_and_may_come_from_stdin(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    (tmp_path / "random.py").write_text("raise SystemExit('a file here took the place of a module')")
    expected = "loaded\n{0: 0, 1: 2, 2: 4, 3: 6, 4: 8}\n"
    for arguments, text in (([str(tmp_path / "script.py")], None), (["-"], SCRIPT)):
        # -P: the script's own import of random is not what is tried here.
        done = subprocess.run(
            [sys.executable, "-P", *arguments], input=text, cwd=tmp_path, capture_output=True, text=True
        )
        assert (done.stdout, done.returncode) == (expected, 0), done.stderr


@pytest.mark.distributed
def test_workers_ignore_an_interrupt_and_leave_when_the_program_is_killed():
    script = """
import os, signal
from alpa_explore.execution.executors import Executor
from tests.execution.tasks import process_of
with Executor("processes", workers=2) as executor:
    print(*set(dict(executor.map(process_of, {n: n + 1 for n in range(20)})).values()))
    try:
        print("ready", flush=True)
        signal.pause()
    except KeyboardInterrupt:
        print(*set(dict(executor.map(process_of, {n: n + 1 for n in range(20)})).values()), flush=True)
    signal.pause()
"""
    program = subprocess.Popen(
        [sys.executable, "-c", script],
        cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        workers = {int(pid) for pid in program.stdout.readline().split()}
        assert program.stdout.readline() == "ready\n"
        os.killpg(program.pid, signal.SIGINT)
        assert {int(pid) for pid in program.stdout.readline().split()} == workers
    finally:
        program.kill()
        program.wait()
    assert len(workers) == 2
    until(lambda: not any(psutil.pid_exists(pid) for pid in workers), "the workers have left")
