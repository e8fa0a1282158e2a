"""Progress on stderr: one line that is updated on a terminal, new lines every few seconds in a log.

What runs is said within a second, and again at least every five seconds, also while a pass counts no tasks: a thread
beats once a second, and writes where nothing else has.
"""

import shutil
import threading
import time
from dataclasses import replace
from typing import Self, TextIO

from alpa_explore import units
from alpa_explore.errors import CancelledError
from alpa_explore.execution.progress import Progress

_TERMINAL_SECONDS = 0.1
LOG_SECONDS = 4.0
"""With a beat of a second, two lines of a log are at most five seconds apart."""
BEAT_SECONDS = 1.0


class ProgressLine:
    """`with ProgressLine(sys.stderr) as line: work(progress=line)`. Where the work is stopped, the last line says how
    far it was."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._terminal = stream.isatty()
        self._writing = threading.RLock()
        self._ended = threading.Event()
        self._seen = Progress(pass_name="", done=0, total=0, elapsed_seconds=0.0)
        self._seen_at = self._last = self._began = time.monotonic()
        self._counted = ""
        """The last pass with tasks to count that has begun."""
        self._open = False
        """Whether the terminal shows a progress line, which the next output replaces."""

    def __enter__(self) -> Self:
        threading.Thread(target=self._beats, name="progress line", daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_error: object) -> None:
        self._ended.set()
        if kind is not None and issubclass(kind, KeyboardInterrupt | CancelledError):
            self.say(f"stopped {self.where}")
        with self._writing:
            self._close()

    @property
    def begun(self) -> bool:
        """Whether a pass with tasks to count has begun."""
        return bool(self._counted)

    @property
    def where(self) -> str:
        """How far the work is: 'after 14 s, in composition: 3 of 10 (30 %), 10 s'."""
        now = time.monotonic()
        seen = self._now(now)
        doing = f", in {describe(seen, left=False)}" if seen.pass_name else ""
        return f"after {duration(now - self._began)}{doing}"

    def say(self, text: str) -> None:
        """Print a line that stays."""
        with self._writing:
            self._close()
            print(text, file=self._stream, flush=True)
            self._last = time.monotonic()

    def __call__(self, progress: Progress) -> None:
        """Show the progress of a pass; writes only now and then. A pass whose `total` is 0 counts no tasks."""
        with self._writing:
            now = time.monotonic()
            new = progress.pass_name != self._seen.pass_name
            self._seen, self._seen_at = progress, now
            if not progress.total:  # shown by the next beat, if it takes that long
                return
            edge = progress.pass_name != self._counted or progress.done >= progress.total
            if new:
                self._close()
            self._counted = progress.pass_name
            if edge or now - self._last >= (_TERMINAL_SECONDS if self._terminal else LOG_SECONDS):
                self._show(progress, now)

    def beat(self) -> None:
        """Say what runs, if nothing was written for long."""
        with self._writing:
            now = time.monotonic()
            if now - self._last >= (BEAT_SECONDS if self._terminal else LOG_SECONDS):
                seen = self._now(now)
                self._show(seen if seen.pass_name else replace(seen, pass_name="preparing"), now)

    def _beats(self) -> None:
        while not self._ended.wait(BEAT_SECONDS):
            self.beat()

    def _now(self, now: float) -> Progress:
        """What was seen last, with the seconds since then."""
        return replace(self._seen, elapsed_seconds=self._seen.elapsed_seconds + now - self._seen_at)

    def _show(self, progress: Progress, now: float) -> None:
        self._last = now
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


def describe(progress: Progress, *, left: bool = True) -> str:
    """'sharding: 312 of 420 (74 %), 12 s, 4.1 s left'; 'capture: 12 s' where no tasks are counted."""
    if not progress.total:
        return f"{progress.pass_name}: {duration(progress.elapsed_seconds)}"
    share = units.percent(round(progress.done / progress.total, 2))
    parts = [f"{progress.pass_name}: {progress.done:,} of {progress.total:,} ({share})"]
    parts.append(duration(progress.elapsed_seconds))
    if progress.done < progress.total and left:
        eta = progress.eta_seconds
        parts.append("time left not known yet" if eta is None else f"{duration(eta)} left")
    return ", ".join(parts)


def duration(seconds: float) -> str:
    """'4.1 s', '75 s', '12 min 5 s'."""
    if seconds < 120:
        return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
    return f"{int(seconds) // 60} min {int(seconds) % 60} s"
