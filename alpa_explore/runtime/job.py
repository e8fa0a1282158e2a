"""The folder of a run, and the job files that its ranks read.

    launch.lock         while the launcher is there: which process that is; no other launch may use the folder
    run.json            description of the run: ranks, steps, options (for people and for `compare-run`)
    plan.json           the plan
    schedule.csv        the order of its tasks
    job/rank-0.pickle   the instructions of rank 0 and the source of its microbatches; only the user may read job/
    job/files.json      rank -> the files below job/ that it reads
    job/initial.pt      initial weights and buffers, undivided; ranks map the file and copy their boxes
    job/checkpoint/     in place of initial.pt, the files of the checkpoint from which the run goes on
    checkpoints/        the checkpoints of the run (`runtime.checkpoints`)
    rank-0.log          the output of rank 0
    rank-0.jsonl        the reports of rank 0: a line per step, and its end
    rank-0.alive        the heartbeat of rank 0: what it is doing
    measured.json       measured and predicted times, when the run is over
    attempt-2/          the same again, where the run went on after a fault (`runtime.attempts`)
    attempts.json       why it did: what failed, the step it went on from, steps lost, hosts and plan

job/ is removed when the run is over. A job is pickled because it may contain a function of the user's session. It is
written and read by one user in one run; the file to share is the plan.
"""

import json
import os
import pickle
import site
import sys
import sysconfig
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import cloudpickle
import torch

from alpa_explore.programs.execution.execute import Values
from alpa_explore.programs.program import Collective, Program, Receive, Send
from alpa_explore.runtime.checkpoints.description import INDEX
from alpa_explore.runtime.checkpoints.layout import Share, needed_boxes, shares
from alpa_explore.runtime.checkpoints.stored import StoredState, save
from alpa_explore.runtime.training import Microbatches, place_of
from alpa_explore.schedules.task import ONCE_AN_ITERATION, Action

_OURS = ("alpa_explore", "alpa_explore_widgets")


def packed(value: Any) -> bytes:
    """The pickle of a value, in which functions and classes of the user's own modules are there as code.

    cloudpickle does that for a notebook and for `__main__`; here it does for every loaded module whose file is not in
    the folders of installed packages or of Python. Where such a module holds something that cannot be pickled, the
    functions are named instead, and the hosts must have their modules.
    """
    before = set(cloudpickle.list_registry_pickle_by_value())
    installed = _installed()
    loaded = [(name, module) for name, module in list(sys.modules.items()) if name not in before]
    modules = [module for name, module in loaded if _is_users(name, module, installed)]
    for module in modules:
        cloudpickle.register_pickle_by_value(module)
    try:
        found: bytes = cloudpickle.dumps(value)
    except (pickle.PicklingError, TypeError, AttributeError):
        for module in modules:
            cloudpickle.unregister_pickle_by_value(module)
        modules = []
        found = cloudpickle.dumps(value)
    finally:
        for module in modules:
            cloudpickle.unregister_pickle_by_value(module)
    return found


def _is_users(name: str, module: ModuleType, installed: list[Path]) -> bool:
    file = getattr(module, "__file__", None)
    root = name.partition(".")[0]
    # A module may have put another object under its name.
    if not isinstance(module, ModuleType) or module.__name__ != name or not file or not file.endswith(".py"):
        return False
    if root in _OURS or root in sys.stdlib_module_names or root == "__main__":
        return False
    path = Path(file).resolve()
    return not any(path.is_relative_to(folder) for folder in installed)


def _installed() -> list[Path]:
    paths = sysconfig.get_paths()
    folders = [paths[key] for key in ("stdlib", "platstdlib", "purelib", "platlib")]
    found = [*folders, *site.getsitepackages(), site.getusersitepackages()]
    return [Path(folder).resolve() for folder in found]


Batches = Callable[[int], Values]
"""Number of a microbatch, counted over all steps -> its inputs, by tensor of the graph."""
SentMessages = Mapping[tuple[int, Action], tuple[int, ...]]
"""(stage, action) -> the messages that a rank sends to another one in this task, in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """The options of a run."""

    steps: int = 10
    learning_rate: float = 1e-3
    seed: int = 0
    """Seed of the weights and data of a catalogue model, and of operators that draw random numbers."""
    device: str = "cpu"
    """'cpu' (gloo) or 'cuda' (NCCL, one GPU per rank)."""
    save: str | None = None
    """Folder for the trained weights."""
    record: bool = False
    """Write every gradient and updated weight of every step into the folder, for `verify`."""
    stall_seconds: float = 60.0
    """The run fails when no rank finishes an instruction for so long."""
    checkpoint_every: int | None = None
    """Steps between two checkpoints; the last step has one, too."""
    wait_for_whole: bool = False
    """Ranks begin no checkpoint before the last one is whole: a run that is retried loses the steps of two at most."""
    resume: str | None = None
    """The checkpoint from which the run goes on."""
    first_step: int = 0
    """The step of that checkpoint; `steps` counts from the start of training."""


@dataclass(frozen=True, kw_only=True, eq=False)
class RankJob:
    """Everything that one rank needs besides its initial weights."""

    program: Program
    """With the instructions of this rank only."""
    ranks: tuple[int, ...]
    """All ranks; the index of a rank is its number in torch.distributed."""
    groups: tuple[tuple[int, ...], ...]
    """The groups of all collectives, in the order in which every rank creates them."""
    pairs: tuple[tuple[int, int], ...]
    """All (sender, receiver) between which messages are sent."""
    inbox: Mapping[int, SentMessages] = field(repr=False)
    """Sender -> the messages that it sends to this rank."""
    share: Share = field(repr=False)
    """What this rank writes of a checkpoint."""
    batches: Batches = field(repr=False)
    options: RunOptions


def write_jobs(
    folder: Path, program: Program, options: RunOptions, state: Values, batches: Batches, *, send_code: bool = False
) -> None:
    """Write the job of every rank, and the initial values of parameters and buffers, or those of the checkpoint.

    `send_code`: hosts have not the user's own modules, so functions of these are sent as code.
    """
    home = folder / "job"
    home.mkdir(mode=0o700)
    if options.resume is None:
        with (home / "initial.pt").open("wb") as stream:
            save({tensor: value.cpu() for tensor, value in state.items()}, stream)
    else:
        _take_checkpoint(Path(options.resume), home / "checkpoint")
    groups = sorted({tuple(sorted(i.ranks)) for _, _, i in program.instructions() if isinstance(i, Collective)})
    outboxes: dict[tuple[int, int], dict[tuple[int, Action], tuple[int, ...]]] = {}
    for rank, task, instruction in program.instructions():
        if isinstance(instruction, Send) and instruction.to != rank:
            box = outboxes.setdefault((rank, instruction.to), {})
            box[task] = (*box.get(task, ()), instruction.message)
    share_of = shares(program)
    files: dict[int, list[str]] = {}
    for rank in program.ranks:
        job = RankJob(
            program=program.of_rank(rank),
            ranks=program.ranks,
            groups=tuple(groups),
            pairs=tuple(sorted(outboxes)),
            inbox={source: box for (source, to), box in outboxes.items() if to == rank},
            batches=replace(batches, place=place_of(program, rank)) if isinstance(batches, Microbatches) else batches,
            options=options,
            share=share_of[rank],
        )
        (home / f"rank-{rank}.pickle").write_bytes(packed(job) if send_code else cloudpickle.dumps(job))
        files[rank] = [path.relative_to(folder).as_posix() for path in job_files(folder, job.program, rank)]
    (home / "files.json").write_text(json.dumps(files), encoding="utf-8")


def read_job(folder: Path, rank: int) -> tuple[RankJob, Values | StoredState]:
    """The job of a rank, and the values at its start: initial ones (memory-mapped), or a checkpoint.

    A rank reads only its boxes of either.
    """
    job: RankJob = pickle.loads((folder / "job" / f"rank-{rank}.pickle").read_bytes())
    if job.options.resume is not None:
        return job, StoredState(folder / "job" / "checkpoint", partly=True)
    return job, torch.load(folder / "job" / "initial.pt", mmap=True, weights_only=True)


def job_files(folder: Path, program: Program, rank: int) -> list[Path]:
    """The files below `job` that a rank reads; of a checkpoint only those that hold its boxes."""
    home = folder / "job"
    own = home / f"rank-{rank}.pickle"
    if not (home / "checkpoint").is_dir():
        return [own, home / "initial.pt"]
    needed = StoredState(home / "checkpoint").files_of(*needed_boxes(program, rank))
    return [own, home / "checkpoint" / INDEX, *(home / "checkpoint" / name for name in sorted(needed))]


def _take_checkpoint(checkpoint: Path, home: Path) -> None:
    """Link the files of a checkpoint, so that they stay when its own run removes it for a newer one."""
    home.mkdir()
    for path in checkpoint.iterdir():
        try:
            os.link(path.resolve(), home / path.name)
        except OSError:  # on another disk
            (home / path.name).symlink_to(path.resolve())


def receives(program: Program, rank: int) -> dict[tuple[int, bool], Receive]:
    """(message, whether an update task sends it) -> the instruction of this rank that receives it."""
    return {
        (instruction.message, task[1] in ONCE_AN_ITERATION): instruction
        for _, task, instruction in program.instructions(rank)
        if isinstance(instruction, Receive)
    }
