"""Attaching real Dask workers of this machine, on several loopback addresses."""

import asyncio
import os
import secrets
import socket
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from typing import Any

import pytest

import alpa_explore as ax
from alpa_explore.attached import cluster_of, tuning, worker_side
from alpa_explore.attached.cluster_of import calibrate
from alpa_explore.attached.connection import scheduler_of
from alpa_explore.attached.hosts import Gpu
from alpa_explore.errors import CancelledError, ClusterError, ExecutorError, OptionError
from alpa_explore.execution.client import on_thread

pytestmark = pytest.mark.distributed
REPORTS: dict[int, Iterator[int]] = defaultdict(count)


def turn(key: int) -> int:
    """0 and 1 in turn; by its name, for what is sent to a worker is a copy."""
    return next(REPORTS[key]) % 2


@pytest.fixture(scope="module")
def cluster():
    """Workers of this process: what they report can be replaced."""
    from distributed import Scheduler, SpecCluster, Worker

    quiet = {"dashboard": False, "dashboard_address": ":0"}
    made = SpecCluster(
        scheduler={"cls": Scheduler, "options": {"host": "127.0.0.1", "port": 0, **quiet}},
        workers={
            number: {"cls": Worker, "options": {"host": f"127.0.0.{number}", "nthreads": 1, "dashboard": False}}
            for number in (2, 3)
        },
    )
    with made:
        yield made


@pytest.fixture
def reported(monkeypatch):
    """Two hosts: each report of a worker has another network and name; `changes` replace more of the second's."""

    def report(**changes: Any) -> None:
        describe, key = worker_side.describe, len(REPORTS)
        REPORTS[key] = count()

        def other() -> dict[str, Any]:
            number = turn(key)
            return describe() | {"namespace": f"net{number}", "name": f"h{number}"} | (changes if number else {})

        monkeypatch.setattr(worker_side, "describe", other)

    return report


def test_hosts_and_links_are_found(cluster, reported) -> None:
    reported()
    found = []
    nodes = ax.attach(cluster, found=found.append)
    assert {host.name for host in nodes.hosts} == {"h0", "h1"}
    assert (len(found), found[0].links, found[0].hosts) == (1, (), nodes.hosts)
    assert len(nodes.links) == 4
    for link in nodes.links:
        assert link.fault == ""
        assert link.bandwidth > 1e6
        assert link.points[0][0] == 1024
    assert nodes.cluster().nodes == 2
    assert nodes.remarks()


def test_another_version_on_a_host_is_told_before_links_are_measured_and_refused(cluster, reported) -> None:
    versions = worker_side.versions() | {"torch": "2.0.0"}
    reported(versions=versions)
    found = []
    nodes = ax.attach(cluster, links=False, found=found.append)
    assert "2.0.0" in {host.versions.torch for host in found[0].hosts}
    with pytest.raises(ClusterError, match=r"torch: .*2\.0\.0 on h1"):
        nodes.cluster()
    assert any("A run would fail" in remark for remark in nodes.remarks())


def test_one_host_by_two_addresses_is_refused(cluster) -> None:
    with pytest.raises(OptionError, match=r"127\.0\.0\.2, 127\.0\.0\.3 are all .*--hosts 127\.0\.0\.2"):
        ax.attach(cluster, links=False)
    assert len(ax.attach(cluster, hosts=["127.0.0.3"], links=False).hosts) == 1


def test_chosen_hosts_are_checked(cluster, reported) -> None:
    reported()
    with pytest.raises(OptionError, match="named twice: h0"):
        ax.attach(cluster, hosts=["h0", "h0"], links=False)
    with pytest.raises(OptionError, match="no worker on a host of this name: h7"):
        ax.attach(cluster, hosts=["h7"], links=False)


def test_a_cancelled_measurement_ends(cluster, reported) -> None:
    reported()
    cancel = threading.Event()
    with pytest.raises(CancelledError):
        ax.attach(cluster, cancel=cancel, found=lambda _: cancel.set())


@contextmanager
def closed_port() -> Iterator[int]:
    """A port that nobody listens at, and that nobody else can take meanwhile."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


def test_a_scheduler_that_cannot_be_reached_or_is_none_is_said() -> None:
    with closed_port() as port, pytest.raises(ExecutorError, match="connection refused"):
        ax.attach(f"tcp://127.0.0.1:{port}")
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        pytest.raises(ExecutorError, match="does not answer as a Dask scheduler"),
    ):
        ax.attach(f"tcp://127.0.0.1:{silent.getsockname()[1]}")


def test_a_listener_takes_nothing_from_a_stranger_and_a_closed_port_is_named() -> None:
    secret = secrets.token_bytes(worker_side.SECRET_BYTES)

    async def both() -> tuple[dict[str, Any], dict[str, Any]]:
        port = await worker_side.listen("127.0.0.1", secret)
        stranger = await on_thread(worker_side.transfer, "127.0.0.1", port, b"x" * worker_side.SECRET_BYTES)
        return stranger, await on_thread(worker_side.transfer, "127.0.0.1", port, secret)

    stranger, friend = asyncio.run(both())
    assert stranger["fault"]
    assert [size for size, _ in friend["points"]] == list(tuning.SIZES)[: len(friend["points"])]
    with closed_port() as port:
        assert worker_side.transfer("127.0.0.1", port, secret) == {"fault": "connection refused"}


def test_a_transfer_that_is_not_answered_says_which_time_limit_it_had(monkeypatch) -> None:
    monkeypatch.setattr(tuning, "STALL_SECONDS", 1.0)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        sent = worker_side.transfer("127.0.0.1", silent.getsockname()[1], b"x" * worker_side.SECRET_BYTES)
    assert str(sent["fault"]).startswith("no answer within 1 s")


def test_the_free_memory_of_a_container_is_what_its_processes_left(monkeypatch) -> None:
    monkeypatch.setattr(worker_side, "available_bytes", lambda: 2**20)
    assert worker_side.describe()["free_bytes"] == 2**20
    monkeypatch.setattr(worker_side, "available_bytes", lambda: None)
    assert 2**20 < worker_side.describe()["free_bytes"] <= worker_side.describe()["memory_bytes"]


SRUN = """#!/usr/bin/env bash
# A node that is this machine.
while [[ $1 == --* ]]; do shift; done
exec "$@"
"""


def test_workers_are_started_on_the_nodes_of_a_slurm_allocation_and_end_with_it(tmp_path, monkeypatch) -> None:
    for name, body in (("srun", SRUN), ("scontrol", f"#!/bin/sh\necho {socket.gethostname()}\n")):
        (tmp_path / name).write_text(body)
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(OptionError, match="SLURM_JOB_NODELIST is not set"), scheduler_of("slurm"):
        pass
    monkeypatch.setenv("SLURM_JOB_NODELIST", "n[0-1]")
    with scheduler_of("slurm") as address:
        nodes = ax.attach(address, links=False)
        assert [host.address for host in nodes.hosts] == ["127.0.0.1"]
        assert nodes.hosts[0].versions == nodes.here
    with pytest.raises(ExecutorError):
        ax.attach(address)


def test_hosts_over_ssh_are_named_once_and_need_asyncssh() -> None:
    with pytest.raises(OptionError, match="h1 twice"), scheduler_of("ssh:h1,h1"):
        pass
    with pytest.raises(OptionError, match="must be named"), scheduler_of("ssh:"):
        pass


def test_a_calibration_on_a_worker_is_kept_for_machines_of_its_kind(cluster, tmp_path, monkeypatch, reported) -> None:
    reported()
    monkeypatch.setenv("ALPA_EXPLORE_CALIBRATIONS", str(tmp_path / "kept"))
    host = ax.attach(cluster, links=False).hosts[0]
    with pytest.raises(ExecutorError, match="No CUDA device is attached"):
        calibrate(cluster, replace(host, gpus=(Gpu(name="T4", uuid="1", memory_bytes=1, free_bytes=1),)), 1)
    assert not (tmp_path / "kept").exists()

    def measured(_kind: str, ranks: int, name: str, *_more: object) -> dict[str, Any]:
        return {"name": name, "device": {"like": "cpu", "launch_seconds": ranks * 1e-6}} | {
            key: {"bandwidth": 1e9, "latency_seconds": 1e-5} for key in ("inside_node", "between_nodes")
        }

    monkeypatch.setattr(cluster_of, "calibrated", measured)
    path = calibrate(cluster, host, 2)
    assert (path.parent, path.stem) == (tmp_path / "kept", cluster_of.machine_key(host, 2))
    device = ax.attach(cluster, links=False).cluster(2).device
    assert (device.name, device.launch_seconds) == (path.stem, 2e-6)


def test_hosts_share_the_kernels_of_a_plan_and_time_each_of_them_once(cluster, reported) -> None:
    reported()
    plan = ax.plan("mlp-tiny", "1x2:cpu", num_microbatches=2, cache=False)
    told: list[tuple[int, int, float]] = []
    found = ax.profile(plan, seconds=600, scheduler=cluster, progress=lambda *now: told.append(now))
    assert (found.left, found.failed, found.known) == (0, (), 0)
    assert found.timed == len(found.store.kernels) == len(told)
    assert found.plan_share == pytest.approx(1.0)
    assert all(kernel.seconds > 0 for kernel in found.store.kernels.values())
    assert found.store.host == "; ".join(host.name for host in ax.attach(cluster, links=False).hosts)
    reported(gpus=[{"name": "H100", "uuid": "1", "memory_bytes": 2**36, "free_bytes": 2**36}])
    with pytest.raises(OptionError, match="one kind of device"):
        ax.profile(plan, scheduler=cluster)
