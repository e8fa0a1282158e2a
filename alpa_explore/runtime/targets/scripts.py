"""Targets `torchrun` and `slurm`: write complete scripts into the folder of the run; nothing is started.

`run.sh` starts the ranks of one machine with torchrun. With several machines it is run on each of them, with NODE_RANK
and MASTER_ADDR in the environment. `slurm.sh` is for sbatch: it runs `run.sh` on every allocated machine. Ranks are the
plan's devices, row by row, so that each machine runs the devices of one node. All machines must see the folder.
"""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import Any

from alpa_explore.plans.plan import Plan

_RUN = """#!/usr/bin/env bash
# Trains {model}: {nodes} machine(s) with {per_node} rank(s) each. Written by alpa-explore; runs as it is.
#   one machine        bash run.sh
#   several machines   NODE_RANK=0 MASTER_ADDR=<the first machine> bash run.sh, and 1, 2, … on the others
set -euo pipefail
FOLDER={folder}
PYTHON={python}
{python_path}NODES="${{NODES:-{nodes}}}"
NODE_RANK="${{NODE_RANK:-${{SLURM_NODEID:-0}}}}"
# Files in the current folder cannot take the place of modules.
export PYTHONSAFEPATH=1 OMP_NUM_THREADS="${{OMP_NUM_THREADS:-1}}"
if [ -e "$FOLDER/measured.json" ]; then
  echo "This run is over: launch the plan again for another one." >&2
  exit 2
fi
if [ "$NODES" -gt 1 ] && [ "$NODE_RANK" -eq 0 ]; then
  "$PYTHON" -c '
import errno, socket, sys
port = sys.argv[1]
try:
    socket.create_server(("", int(port))).close()
except (OSError, OverflowError, ValueError) as error:
    in_use = isinstance(error, OSError) and error.errno == errno.EADDRINUSE
    why = "is in use" if in_use else f"cannot be had ({{error}})"
    sys.exit(f"Port {{port}} of this machine {{why}}: set MASTER_PORT to a free one, on all machines.")
' "${{MASTER_PORT:-29400}}" || exit 2
fi
if [ "$NODES" -eq 1 ]; then
  # One machine finds a free port by itself; its name may lead nowhere, the loopback does not.
  export GLOO_SOCKET_IFNAME="${{GLOO_SOCKET_IFNAME:-lo}}"
  MEET=(--standalone)
else
  MEET=(--node-rank "$NODE_RANK" --master-addr "${{MASTER_ADDR:?set it to the name of the first machine}}"
        --master-port "${{MASTER_PORT:-29400}}")
fi
"$PYTHON" -m torch.distributed.run --nnodes "$NODES" --nproc-per-node {per_node} "${{MEET[@]}}" \\
  -m alpa_explore.runtime.ranks.worker "$FOLDER"
if [ "$NODE_RANK" -eq 0 ]; then
  "$PYTHON" -m alpa_explore.cli compare-run "$FOLDER"
fi
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
# Jobs that share a machine do not share a port.
MASTER_PORT="$((20000 + SLURM_JOB_ID % 20000))"
export MASTER_ADDR MASTER_PORT
srun --kill-on-bad-exit=1 bash {run}
"""


class ScriptRanks:
    """The ranks of a script that the user will start."""

    def poll(self) -> dict[str, Any]:
        """There is nothing to wait for."""
        return {"state": "written"}

    def stop(self) -> None:
        """Nothing was started."""


def write_torchrun(folder: Path, plan: Plan) -> ScriptRanks:
    """Write `run.sh`."""
    path = os.environ.get("PYTHONPATH", "")
    _write(
        folder / "run.sh",
        _RUN.format(
            model=_comment(plan.model.name),
            folder=shlex.quote(str(folder)),
            python=shlex.quote(sys.executable),
            nodes=plan.cluster.nodes,
            per_node=plan.cluster.devices_per_node,
            python_path=f"export PYTHONPATH={shlex.quote(path)}${{PYTHONPATH:+:$PYTHONPATH}}\n" if path else "",
        ),
    )
    return ScriptRanks()


def write_slurm(folder: Path, plan: Plan, device: str) -> ScriptRanks:
    """Write `run.sh`, and `slurm.sh`, which calls it."""
    count = plan.cluster.devices_per_node
    write_torchrun(folder, plan)
    _write(
        folder / "slurm.sh",
        _SLURM.format(
            nodes=plan.cluster.nodes,
            cores=count,
            output=folder / "slurm-%j.log",
            run=shlex.quote(str(folder / "run.sh")),
            gpus=f"#SBATCH --gpus-per-node={count}\n" if device == "cuda" else "",
        ),
    )
    return ScriptRanks()


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)


def _comment(text: str) -> str:
    """A name from a plan file as a comment of one line: text after a line break would be executed."""
    return "".join(c for c in text if c.isalnum() or c in " ._-")
