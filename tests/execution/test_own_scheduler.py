"""Running tasks on a scheduler of the user's."""

import json
import logging
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import dataclass

import pytest

from alpa_explore.errors import ExecutorError
from alpa_explore.execution import tuning
from alpa_explore.execution.executors import Executor
from tests.execution.tasks import plus, read, run_tasks, slow, square
from tests.waiting import until


@dataclass
class OwnScheduler:
    """A scheduler and a worker started by hand, as on a cluster."""

    processes: list
    address: str


@pytest.fixture
def own_scheduler(tmp_path):
    told = tmp_path / "scheduler.json"
    known = [f"--scheduler-file={told}", "--host=127.0.0.1"]
    commands = [
        ["distributed.cli.dask_scheduler", *known, "--port=0", "--no-dashboard"],
        ["distributed.cli.dask_worker", *known, "--nthreads=1", "--no-nanny"],
    ]
    with (tmp_path / "log").open("w") as log, ExitStack() as ends:
        processes = []
        for command in commands:
            process = subprocess.Popen([sys.executable, "-m", *command], stdout=log, stderr=log, cwd=tmp_path)
            ends.callback(process.wait)
            ends.callback(process.kill)
            processes.append(process)
            until(lambda: told.exists() and told.read_text().endswith("}"), (tmp_path / "log").read_text)
        yield OwnScheduler(processes, json.loads(told.read_text())["address"])


@pytest.mark.distributed
def test_a_scheduler_of_the_users_serves_by_address_and_by_client(own_scheduler):
    from distributed import Client

    assert run_tasks(square, {n: n for n in range(9)}, scheduler=own_scheduler.address)[8] == 64
    with Client(own_scheduler.address, set_as_default=False) as client:
        assert run_tasks(plus, {n: n for n in range(9)}, scheduler=client, shared=1)[8] == 9
        assert client.status == "running", "a client of the user's stays open"
        until(lambda: not client.futures, "nothing is left on the scheduler")


@pytest.mark.distributed
def test_a_scheduler_that_goes_is_a_clear_error_and_results_are_kept(own_scheduler, caplog, monkeypatch):
    kept = {}
    logging.getLogger("distributed.client").addHandler(caplog.handler)
    # Closing does not wait for what is gone: that would last until this test is ended.
    monkeypatch.setattr(tuning, "CONNECT_SECONDS", 10**6)
    scheduler, _ = own_scheduler.processes
    with Executor(own_scheduler.address) as executor, pytest.raises(ExecutorError, match="of 200 tasks") as caught:
        read(executor.map(slow, {n: n for n in range(200)}, batch_size=2), kept, 6, scheduler.kill)
    assert 6 <= len(kept) < 100
    assert all(value == key * 7 for key, value in kept.items())
    assert "is kept" in caught.value.remedy
    assert not caplog.records, "dask's own complaint says no more"
