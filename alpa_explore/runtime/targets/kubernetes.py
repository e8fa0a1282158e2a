"""Target `kubernetes`: write a PyTorchJob (kubeflow.org/v1) into the folder of the run; nothing is started.

Each machine of the plan is a pod, with a GPU for each of its devices, and runs `run.sh` of the same folder. The first
is the job's Master, the others are its Workers; the training operator (1.7 or newer) gives them MASTER_ADDR and their
number. The pods see the folder of the run under the path that it has here: in a claim, or on the machines themselves.
"""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from alpa_explore.errors import OptionError
from alpa_explore.plans.plan import Plan
from alpa_explore.runtime import tuning
from alpa_explore.runtime.targets.scripts import COMMANDS, ScriptRanks, write_torchrun

_HEADER = """# {pods} pod(s) with {per_node} rank(s) each. Written by alpa-explore; needs Kubeflow's training operator.
#   kubectl create -f {file}
# The folder of the run is {where}.
# The image needs bash, and python3 with alpa-explore and the torch that it asks for. run.sh sets and explains the
# variables of NCCL; `env` of a container wins. Istio's sidecar keeps the pods of a job from reaching each other, so it
# is switched off. A failed run is not started again.
"""
_NAME_LENGTH = 45
"""A label holds 63 characters; the operator appends the kind and the number of the pod."""


def check_kubernetes(image: str | None, claim: str | None) -> None:
    """OptionError where there is no image, or the name of image or claim cannot be one."""
    if not image:
        raise OptionError(
            "The target kubernetes needs a container image",
            found="no image",
            remedy="Give image= (--image) with bash, Python and alpa-explore; there is no default.",
        )
    if not re.fullmatch(r"[A-Za-z0-9][\w.\-/:@]*", image, re.ASCII):
        raise OptionError("Not the name of an image", found=repr(image), remedy="Give REGISTRY/NAME:TAG.")
    if claim is not None and not re.fullmatch(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?", claim):
        raise OptionError(
            "Not the name of a volume claim",
            found=repr(claim),
            remedy="Give a name that `kubectl get pvc` prints: lower-case letters, digits, '-' and '.'.",
        )


def write_kubernetes(
    folder: Path, plan: Plan, device: str, *, image: str, claim: str | None, ports: Sequence[int] | None = None
) -> ScriptRanks:
    """Write `pytorchjob.yaml`, and `run.sh`, which its pods run. `ports`, a range, is where they may meet.

    OptionError where the run would read or write outside its folder: the pods see no other.
    """
    save = json.loads((folder / "run.json").read_text(encoding="utf-8"))["options"]["save"]
    if save is not None and not Path(save).is_relative_to(folder):
        raise OptionError(
            "The pods see the folder of the run alone: weights saved elsewhere would be lost",
            found=f"{save}, outside {folder}",
            remedy="Name a folder in that of the run: --save, save=.",
        )
    for path in (folder / "job").rglob("*"):
        if path.is_symlink():  # what a run resumes from is linked into its folder
            raise OptionError(
                "The pods see the folder of the run alone, and the checkpoint is on another disk",
                found=f"{path.readlink()}, outside {folder}",
                remedy="Name a folder for the run on the disk of the checkpoint: --folder, folder=.",
            )
    write_torchrun(folder, plan, device, ports)
    port = (ports or (tuning.KUBERNETES_PORT,))[0]
    per_node = plan.cluster.devices_per_host
    nodes = plan.cluster.devices // per_node
    replicas = {"Master": 1} | ({"Worker": nodes - 1} if nodes > 1 else {})
    job = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": _name(folder.name)},
        "spec": {
            "nprocPerNode": str(per_node),
            "runPolicy": {"cleanPodPolicy": "Running"},  # when one pod fails, the others end
            "pytorchReplicaSpecs": {
                kind: {
                    "replicas": count,
                    "restartPolicy": "Never",
                    "template": _pod(folder, per_node, device, port, image, claim),
                }
                for kind, count in replicas.items()
            },
        },
    }
    where = f"{folder.name} in the claim {claim}" if claim else f"{folder} on every machine that runs a pod"
    file = COMMANDS["kubernetes"][1]
    header = _HEADER.format(pods=nodes, per_node=per_node, file=file, where=_one_line(where))
    (folder / file).write_text(header + yaml.safe_dump(job, sort_keys=False, allow_unicode=True), encoding="utf-8")
    return ScriptRanks()


def _pod(folder: Path, per_node: int, device: str, port: int, image: str, claim: str | None) -> dict[str, Any]:
    """The template of a pod."""
    path = str(folder)
    run = {"name": "run", "mountPath": path} | ({"subPath": folder.name} if claim else {})
    volume: dict[str, Any] = {"name": "run"}
    if claim:
        volume["persistentVolumeClaim"] = {"claimName": claim}
    else:
        volume["hostPath"] = {"path": path, "type": "Directory"}  # a machine without it fails, and says so
    mounts, volumes = [run], [volume]
    if device == "cuda" and per_node > 1:
        # Ranks of a pod exchange data through shared memory; a container has 64 MiB of it unless it is given more.
        mounts.append({"name": "shared-memory", "mountPath": "/dev/shm"})
        volumes.append({"name": "shared-memory", "emptyDir": {"medium": "Memory"}})
    resources = (
        {"limits": {"nvidia.com/gpu": str(per_node)}} if device == "cuda" else {"requests": {"cpu": str(per_node)}}
    )
    return {
        "metadata": {"annotations": {"sidecar.istio.io/inject": "false"}},
        "spec": {
            "containers": [
                {
                    "name": "pytorch",  # the operator knows its container by this name
                    "image": image,
                    # The operator's RANK is the number of the pod. Kubernetes replaces $(…) and makes one $ of two.
                    "command": ["bash", "-c", 'NODE_RANK="$RANK" exec bash "$0"', f"{path}/run.sh".replace("$", "$$")],
                    "env": [{"name": "ALPA_EXPLORE_PYTHON", "value": "python3"}],
                    "ports": [{"name": "pytorchjob-port", "containerPort": port}],
                    "resources": resources,
                    "volumeMounts": mounts,
                }
            ],
            "volumes": volumes,
        },
    }


def _name(folder: str) -> str:
    """A name for the job: lower-case letters, digits and hyphens. The end of a folder's name is its time."""
    words = re.sub(r"[^a-z0-9]+", "-", folder.lower())[-_NAME_LENGTH:].strip("-")
    return f"alpa-{words}" if words else "alpa-run"


def _one_line(text: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in text)
