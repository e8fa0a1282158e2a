"""The folders of runs: where they are, who has one, a check that a new one is empty, the form of the files in them; and
the words of the launcher to the ranks about checkpoints. This module must not import torch: Dask workers use it.
"""

import contextlib
import errno
import itertools
import os
import re
import shutil
import socket
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from alpa_explore import units
from alpa_explore.errors import OptionError
from alpa_explore.runtime import tuning
from alpa_explore.sharding.reshard import StepKind
from alpa_explore.store.read import EACH, conform, read_bytes, read_json

_ATTEMPT = "attempt-"
DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EFBIG)
"""Of an OSError: the disk is full, or cannot be written, which would happen again."""
LOCK = "launch.lock"
"""In the folder of a run while its launcher is there: which process that is."""


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


def replace_text(path: Path, text: str) -> None:
    """Write a file that others may read at any moment: they find the old one, or all of the new one. OSError."""
    temporary = path.with_name(f"{path.name}.tmp")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)


_FACTS = {"ranks": [int], "stages": [[int]], "num_microbatches": int, "schedule": str, "options": {"device": str}}
_TIMES = {
    "step": int,
    "tasks": {EACH: [float]},
    "samples": [
        {
            "step": int,
            "sent": [[int, str, float]],
            "received": [[int, str, int, float, float]],
            "collectives": [[[int], str, int, int, float]],
        }
    ],
}
_FIGURES = {
    "peak_bytes": float,
    "tasks": {EACH: {"seconds": [float], "collective_seconds": [float], "receive_seconds": [float]}},
}


def read_facts(folder: Path, *needed: str) -> dict[str, Any]:
    """What `run.json` says of a run: its ranks, and what else is needed. OSError; ValueError for another form."""
    form = {key: _FACTS[key] for key in ("ranks", *needed)}
    facts: dict[str, Any] = conform(read_json(folder / "run.json", tuning.MAX_REPORT_BYTES), form, "run.json")
    if not facts["ranks"] or ("num_microbatches" in needed and not facts["num_microbatches"]):
        raise ValueError("run.json names no rank or no microbatch")
    stages = facts["stages"] if "stages" in needed else []
    if strange := {rank for stage in stages for rank in stage} - set(facts["ranks"]):
        raise ValueError(f"run.json names rank {min(strange)} in a stage, and not among its ranks")
    return facts


def read_times(folder: Path, name: str, ranks: Sequence[int]) -> dict[str, Any]:
    """The running times of one of the `ranks` of a run (`ranks.times`). Raises as `read_facts`."""
    times: dict[str, Any] = conform(read_json(folder / name, tuning.MAX_REPORT_BYTES), _TIMES, name)
    for kind, seconds in times["tasks"].items():
        if not re.fullmatch(r"\d+[A-Z]", kind) or len(seconds) != 3:
            raise ValueError(f"{name} has the task {kind[:20]!r} with {len(seconds)} times")
    for sample in times["samples"]:
        others = {row[0] for row in (*sample["sent"], *sample["received"])}
        groups = [(row[0], row[1]) for row in sample["collectives"]]
        if strange := others.union(*(group for group, _ in groups)) - set(ranks):
            raise ValueError(f"{name} names rank {min(strange)}, which the run does not have")
        if any(len(set(group)) < 2 or kind not in {one.value for one in StepKind} for group, kind in groups):
            raise ValueError(f"{name} has a collective of one rank, or of a kind that there is not")
    return times


def read_figures(folder: Path, rank: int) -> dict[str, Any]:
    """The measured figures of a rank that has ended. Raises as `read_facts`."""
    name = f"rank-{rank}.measured.json"
    figures: dict[str, Any] = conform(read_json(folder / name, tuning.MAX_REPORT_BYTES), _FIGURES, name)
    for task, of_task in figures["tasks"].items():
        if not of_task["seconds"] or len({len(each) for each in of_task.values()}) != 1:
            raise ValueError(f"{name} has as many times of {task[:20]!r} as it has steps in one list, not in all")
    return figures


def read_hosts(folder: Path) -> dict[str, str]:
    """Rank -> its host in words, 'node1 (10.0.0.2)'; empty where all ranks are on this machine. Raises as
    `read_facts`."""
    path = folder / "hosts.json"
    found: dict[str, str] = conform(
        read_json(path, tuning.MAX_REPORT_BYTES) if path.exists() else {}, {EACH: str}, path.name
    )
    return found


class NewLines:
    """The lines of a file that others append to."""

    def __init__(self, path: Path) -> None:
        self._path, self._read = path, 0

    def __call__(self, *, last: bool = False) -> list[bytes]:
        """Those that are new since the last call; `last`: also one without an end."""
        if not self._path.exists():
            return []
        with self._path.open("rb") as stream:
            stream.seek(self._read)
            content = stream.read()
        whole = content if last else content[: content.rfind(b"\n") + 1]
        self._read += len(whole)
        return whole.splitlines()


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
    """Create the folder of a new run, and take it for this run: the given one, which must be new or empty, or a new one
    in `runs_folder`. OptionError, also where another launch has taken it; `release_folder` gives it back."""
    if folder is not None:
        return _take(Path(folder).absolute())
    stem = re.sub(r"[^\w.-]", "_", name)[:60] + time.strftime("-%Y%m%d-%H%M%S")
    for number in itertools.count(1):
        home = (runs_folder() / (f"{stem}-{number}" if number > 1 else stem)).absolute()
        try:
            home.parent.mkdir(parents=True, exist_ok=True)
            home.mkdir()  # of two launches in one second, one makes it
        except FileExistsError:
            continue
        except OSError as error:
            raise _unusable("a run", home, error) from error
        return _take(home)
    raise AssertionError("numbers have no end")


def _take(home: Path) -> Path:
    """Lock the folder first, then look whether it is empty: of two launches that find it so, one gets it."""
    lock = home / LOCK
    try:
        home.mkdir(parents=True, exist_ok=True)
        with lock.open("x", encoding="utf-8") as stream:
            stream.write(f"process {os.getpid()} on {socket.gethostname()}")
    except FileExistsError as error:
        if not lock.exists():  # `home` is a file, or the other launch has just ended
            raise _unusable("a run", home, error) from error
        raise OptionError(
            "The folder of a run must be empty",
            found=f"{home}: another launch is using it ({_holder(lock)})",
            remedy=f"Name another one; if that launch has ended without removing it, remove {LOCK}.",
        ) from error
    except OSError as error:
        raise _unusable("a run", home, error) from error
    try:
        return empty_folder(home, "a run", make=False)
    except OptionError:
        release_folder(home)
        raise


def _holder(lock: Path) -> str:
    try:
        return read_bytes(lock, 1000).decode("utf-8", "replace") or "it has just begun"
    except (OSError, ValueError) as error:
        return str(error)


def release_folder(home: Path) -> None:
    """The run in `home` is over, or was not begun: the lock is no longer needed. The folder stays as it is."""
    with contextlib.suppress(OSError):  # the disk has gone, or cannot be written any more
        (home / LOCK).unlink(missing_ok=True)


def empty_folder(folder: str | os.PathLike[str], what: str, *, make: bool) -> Path:
    """The path of a folder that is empty or does not exist, and is created where `make`. OptionError otherwise."""
    home = Path(folder).absolute()
    try:
        if make:
            home.mkdir(parents=True, exist_ok=True)
        if home.exists() and any(path.name != LOCK for path in home.iterdir()):
            raise OptionError(
                f"The folder of {what} must be empty",
                found=str(home),
                remedy="Name another one, or remove what is there.",
            )
    except OSError as error:
        raise _unusable(what, home, error) from error
    return home


def _unusable(what: str, home: Path, error: OSError) -> OptionError:
    return OptionError(
        f"The folder of {what} cannot be used",
        found=f"{home}: {error.strerror or error}",
        remedy="Name a folder in which you may write.",
    )


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
