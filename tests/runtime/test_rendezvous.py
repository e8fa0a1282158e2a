"""Ranks that do not come are named by those that wait; ports and interfaces."""

import json
import pickle
import socket
import subprocess
import sys

import pytest

from alpa_explore.errors import OptionError, RunError, UnknownNameError
from alpa_explore.runtime import tuning
from alpa_explore.runtime.job import packed
from alpa_explore.runtime.ranks.worker import meet
from alpa_explore.runtime.targets.dask_host import socket_variables
from alpa_explore.runtime.targets.local import environment
from alpa_explore.runtime.targets.network import parse_ports
from alpa_explore.runtime.targets.target import find_target


@pytest.mark.distributed
def test_a_rank_that_waits_in_vain_names_those_that_are_missing(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(tuning, "MEET_SECONDS", 0.5)
    (tmp_path / "hosts.json").write_text(json.dumps({"2": "node1 (10.0.0.2)"}))
    listener = socket.create_server(("127.0.0.1", 0))
    place = f"tcp://127.0.0.1:{listener.getsockname()[1]}"
    with pytest.raises(
        RunError, match=r"did not all meet: .*rank 0 waits for rank 1, rank 2 on node1 \(10\.0\.0\.2\)\."
    ):
        meet(f"{place}?listen={listener.detach()}", tmp_path, (0, 1, 2), 0)
    with pytest.raises(RunError, match=r"Rank 2 did not meet the first rank: rank 0 at 127\.0\.0\.1, port 1: "):
        meet("tcp://127.0.0.1:1", tmp_path, (0, 1, 2), 2)


def test_ports_are_one_or_a_range() -> None:
    assert parse_ports("29500") == (29500,)
    assert parse_ports("29500-29502") == (29500, 29501, 29502)
    for text in ("", "x", "5-4", "0", "65536", "1-2-3"):
        with pytest.raises(OptionError, match="29500-29600"):
            parse_ports(text)
    with pytest.raises(OptionError, match="needs no ports"):
        find_target("local", ports="29500")
    with pytest.raises(UnknownNameError):
        find_target("dusk", ports="29500")


def test_the_environment_of_a_worker_wins_over_the_chosen_interface(monkeypatch) -> None:
    monkeypatch.delenv("GLOO_SOCKET_IFNAME", raising=False)
    monkeypatch.setenv("NCCL_SOCKET_IFNAME", "mine")
    found = environment(socket_variables("e0", "2001:2::1"))
    assert (found["GLOO_SOCKET_IFNAME"], found["NCCL_SOCKET_IFNAME"]) == ("e0", "mine")
    assert found["NCCL_SOCKET_FAMILY"] == "AF_INET6"
    assert "NCCL_SOCKET_FAMILY" not in socket_variables("e0", "10.0.0.1")
    assert environment()["GLOO_SOCKET_IFNAME"] == "lo"


@pytest.mark.slow
def test_functions_of_the_users_own_modules_are_sent_as_code(tmp_path, monkeypatch) -> None:
    (tmp_path / "users_own.py").write_text("import threading\nfactor = 3\n\ndef times(x):\n    return factor * x\n")
    (tmp_path / "users_lock.py").write_text(
        "import threading\nlock = threading.Lock()\n\ndef locked(x):\n    with lock:\n        return x\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    import users_lock
    import users_own

    (tmp_path / "job").write_bytes(packed(users_own.times))
    load = f"import pickle; print(pickle.load(open({str(tmp_path / 'job')!r}, 'rb'))(14))"
    done = subprocess.run([sys.executable, "-P", "-c", load], capture_output=True, text=True, check=False, cwd="/")
    assert done.stdout == "42\n", done.stderr
    assert pickle.loads(packed(users_lock.locked)) is users_lock.locked, "what cannot be sent is named"
    assert pickle.loads(packed(pytest.fixture)) is pytest.fixture, "an installed package is there"
