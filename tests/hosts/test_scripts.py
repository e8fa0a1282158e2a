"""The scripts for torchrun and Slurm, run on hosts apart: they find the interface that leads to the other host."""

import json
import subprocess

import pytest

from alpa_explore.runtime.launch import launch
from tests.hosts.hosts import Hosts
from tests.runtime.plans import two_machines
from tests.runtime.slurm import missing, slurm
from tests.runtime.states import ended

pytestmark = pytest.mark.hosts


def write(target, folder):
    """The script of a run of two steps."""
    ended(launch(two_machines(), target, steps=2, folder=folder, device="cpu"))
    return folder / ("run.sh" if target == "torchrun" else "slurm.sh")


def losses(folder):
    events = [json.loads(line) for line in (folder / "rank-1.jsonl").read_text().splitlines()]
    return [e["loss"] for e in events if e["event"] == "step"]


def run_on_both(hosts, script, first):
    """(exit code, output) of both hosts."""
    started = [
        hosts.popen(
            number,
            ["bash", script],
            env={"NODE_RANK": str(number), "MASTER_ADDR": first},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for number in range(2)
    ]
    outputs = [process.communicate()[0] for process in started]
    return [(process.returncode, output) for process, output in zip(started, outputs, strict=True)]


@pytest.mark.sweep(kept=1, in_turn=True)
@pytest.mark.parametrize("family", ["IPv4", "IPv6"])
def test_torchrun_trains_across_two_hosts(pair, tmp_path, family) -> None:
    first = pair.address(0) if family == "IPv4" else pair.address6(0)
    outcomes = run_on_both(pair, write("torchrun", tmp_path / "run"), first)
    assert [code for code, _ in outcomes] == [0, 0], outcomes
    assert len(losses(tmp_path / "run")) == 2


def test_a_first_host_whose_name_leads_to_its_loopback_says_so(pair, tmp_path) -> None:
    script = write("torchrun", tmp_path / "run")
    done = pair.run(0, ["bash", script], env={"NODE_RANK": "0", "MASTER_ADDR": pair.names[0]})
    assert done.returncode == 2
    assert f"{pair.names[0]} is 127.0." in done.stderr
    assert "Set MASTER_ADDR to the address of a network card" in done.stderr


def test_slurm_trains_across_two_hosts_whose_own_names_lead_to_the_loopback(make_hosts: type[Hosts], tmp_path) -> None:
    if lacks := missing():
        pytest.skip(lacks)
    hosts = make_hosts(2)
    for host, name in enumerate(hosts.names):  # each knows the other by its address, as /etc/hosts of clusters has it
        with (hosts.folder / f"hosts-{1 - host}").open("a") as known:
            known.write(f"{hosts.address(host)} {name}\n")
    script = write("slurm", tmp_path / "run")
    nodes = {name: hosts.address(host) for host, name in enumerate(hosts.names)}
    with slurm(tmp_path / "slurm", nodes, controller=hosts.here, start=hosts.popen) as running:
        shown = running.finish(running.submit(script), 120)
    log = (script.parent / f"slurm-{shown['JobId']}.log").read_text()
    assert shown["JobState"] == "COMPLETED", log
    assert len(losses(script.parent)) == 2
