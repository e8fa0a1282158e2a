"""Progress on stderr: one line that is updated on a terminal, occasional new lines in a log."""

from __future__ import annotations

import shutil
import time
from typing import Self, TextIO

from alpa_explore import units
from alpa_explore.execution.progress import Progress

_TERMINAL_SECONDS = 0.1
_LOG_SECONDS = 10.0


class ProgressLine:
    """`with ProgressLine(sys.stderr) as line: work(progress=line)`."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._terminal = stream.isatty()
        self._pass = ""
        self._last = 0.0
        self._open = False
        """Whether the terminal shows a progress line, which the next output replaces."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._close()

    @property
    def begun(self) -> bool:
        """Whether a pass with tasks to count has begun."""
        return bool(self._pass)

    def say(self, text: str) -> None:
        """Print a line that stays."""
        self._close()
        print(text, file=self._stream, flush=True)

    def __call__(self, progress: Progress) -> None:
        """Show the progress of a pass; writes only now and then."""
        if not progress.total:  # all results were cached
            return
        now = time.monotonic()
        edge = progress.pass_name != self._pass or progress.done >= progress.total
        if not edge and now - self._last < (_TERMINAL_SECONDS if self._terminal else _LOG_SECONDS):
            return
        if progress.pass_name != self._pass:
            self._close()
        self._pass, self._last = progress.pass_name, now
        text = describe(progress)
        if self._terminal:
            width = shutil.get_terminal_size().columns
            self._stream.write(f"\r\x1b[2K{text[: width - 1]}")
            self._stream.flush()
            self._open = True
        else:
            print(text, file=self._stream, flush=True)

    def _close(self) -> None:
        if self._open:
            self._stream.write("\n")
            self._stream.flush()
            self._open = False


def describe(progress: Progress) -> str:
    """'sharding: 312 of 420 (74 %), 12 s, 4.1 s left'."""
    share = units.percent(round(progress.done / progress.total, 2))
    parts = [f"{progress.pass_name}: {progress.done:,} of {progress.total:,} ({share})"]
    parts.append(duration(progress.elapsed_seconds))
    if progress.done < progress.total:
        eta = progress.eta_seconds
        parts.append("time left not known yet" if eta is None else f"{duration(eta)} left")
    return ", ".join(parts)


def duration(seconds: float) -> str:
    """'4.1 s', '75 s', '12 min 5 s'."""
    if seconds < 120:
        return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
    return f"{int(seconds) // 60} min {int(seconds) % 60} s"
