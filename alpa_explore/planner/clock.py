"""A clock that records the seconds of each pass, in order."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager


class Clock:
    """`with clock("layering"): …` adds ("layering", seconds) to `seconds`."""

    def __init__(self) -> None:
        self.seconds: list[tuple[str, float]] = []

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """Measure the block as this pass."""
        start = time.perf_counter()
        yield
        self.seconds.append((name, time.perf_counter() - start))
