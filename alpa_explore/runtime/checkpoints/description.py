"""What checkpoint.json and index.json say, the checks of a checkpoint that a stranger may have written, and which one
`resume=` names: a checkpoint, or the folder of a run with several.
"""

import hashlib
import json
import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from alpa_explore.errors import CheckpointError
from alpa_explore.runtime import tuning
from alpa_explore.runtime.folder import attempts_of
from alpa_explore.store.read import open_regular, read_json
from alpa_explore.store.records import plain, record

FORMAT, VERSION = "alpa_explore.checkpoint", 1
DESCRIPTION, INDEX = "checkpoint.json", "index.json"
DIGEST = "digest"
"""The key of checkpoint.json whose value is sha256 of all others."""
FOLDER = "checkpoints"
"""The folder of all checkpoints of a run, in the folder of the run."""
STATE, WEIGHTS = "state", "weights"
"""Kinds: all that resuming needs, or the trained weights and buffers alone."""
OPTIMIZER_STATE = "optimizer.state."
"""Before the names of the tensors of the optimizer: `optimizer.state.NAME OF THE PARAMETER.exp_avg`."""
_FILE_NAME = re.compile(r"__\d{1,9}_0\.distcp")
_DTYPES = frozenset(
    (
        *("bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64"),
        *("float16", "bfloat16", "float32", "float64", "complex64", "complex128"),
        *("float8_e4m3fn", "float8_e5m2"),
    )
)
"""Of which the numbers in a file can be taken as they are."""
MOST_SEED = 2**63 - 1
"""torch's generators and numpy's take it."""
_MOST_DIMS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """One box of a tensor, in a file."""

    offsets: tuple[int, ...]
    """Where the box begins in the tensor, by dim."""
    sizes: tuple[int, ...]
    file: str
    begin_bytes: int
    """Where torch's archive of the box begins in the file."""
    archive_bytes: int
    data_bytes: int
    """Where the numbers begin in the file: contiguous, in this machine's byte order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTensor:
    """One tensor of a checkpoint."""

    shape: tuple[int, ...]
    dtype: str
    chunks: tuple[Chunk, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """The facts of a checkpoint; checkpoint.json has these fields, with `format`, `version` and `digest`."""

    kind: str
    step: int
    """The number of steps that are done; training goes on with the step of this number."""
    model: str
    model_digest: str
    """Of the names, shapes and dtypes of all parameters and buffers."""
    plan_digest: str
    """sha256 of the plan file."""
    seed: int
    learning_rate: float
    optimizer: tuple[str, ...]
    samples_per_iteration: int
    stream_samples: int
    """Samples of each microbatch of the data source; another plan's microbatches are cut from the same samples."""
    next_sample: int
    """The data position: the number of samples that the steps before have used."""
    files: Mapping[str, tuple[int, str]]
    """Name -> (bytes, sha256)."""


def step_name(step: int) -> str:
    """The name of the checkpoint that is taken when `step` steps are done."""
    return f"step-{step:06d}"


def writing_folder(run_folder: Path, name: str) -> Path:
    """Where ranks write their parts of a checkpoint."""
    return run_folder / FOLDER / f".{name}.writing"


def model_digest(tensors: Mapping[str, tuple[tuple[int, ...], str]]) -> str:
    """The digest of a model: name -> (shape, dtype) of its parameters and buffers."""
    return hashlib.sha256(json.dumps(sorted((n, list(s), d) for n, (s, d) in tensors.items())).encode()).hexdigest()


def to_json(description: Description) -> str:
    """The text of checkpoint.json."""
    return json.dumps(sealed({"format": FORMAT, "version": VERSION, **plain(description)}), indent=1, allow_nan=False)


def sealed(body: Mapping[str, Any]) -> dict[str, Any]:
    """The content of checkpoint.json with the digest of all that it says. Each field of it changes how training goes
    on, and of a seed or a learning rate that a bit has changed nothing else tells."""
    said = {key: value for key, value in body.items() if key != DIGEST}
    return {**said, DIGEST: hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()}


def read_description(folder: Path) -> Description:
    """Read checkpoint.json, and check that it says what was written, and that every file it names is there in its size.

    CheckpointError: not a checkpoint, a newer version, damaged, or files cut off.
    """
    body = _object(folder / DESCRIPTION)
    if body.get("format") != FORMAT:
        raise _damaged(folder, f"{DESCRIPTION} has the format {body.get('format')!r}")
    version = body.get("version")
    if isinstance(version, int) and version > VERSION:
        raise CheckpointError(
            "This checkpoint has a newer format",
            found=f"version {version} in {folder}, this program reads up to {VERSION}",
            remedy="Install a newer alpa-explore, or name another checkpoint.",
        )
    if DIGEST not in body:
        raise _damaged(folder, f"{DESCRIPTION} has no digest of what it says")
    if body[DIGEST] != sealed(body)[DIGEST]:
        raise _damaged(folder, f"the content of {DESCRIPTION} has changed since it was written")
    if type(version) is not int or version < 1:
        raise _damaged(folder, f"{DESCRIPTION} has the version {str(version)[:50]!r}")
    try:
        found = record(Description, body, DESCRIPTION)
        if found.kind not in (STATE, WEIGHTS):
            raise ValueError(f"{found.kind[:50]!r} is no kind of checkpoint")
        if found.learning_rate < 0:
            raise ValueError(f"{found.learning_rate} is no learning rate")
        _check_position(found)
    except ValueError as error:
        raise _damaged(folder, str(error)) from error
    files = found.files
    for name, (size, _) in files.items():
        path = folder / name
        if name not in (INDEX, ".metadata") and not _FILE_NAME.fullmatch(name):
            raise _damaged(folder, f"{DESCRIPTION} names the file {name[:100]!r}, which is none of a checkpoint")
        if not path.is_file():
            raise _damaged(folder, f"{name} is missing")
        if path.stat().st_size != size:
            raise _damaged(folder, f"{name} has {path.stat().st_size:,} bytes, {size:,} were written")
    if INDEX not in files:
        raise _damaged(folder, f"{DESCRIPTION} does not name {INDEX}")
    return found


def check_digests(folder: Path, description: Description) -> None:
    """Read every file once. CheckpointError where its content is not what was written."""
    for name, (_, digest) in description.files.items():
        with open_regular(folder / name) as stream:
            if hashlib.file_digest(stream, "sha256").hexdigest() != digest:
                raise _damaged(folder, f"the content of {name} has changed since it was written")


def read_index(folder: Path, *, partly: bool = False) -> dict[str, StoredTensor]:
    """Name -> tensor, from index.json. CheckpointError where it is damaged or refers beyond its files.

    `partly`: files may be missing, on a host that has only those that its ranks need.
    """
    body = _object(folder / INDEX)
    sizes: dict[str, float] = {}
    tensors: dict[str, StoredTensor] = {}
    try:
        for name, entry in body.items():
            tensor = tensors[name] = record(StoredTensor, entry, name)
            for file in {chunk.file for chunk in tensor.chunks} - sizes.keys():
                sizes[file] = _size(folder, file, partly=partly)
            _check(name, tensor, sizes)
    except ValueError as error:
        raise _damaged(folder, f"{INDEX}: {error}") from error
    return tensors


def torch_dtype(name: str) -> torch.dtype:
    """The dtype of that name. ValueError where it is none that a model can have."""
    found = getattr(torch, name, None) if name in _DTYPES else None
    if not isinstance(found, torch.dtype):
        raise ValueError(f"{name[:50]!r} is no dtype")
    return found


def _size(folder: Path, file: str, *, partly: bool) -> float:
    """The size of a file of a checkpoint. ValueError where its name is none of a checkpoint's, or it is missing."""
    if not _FILE_NAME.fullmatch(file):
        raise ValueError(f"{file[:100]!r} is no file of a checkpoint")
    if not (folder / file).is_file():
        if partly:
            return math.inf
        raise ValueError(f"{file} is missing")
    return (folder / file).stat().st_size


def _check(name: str, tensor: StoredTensor, sizes: Mapping[str, float]) -> None:
    """ValueError where chunks are not inside their tensor and their file, or do not have as many entries as it."""
    item = torch_dtype(tensor.dtype).itemsize
    if len(tensor.shape) > _MOST_DIMS:
        raise ValueError(f"{name} has {len(tensor.shape)} dims")
    if len(tensor.chunks) > tuning.MAX_BOXES:
        raise ValueError(f"{name} has {len(tensor.chunks):,} boxes, more than {tuning.MAX_BOXES:,}")
    for chunk in tensor.chunks:
        if len(chunk.offsets) != len(tensor.shape) or len(chunk.sizes) != len(tensor.shape):
            raise ValueError(f"a box of {name} has another number of dims")
        inside = (o + n <= s for o, n, s in zip(chunk.offsets, chunk.sizes, tensor.shape, strict=True))
        end = chunk.data_bytes + math.prod(chunk.sizes) * item
        if not all(inside) or end > sizes[chunk.file] or chunk.data_bytes % item:
            raise ValueError(f"a box of {name} is not inside the tensor or {chunk.file}")
    if sum(math.prod(c.sizes) for c in tensor.chunks) != math.prod(tensor.shape):
        raise ValueError(f"the boxes of {name} are not the whole tensor of {list(tensor.shape)}")
    if (both := _overlapping(tensor.chunks)) is not None:
        raise ValueError(f"two boxes of {name} hold the same entries: those at {both[0]} and {both[1]}")


def _overlapping(chunks: tuple[Chunk, ...]) -> tuple[list[int], list[int]] | None:
    """Where two boxes begin that have an entry in common; None where all are disjoint."""
    held = [chunk for chunk in chunks if 0 not in chunk.sizes]
    if len(held) < 2:
        return None
    starts = np.array([c.offsets for c in held], dtype=np.int64).reshape(len(held), -1)
    ends = starts + np.array([c.sizes for c in held], dtype=np.int64).reshape(len(held), -1)
    for number in range(1, len(held)):
        common = (starts[:number] < ends[number]) & (starts[number] < ends[:number])
        if (both := np.flatnonzero(common.all(axis=1))).size:
            return list(held[both[0]].offsets), list(held[number].offsets)
    return None


def _object(path: Path) -> dict[str, Any]:
    try:
        body = read_json(path, tuning.MAX_INDEX_BYTES)
    except OSError as error:
        raise _damaged(path.parent, f"{path.name}: {error.strerror or error}") from error
    except ValueError as error:
        raise _damaged(path.parent, f"{path.name} is cut off or no JSON: {error}") from error
    if not isinstance(body, dict):
        raise _damaged(path.parent, f"{path.name} is no JSON object")
    return body


def _check_position(description: Description) -> None:
    """ValueError where the samples that were used are not those of the steps that are done."""
    each, stream = description.samples_per_iteration, description.stream_samples
    if not each or not stream or each % stream:
        raise ValueError(f"{each} samples an iteration are not divided by {stream} samples of a microbatch")
    if description.next_sample != description.step * each:
        raise ValueError(f"next_sample {description.next_sample} is not step {description.step} × {each} samples")


def _damaged(folder: Path, found: str) -> CheckpointError:
    others = sorted(p.name for p in folder.parent.glob("step-*") if p.name != folder.name and p.is_dir())
    also = f" Beside it: {', '.join(others[-3:])}." if others else ""
    return CheckpointError(
        "The checkpoint is cut off or damaged",
        found=f"{os.fspath(folder)}: {found}",
        remedy=f"Name another checkpoint.{also}",
    )


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
