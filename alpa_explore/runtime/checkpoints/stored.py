"""The files of a checkpoint, in the format of torch.distributed.checkpoint: that which one rank writes, and boxes read
from them. Of each tensor only the bytes of the boxes that are asked for are read from the disk.

A file is a sequence of archives that `torch.save` writes, one for each box, each at a multiple of
`tuning.ALIGNMENT_BYTES`, so that the numbers in it can be mapped as they are.
"""

import hashlib
import io
import json
import math
import os
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import torch

from alpa_explore.errors import CheckpointError
from alpa_explore.programs.program import Box
from alpa_explore.runtime import tuning
from alpa_explore.runtime.checkpoints.description import OPTIMIZER_STATE, Chunk, StoredTensor, read_index, torch_dtype

Piece = tuple[str, tuple[int, ...], Box, torch.Tensor]
"""(name, shape of the whole tensor, box, value of the box)."""


def write_shard(folder: Path, place: int, pieces: Iterable[Piece]) -> dict[str, tuple[int, str]]:
    """Write the pieces of the rank that is number `place` of the run; file -> (bytes, sha256).

    Besides `__N_0.distcp` there is `part-N.json`, the entries of index.json for these pieces. Each file has its name
    when it is complete and on the disk. OSError where it cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    name, part = f"__{place}_0.distcp", f"part-{place}.json"
    entries: list[dict[str, Any]] = []
    with (folder / f"{name}.unfinished").open("w+b") as stream:
        written = _Digested(stream)
        for tensor, shape, box, value in pieces:
            whole = value.detach().to("cpu").contiguous()
            if whole.untyped_storage().nbytes() != whole.nbytes:
                whole = whole.clone()  # torch.save writes the whole storage of a view
            written.write(bytes(-stream.tell() % tuning.ALIGNMENT_BYTES))
            begin = stream.tell()
            save(whole, written)
            end = stream.tell()
            entries.append(
                {
                    "name": tensor,
                    "shape": list(shape),
                    "dtype": str(value.dtype).removeprefix("torch."),
                    "offsets": [start for start, _ in box],
                    "sizes": list(value.shape),
                    "file": name,
                    "begin_bytes": begin,
                    "archive_bytes": end - begin,
                    "data_bytes": _numbers_at(stream, begin, end),
                }
            )
            stream.seek(end)
        size = stream.tell()
        _finish(stream)
    (folder / f"{name}.unfinished").replace(folder / name)
    text = json.dumps(entries).encode()
    with (folder / f"{part}.unfinished").open("wb") as stream:
        stream.write(text)
        _finish(stream)
    (folder / f"{part}.unfinished").replace(folder / part)
    return {name: (size, written.digest.hexdigest()), part: (len(text), hashlib.sha256(text).hexdigest())}


class _Digested:
    """A stream that also digests what is written."""

    def __init__(self, stream: BinaryIO) -> None:
        self.stream, self.digest = stream, hashlib.sha256()

    def write(self, data: Any) -> int:
        self.digest.update(data)
        return self.stream.write(data)

    def flush(self) -> None:
        self.stream.flush()


def save(value: Any, stream: Any) -> None:
    """Write what `torch.save` does to a stream. OSError where the disk is full."""
    try:
        torch.save(value, stream)
    except RuntimeError as error:  # torch replaces the error of the stream: the disk is full
        if isinstance(error.__context__, OSError):
            raise error.__context__ from None
        raise


def _numbers_at(stream: BinaryIO, begin: int, end: int) -> int:
    """Where the numbers of the archive begin that stands from `begin` to `end`, counted from the start of the file."""
    stream.flush()
    with zipfile.ZipFile(_Section(stream, begin, end)) as archive:
        (entry,) = (e for e in archive.infolist() if e.filename.endswith("/data/0"))
    assert entry.compress_type == zipfile.ZIP_STORED, "torch does not compress"
    stream.seek(begin + entry.header_offset + 26)  # the lengths of name and extra field, which precede the content
    lengths = stream.read(4)
    header = 30 + int.from_bytes(lengths[:2], "little") + int.from_bytes(lengths[2:], "little")
    return begin + entry.header_offset + header


class _Section(io.RawIOBase):
    """A part of a file as a file: an archive counts its offsets from its own start, and newer Pythons check that."""

    def __init__(self, stream: BinaryIO, begin: int, end: int) -> None:
        self._stream, self._begin, self._size, self._at = stream, begin, end - begin, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        at = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence] + offset
        if at < 0:
            raise OSError("Seek before the start of the file")
        self._at = at
        return at

    def readinto(self, buffer: Any) -> int:
        self._stream.seek(self._begin + self._at)
        data = self._stream.read(max(0, min(len(buffer), self._size - self._at)))
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)


def _finish(stream: BinaryIO) -> None:
    stream.flush()
    os.fsync(stream.fileno())


Tensors = Mapping[str, tuple[tuple[int, ...], str]]
"""Name -> (shape, dtype)."""


class StoredState:
    """The tensors of a checkpoint, read box by box."""

    def __init__(self, folder: Path, *, partly: bool = False) -> None:
        """`partly`: only some of the files are there. CheckpointError where the index is damaged."""
        self.folder, self.tensors = folder, read_index(folder, partly=partly)
        self._files: dict[str, torch.Tensor] = {}
        self._state: dict[str, list[str]] = {}
        for name in self.tensors:
            if name.startswith(OPTIMIZER_STATE):
                parameter, _, key = name.removeprefix(OPTIMIZER_STATE).rpartition(".")
                self._state.setdefault(parameter, []).append(key)

    def box(self, name: str, box: Box) -> torch.Tensor:
        """A box of a tensor, on the CPU. KeyError."""
        tensor = self.tensors[name]
        if len(tensor.chunks) == 1 and _is(tensor.chunks[0], box):
            return self._chunk(tensor, tensor.chunks[0]).clone()
        found = torch.empty([stop - start for start, stop in box], dtype=torch_dtype(tensor.dtype))
        entries = 0
        for chunk in tensor.chunks:
            common = _common(chunk, box)
            if common is not None:
                inside = tuple(slice(a - o, b - o) for (a, b), o in zip(common, chunk.offsets, strict=True))
                target = tuple(slice(a - o, b - o) for (a, b), (o, _) in zip(common, box, strict=True))
                found[target] = self._chunk(tensor, chunk)[inside]
                entries += math.prod(b - a for a, b in common)
        assert entries == found.numel(), "the boxes of a tensor are disjoint and are the whole of it"
        return found

    def optimizer_state(self, parameter: str, box: Box) -> dict[str, torch.Tensor]:
        """The optimizer state of a box of a parameter, by torch's names; a number of steps is not divided."""
        names = self._state_names(parameter)
        return {key: self.box(name, self._state_box(name, parameter, box)) for key, name in names.items()}

    def _state_names(self, parameter: str) -> dict[str, str]:
        return {key: f"{OPTIMIZER_STATE}{parameter}.{key}" for key in self._state.get(parameter, ())}

    def _state_box(self, name: str, parameter: str, box: Box) -> Box:
        return box if self.tensors[name].shape == self.tensors[parameter].shape else ()

    def whole(self, name: str) -> torch.Tensor:
        """A whole tensor."""
        return self.box(name, tuple((0, size) for size in self.tensors[name].shape))

    def files_of(self, weights: Iterable[tuple[str, Box]], states: Iterable[tuple[str, Box]]) -> set[str]:
        """The files that hold boxes of parameters and buffers, and the optimizer states of boxes of parameters."""
        wanted = [
            *((name, box) for name, box in weights),
            *((name, self._state_box(name, p, box)) for p, box in states for name in self._state_names(p).values()),
        ]
        return {
            chunk.file for name, box in wanted for chunk in self.tensors[name].chunks if _common(chunk, box) is not None
        }

    def check_model(self, model: Tensors, state: Tensors) -> None:
        """CheckpointError, with the tensors that differ, where name -> (shape, dtype) of a model, or of the state of
        its optimizer, are other ones, or where no optimizer can have done so many steps."""
        here = {name: (tensor.shape, tensor.dtype) for name, tensor in self.tensors.items()}
        own = {name: tensor for name, tensor in here.items() if not name.startswith(OPTIMIZER_STATE)}
        if differing := _differing(own, model, "the model"):
            raise CheckpointError(
                "The checkpoint is of another model",
                found=differing,
                remedy="Plan the model of the checkpoint in its precision, or name another checkpoint.",
            )
        if differing := _differing({n: t for n, t in here.items() if n not in own}, state, "the plan"):
            raise CheckpointError(
                "The checkpoint has not the optimizer state of the plan",
                found=differing,
                remedy="Name another checkpoint, or capture the model with the optimizer of this one.",
            )
        for name, (shape, _) in state.items():
            if name.endswith(".step") and not shape:
                steps = float(self.whole(name))
                if not 0 <= steps < 2**31 or steps != int(steps):
                    raise CheckpointError(
                        "The optimizer state of the checkpoint is damaged",
                        found=f"{name} is {steps}, no number of steps",
                        remedy="Name another checkpoint.",
                    )

    def _chunk(self, tensor: StoredTensor, chunk: Chunk) -> torch.Tensor:
        dtype, count = torch_dtype(tensor.dtype), math.prod(chunk.sizes)
        if not count:
            return torch.empty(chunk.sizes, dtype=dtype)
        if chunk.file not in self._files:
            path = self.folder / chunk.file
            size = path.stat().st_size
            self._files[chunk.file] = torch.from_file(str(path), shared=False, size=size, dtype=torch.uint8)
        raw = self._files[chunk.file][chunk.data_bytes : chunk.data_bytes + count * dtype.itemsize]
        return raw.view(dtype).reshape(chunk.sizes)


def _common(chunk: Chunk, box: Box) -> Box | None:
    """The part of a box that a chunk holds, in coordinates of the tensor; None where there is none."""
    common = tuple(
        (max(start, offset), min(stop, offset + size))
        for (start, stop), offset, size in zip(box, chunk.offsets, chunk.sizes, strict=True)
    )
    return common if all(a < b for a, b in common) else None


def _is(chunk: Chunk, box: Box) -> bool:
    return box == tuple((o, o + n) for o, n in zip(chunk.offsets, chunk.sizes, strict=True))


def _differing(here: Tensors, there: Tensors, of: str) -> str:
    """The first of the tensors that differ, in words; empty where none does."""
    differing = [
        f"{name} is {_told(here.get(name))} in the checkpoint, {_told(there.get(name))} in {of}"
        for name in sorted(here.keys() | there.keys())
        if here.get(name) != there.get(name)
    ]
    more = f"; and {len(differing) - 3} more" if len(differing) > 3 else ""
    return "; ".join(differing[:3]) + more


def _told(tensor: tuple[tuple[int, ...], str] | None) -> str:
    return "missing" if tensor is None else f"{list(tensor[0])} {tensor[1]}"
