"""Attaching emulated hosts: measured bandwidth, links that are slow or cut in one direction, the command line."""

import json
import subprocess
import sys

import pytest

import alpa_explore as ax
from alpa_explore.cluster import Cluster
from alpa_explore.errors import OptionError
from tests.waiting import until

pytestmark = pytest.mark.hosts
LIMIT = 100e6 / 8
"""Bytes per second of 100 Mbit/s."""


@pytest.fixture
def slow_pair(pair):
    """Two hosts that send 100 Mbit/s, and their scheduler."""
    for host in (0, 1):
        pair.limit(host, "100mbit")
    return pair, pair.scheduler_address


def bandwidths(nodes):
    return {str(link): link.bandwidth for link in nodes.links if not link.inside}


def measured(address, expected, **options):
    """Attach until the links have this bandwidth: where programs share the cores, a transfer may take longer once."""
    found = []

    def right():
        found.append(ax.attach(address, **options))
        return bandwidths(found[-1]) == pytest.approx(expected, rel=0.15)

    until(right, lambda: [bandwidths(nodes) for nodes in found])
    return found[-1]


def test_the_measured_bandwidth_is_that_of_the_link(slow_pair) -> None:
    hosts, address = slow_pair
    reports = []
    nodes = measured(address, {"node0 → node1": LIMIT, "node1 → node0": LIMIT}, progress=reports.append)
    assert [host.name for host in nodes.hosts] == ["node0", "node1"]
    assert [host.address for host in nodes.hosts] == [hosts.address(0), hosts.address(1)]
    assert [str(link) for link in nodes.links] == ["node0 → node0", "node1 → node1", "node0 → node1", "node1 → node0"]
    assert (reports[0].done, reports[-1].done, reports[-1].total) == (0, 4, 4)
    cluster = nodes.cluster(2)
    assert (cluster.nodes, cluster.devices_per_node) == (2, 2)
    assert cluster.between_nodes.bandwidth == pytest.approx(LIMIT, rel=0.15)
    assert cluster.inside_node.bandwidth > 4 * LIMIT
    assert cluster.device.memory_bytes == min(host.free_bytes for host in nodes.hosts) // 2
    assert any("one machine" in remark for remark in nodes.remarks())


def test_a_slow_direction_is_found(slow_pair) -> None:
    hosts, address = slow_pair
    hosts.limit(1, "20mbit")
    nodes = measured(address, {"node0 → node1": LIMIT, "node1 → node0": LIMIT / 5})
    assert any("Links differ: node1 → node0" in remark for remark in nodes.remarks())


def test_the_command_prints_the_tables_and_writes_a_cluster_that_is_planned_for(slow_pair, tmp_path) -> None:
    _, address = slow_pair
    path = tmp_path / "mine.json"

    def command(*arguments: str) -> subprocess.CompletedProcess[str]:
        line = [sys.executable, "-m", "alpa_explore.cli", *arguments]
        return subprocess.run(line, capture_output=True, text=True, check=False)

    done = command("nodes", address, "--devices-per-node", "2", "-o", str(path))
    assert done.returncode == 0, done.stderr
    assert "node0 → node1" in done.stdout
    assert "inside node1" in done.stdout
    assert "measuring links: 4 of 4" in done.stderr
    body = json.loads(path.read_text())
    assert (body["measured"]["format"], len(body["measured"]["links"])) == ("alpa_explore.attached", 4)
    assert Cluster.parse(str(path)).between_nodes.bandwidth < 1.15 * LIMIT
    again = command("nodes", str(path))
    assert "node1 → node0" in again.stdout
    fast = ["-B", "2", "--layers", "2", "--delta", "1", "--precision", "float32"]
    stored = command("plan", "mlp-tiny", "--cluster", str(path), *fast)
    direct = command(
        "plan", "mlp-tiny", "--cluster", "attached", "--scheduler", address, "--hosts", "node0,node1", *fast
    )
    assert (stored.returncode, direct.returncode) == (0, 0), stored.stderr + direct.stderr
    assert "mlp-tiny on 2x" in direct.stderr


def test_hosts_of_one_name_are_told_apart_by_their_addresses(make_hosts) -> None:
    hosts = make_hosts(2, names=("twin", "twin"))
    address = hosts.dask()
    nodes = ax.attach(address)
    assert [host.name for host in nodes.hosts] == [f"twin ({hosts.address(i)})" for i in range(2)]
    assert nodes.cluster().nodes == 2
    with pytest.raises(OptionError, match=f"twin is at {hosts.address(0)} and at {hosts.address(1)}"):
        ax.attach(address, hosts=["twin"])
    assert len(ax.attach(address, hosts=[hosts.address(1)], links=False).hosts) == 1
