"""A clock that records the seconds of each pass, in order."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from alpa_explore.execution.progress import Progress, ProgressCallback


class Clock:
    """`with clock("layering"): …` adds ("layering", seconds) to `seconds`, and announces the pass."""

    def __init__(self, progress: ProgressCallback | None = None) -> None:
        self._progress = progress
        self.seconds: list[tuple[str, float]] = []

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """Measure the block as this pass."""
        if self._progress is not None:
            self._progress(Progress(pass_name=name, done=0, total=0, elapsed_seconds=0.0))
        start = time.perf_counter()
        yield
        self.seconds.append((name, time.perf_counter() - start))
