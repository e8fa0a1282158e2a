"""`no_collection`: suspend Python's garbage collector."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


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
