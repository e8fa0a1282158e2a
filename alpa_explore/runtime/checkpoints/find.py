"""Find the checkpoint that `resume=` names: a checkpoint, or the folder of a run with several."""

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
    step_name,
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
    attempts = attempts_of(home)[::-1]
    renamed = [_misnamed(entry) for attempt in attempts for entry in _entries(attempt) if not _is_named(entry)]
    faults: list[CheckpointError] = []
    for candidate in (c for attempt in attempts for c in reversed(checkpoints_of(attempt))):
        try:
            description = _with_state(candidate, digests=digests)
            if candidate.name != step_name(description.step):
                raise _misnamed(candidate, f", and holds step {description.step}")
        except CheckpointError as error:
            faults.append(error)
        else:
            return Found(candidate, description, tuple(f"{fault.what}: {fault.found}" for fault in (*faults, *renamed)))
    if faults or renamed:
        raise (*faults, *renamed)[0]
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
    """The checkpoints in the folder of a run, or in its folder of checkpoints, oldest first; some may be damaged. What
    others have put there under names of their own is none of them."""
    return sorted(filter(_is_named, _entries(home)), key=_number)


def _entries(home: Path) -> list[Path]:
    """Also files, and links that lead nowhere any more: they stand where a checkpoint was."""
    return list((home / FOLDER if (home / FOLDER).is_dir() else home).glob("step-*"))


def _is_named(folder: Path) -> bool:
    """Whether a folder has the name that the run gives to a checkpoint."""
    digits = folder.name.removeprefix("step-")
    return digits.isdecimal() and len(digits) < 20 and folder.name == step_name(int(digits))


def _number(folder: Path) -> int:
    return int(folder.name.removeprefix("step-"))


def _misnamed(folder: Path, but: str = "") -> CheckpointError:
    """Which one is the newest is known by the names alone."""
    return CheckpointError(
        "A checkpoint was renamed",
        found=f"{folder} has not the name of its step{but}",
        remedy="Name this folder itself to go on from it, or give it back the name of its step, such as step-000010.",
    )


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
