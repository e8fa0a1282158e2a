"""The file that one rank writes for a checkpoint, in the format of torch.distributed.checkpoint.

The file is a sequence of archives that `torch.save` writes, one for each box, each at a multiple of
`tuning.ALIGNMENT_BYTES`, so that the numbers in it can be mapped as they are.
"""

import hashlib
import io
import json
import os
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any, BinaryIO

import torch

from alpa_explore.programs.instruction import Box
from alpa_explore.runtime import tuning

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
            _save(whole, written)
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


def _save(value: torch.Tensor, stream: _Digested) -> None:
    try:
        torch.save(value, stream)  # type: ignore[arg-type]  # writing is all that it does with it
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
