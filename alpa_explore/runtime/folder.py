"""The folders of runs: where they are, and a check that a new one is empty."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

from alpa_explore.errors import OptionError


def runs_folder() -> Path:
    """The default parent of the folders of runs: $ALPA_EXPLORE_RUNS, else alpa-runs in the current folder."""
    return Path(os.environ.get("ALPA_EXPLORE_RUNS") or "alpa-runs")


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
