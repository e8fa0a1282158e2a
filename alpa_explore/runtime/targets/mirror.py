"""Copy what is new in the folder of a run on one host to the launcher's, in pieces, by whatever carries them.

The host lists pieces (`news`) of what the launcher has not seen; the launcher writes them (`Mirror`) and so knows where
to go on. A lost answer does no harm: its pieces come again. Logs and reports grow and are sent as they grow. Any other
file is sent when it has changed, and gets its name at the launcher when all of it is there.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from alpa_explore.errors import RunError
from alpa_explore.runtime import tuning
from alpa_explore.runtime.folder import REQUESTED, WHOLE

GROWING = (".jsonl", ".log")
"""Files that are only appended to."""
_UNFINISHED = (".tmp", ".unfinished")
_SENT = ("job", "run.json", "hosts.json", REQUESTED, WHOLE)
"""What the launcher has sent."""

Seen = Mapping[str, tuple[str, int]]
"""Path -> (version, bytes of it that the launcher has)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FilePiece:
    """Some bytes of a file."""

    path: str
    """Relative to the folder of the run, with slashes."""
    version: str
    """Another one when the file was written anew; '' for one that grows."""
    offset: int
    size: int
    """Bytes of the whole file when it was read."""
    data: bytes = field(repr=False)


def news(folder: Path, seen: Seen, limit: int) -> tuple[list[FilePiece], bool]:
    """(pieces of at most `limit` bytes together that the launcher has not seen, whether there is more)."""
    pieces: list[FilePiece] = []
    for path, relative in _files(folder):
        try:
            with path.open("rb") as stream:
                status = os.fstat(stream.fileno())
                grows = path.suffix in GROWING
                version = "" if grows else f"{status.st_mtime_ns}-{status.st_ino}-{status.st_size}"
                known, offset = seen.get(relative, (None, 0))
                offset = offset if known == version else 0
                if known == version and offset >= status.st_size:
                    continue
                if limit <= 0:
                    return pieces, True
                stream.seek(offset)
                data = stream.read(min(limit, status.st_size - offset))
        except FileNotFoundError:  # replaced or removed just now
            continue
        limit -= len(data)
        pieces.append(FilePiece(path=relative, version=version, offset=offset, size=status.st_size, data=data))
        if offset + len(data) < status.st_size:
            return pieces, True
    return pieces, False


class Pace:
    """How many bytes to send at once: about as many as the link carries in `tuning.PIECE_SECONDS`."""

    def __init__(self) -> None:
        self.limit = tuning.PIECE_BYTES
        self._waiting = 0.0
        """Seconds that an exchange of a few bytes took."""

    def note(self, size: int, seconds: float) -> None:
        """`size` bytes have taken so long."""
        if size <= tuning.SMALL_BYTES:
            self._waiting = seconds
        elif seconds - self._waiting > tuning.PIECE_SECONDS:
            self.limit = max(self.limit // 2, tuning.PIECE_BYTES)
        elif size >= self.limit:
            self.limit = min(2 * self.limit, tuning.MAX_PIECE_BYTES)


def discard_seen(folder: Path, seen: Seen, below: str) -> None:
    """Remove the files in the folder `below` that the launcher has as a whole."""
    for relative, (version, offset) in seen.items():
        path = folder / relative
        if relative.startswith(f"{below}/") and path.is_file():
            status = path.stat()
            if version == f"{status.st_mtime_ns}-{status.st_ino}-{status.st_size}" and offset == status.st_size:
                path.unlink()


class Mirror:
    """The launcher's side for one host."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.seen: dict[str, tuple[str, int]] = {}

    def write(self, piece: FilePiece) -> None:
        """Write a piece. OSError where the disk is full; RunError for a path outside the folder."""
        relative = PurePosixPath(piece.path)
        if relative.is_absolute() or ".." in relative.parts or relative.parts[0] in _SENT:
            raise RunError(
                "A host sent a file that is none of its own",
                found=piece.path,
                remedy="This is a bug of alpa_explore: please report it.",
            )
        path = self.folder / relative
        path.parent.mkdir(parents=True, exist_ok=True)
        grows = path.suffix in GROWING
        partial = path if grows else path.with_name(f"{path.name}.unfinished")
        if not partial.exists() or (not grows and piece.offset == 0):
            partial.write_bytes(b"")
        with partial.open("r+b") as stream:
            stream.seek(piece.offset)
            stream.write(piece.data)
        end = piece.offset + len(piece.data)
        if not grows and end == piece.size:
            partial.replace(path)
        self.seen[piece.path] = piece.version, end


def _files(folder: Path) -> list[tuple[Path, str]]:
    """(file, its relative path); logs and reports first, so that a large file does not hold them up."""
    found = []
    for place, folders, names in os.walk(folder):
        home = Path(place)
        if home == folder:
            folders[:] = [name for name in folders if name not in _SENT]
            names = [name for name in names if name not in _SENT]
        found += [(home / name, (home / name).relative_to(folder).as_posix()) for name in names]
    wanted = [entry for entry in found if entry[0].suffix not in _UNFINISHED]
    return sorted(wanted, key=lambda entry: (entry[0].suffix not in GROWING, "/" in entry[1], entry[1]))
