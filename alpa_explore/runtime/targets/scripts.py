"""Targets `torchrun`, `slurm` and `kubernetes`: write scripts into the folder of the run; nothing is started.

`run.sh` starts the ranks of one machine with torchrun. With several machines it is run on each of them, with NODE_RANK
and MASTER_ADDR in the environment. `slurm.sh` is for sbatch: it runs `run.sh` on every allocated machine. Ranks are the
plan's devices, row by row, so that each machine runs the devices of one node. All machines must see the folder.

Options of the run (steps, checkpoints, …) are in its job files, which the ranks read; a script knows of the ports only.
All machines must take the same one: the first of the range, or, where jobs may share machines, one by the job's number.

For kubernetes, a PyTorchJob (kubeflow.org/v1): each machine of the plan is a pod, with a GPU for each of its devices,
and runs `run.sh`. The first is the job's Master, the others are its Workers; the training operator (1.7 or newer) gives
them MASTER_ADDR and their number. The pods see the folder under the path that it has here: in a claim, or on the
machines themselves.
"""

import json
import os
import re
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from alpa_explore.errors import OptionError
from alpa_explore.plans.plan import Plan
from alpa_explore.runtime import tuning

COMMANDS = {
    "torchrun": ("bash", "run.sh"),
    "slurm": ("sbatch", "slurm.sh"),
    "kubernetes": ("kubectl create -f", "pytorchjob.yaml"),
}
"""Target that starts nothing -> (the command that starts what it wrote, the name of the file)."""

_RUN = """#!/usr/bin/env bash
# Trains {model}: {nodes} machine(s) with {per_node} rank(s) each. Written by alpa-explore; runs as it is.
#   one machine        bash run.sh
#   several machines   NODE_RANK=0 MASTER_ADDR=<the first machine> bash run.sh, and 1, 2, … on the others
set -euo pipefail
FOLDER={folder}
PYTHON={python}
PYTHON="${{ALPA_EXPLORE_PYTHON:-$PYTHON}}"
{python_path}NODES="${{NODES:-{nodes}}}"
NODE_RANK="${{NODE_RANK:-${{SLURM_NODEID:-0}}}}"
MASTER_PORT="${{MASTER_PORT:-{port}}}"
# Files in the current folder cannot take the place of modules.
export PYTHONSAFEPATH=1 OMP_NUM_THREADS="${{OMP_NUM_THREADS:-1}}"
{nccl}if [ -e "$FOLDER/measured.json" ]; then
  echo "This run is over: launch the plan again for another one." >&2
  exit 2
fi
if [ "$NODES" -eq 1 ]; then
  # One machine finds a free port by itself; its name may lead nowhere, the loopback does not.
  export GLOO_SOCKET_IFNAME="${{GLOO_SOCKET_IFNAME:-lo}}"
  MEET=(--standalone)
else
  TOWARDS="${{MASTER_ADDR:?set it to the name of the first machine}}"
  if [ "$NODE_RANK" -eq 0 ]; then
    "$PYTHON" -m alpa_explore.runtime.targets.network port "$MASTER_PORT" || exit 2
    TOWARDS="${{PEER_ADDR:-$MASTER_ADDR}}"  # its own name often leads to the loopback, another machine's does not
  fi
  # The interface towards the other machines. Without it, Gloo takes the address of this machine's name, often the
  # loopback, and NCCL the first interface that it finds, which may be one that the other machines cannot reach.
  # What the environment says wins. NCCL: "=" is "exactly this name"; where it has InfiniBand, it uses the interface to
  # set up connections only.
  if [ -z "${{GLOO_SOCKET_IFNAME:-}}" ]; then
    GLOO_SOCKET_IFNAME="$("$PYTHON" -m alpa_explore.runtime.targets.network interface "$TOWARDS")" || exit 2
  fi
  export GLOO_SOCKET_IFNAME NCCL_SOCKET_IFNAME="${{NCCL_SOCKET_IFNAME:-=$GLOO_SOCKET_IFNAME}}"
  MEET=(--node-rank "$NODE_RANK" --master-addr "$MASTER_ADDR" --master-port "$MASTER_PORT")
fi
"$PYTHON" -m torch.distributed.run --nnodes "$NODES" --nproc-per-node {per_node} "${{MEET[@]}}" \\
  -m alpa_explore.runtime.ranks.worker "$FOLDER"
if [ "$NODE_RANK" -eq 0 ]; then
  "$PYTHON" -m alpa_explore.cli compare-run "$FOLDER"
fi
"""
_NCCL = """\
# NCCL; what the environment says wins. WARN: an error comes with its cause, and nothing else is logged.
export NCCL_DEBUG="${NCCL_DEBUG:-WARN}"
# A rank whose connection is lost ends (torch's default, written out: with 0 it would wait for ever).
export TORCH_NCCL_ASYNC_ERROR_HANDLING="${TORCH_NCCL_ASYNC_ERROR_HANDLING:-3}"
"""
_SLURM = """#!/usr/bin/env bash
#SBATCH --job-name=alpa-explore
#SBATCH --nodes={nodes}
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task={cores}
{gpus}#SBATCH --output={output}
# sbatch slurm.sh; partition, account and time limit as your cluster needs them: sbatch --time=1:00:00 slurm.sh
set -euo pipefail
# Not head, which may end before scontrol has written all names: a broken pipe would end this script.
MASTER_ADDR="$(scontrol show hostnames "$SLURM_JOB_NODELIST" | sed -n 1p)"
PEER_ADDR="$(scontrol show hostnames "$SLURM_JOB_NODELIST" | sed -n 2p)"
# Jobs that share a machine do not share a port.
MASTER_PORT="$(({first_port} + SLURM_JOB_ID % {ports}))"
export MASTER_ADDR PEER_ADDR MASTER_PORT
# Since Slurm 22.05 srun does not take over the cores per task of its job.
srun --cpus-per-task="$SLURM_CPUS_PER_TASK" --kill-on-bad-exit=1 bash {run}
"""


class ScriptRanks:
    """The ranks of a script that the user will start."""

    def poll(self) -> dict[str, Any]:
        """There is nothing to wait for."""
        return {"state": "written"}

    def stop(self) -> None:
        """Nothing was started."""


def write_torchrun(folder: Path, plan: Plan, device: str, ports: Sequence[int] | None = None) -> ScriptRanks:
    """Write `run.sh`. `ports`, a range, is where the ranks may meet."""
    path = os.environ.get("PYTHONPATH", "")
    _write(
        folder / "run.sh",
        _RUN.format(
            model=_comment(plan.model.name),
            folder=shlex.quote(str(folder)),
            python=shlex.quote(sys.executable),
            nodes=plan.cluster.devices // plan.cluster.devices_per_host,
            per_node=plan.cluster.devices_per_host,
            python_path=f"export PYTHONPATH={shlex.quote(path)}${{PYTHONPATH:+:$PYTHONPATH}}\n" if path else "",
            port=(ports or (tuning.SCRIPT_PORT,))[0],
            nccl=_NCCL if device == "cuda" else "",
        ),
    )
    return ScriptRanks()


def write_slurm(folder: Path, plan: Plan, device: str, ports: Sequence[int] | None = None) -> ScriptRanks:
    """Write `run.sh`, and `slurm.sh`, which calls it. `ports`, a range, is where the ranks may meet."""
    count, log = plan.cluster.devices_per_host, str(folder).replace("%", "%%")  # sbatch replaces %j and the like
    write_torchrun(folder, plan, device, ports)
    ports = ports or tuning.SLURM_PORTS
    _write(
        folder / "slurm.sh",
        _SLURM.format(
            nodes=plan.cluster.devices // count,
            cores=count,
            output=shlex.quote(f"{log}/slurm-%j.log"),
            run=shlex.quote(str(folder / "run.sh")),
            gpus=f"#SBATCH --gpus-per-node={count}\n" if device == "cuda" else "",
            first_port=ports[0],
            ports=len(ports),
        ),
    )
    return ScriptRanks()


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)


def _comment(text: str) -> str:
    """A name from a plan file as a comment of one line: text after a line break would be executed."""
    return "".join(c for c in text if c.isalnum() or c in " ._-")


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
