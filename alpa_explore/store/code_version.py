"""A digest of the code that computes what is kept: changed code never meets an old entry."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

_PACKAGE = Path(__file__).parents[1]


@cache
def code_version(parts: Sequence[str], distributions: Sequence[str] = ()) -> str:
    """Digest of all sources and data files of these folders and files of alpa_explore, and of the installed versions
    of these distributions (a distribution that is not installed counts as such)."""
    digest = sha256()
    for part in parts:
        path = _PACKAGE / part
        found = [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.suffix in (".py", ".json"))
        if not found:
            raise FileNotFoundError(f"{path}: no source of alpa_explore to take the digest of")
        for source in found:
            digest.update(f"{source.relative_to(_PACKAGE).as_posix()}\n".encode())
            digest.update(source.read_bytes())
    for distribution in distributions:
        digest.update(f"{distribution} {_version(distribution)}\n".encode())
    return digest.hexdigest()[:32]


def _version(distribution: str) -> str:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return "not installed"
