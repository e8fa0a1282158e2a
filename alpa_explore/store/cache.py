"""A disk cache of results: one small file per entry, named by a digest of its key.

Entries are files (in 256 folders, so that listing stays fast) rather than rows of a database: a truncated file costs
one entry, a rename is atomic also between processes, and no locks are needed on network file systems, where home
folders often are.

A file is a line `alpa-explore-cache FORMAT CODE_VERSION DIGEST` followed by the entry as JSON. There is no pickle, so a
foreign cache can do no harm beyond wrong numbers. An invalid entry (truncated, damaged, of another version) is a miss,
is reported once in `warnings`, and is overwritten by the next put. A disk that is full or read-only turns writing off,
which is reported once.
"""

import base64
import binascii
import hashlib
import itertools
import json
import os
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from platformdirs import user_cache_path

from alpa_explore.store.read import PartCount, read_bytes

FORMAT_VERSION = 1
_MAGIC = "alpa-explore-cache"
_ARRAY = "$array"
_MOST_BYTES = 2**30
"""Of an entry. The largest, a graph of 40,000 operators, has some megabytes."""
_DTYPES = frozenset(
    ("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float32", "float64")
)


class Store(Protocol):
    """A store of results by key."""

    def get(self, key: str) -> dict[str, Any] | None:
        """The entry of a key; None where there is none."""

    def put(self, key: str, value: Mapping[str, Any]) -> None:
        """Store an entry, if possible."""


class SolveCache:
    """get and put of JSON-able values by key; safe for several threads and processes at once."""

    def __init__(self, folder: str | os.PathLike[str] | None = None, *, code_version: str = "0") -> None:
        """`folder`: by default `default_folder()`. `code_version`: the version of the code that computes the values;
        entries of another version are misses. Nothing is created before the first put."""
        self.folder = Path(folder) if folder is not None else default_folder()
        self.warnings: list[str] = []
        self._header = f"{_MAGIC} {FORMAT_VERSION} {_word(code_version)}"
        self._writing = True
        self._warned: set[str] = set()
        self._numbers = itertools.count()
        self._lock = threading.Lock()

    def get(self, key: str) -> dict[str, Any] | None:
        """The value of `key`; None without a valid entry. Arrays come back as read-only numpy arrays."""
        path = self._path(key)
        try:
            text = read_bytes(path, _MOST_BYTES)
        except FileNotFoundError:
            return None
        except OSError as error:
            self._warn("unreadable", f"The cache in {self.folder} cannot be read ({error.strerror}).")
            return None
        except ValueError:  # larger than any entry
            text = b""
        try:
            return self._decoded(text, key)
        except _OtherVersion:
            self._warn(
                "version", f"The cache in {self.folder} holds entries of another version: they are computed again."
            )
        except (ValueError, KeyError, TypeError, RecursionError, OverflowError):
            self._warn(
                "damaged", f"The cache in {self.folder} holds damaged entries ({path.name}): they are computed again."
            )
        return None

    def put(self, key: str, value: Mapping[str, Any]) -> None:
        """Store a mapping (with string keys) of numbers, strings, lists, mappings and numpy arrays of numbers.

        Tuples come back as lists. Arrays of integers are stored in the smallest dtype that holds their values. A disk
        error turns writing off, with one warning, and is not raised. TypeError for values of other types.
        """
        if not self._writing:
            return
        body = json.dumps({"key": key, "value": value}, default=_encoded, separators=(",", ":")).encode()
        path = self._path(key)
        temporary = path.with_name(f"{path.name}.{os.getpid()}-{threading.get_ident()}-{next(self._numbers)}.tmp")
        try:
            try:
                temporary.write_bytes(self._framed(body))
            except FileNotFoundError:
                path.parent.mkdir(parents=True, exist_ok=True)
                temporary.write_bytes(self._framed(body))
            os.replace(temporary, path)
        except OSError as error:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
            self._writing = False
            self._warn(
                "full",
                f"The cache in {self.folder} is not written any more: {error.strerror or error}. Make room for it, or "
                "name another folder in $ALPA_EXPLORE_CACHE.",
            )

    def _path(self, key: str) -> Path:
        name = hashlib.blake2b(key.encode(), digest_size=20).hexdigest()
        return self.folder / name[:2] / f"{name[2:]}.json"

    def _framed(self, body: bytes) -> bytes:
        return f"{self._header} {_digest(body)}\n".encode() + body

    def _decoded(self, text: bytes, key: str) -> dict[str, Any]:
        head, _, body = text.partition(b"\n")
        words = head.decode().rsplit(" ", 1)
        if words[0] != self._header:
            raise _OtherVersion if words[0].startswith(f"{_MAGIC} ") else ValueError("not an entry")
        if words[1] != _digest(body):
            raise ValueError("cut off or damaged")
        PartCount().add(body)
        entry = json.loads(body, object_hook=_decoded_array)
        value = entry["value"]
        if entry["key"] != key or not isinstance(value, dict):
            raise ValueError("not the entry of this key")
        return value

    def _warn(self, kind: str, warning: str) -> None:
        with self._lock:
            if kind not in self._warned:
                self._warned.add(kind)
                self.warnings.append(warning)


class _OtherVersion(Exception):
    """An entry of another format or code version."""


def default_folder() -> Path:
    """$ALPA_EXPLORE_CACHE, else alpa_explore in $XDG_CACHE_HOME or in the platform's folder for caches."""
    if chosen := os.environ.get("ALPA_EXPLORE_CACHE"):
        return Path(chosen)
    if xdg := os.environ.get("XDG_CACHE_HOME"):
        return Path(xdg) / "alpa_explore"
    return user_cache_path("alpa_explore", appauthor=False)


def _word(version: str) -> str:
    """A version as a single word, for the header."""
    return "".join(c if c.isprintable() and not c.isspace() else "_" for c in version) or "_"


def _digest(body: bytes) -> str:
    return hashlib.blake2b(body, digest_size=12).hexdigest()


def _encoded(value: Any) -> Any:
    """numpy values for JSON: an array as [dtype, shape, stored dtype, base64], integers in the smallest dtype."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray) and value.dtype.name in _DTYPES:
        stored = value
        if value.dtype.kind in "iu" and value.size:
            low, high = int(value.min()), int(value.max())
            # One signed dtype for both bounds: the common dtype of a signed and an unsigned one may be float64.
            stored = value.astype(np.min_scalar_type(min(low, -high - 1) if low < 0 else high))
        data = base64.b64encode(np.ascontiguousarray(stored).tobytes()).decode()
        return {_ARRAY: [value.dtype.name, list(value.shape), stored.dtype.name, data]}
    raise TypeError(f"a {type(value).__name__} cannot be stored in the cache")


def _decoded_array(entry: dict[str, Any]) -> Any:
    if _ARRAY not in entry:
        return entry
    name, shape, stored, data = entry[_ARRAY]
    if not {name, stored} <= _DTYPES:
        raise ValueError("not an array of numbers")
    try:
        raw = base64.b64decode(data, validate=True)
    except binascii.Error as error:
        raise ValueError("not base64") from error
    array = np.frombuffer(raw, dtype=stored).astype(name).reshape(shape)
    array.setflags(write=False)
    return array
