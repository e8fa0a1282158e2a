"""How far a pass has come: what progress bars and `--progress` lines show."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """A count of finished tasks of one pass."""

    pass_name: str
    done: int
    total: int
    elapsed_seconds: float
    """Since the pass began."""

    @property
    def eta_seconds(self) -> float | None:
        """Seconds left if the rest goes at the speed so far; None before the first task is done."""
        if self.done >= self.total:
            return 0.0
        return self.elapsed_seconds / self.done * (self.total - self.done) if self.done else None


ProgressCallback = Callable[[Progress], None]
"""Called once with done = 0 and after each task, in the thread that runs the pass: it should return at once."""
