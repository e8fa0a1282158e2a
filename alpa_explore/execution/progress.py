"""The progress of a pass, for progress bars and progress lines."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The number of finished tasks of one pass."""

    pass_name: str
    done: int
    total: int
    """0 for a pass that counts no tasks, or whose results are all known."""
    elapsed_seconds: float
    """Since the pass began."""

    @property
    def eta_seconds(self) -> float | None:
        """Estimated seconds left at the average speed so far; None before the first task is done."""
        if self.done >= self.total:
            return 0.0
        return self.elapsed_seconds / self.done * (self.total - self.done) if self.done else None


ProgressCallback = Callable[[Progress], None]
"""Called once with done = 0 and after each task, in the thread that runs the pass; it must return quickly."""
