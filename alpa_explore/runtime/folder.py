"""The folders of runs: where they are, and a check that a new one is empty."""

from __future__ import annotations

import os
import re
import shutil
import time
from pathlib import Path

from alpa_explore import units
from alpa_explore.errors import OptionError
from alpa_explore.runtime import tuning

_ATTEMPT = "attempt-"


def runs_folder() -> Path:
    """The default parent of the folders of runs: $ALPA_EXPLORE_RUNS, else alpa-runs in the current folder."""
    return Path(os.environ.get("ALPA_EXPLORE_RUNS") or "alpa-runs")


def attempt_folder(home: Path, number: int) -> Path:
    """The folder of an attempt of the run in `home`; the first one is in `home` itself."""
    return home if number == 1 else home / f"{_ATTEMPT}{number}"


def attempts_of(home: Path) -> list[Path]:
    """The folders of all attempts of the run in `home`, oldest first."""
    found = [p for p in home.glob(f"{_ATTEMPT}*") if p.is_dir() and p.name.removeprefix(_ATTEMPT).isdecimal()]
    return [home, *sorted(found, key=lambda path: int(path.name.removeprefix(_ATTEMPT)))]


def full_disk(folder: Path, at: str) -> dict[str, str] | None:
    """What, found and remedy, where the disk with the folder of a run is full; None where it is not.

    A process can hardly say so itself then: it ends, or seems to hang.
    """
    if (free := shutil.disk_usage(folder).free) >= tuning.FULL_BYTES:
        return None
    return {
        "what": "The disk with the folder of the run is full",
        "found": f"{units.bytes_(free)} are free, {at}",
        "remedy": "Free some space, or name a folder on another disk (--folder, folder=).",
    }


def make_folder(folder: str | os.PathLike[str] | None, name: str) -> Path:
    """Create the folder of a new run: the given one, which must be new or empty, or a new one in `runs_folder`."""
    if folder is None:
        stem = re.sub(r"[^\w.-]", "_", name)[:60] + time.strftime("-%Y%m%d-%H%M%S")
        runs = runs_folder()
        taken = [p.name for p in runs.iterdir()] if runs.is_dir() else []
        same = sum(1 for other in taken if other.startswith(stem))
        folder = runs / (f"{stem}-{same + 1}" if same else stem)
    return empty_folder(folder, "a run", make=True)


def empty_folder(folder: str | os.PathLike[str], what: str, *, make: bool) -> Path:
    """The path of a folder that is empty or does not exist, and is created where `make`. OptionError otherwise."""
    home = Path(folder).absolute()
    try:
        if make:
            home.mkdir(parents=True, exist_ok=True)
        if home.exists() and any(home.iterdir()):
            raise OptionError(
                f"The folder of {what} must be empty",
                found=str(home),
                remedy="Name another one, or remove what is there.",
            )
    except OSError as error:
        raise OptionError(
            f"The folder of {what} cannot be used",
            found=f"{home}: {error.strerror or error}",
            remedy="Name a folder in which you may write.",
        ) from error
    return home
