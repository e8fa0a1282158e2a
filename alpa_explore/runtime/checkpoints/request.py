"""Ask the ranks of a run for a checkpoint while it goes on. This module must not import torch: Dask workers use it."""

from __future__ import annotations

from pathlib import Path

REQUEST_FILE = "checkpoint-at"
"""In the folder of a run: the number of steps after which a checkpoint is asked for."""


def request_checkpoint(run_folder: Path, step: int) -> None:
    """Ask the ranks for a checkpoint when `step` steps are done; one that has done them already takes no notice."""
    temporary = run_folder / f"{REQUEST_FILE}.tmp"
    temporary.write_text(str(step), encoding="utf-8")
    temporary.replace(run_folder / REQUEST_FILE)


def requested_step(run_folder: Path) -> int | None:
    """The step of the last request; None where there is none."""
    path = run_folder / REQUEST_FILE
    return int(path.read_text(encoding="utf-8")) if path.exists() else None
