"""Who may reach the worker processes that are started on this machine."""

import json
import os
import stat
import subprocess
import sys
import urllib.error
import urllib.request
from http.client import HTTPException
from pathlib import Path

import psutil
import pytest

from alpa_explore.errors import ExecutorError
from alpa_explore.execution.executors import Executor

STRANGER = Path(__file__).with_name("stranger.py")


def listening(pids):
    """The ports at which processes listen."""
    return sorted(
        connection.laddr.port
        for pid in pids
        for connection in psutil.Process(pid).net_connections(kind="inet")
        if connection.status == psutil.CONN_LISTEN
    )


def what_a_stranger_gets(ports):
    """(port, way, outcome) of each try of another user to run a function."""
    said = subprocess.run(
        [sys.executable, STRANGER, ",".join(map(str, ports))], cwd="/", capture_output=True, text=True, check=True
    )
    return json.loads(said.stdout)


def place_of(_):
    """Where a worker keeps its files, and its pid."""
    from distributed import get_worker

    return get_worker().local_directory, os.getpid()


@pytest.mark.distributed
def test_no_other_user_of_the_machine_reaches_scheduler_or_workers():
    with Executor("processes", workers=2) as executor:
        before = set(listening([os.getpid()]))
        found = set(dict(executor.map(place_of, {n: n for n in range(16)})).values())
        folders, pids = {Path(folder) for folder, _ in found}, {pid for _, pid in found}
        ports = sorted({*listening([os.getpid()]), *listening(pids)} - before)
        outcomes = what_a_stranger_gets(ports)
        # Nobody else's files are imported: dask puts the folder of a worker in front of its module path.
        modes = {stat.S_IMODE(parent.stat().st_mode) for folder in folders for parent in list(folder.parents)[:2]}
        assert 0o700 in modes
        assert all("alpa-explore-" in str(folder) for folder in folders)
        for pid in pids:
            assert "PRIVATE KEY" not in " ".join(psutil.Process(pid).cmdline()), "anybody may read it there"
        pages = [page_of(port, path) for port in ports for path in ("health", "metrics", "info/main/workers.html")]
    assert len(ports) >= 2 + len(pids), "the scheduler and the workers"
    assert not [outcome for outcome in outcomes if "ran as user" in outcome[2]]
    assert {outcome.split(":")[0] for _, _, outcome in outcomes} <= {"refused", "None"}
    assert set(pages) <= {404, None}
    assert not any(folder.exists() for folder in folders), "nothing is left behind"


def page_of(port, path):
    """The status of a page; None where something else than HTTP is spoken."""
    try:
        return urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}").status
    except urllib.error.HTTPError as error:
        return error.code
    except (OSError, HTTPException):
        return None


@pytest.mark.distributed
def test_the_stranger_runs_functions_where_there_is_no_key():
    """The same tries on a scheduler as dask starts it: else a test of refusals might try nothing."""
    from distributed import LocalCluster

    with LocalCluster(n_workers=1, processes=False, protocol="tcp", dashboard_address=None) as cluster:
        ports = [int(cluster.scheduler_address.rsplit(":", 1)[1])]
        outcomes = what_a_stranger_gets(ports)
    assert [outcome for outcome in outcomes if "ran as user" in outcome[2]]


def test_workers_are_not_started_without_a_key(monkeypatch):
    monkeypatch.setitem(sys.modules, "cryptography", None)
    with Executor("processes", workers=1) as executor, pytest.raises(ExecutorError, match="pip install cryptography"):
        list(executor.map(len, {0: "a"}))
