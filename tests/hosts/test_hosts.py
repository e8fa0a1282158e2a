"""The emulated hosts are what tests take them for: apart, with links that can be cut, and gone afterwards."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.hosts import hosts as module
from tests.hosts.hosts import DECOY, Hosts
from tests.waiting import until

pytestmark = pytest.mark.hosts


def output(hosts: Hosts, host: int, *command: str) -> str:
    done = hosts.run(host, command)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def reaches(hosts: Hosts, one: int, other: int) -> bool:
    """Whether a TCP connection from one host to another one comes about in a second."""
    listen = "import socket; s = socket.create_server(('', 5000)); print(flush=True); s.accept()"
    server = hosts.popen(other, [sys.executable, "-c", listen], stdout=subprocess.PIPE)
    server.stdout.readline()
    ask = f"import socket; socket.create_connection(('{hosts.address(other)}', 5000), 1)"
    found = hosts.run(one, [sys.executable, "-c", ask]).returncode == 0
    server.kill()
    server.wait()
    return found


def connects(hosts: Hosts, one: int, other: int) -> bool:
    """Wait until a TCP connection from one host to another one comes about."""
    return until(lambda: reaches(hosts, one, other), f"host {one} reaches {other}")


def test_every_host_has_a_name_that_leads_to_the_loopback_and_an_interface_too_many(pair) -> None:
    for host in (0, 1):
        assert output(pair, host, "hostname") == f"node{host}"
        assert output(pair, host, "getent", "hosts", f"node{host}").split() == ["127.0.1.1", f"node{host}"]
        found = output(pair, host, "ip", "-o", "addr")
        assert DECOY in found
        assert pair.address(host) in found
        assert pair.address6(host) in found
        assert pair.address(1 - host) not in found


def test_a_cable_that_is_pulled_and_one_that_is_put_back(four) -> None:
    assert connects(four, 0, 1)
    four.cut(1)
    assert not reaches(four, 0, 1)
    assert connects(four, 0, 2)
    four.restore(1)
    four.cut(1, 2)
    assert connects(four, 0, 1)
    assert not reaches(four, 1, 2)
    assert not reaches(four, 2, 1)
    four.restore(1, 2)
    assert connects(four, 1, 2)


def test_reset_makes_the_hosts_as_dask_left_them(pair) -> None:
    before = [process.pid for host in (0, 1) for process in pair.processes(host)]
    assert len(before) == 3, "a scheduler and two workers"
    sleeper = pair.popen(0, ["sleep", "1000"])
    pair.limit(0, "1kbit")
    pair.cut(0, 1)
    pair.reset()
    sleeper.wait()
    assert connects(pair, 0, 1)
    assert "tbf" not in output(pair, 0, "tc", "qdisc", "show", "dev", "e0")
    assert [process.pid for host in (0, 1) for process in pair.processes(host)] == before
    for change in (pair.kill, pair.cut):
        change(1)
        pair.reset()
        after = [process.pid for host in (0, 1) for process in pair.processes(host)]
        assert (after[:2], len(after)) == (before[:2], 3), "the worker alone is another one"
        assert after[2] != before[2]
    pair.kill(0)
    pair.reset()
    after = [process.pid for host in (0, 1) for process in pair.processes(host)]
    assert len(after) == 3
    assert not set(after) & set(before)


def test_a_limit_is_kept(pair) -> None:
    pair.limit(0, "80mbit")
    listen = (
        "import socket, time; server = socket.create_server(('', 5000)); print(flush=True); s, _ = server.accept();"
        "n = len(s.recv(1 << 20)); t = time.time()\n"
        "while d := s.recv(1 << 20): n += len(d)\nprint(n / (time.time() - t))"
    )
    server = pair.popen(1, [sys.executable, "-c", listen], stdout=subprocess.PIPE, text=True)
    assert server.stdout.readline() == "\n", "it listens"
    ask = f"import socket; socket.create_connection(('{pair.address(1)}', 5000)).sendall(bytes(5 * 10**6))"
    output(pair, 0, sys.executable, "-c", ask)
    assert float(server.communicate()[0]) < 12e6  # bytes a second; 10e6 are asked for, and it may take longer


def test_a_folder_can_be_hidden(pair, tmp_path) -> None:
    (tmp_path / "file").write_text("of this machine")
    done = pair.run(0, ["sh", "-c", f"ls {tmp_path}; touch {tmp_path}/mine"], hide=[tmp_path])
    assert (done.returncode, done.stdout) == (0, "")
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_what_a_killed_test_leaves_is_removed_by_the_next_one(namespaces) -> None:
    text = (
        "import os, signal; from tests.hosts.hosts import Hosts; h = Hosts(1); h.up(); print(h.namespace(0), flush=1)\n"
        "h.popen(0, ['sleep', '1000'], stdout=-3, stderr=-3); os.kill(os.getpid(), signal.SIGKILL)"
    )
    command = [sys.executable, "-c", text]
    root = Path(module.__file__).parents[2]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    left = Path("/run/netns") / done.stdout.strip()
    assert left.exists()
    with Hosts(1):
        assert not left.exists()


def test_nothing_is_left_of_hosts_that_are_taken_down(namespaces) -> None:
    hosts = Hosts(1)
    with hosts:
        sleeper = hosts.popen(0, ["sleep", "1000"])
        assert sleeper.pid in [p.pid for p in hosts.processes(0)] or sleeper.poll() is None
    assert sleeper.poll() is not None
    assert not hosts.folder.exists()
    left = subprocess.run(["ip", "-o", "link"], capture_output=True, text=True, check=True).stdout
    assert hosts.namespace(0).removesuffix("h0") not in left
