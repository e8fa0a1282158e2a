"""Hosts that differ, links that fail, files and addresses, without a network: values as a worker reports them."""

import json
from dataclasses import replace

import pytest

from alpa_explore.attached.attach import Attached, load_attached, rounds_of_pairs, save_attached
from alpa_explore.attached.cluster_of import cluster_of, kept_calibration, machine_key, nearest_preset
from alpa_explore.attached.connection import scheduler_address
from alpa_explore.attached.hosts import Gpu, Host, MeasuredLink, Versions, differences, differences_from_here
from alpa_explore.cluster import Cluster
from alpa_explore.cluster.presets import load_preset
from alpa_explore.errors import ClusterError, ExecutorError, OptionError

GIB = 2**30
HERE = Versions(python="3.13.1", torch="2.13.0", alpa_explore="0.1.0 aaaaaaaa")


@pytest.fixture(autouse=True)
def _no_calibrations(tmp_path, monkeypatch):
    monkeypatch.setenv("ALPA_EXPLORE_CALIBRATIONS", str(tmp_path / "calibrations"))


def host(number: int, **changes) -> Host:
    made = Host(
        name=f"h{number}",
        address=f"10.0.0.{number}",
        workers=(f"tcp://10.0.0.{number}:4000",),
        versions=HERE,
        cpu="Some CPU",
        cores=4,
        memory_bytes=16 * GIB,
        free_bytes=8 * GIB,
        machine=f"boot{number}",
        namespace=f"net{number}",
    )
    return replace(made, **changes)


def link(source: int, target: int, bandwidth: float = 1e9, latency: float = 1e-4, fault: str = "") -> MeasuredLink:
    points = () if fault else ((1024, latency + 1024 / bandwidth), (2**22, latency + 2**22 / bandwidth))
    return MeasuredLink(
        source=f"h{source}", target=f"h{target}", latency_seconds=0.0 if fault else latency, points=points, fault=fault
    )


def gpu(name: str, gib: int = 80, free: int = 70) -> Gpu:
    return Gpu(name=name, uuid=name + str(free), memory_bytes=gib * GIB, free_bytes=free * GIB)


def test_other_versions_are_refused_with_the_hosts_and_the_equal_ones() -> None:
    other = host(2, versions=replace(HERE, torch="2.12.0"))
    hosts = (host(1), other, host(3))
    assert differences(hosts) == ("torch: 2.12.0 on h2; 2.13.0 on h1, h3",)
    with pytest.raises(ClusterError, match=r"torch: 2.12.0 on h2; 2.13.0 on h1, h3\. .*--hosts h1,h3"):
        cluster_of(hosts, ())
    assert cluster_of((hosts[0], hosts[2]), ())[0].nodes == 2
    patched = replace(HERE, python="3.13.9")
    assert differences((host(1), host(2, versions=patched))) == ()
    assert differences_from_here(hosts, HERE) == ("torch: 2.12.0 on h2; 2.13.0 here",)


def test_other_devices_and_hosts_that_cannot_describe_themselves_are_refused() -> None:
    with pytest.raises(ClusterError, match="devices: 2 × Some CPU on h2; 4 × Some CPU on h1"):
        cluster_of((host(1), host(2, cores=2)), ())
    broken = host(2, problem="alpa_explore is missing on it, or of another version")
    with pytest.raises(ClusterError, match=r"h2: alpa_explore is missing on it.*--hosts h1 "):
        cluster_of((host(1), broken), ())
    with pytest.raises(ClusterError, match="Start the workers where alpa_explore"):
        cluster_of((broken,), ())


def test_a_cluster_has_the_smallest_free_memory_the_slowest_link_and_what_a_step_takes_inside() -> None:
    hosts = (host(1), host(2, free_bytes=2 * GIB))
    links = [link(1, 1, 4e9, 2e-5), link(2, 2, 5e9, 2e-5), link(1, 2, 1e9, 5e-5), link(2, 1, 2e8, 7e-5)]
    cluster, remarks = cluster_of(hosts, links)
    assert (cluster.nodes, cluster.devices_per_node, cluster.device.memory_bytes) == (2, 4, GIB // 2)
    assert cluster.between_nodes.bandwidth == pytest.approx(2e8, rel=1e-6)
    assert cluster.inside_node.bandwidth == pytest.approx(4e9, rel=1e-6)
    step = load_preset("cpu")[1].latency_seconds
    assert cluster.inside_node.latency_seconds == step
    assert cluster.between_nodes.latency_seconds == pytest.approx(step + 7e-5 - 2e-5)
    assert any("Links differ: h2 → h1 has 200 MB/s, the fastest 1 GB/s" in remark for remark in remarks)
    assert any("preset cpu" in remark for remark in remarks)
    assert cluster_of(hosts, links, devices_per_node=2)[0].device.memory_bytes == GIB


def test_links_that_fail_are_named_with_the_hosts_that_reach_each_other() -> None:
    hosts = (host(1), host(2), host(3))
    links = [link(1, 2), link(2, 1), link(1, 3, fault="connection refused"), link(3, 1), link(2, 3), link(3, 2)]
    with pytest.raises(ClusterError, match=r"h1 → h3: connection refused\. .*--hosts h\d,h\d \(hosts=\)"):
        cluster_of(hosts, links)


def test_gpus_take_the_preset_of_their_name_or_the_nearest_memory_and_their_own_free_memory() -> None:
    presets = {
        "NVIDIA H200": 141,
        "NVIDIA H100 80GB HBM3": 80,
        "NVIDIA A100-SXM4-40GB": 40,
        "Tesla V100-SXM2-16GB": 16,
        "NVIDIA GB200": 186,
    }
    found = {name: nearest_preset(host(1, gpus=(gpu(name, gib),))) for name, gib in presets.items()}
    names = ("h200", "h100", "a100-40gb", "v100", "gb200")
    assert found == {name: (preset, True) for name, preset in zip(presets, names, strict=True)}
    strange = host(1, gpus=(gpu("Unheard Of", 16, 15), gpu("Unheard Of", 16, 11)))
    assert nearest_preset(strange) == ("v100", False)
    cluster, remarks = cluster_of((strange,), ())
    assert (cluster.devices_per_node, cluster.device.memory_bytes) == (2, 11 * GIB)
    assert "no preset is named like Unheard Of" in remarks[0]
    three = host(1, gpus=(gpu("Tesla V100", 16, 15), gpu("Tesla V100", 16, 14), gpu("Tesla V100", 16, 13)))
    cluster, remarks = cluster_of((three,), ())
    assert cluster.devices_per_node == 3
    with pytest.raises(OptionError, match="4 of 3 × Tesla V100"):
        cluster_of((three,), (), devices_per_node=4)


def test_infiniband_is_not_taken_for_what_tcp_reaches() -> None:
    hosts = tuple(host(i, gpus=(gpu("NVIDIA H100"),), rdma=("mlx5_0",)) for i in (1, 2))
    cluster, remarks = cluster_of(hosts, [link(1, 2), link(2, 1)])
    assert cluster.between_nodes == load_preset("h100", 1)[2]
    assert any("mlx5_0, which TCP does not measure" in remark for remark in remarks)


def test_a_kept_calibration_gives_the_figures_of_its_machine(tmp_path) -> None:
    one = host(1)
    assert machine_key(one, 4) == "some-cpu-4"
    assert kept_calibration(one, 4) is None
    folder = tmp_path / "calibrations"
    folder.mkdir()
    (folder / "some-cpu-4.json").write_text(
        json.dumps(
            {
                "name": "some-cpu-4",
                "device": {"like": "cpu", "peak_flops": {"float32": 7e10}},
                "inside_node": {"bandwidth": 3e9, "latency_seconds": 2e-4},
                "between_nodes": {"bandwidth": 3e9, "latency_seconds": 2e-4},
            }
        )
    )
    cluster, remarks = cluster_of((one, host(2)), [link(1, 1, 9e9, 1e-5), link(1, 2), link(2, 1)])
    assert (cluster.device.name, cluster.device.peak("float32")) == ("some-cpu-4", 7e10)
    assert (cluster.inside_node.bandwidth, remarks) == (3e9, ())
    assert cluster.between_nodes.latency_seconds == pytest.approx(1e-4 + 2e-4 - 1e-5)


def test_the_file_is_a_cluster_file_and_comes_back_equal(tmp_path) -> None:
    links = (link(1, 1), link(2, 2), link(1, 2), link(2, 1))
    attached = Attached(scheduler="tcp://10.0.0.1:8786", here=HERE, hosts=(host(1), host(2)), links=links)
    path = tmp_path / "mine.json"
    save_attached(attached, path)
    assert load_attached(path) == attached
    parsed, made = Cluster.parse(str(path)), attached.cluster()
    assert (parsed.nodes, parsed.devices_per_node) == (made.nodes, made.devices_per_node)
    assert (parsed.inside_node, parsed.between_nodes, parsed.device) == (
        made.inside_node,
        made.between_nodes,
        made.device,
    )
    body = json.loads(path.read_text())
    body["measured"]["hosts"][0]["cores"] = "many"
    path.write_text(json.dumps(body))
    with pytest.raises(ClusterError, match=r"'cores'. is 'many' in place of a whole number"):
        load_attached(path)
    body["measured"]["hosts"][0]["cores"] = 4
    body["measured"]["links"][0]["latency_seconds"] = -1e-5
    path.write_text(json.dumps(body))
    with pytest.raises(ClusterError, match="below 0, as -1e-05 is"):
        load_attached(path)
    path.write_text('{"nodes": 1}')
    with pytest.raises(ClusterError, match="holds no attached hosts"):
        load_attached(path)


@pytest.mark.parametrize(("given", "address"), [("127.0.0.1:8786", "tcp://127.0.0.1:8786"), (" tls://8.8.8.8:1 ",) * 2])
def test_addresses_of_this_machine_and_encrypted_ones_are_taken(given, address) -> None:
    assert scheduler_address(given) == address.strip()


def test_other_addresses_need_a_word_and_malformed_ones_are_said() -> None:
    assert scheduler_address("tcp://10.1.2.3:8786") == "tcp://10.1.2.3:8786"
    with pytest.raises(OptionError, match="--allow-remote"):
        scheduler_address("tcp://8.8.8.8:8786")
    assert scheduler_address("tcp://8.8.8.8:8786", allow_remote=True) == "tcp://8.8.8.8:8786"
    for text in ("", "tcp://", "tcp://h", "ftp://h:1", "tcp://h:port"):
        with pytest.raises(OptionError, match="tcp://HOST:PORT"):
            scheduler_address(text)
    with pytest.raises(ExecutorError, match="not known here"):
        scheduler_address("tcp://no-such-host.invalid:8786")


@pytest.mark.parametrize("count", [1, 2, 3, 4, 7])
def test_every_ordered_pair_is_measured_once_and_no_host_twice_at_a_time(count) -> None:
    hosts = [host(i) for i in range(count)]
    rounds = rounds_of_pairs(hosts)
    pairs = [(a.name, b.name) for r in rounds for a, b in r]
    assert sorted(pairs) == sorted((a.name, b.name) for a in hosts for b in hosts if a is not b)
    assert all(len({h.name for pair in r for h in pair}) == 2 * len(r) for r in rounds)


def test_hosts_of_other_devices_are_refused_with_the_text_of_unlike_nodes() -> None:
    hosts = (
        host(1, gpus=(gpu("NVIDIA H100"),)),
        host(2, gpus=(gpu("NVIDIA A100-SXM4-80GB"),)),
        host(3, gpus=(gpu("NVIDIA H100"),)),
    )
    with pytest.raises(
        ClusterError, match=r"--cluster (\S+), .*--target torchrun on h1, h3, h2, in this order"
    ) as raised:
        cluster_of(hosts, ())
    text = raised.value.remedy.split("--cluster ")[1].split(",")[0]
    assert [(k.nodes, k.device.name) for k in Cluster.parse(text).kinds] == [(2, "h100"), (1, "a100-80gb")]
    two = host(2, gpus=(gpu("NVIDIA A100-SXM4-80GB"),) * 2)
    with pytest.raises(ClusterError) as raised:
        cluster_of((hosts[0], two), ())
    assert "--cluster" not in raised.value.remedy
