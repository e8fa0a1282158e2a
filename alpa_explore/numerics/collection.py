"""`no_collection`: Python's search for garbage, put off."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_collection() -> Iterator[None]:
    """For work of seconds that makes hundreds of thousands of objects which stay: looking for garbage among them, again
    and again, takes a fifth of the time and more."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
