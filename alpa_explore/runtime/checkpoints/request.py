"""Words of the launcher to the ranks about checkpoints. This module must not import torch: Dask workers use it."""

from pathlib import Path

from alpa_explore.runtime.folder import replace_text

REQUESTED, WHOLE = "checkpoint-at", "checkpoint-whole"
"""In the folder of a run: the number of steps after which a checkpoint is asked for (a rank that has done them already
takes no notice, and the launcher asks again for a later step); and the step of the newest whole checkpoint."""


def say(run_folder: Path, word: str, step: int) -> None:
    """Tell the ranks a word, with its step."""
    replace_text(run_folder / word, str(step))


def said(run_folder: Path, word: str) -> int | None:
    """The step of the last such word; None where there is none."""
    path = run_folder / word
    return int(path.read_text(encoding="utf-8")) if path.exists() else None
