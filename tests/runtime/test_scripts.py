"""What the script targets write: correct for the shell and for Kubernetes, and what a user can do wrong."""

import errno
import json
import os
import shutil
import socket
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest
import yaml

import alpa_explore as ax
from alpa_explore import cli
from alpa_explore.errors import OptionError
from alpa_explore.runtime.launch import launch
from alpa_explore.runtime.targets import network
from alpa_explore.runtime.targets.scripts import COMMANDS
from tests.ports import reserved_ports
from tests.runtime.plans import small_plan, two_machines
from tests.runtime.states import ended
from tests.waiting import limit_seconds

IMAGE = "registry.example/team/alpa:1"


def written(plan, target, folder, device="cpu", **more):
    """What `launch` writes for a target, and where."""
    run = launch(plan, target, steps=2, folder=folder, device=device, **more)
    assert ended(run).steps == ()
    assert run.progress.state == "written"
    path = folder / COMMANDS[target][1]
    return path, path.read_text(encoding="utf-8")


def machines(nodes, devices):
    return ax.baseline(
        "mlp-tiny",
        f"{nodes}x{devices}:cpu",
        "data-parallel",
        num_microbatches=2,
        num_layers=2,
        delta=1.0,
        precision="float32",
    )


def test_a_rack_of_trays_is_as_many_machines(tmp_path) -> None:
    plan = ax.baseline("mlp-tiny", "1x8:gb200", "data-parallel", num_microbatches=2, num_layers=2, delta=1.0)
    text = written(plan, "slurm", tmp_path / "run", "cuda")[1]
    assert "--nodes=2" in text
    assert "--gpus-per-node=4" in text
    run = (tmp_path / "run" / "run.sh").read_text(encoding="utf-8")
    assert "2 machine(s) with 4 rank(s) each" in run


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_the_scripts_are_clean(tmp_path, device) -> None:
    if shutil.which("shellcheck") is None:
        pytest.skip("no shellcheck here: apt-get install shellcheck")
    folder = tmp_path / "it's a folder; 100%"
    written(two_machines(), "slurm", folder, device)
    done = subprocess.run(
        ["shellcheck", folder / "run.sh", folder / "slurm.sh"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.slow
def test_ports_of_a_range(tmp_path) -> None:
    """All machines take the same port: the first, or that of the job."""
    job = checked(written(two_machines(), "kubernetes", tmp_path / "k", image=IMAGE, ports="29500-29600")[1])
    assert pod_of(job)["containers"][0]["ports"] == [{"name": "pytorchjob-port", "containerPort": 29500}]
    text = written(two_machines(), "slurm", tmp_path / "run", ports="29500-29600")[1]
    assert 'MASTER_PORT="${MASTER_PORT:-29500}"' in (tmp_path / "run" / "run.sh").read_text()
    (line,) = [line for line in text.splitlines() if line.startswith("MASTER_PORT=")]
    taken = [
        subprocess.run(
            ["bash", "-c", f"SLURM_JOB_ID={job}; {line}; echo $MASTER_PORT"], capture_output=True, check=True
        )
        for job in (101, 102, 302)
    ]
    assert [int(done.stdout) for done in taken] == [29500, 29501, 29600]


def test_names_from_a_plan_file_are_no_commands_in_a_script(tmp_path) -> None:
    plan = small_plan()
    hostile = replace(plan, model=replace(plan.model, name="x\ntouch /tmp/owned; `id` $(id)"))
    text = written(hostile, "torchrun", tmp_path / "run")[1]
    assert "touch /tmp/owned" not in [line.strip() for line in text.splitlines()]
    assert all(line.startswith("#") for line in text.splitlines() if "owned" in line)


def nccl_variables(path, **given):
    """What the script for GPUs sets, where the environment gives some."""
    lines = [line for line in path.read_text().splitlines() if line.startswith("export ") and "NCCL_" in line]
    script = "\n".join(["set -eu", *lines, 'echo "${NCCL_DEBUG:-} ${TORCH_NCCL_ASYNC_ERROR_HANDLING:-}"'])
    return subprocess.run(["bash", "-c", script], env=given, capture_output=True, text=True, check=True).stdout.split()


def test_the_settings_of_nccl_are_written_for_gpus_alone_and_yield_to_the_environment(tmp_path) -> None:
    on_gpus, on_cpus = (written(two_machines(), "torchrun", tmp_path / d, d)[0] for d in ("cuda", "cpu"))
    assert nccl_variables(on_gpus) == ["WARN", "3"]
    assert nccl_variables(on_gpus, NCCL_DEBUG="INFO", TORCH_NCCL_ASYNC_ERROR_HANDLING="1") == ["INFO", "1"]
    assert nccl_variables(on_cpus) == []


# The network of a machine.


def test_localhost_is_reached_through_the_loopback(capsys) -> None:
    assert network.main(["interface", "localhost"]) == 0
    assert capsys.readouterr().out.strip() in ("lo", "lo0")


def test_a_name_that_leads_to_the_loopback_is_refused_as_debian_writes_it(monkeypatch, capsys) -> None:
    entry = (socket.AF_INET, socket.SOCK_DGRAM, 0, "", ("127.0.0.1", 9))
    monkeypatch.setattr(network.socket, "getaddrinfo", lambda *_, **__: [entry])
    with pytest.raises(OptionError, match=r"leads to the loopback.*node7 is 127.0.0.1 here.*Set MASTER_ADDR"):
        network.interface_towards("node7")
    assert network.main(["interface", "node7"]) == 2
    assert "leads to the loopback" in capsys.readouterr().err


def test_the_interface_is_the_one_that_holds_the_address(monkeypatch) -> None:
    monkeypatch.setattr(network, "source_address", lambda _: "10.0.0.5")
    cards = {"docker0": ["172.17.0.1"], "e0": ["fe80::1%e0", "10.0.0.5"]}
    addresses = {name: [SimpleNamespace(address=a) for a in held] for name, held in cards.items()}
    monkeypatch.setattr(network.psutil, "net_if_addrs", lambda: addresses)
    assert network.interface_towards("node7") == "e0"
    addresses["e0"].clear()
    with pytest.raises(OptionError, match=r"No network interface holds.*10\.0\.0\.5, towards node7"):
        network.interface_towards("node7")


def test_a_name_that_nobody_knows_is_refused(monkeypatch) -> None:
    def unknown(*_, **__):
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(network.socket, "getaddrinfo", unknown)
    with pytest.raises(OptionError, match="node7: Name or service not known"):
        network.interface_towards("node7")


# Kubernetes.


def checked(text):
    """The job of a manifest, read by the classes that are made of its schema: what they do not know, they drop."""
    from kubeflow.training.api_client import ApiClient

    job = yaml.safe_load(text)
    client = ApiClient()
    read = client.deserialize(SimpleNamespace(data=json.dumps(job)), "KubeflowOrgV1PyTorchJob")
    assert client.sanitize_for_serialization(read) == job
    return job


@pytest.mark.slow
@pytest.mark.parametrize(
    ("right", "wrong"),
    [("cleanPodPolicy", "cleanPodPolice"), ("replicas: 1", "replicas: '1'"), ("pytorchReplicaSpecs", "replicaSpecs")],
)
def test_the_check_of_manifests_finds_what_is_wrong(tmp_path, right, wrong) -> None:
    text = written(two_machines(), "kubernetes", tmp_path / "run", image=IMAGE)[1]
    with pytest.raises((AssertionError, ValueError)):
        checked(text.replace(right, wrong, 1))


def replicas_of(job):
    return job["spec"]["pytorchReplicaSpecs"]


def pod_of(job, kind="Master"):
    return replicas_of(job)[kind]["template"]["spec"]


@pytest.mark.slow
def test_a_machine_of_the_plan_is_a_pod(tmp_path) -> None:
    job = checked(written(machines(4, 2), "kubernetes", tmp_path / "run", image=IMAGE)[1])
    assert (job["apiVersion"], job["kind"]) == ("kubeflow.org/v1", "PyTorchJob")
    assert job["spec"]["nprocPerNode"] == "2"
    assert {kind: spec["replicas"] for kind, spec in replicas_of(job).items()} == {"Master": 1, "Worker": 3}
    assert pod_of(job, "Worker") == pod_of(job)
    (container,) = pod_of(job)["containers"]
    assert (container["image"], container["resources"]) == (IMAGE, {"requests": {"cpu": "2"}})
    one = checked(written(machines(1, 2), "kubernetes", tmp_path / "one", image=IMAGE)[1])
    assert list(replicas_of(one)) == ["Master"]


@pytest.mark.slow
def test_pods_with_several_gpus_have_them_and_memory_to_share(tmp_path) -> None:
    job = checked(written(machines(2, 4), "kubernetes", tmp_path / "run", "cuda", image=IMAGE)[1])
    (container,) = pod_of(job)["containers"]
    assert container["resources"] == {"limits": {"nvidia.com/gpu": "4"}}
    assert [mount["mountPath"] for mount in container["volumeMounts"]] == [str(tmp_path / "run"), "/dev/shm"]
    assert [v for v in pod_of(job)["volumes"] if v["name"] == "shared-memory"] == [
        {"name": "shared-memory", "emptyDir": {"medium": "Memory"}}
    ]


@pytest.mark.slow
def test_the_folder_of_the_run_is_in_a_claim_or_on_the_machines(tmp_path) -> None:
    def volume(name, **more):
        text = written(two_machines(), "kubernetes", tmp_path / name, image=IMAGE, **more)[1]
        pod = pod_of(checked(text))
        assert pod["containers"][0]["volumeMounts"][0]["mountPath"] == str(tmp_path / name)
        return pod["volumes"], pod["containers"][0]["volumeMounts"][0].get("subPath"), text

    volumes, within, text = volume("a", claim="shared")
    assert (volumes, within) == ([{"name": "run", "persistentVolumeClaim": {"claimName": "shared"}}], "a")
    assert "is a in the claim shared" in text
    volumes, within, text = volume("b")
    path = {"path": str(tmp_path / "b"), "type": "Directory"}
    assert (volumes, within) == ([{"name": "run", "hostPath": path}], None)
    assert f"is {tmp_path / 'b'} on every machine" in text


@pytest.mark.distributed
def test_the_command_of_a_pod_trains(tmp_path, losses) -> None:
    """With the environment that the operator gives: the number of the pod is RANK."""
    folder = tmp_path / "a $folder"
    job = checked(written(small_plan(), "kubernetes", folder, image=IMAGE)[1])
    (container,) = pod_of(job)["containers"]
    command = [word.replace("$$", "$") for word in container["command"]]
    given = os.environ | {entry["name"]: entry["value"] for entry in container["env"]}
    given |= {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "alpa-master-0", "ALPA_EXPLORE_PYTHON": sys.executable}
    with reserved_ports(1) as (port,):  # in a pod it is always the same; here another test may have it
        given["MASTER_PORT"] = str(port)
        done = subprocess.run(command, env=given, capture_output=True, text=True, timeout=limit_seconds(), check=False)
    assert done.returncode == 0, done.stderr
    events = [json.loads(line) for line in (folder / "rank-1.jsonl").read_text().splitlines()]
    assert [e["loss"] for e in events if e["event"] == "step"] == pytest.approx(losses, rel=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("folder", "name"),
    [
        ("mlp-tiny-20261122-160102", "alpa-mlp-tiny-20261122-160102"),
        ("Mein Lauf_2", "alpa-mein-lauf-2"),
        ("x" * 100 + "-20261122-160102", "alpa-" + "x" * 29 + "-20261122-160102"),
        ("…", "alpa-run"),
    ],
)
def test_the_name_of_a_job_is_one_that_kubernetes_takes(tmp_path, folder, name) -> None:
    assert checked(written(small_plan(), "kubernetes", tmp_path / folder, image=IMAGE)[1])["metadata"]["name"] == name


@pytest.mark.slow
@pytest.mark.parametrize(
    ("target", "options", "message"),
    [
        ("kubernetes", {}, "needs a container image: no image"),
        ("kubernetes", {"image": ""}, "needs a container image"),
        ("kubernetes", {"image": "an image"}, "Not the name of an image: 'an image'"),
        ("kubernetes", {"image": IMAGE, "claim": "My_Claim"}, "Not the name of a volume claim: 'My_Claim'"),
        ("kubernetes", {"image": IMAGE, "claim": ""}, "Not the name of a volume claim: ''"),
        (
            "slurm",
            {"image": IMAGE},
            "are for the target kubernetes: 'registry.example/team/alpa:1' with the target slurm",
        ),
        ("local", {"ports": "29500-29600"}, "local needs no ports: its ranks meet by a file: '29500-29600'"),
        ("slurm", {"ports": "http"}, "Ports are a number or two: 'http'"),
        ("local", {"claim": "shared"}, "are for the target kubernetes: 'shared' with the target local"),
    ],
)
def test_options_that_a_target_cannot_use_are_refused_before_anything_is_written(
    tmp_path, target, options, message
) -> None:
    with pytest.raises(OptionError, match=message):
        launch(small_plan(), target, folder=tmp_path / "run", device="cpu", **options)
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_weights_that_would_be_lost_with_the_pod_are_refused(tmp_path) -> None:
    run = launch(small_plan(), "kubernetes", folder=tmp_path / "a", save=tmp_path / "w", device="cpu", image=IMAGE)
    with pytest.raises(OptionError, match="weights saved elsewhere would be lost"):
        ended(run)
    written(small_plan(), "kubernetes", tmp_path / "b", save=tmp_path / "b" / "weights", image=IMAGE)


@pytest.mark.distributed
def test_a_checkpoint_that_the_pods_cannot_see_is_refused(tmp_path, monkeypatch) -> None:
    ended(launch(small_plan(), steps=1, checkpoint_every=1, folder=tmp_path / "a", device="cpu"))
    resumed = written(small_plan(), "kubernetes", tmp_path / "b", image=IMAGE, resume=tmp_path / "a")
    assert resumed[0].exists()
    # On another disk a file cannot be linked.
    monkeypatch.setattr(os, "link", lambda *_: (_ for _ in ()).throw(OSError(errno.EXDEV, "Invalid cross-device link")))
    run = launch(
        small_plan(), "kubernetes", steps=2, folder=tmp_path / "c", device="cpu", image=IMAGE, resume=tmp_path / "a"
    )
    with pytest.raises(OptionError, match="the checkpoint is on another disk"):
        ended(run)


@pytest.mark.slow
def test_the_command_line_says_how_to_start_the_job(tmp_path, capsys) -> None:
    small_plan().save(tmp_path / "a.plan.json")
    arguments = ["launch", str(tmp_path / "a.plan.json"), "--target", "kubernetes", "--device", "cpu"]
    assert cli.main([*arguments, "--folder", str(tmp_path / "run")]) == 2
    assert "needs a container image" in capsys.readouterr().err
    assert cli.main([*arguments, "--folder", str(tmp_path / "run"), "--image", IMAGE, "--claim", "shared"]) == 0
    out, err = capsys.readouterr()
    assert out.strip() == str(tmp_path / "run" / "pytorchjob.yaml")
    assert f"kubectl create -f {tmp_path / 'run' / 'pytorchjob.yaml'}" in err
