"""Make a checkpoint whole when all ranks have written their parts, and keep the last two.

One process of a run keeps its checkpoints: the one that watches the run, or the first rank of a script's run.
"""

import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from alpa_explore.errors import RunError
from alpa_explore.runtime import tuning
from alpa_explore.runtime.checkpoints.description import (
    DESCRIPTION,
    FOLDER,
    INDEX,
    STATE,
    Chunk,
    Description,
    StoredTensor,
    checkpoints_of,
    step_name,
    to_json,
    torch_dtype,
    writing_folder,
)

Events = Callable[[], Iterable[tuple[int, dict[str, Any]]]]
"""The new events of all ranks since the last call: (rank, event)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A whole checkpoint, or the saved weights."""

    kind: str
    step: int
    folder: Path
    bytes: int
    seconds: float
    """How long the slowest rank wrote."""


class CheckpointKeeper:
    """Keeps the checkpoints of one run; call `poll` again and again."""

    def __init__(self, run_folder: Path, ranks: tuple[int, ...], events: Events) -> None:
        self.run_folder, self.ranks = run_folder, ranks
        self._events = events
        self._written: dict[str, dict[int, dict[str, Any]]] = {}
        """Name of a checkpoint that is not whole yet -> rank -> its report."""
        self._done: dict[int, int] = {}
        """Rank -> the number of steps it has reported as done."""
        self.kept: tuple[Kept, ...] = ()
        """All checkpoints that became whole, oldest first; of those with the whole state only the last two exist."""

    def poll(self) -> None:
        """Take note of what ranks have reported, and make whole what is complete. RunError where the disk is full."""
        for rank, event in self._events():
            if event["event"] == "checkpoint":
                self._written.setdefault(event["name"], {})[rank] = event
            elif event["event"] == "step":
                self._done[rank] = event["step"] + 1
        for name, of_ranks in list(self._written.items()):
            folder = writing_folder(self.run_folder, name)
            if len(of_ranks) == len(self.ranks) and all(_complete(folder, e["files"]) for e in of_ranks.values()):
                try:
                    self._keep(name, folder, list(of_ranks.values()))
                except OSError as error:
                    raise RunError(
                        "The checkpoint was not kept",
                        found=f"{folder}: {error.strerror or error}",
                        remedy="Free some space, or name a --folder (folder=) on another disk.",
                    ) from error
                del self._written[name]

    def missed(self, step: int) -> bool:
        """Whether some rank has gone past `step` steps without a checkpoint there: the request for it came too late."""
        written = self._written.get(step_name(step), {})
        whole = any(kept.kind == STATE and kept.step == step for kept in self.kept)
        return not whole and any(done > step and rank not in written for rank, done in self._done.items())

    def waits(self) -> bool:
        """Poll; whether parts of some checkpoint are still missing."""
        self.poll()
        return bool(self._written)

    def finish(
        self,
        seconds: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], object] = time.sleep,
    ) -> None:
        """All ranks are done: wait for files that are still on their way, at most so long. RunError where they do not
        come. `pause` waits for some seconds of `clock`."""
        end = clock() + seconds
        while self.waits():
            required = [name for name, reports in self._written.items() if _required(reports)]
            if not required:
                return
            if clock() > end:
                raise RunError(
                    "A checkpoint did not become whole",
                    found=f"{', '.join(required)}: parts of some ranks are missing after {seconds:.0f} s",
                    remedy="Look at the logs; the checkpoint before is whole.",
                )
            pause(tuning.RUN_POLL_SECONDS)

    def close(self) -> None:
        """The run is over: remove what is not whole."""
        for folder in (self.run_folder / FOLDER).glob(".*.writing"):
            shutil.rmtree(folder, ignore_errors=True)

    def _keep(self, name: str, folder: Path, reports: list[dict[str, Any]]) -> None:
        facts = json.loads((self.run_folder / "run.json").read_text(encoding="utf-8"))["checkpoints"]
        parts = [file for report in reports for file in report["files"] if file.startswith("part-")]
        tensors = _joined([json.loads((folder / part).read_text(encoding="utf-8")) for part in parts])
        files = {n: (s, d) for r in reports for n, (s, d) in r["files"].items() if n not in parts}
        index = json.dumps({n: asdict(tensor) for n, tensor in tensors.items()}).encode()
        _write(folder / INDEX, index)
        _write_metadata(folder, tensors)
        metadata = (folder / ".metadata").read_bytes()
        for file, content in ((INDEX, index), (".metadata", metadata)):
            files[file] = (len(content), hashlib.sha256(content).hexdigest())
        kind, step = reports[0]["kind"], reports[0]["step"]
        description = Description(
            kind=kind,
            step=step,
            next_sample=step * facts["samples_per_iteration"],
            files=files,
            **{field: facts[field] for field in FACTS},
        )
        _write(folder / DESCRIPTION, to_json(description).encode())
        for part in parts:
            (folder / part).unlink()
        home = self.run_folder / FOLDER / name if kind == STATE else Path(reports[0]["save"])
        _move(folder, home)
        seconds = max(report["seconds"] for report in reports)
        size = sum(size for size, _ in files.values())
        self.kept += (Kept(kind=kind, step=step, folder=home, bytes=size, seconds=seconds),)
        for old in checkpoints_of(self.run_folder)[: -tuning.KEPT_CHECKPOINTS]:
            shutil.rmtree(old, ignore_errors=True)


FACTS = tuple(
    "model model_digest plan_digest seed learning_rate optimizer samples_per_iteration stream_samples".split()
)
"""The fields of `Description` that are the same for all checkpoints of a run; run.json has them."""


def _required(reports: dict[int, dict[str, Any]]) -> bool:
    """Whether all ranks write this checkpoint; a request can come too late for some of them."""
    return not any(report["requested"] for report in reports.values())


def _complete(folder: Path, files: dict[str, tuple[int, str]]) -> bool:
    """Whether the files of a rank are there; without a shared folder they come some time after the report."""
    return all((folder / n).is_file() and (folder / n).stat().st_size == size for n, (size, _) in files.items())


def _joined(parts: list[list[dict[str, Any]]]) -> dict[str, StoredTensor]:
    chunks: dict[str, list[Chunk]] = {}
    kinds: dict[str, tuple[tuple[int, ...], str]] = {}
    for entry in (entry for part in parts for entry in part):
        name, kind = entry.pop("name"), (tuple(entry.pop("shape")), entry.pop("dtype"))
        assert kinds.setdefault(name, kind) == kind, "all ranks have the same tensors"
        entry |= {"offsets": tuple(entry["offsets"]), "sizes": tuple(entry["sizes"])}
        chunks.setdefault(name, []).append(Chunk(**entry))
    return {
        name: StoredTensor(shape=kinds[name][0], dtype=kinds[name][1], chunks=tuple(chunks[name]))
        for name in sorted(chunks)
    }


def _write_metadata(folder: Path, tensors: dict[str, StoredTensor]) -> None:
    """Write the file by which torch.distributed.checkpoint finds the boxes."""
    # Late: this part of torch takes half a second to import, which a run without checkpoints need not wait for.
    from torch.distributed.checkpoint.filesystem import FileSystemWriter, _StorageInfo
    from torch.distributed.checkpoint.metadata import (
        ChunkStorageMetadata,
        Metadata,
        MetadataIndex,
        TensorProperties,
        TensorStorageMetadata,
    )
    from torch.distributed.checkpoint.storage import WriteResult

    stored = {
        name: TensorStorageMetadata(
            properties=TensorProperties(dtype=torch_dtype(tensor.dtype)),
            size=torch.Size(tensor.shape),
            chunks=[
                ChunkStorageMetadata(offsets=torch.Size(c.offsets), sizes=torch.Size(c.sizes)) for c in tensor.chunks
            ],
        )
        for name, tensor in tensors.items()
    }
    places = [
        WriteResult(
            index=MetadataIndex(name, chunk.offsets),
            size_in_bytes=chunk.archive_bytes,
            storage_data=_StorageInfo(chunk.file, chunk.begin_bytes, chunk.archive_bytes),
        )
        for name, tensor in tensors.items()
        for chunk in tensor.chunks
    ]
    FileSystemWriter(folder).finish(Metadata(state_dict_metadata=dict(stored)), [places])


def _move(folder: Path, home: Path) -> None:
    """Give a finished folder its name; from another disk it is copied first."""
    home.parent.mkdir(parents=True, exist_ok=True)
    _sync(folder)
    if folder.stat().st_dev != home.parent.stat().st_dev:
        beside = home.parent / f".{home.name}.writing"
        shutil.rmtree(beside, ignore_errors=True)
        shutil.copytree(folder, beside)
        shutil.rmtree(folder)
        folder = beside
    folder.replace(home)
    _sync(home.parent)


def _write(path: Path, content: bytes) -> None:
    with path.open("wb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())


def _sync(folder: Path) -> None:
    """Write the names in a folder to the disk."""
    number = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
