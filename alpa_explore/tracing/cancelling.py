"""Cancelling a running capture, by an event that is set for the current thread in a context variable.

It is not a parameter of `capture`, because between the code that cancels and the trace there are functions of the user
(`Batches` and the explorer call a user's function to capture a model). At most one more operator is traced, forwards or
backwards, after the event is set.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from alpa_explore.errors import CancelledError

# Not module state: a context variable has a value only inside `cancelled_by`, per thread.
_cancel: ContextVar[threading.Event | None] = ContextVar("cancel", default=None)


@contextmanager
def cancelled_by(cancel: threading.Event | None) -> Iterator[None]:
    """Captures in the block, on this thread, end with CancelledError soon after `cancel` is set."""
    token = _cancel.set(cancel)
    try:
        yield
    finally:
        _cancel.reset(token)


def stop_if_cancelled() -> None:
    """CancelledError where the event is set; called for each operator that is traced."""
    cancel = _cancel.get()
    if cancel is not None and cancel.is_set():
        raise CancelledError(
            "The capture was cancelled",
            found="the model was being traced",
            remedy="Start it again; it begins from the start.",
        )
