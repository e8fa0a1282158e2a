"""Words of the launcher to the ranks about checkpoints. This module must not import torch: Dask workers use it."""

from pathlib import Path

from alpa_explore.runtime.folder import replace_text

REQUEST_FILE = "checkpoint-at"
"""In the folder of a run: the number of steps after which a checkpoint is asked for."""
WHOLE_FILE = "checkpoint-whole"
"""In the folder of a run: the step of the newest whole checkpoint."""


def request_checkpoint(run_folder: Path, step: int) -> None:
    """Ask the ranks for a checkpoint when `step` steps are done; one that has done them already takes no notice, and
    the launcher asks again for a later step."""
    replace_text(run_folder / REQUEST_FILE, str(step))


def requested_step(run_folder: Path) -> int | None:
    """The step of the last request; None where there is none."""
    return _read(run_folder / REQUEST_FILE)


def note_whole(run_folder: Path, step: int) -> None:
    """Tell the ranks that the checkpoint of `step` is whole."""
    replace_text(run_folder / WHOLE_FILE, str(step))


def whole_step(run_folder: Path) -> int | None:
    """The step of the newest whole checkpoint; None where there is none."""
    return _read(run_folder / WHOLE_FILE)


def _read(path: Path) -> int | None:
    return int(path.read_text(encoding="utf-8")) if path.exists() else None
