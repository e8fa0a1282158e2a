"""A digest of the code that computes stored results, so that entries written by other code are never read."""

from functools import cache
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PACKAGE = Path(__file__).parents[1]
_SUFFIXES = (".py", ".json", ".css", ".js", ".gz")


@cache  # Memo of a pure function: the sources of a running program do not change.
def code_version(parts: tuple[str, ...], distributions: tuple[str, ...] = ()) -> str:
    """The digest of some parts of alpa_explore and of the versions of some libraries.

    `parts` are folders (all of their sources and data files count) and single files, relative to the package.
    `distributions` are names as pip knows them; one that is not installed counts as such. The files are read once in
    a process. FileNotFoundError for a part without sources.
    """
    digest = sha256()
    for part in parts:
        path = PACKAGE / part
        sources = [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.suffix in _SUFFIXES)
        if not sources:
            raise FileNotFoundError(f"{path}: no source of alpa_explore to take the digest of")
        for source in sources:
            text = source.read_bytes()
            digest.update(f"{source.relative_to(PACKAGE).as_posix()} {len(text)}\n".encode())
            digest.update(text)
    for distribution in distributions:
        digest.update(f"{distribution} {installed_version(distribution)}\n".encode())
    return digest.hexdigest()[:32]


def source_digest() -> str:
    """The digest of all sources of alpa_explore, short."""
    return code_version((".",))[:8]


def installed_version(distribution: str) -> str:
    """As pip knows it."""
    try:
        return version(distribution)
    except PackageNotFoundError:
        return "not installed"
