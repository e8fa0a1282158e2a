"""Find the checkpoint that `resume=` names: a checkpoint, or the folder of a run with several."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from alpa_explore.errors import CheckpointError
from alpa_explore.runtime.checkpoints.description import (
    DESCRIPTION,
    FOLDER,
    STATE,
    Description,
    check_digests,
    read_description,
)
from alpa_explore.runtime.folder import attempts_of


class Found(NamedTuple):
    """A checkpoint from which a run can go on."""

    folder: Path
    description: Description
    passed_over: tuple[str, ...]
    """The newer checkpoints of the run that cannot be used, newest first, each with the reason."""


def find_checkpoint(folder: str | os.PathLike[str], *, digests: bool = False) -> Found:
    """The checkpoint in `folder`, or the newest whole one of the run in `folder`.

    Whole means that every file has its size, and with `digests`, which reads every file once, its content.
    CheckpointError: no checkpoint, one that is being written, cut off, damaged, of a newer format, or without what
    resuming needs.
    """
    home = Path(folder).absolute()
    if os.path.lexists(home / DESCRIPTION):
        return Found(home, _with_state(home, digests=digests), ())
    faults: list[CheckpointError] = []
    for candidate in (c for attempt in reversed(attempts_of(home)) for c in reversed(checkpoints_of(attempt))):
        try:
            description = _with_state(candidate, digests=digests)
        except CheckpointError as error:
            faults.append(error)
        else:
            return Found(candidate, description, tuple(f"{fault.what}: {fault.found}" for fault in faults))
    if faults:
        raise faults[0]
    within = home / FOLDER if (home / FOLDER).is_dir() else home
    unfinished = [home] if home.name.endswith(".writing") else sorted(within.glob(".step-*.writing"))
    if unfinished and unfinished[0].is_dir():
        raise CheckpointError(
            "The checkpoint is not complete",
            found=f"{unfinished[-1]} is being written, or its run ended before all ranks had written",
            remedy="Wait until the folder is renamed, or name another run.",
        )
    raise CheckpointError(
        "There is no checkpoint",
        found=f"{home} {'has none' if home.is_dir() else 'does not exist'}",
        remedy="Name the folder of a run that was launched with --checkpoint-every (checkpoint_every=), or one of its"
        " checkpoints.",
    )


def checkpoints_of(home: Path) -> list[Path]:
    """The checkpoints in the folder of a run, or in its folder of checkpoints, oldest first; some may be damaged."""
    within = home / FOLDER if (home / FOLDER).is_dir() else home
    return sorted((p for p in within.glob("step-*") if p.is_dir()), key=_number)


def _with_state(folder: Path, *, digests: bool) -> Description:
    found = read_description(folder)
    if found.kind != STATE:
        raise CheckpointError(
            "A run cannot be resumed from weights alone",
            found=f"{folder} was written by --save (save=) and has no optimizer state",
            remedy="Name a checkpoint that --checkpoint-every (checkpoint_every=) wrote.",
        )
    if digests:
        check_digests(folder, found)
    return found


def _number(folder: Path) -> int:
    digits = folder.name.removeprefix("step-")
    return int(digits) if digits.isdecimal() else -1
