"""Targets `torchrun` and `slurm`: write complete scripts into the folder of the run; nothing is started.

`run.sh` starts the ranks of one machine with torchrun. With several machines it is run on each of them, with NODE_RANK
and MASTER_ADDR in the environment. `slurm.sh` is for sbatch: it runs `run.sh` on every allocated machine. Ranks are the
plan's devices, row by row, so that each machine runs the devices of one node. All machines must see the folder.

Options of the run (steps, checkpoints, …) are in its job files, which the ranks read; a script knows of the ports only.
All machines must take the same one: the first of the range, or, where jobs may share machines, one by the job's number.
"""

import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

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
