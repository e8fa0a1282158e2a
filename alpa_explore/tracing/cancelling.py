"""A capture can be cancelled while it runs: who asks for graphs on a thread says by which event.

Not a parameter, because between the one who cancels and the trace stand functions of the user (`Batches` and the
explorer call what they were given to capture a model).
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from alpa_explore.errors import CancelledError

_cancel: ContextVar[threading.Event | None] = ContextVar("cancel", default=None)


@contextmanager
def cancelled_by(cancel: threading.Event | None) -> Iterator[None]:
    """Captures in the block, on this thread, end with CancelledError soon after `cancel` is set."""
    before = _cancel.set(cancel)
    try:
        yield
    finally:
        _cancel.reset(before)


def stop_if_cancelled() -> None:
    """CancelledError where the event is set; called for each operator that is traced."""
    cancel = _cancel.get()
    if cancel is not None and cancel.is_set():
        raise CancelledError(
            "The capture was cancelled", found="the model was being traced", remedy="Start again: it begins anew."
        )
