"""`freed_memory_kept`: memory of arrays that were freed serves the next ones. `no_collection`: no garbage
collection."""

import ctypes
import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache

from alpa_explore.numerics.compiled import UnderWay


@contextmanager
def no_collection() -> Iterator[None]:
    """Suspend garbage collection while the block runs.

    For work of seconds that makes hundreds of thousands of long-lived objects: the collector would traverse all of them
    again and again, which takes a fifth of the run time or more.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD = -1, -2, -3
"""Parameters of mallopt (malloc.h of glibc)."""
_MIB = 2**20
_KEEPING = ((_TRIM_THRESHOLD, 2**31 - 1), (_TOP_PAD, 64 * _MIB), (_MMAP_THRESHOLD, 1024 * _MIB))
_USUAL = ((_TRIM_THRESHOLD, 64 * _MIB), (_TOP_PAD, _MIB // 8), (_MMAP_THRESHOLD, 32 * _MIB))
"""What glibc arrives at by itself once a block of 32 MiB was freed; after mallopt it adjusts no threshold any more."""


@contextmanager
def freed_memory_kept() -> Iterator[None]:
    """While the block runs, the C library keeps memory that is freed; it goes back to the system when the last such
    block of the process ends.

    For work that makes and frees arrays of megabytes again and again: otherwise glibc returns each of them to the
    system, and every page of the next one is a page fault. Does nothing with another C library.
    """
    _BLOCKS.begin()
    try:
        yield
    finally:
        _BLOCKS.end()


def _keep(keeping: bool) -> None:
    """Keep memory that is freed from now on, or give it back."""
    if (library := _glibc()) is not None:
        for parameter, value in _KEEPING if keeping else _USUAL:
            library.mallopt(parameter, value)
        if not keeping:
            library.malloc_trim(0)


_BLOCKS = UnderWay(_keep)


@cache
def _glibc() -> ctypes.CDLL | None:
    """The C library of this process; None where it is not glibc."""
    if not sys.platform.startswith("linux"):
        return None
    library = ctypes.CDLL(None)
    known: list[Callable[..., int] | None] = [getattr(library, name, None) for name in ("mallopt", "malloc_trim")]
    return library if hasattr(library, "gnu_get_libc_version") and all(known) else None
