"""Find the checkpoint that `resume=` names: a checkpoint, or the folder of a run with several."""

from __future__ import annotations

import os
from pathlib import Path

from alpa_explore.errors import CheckpointError
from alpa_explore.runtime.checkpoints.description import DESCRIPTION, FOLDER, STATE, Description, read_description
from alpa_explore.runtime.folder import attempts_of


def find_checkpoint(folder: str | os.PathLike[str]) -> tuple[Path, Description]:
    """The checkpoint in `folder`, or the newest whole one of the run in `folder`.

    Whole means that every file has its size; `description.check_digests` reads them. CheckpointError: no checkpoint,
    one that is being written, cut off, of a newer format, or without what resuming needs.
    """
    home = Path(folder).absolute()
    if (home / DESCRIPTION).is_file():
        return home, _with_state(home)
    faults = []
    for candidate in (c for attempt in reversed(attempts_of(home)) for c in reversed(checkpoints_of(attempt))):
        try:
            return candidate, _with_state(candidate)
        except CheckpointError as error:
            faults.append(error)
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


def _with_state(folder: Path) -> Description:
    found = read_description(folder)
    if found.kind != STATE:
        raise CheckpointError(
            "A run cannot be resumed from weights alone",
            found=f"{folder} was written by --save (save=) and has no optimizer state",
            remedy="Name a checkpoint that --checkpoint-every (checkpoint_every=) wrote.",
        )
    return found


def _number(folder: Path) -> int:
    digits = folder.name.removeprefix("step-")
    return int(digits) if digits.isdecimal() else -1
