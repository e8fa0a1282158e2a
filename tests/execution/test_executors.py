"""Running tasks in this process, in threads, on local workers and on a scheduler of the user's."""

import asyncio
import itertools
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from alpa_explore.errors import CancelledError, ExecutorError, OptionError, SolverError
from alpa_explore.execution import tuning
from alpa_explore.execution.executors import Executor, run_tasks

IN_PROCESS = ["serial", "threads", "auto"]
PLACES = [*IN_PROCESS, pytest.param("processes", marks=pytest.mark.distributed)]


# Dask's workers get these by value: a test module is not importable there.
def _by_value():
    import cloudpickle

    cloudpickle.register_pickle_by_value(sys.modules[__name__])


_by_value()


def square(value):
    return value * value


def plus(shared, value):
    return shared + value


def identity_of(shared, value):
    return os.getpid(), id(shared)


def fail_at_three(value):
    if value == 3:
        raise SolverError("The problem has no solution", found="three", remedy="Take another number.")
    return value


def slow(value):
    time.sleep(0.05)
    return value * 7


def die_once(value):
    """The first time that 5 comes, its worker is killed as by the system."""
    number, flag = value
    if number == 5 and not Path(flag).exists():
        Path(flag).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(0.02)
    return number * number


def die_always(value):
    os.kill(os.getpid(), signal.SIGKILL)


def comes_true(condition, seconds=10):
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.05)
    return condition()


def read(results, kept, after=None, then=lambda: None):
    """Keep the results, and do something `after` so many."""
    for key, value in results:
        kept[key] = value
        if len(kept) == after:
            then()


class Unpicklable(Exception):
    def __init__(self, a, b):
        super().__init__(f"{a}{b}")


def raise_unpicklable(value):
    raise Unpicklable("x", "y")


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
        assert 6 <= len(kept) < 20
        assert all(value == key * 7 for key, value in kept.items())
        cancel.clear()
        assert dict(executor.map(square, {3: 3}, cancel=cancel)) == {3: 9}


@pytest.mark.parametrize("place", PLACES)
def test_a_caller_may_stop_reading(place):
    with Executor(place, workers=2) as executor:
        for _ in executor.map(slow, {n: n for n in range(100)}):
            break
        start = time.monotonic()
        assert len(dict(executor.map(square, {n: n for n in range(4)}))) == 4
        assert time.monotonic() - start < 3, "the tasks that nobody reads should not be run first"


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
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_auto_stays_here_for_short_work_and_when_workers_cannot_be_started(monkeypatch):
    monkeypatch.setattr(tuning, "AUTO_STAY_SECONDS", 0.0)
    monkeypatch.setattr(tuning, "AUTO_LEFT_SECONDS", 1e-9)

    def fail(self):
        raise OSError("no more processes")

    monkeypatch.setattr(Executor, "_start", fail)
    with Executor("auto", workers=2) as executor:
        assert dict(executor.map(square, {n: n for n in range(9)})) == {n: n * n for n in range(9)}
    assert len(executor.warnings) == 1
    assert "no more processes" in executor.warnings[0]


def test_on_few_cores_auto_executes_compiled_tasks_in_threads_of_this_process(monkeypatch):
    monkeypatch.setattr(tuning, "MOST_THREADS", 2)
    both = threading.Barrier(2, timeout=30)

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

    def where(value):
        end = time.thread_time() + 0.05
        while time.thread_time() < end:
            pass
        return os.getpid()

    with Executor("auto", workers=2) as executor:
        found = dict(executor.map(where, {n: n for n in range(200)}))
    assert os.getpid() in found.values()
    assert len(set(found.values())) == 3
    assert set(found) == set(range(200))


@pytest.mark.distributed
def test_workers_are_started_while_what_they_will_do_is_prepared(monkeypatch):
    monkeypatch.setattr(tuning, "PREPARING_SECONDS", 0.05)
    with Executor("auto", workers=2) as executor:
        with executor.preparing():
            pass
        assert executor._starting is None, "what is quickly prepared is small"
        with executor.preparing():
            time.sleep(0.5)
        assert executor._starting is not None
        executor._starting.join()
        found = dict(executor.map(lambda _: os.getpid(), {n: n for n in range(40)}))
    assert len(set(found.values()) - {os.getpid()}) == 2


@pytest.mark.distributed
def test_closing_does_not_wait_for_workers_that_nobody_needs_and_leaves_none_behind(monkeypatch):
    from alpa_explore.execution import dask_pool  # so that its import is not what takes time
    from alpa_explore.execution.local_cluster import WorkerProcess

    assert dask_pool.DaskPool
    monkeypatch.setattr(tuning, "PREPARING_SECONDS", 0.01)
    launched = []

    def never_ready(self):
        self._process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
        launched.append(self._process)

    monkeypatch.setattr(WorkerProcess, "_launch", never_ready)
    with Executor("auto", workers=2) as executor:
        with executor.preparing():
            assert comes_true(lambda: len(launched) == 2), "preparing takes long, so workers are started"
        start = time.monotonic()
    assert time.monotonic() - start < 3
    assert all(process.poll() is not None for process in launched)
    assert executor.warnings == []
    executor.close()


def test_closing_while_the_starting_thread_is_about_to_run_waits_for_it(monkeypatch):
    class SlowToStart(threading.Thread):
        def start(self):
            time.sleep(0.3)
            super().start()

    started = []
    monkeypatch.setattr(Executor, "_start", lambda self: started.append(self))
    monkeypatch.setattr(threading, "Thread", SlowToStart)
    executor = Executor("auto", workers=2)
    beside = SlowToStart(target=executor._start_beside)
    beside.start()
    assert comes_true(executor._start_or_close.locked)
    executor.close()  # before: "cannot join thread before it is started"
    assert started == [executor]
    assert executor.warnings == []

    closed = Executor("auto", workers=2)
    closed.close()
    closed._start_beside()
    assert started == [executor], "nothing is started for an executor that is closed"


@pytest.mark.distributed
def test_closing_at_any_moment_of_the_start_leaves_no_process_behind(monkeypatch):
    psutil = pytest.importorskip("psutil")
    from alpa_explore.execution import dask_pool

    assert dask_pool.DaskPool
    monkeypatch.setattr(tuning, "PREPARING_SECONDS", 0.0)
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    for pause in (0.0, 0.05, 0.2, 0.6):
        with Executor("auto", workers=2) as executor, executor.preparing():
            time.sleep(pause)
        assert executor.warnings == []
        assert comes_true(lambda: {child.pid for child in psutil.Process().children(recursive=True)} <= before, 3)


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
    psutil = pytest.importorskip("psutil")
    with Executor("processes", workers=2) as executor:
        pids = set(dict(executor.map(lambda _: (time.sleep(0.05), os.getpid())[1], {n: n for n in range(20)})).values())
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
        await asyncio.sleep(0)
        return run_tasks(square, {n: n for n in range(6)}, scheduler="processes", workers=1)

    assert asyncio.run(cell()) == {n: n * n for n in range(6)}


SCRIPT = """
from alpa_explore.execution.executors import run_tasks
print("loaded")
def double(value):
    return 2 * value
print(run_tasks(double, {n: n for n in range(5)}, scheduler="processes", workers=2))
"""


@pytest.mark.distributed
def test_a_script_needs_no_main_guard_and_may_come_from_stdin(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    (tmp_path / "random.py").write_text("raise SystemExit('a file here took the place of a module')")
    expected = "loaded\n{0: 0, 1: 2, 2: 4, 3: 6, 4: 8}\n"
    for arguments, text in (([str(tmp_path / "script.py")], None), (["-"], SCRIPT)):
        # -P: the script's own import of random is not what is tried here.
        done = subprocess.run(
            [sys.executable, "-P", *arguments], input=text, cwd=tmp_path, capture_output=True, text=True, timeout=60
        )
        assert (done.stdout, done.returncode) == (expected, 0), done.stderr


@pytest.mark.distributed
def test_workers_ignore_an_interrupt_and_leave_when_the_program_is_killed():
    psutil = pytest.importorskip("psutil")
    script = """
import os, time
from alpa_explore.execution.executors import Executor
with Executor("processes", workers=2) as executor:
    print(*set(dict(executor.map(lambda _: (time.sleep(0.05), os.getpid())[1], {n: n for n in range(20)})).values()))
    try:
        print("ready", flush=True)
        time.sleep(60)
    except KeyboardInterrupt:
        found = dict(executor.map(lambda _: (time.sleep(0.05), os.getpid())[1], {n: n for n in range(20)}))
        print(*set(found.values()), flush=True)
    time.sleep(60)
"""
    program = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, start_new_session=True
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
    assert comes_true(lambda: not any(psutil.pid_exists(pid) for pid in workers))


@dataclass
class OwnScheduler:
    """A scheduler and a worker started by hand, as on a cluster."""

    processes: list
    address: str


@pytest.fixture
def own_scheduler(tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{free.getsockname()[1]}"
    python = [sys.executable, "-m"]
    port = address.rsplit(":", 1)[1]
    commands = [
        [*python, "distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", port, "--no-dashboard"],
        [*python, "distributed.cli.dask_worker", address, "--nthreads", "1", "--no-nanny", "--host", "127.0.0.1"],
    ]
    log = (tmp_path / "log").open("w")
    processes = [subprocess.Popen(command, stdout=log, stderr=log, cwd=tmp_path) for command in commands]
    yield OwnScheduler(processes, address)
    for process in processes:
        process.kill()
        process.wait()
    log.close()


@pytest.mark.distributed
def test_a_scheduler_of_the_users_serves_by_address_and_by_client(own_scheduler):
    from distributed import Client

    assert run_tasks(square, {n: n for n in range(9)}, scheduler=own_scheduler.address)[8] == 64
    with Client(own_scheduler.address, set_as_default=False) as client:
        assert run_tasks(plus, {n: n for n in range(9)}, scheduler=client, shared=1)[8] == 9
        assert client.status == "running", "a client of the user's stays open"
        assert comes_true(lambda: not client.futures), "nothing is left on the scheduler"


@pytest.mark.distributed
def test_a_scheduler_that_goes_is_a_clear_error_and_results_are_kept(own_scheduler, caplog):
    kept = {}
    logging.getLogger("distributed.client").addHandler(caplog.handler)
    with Executor(own_scheduler.address) as executor:
        with pytest.raises(ExecutorError, match="of 200 tasks") as caught:
            read(executor.map(slow, {n: n for n in range(200)}, batch_size=2), kept, 6, own_scheduler.processes[0].kill)
        start = time.monotonic()
    assert time.monotonic() - start < 5, "closing does not wait for what is gone"
    assert 6 <= len(kept) < 50
    assert all(value == key * 7 for key, value in kept.items())
    assert "is kept" in caught.value.remedy
    assert not caplog.records, "dask's own complaint says no more"
