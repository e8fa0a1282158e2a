"""The one way in which a test waits: until a state holds, never for a number of seconds.

A limit only keeps a test from hanging. It is generous, and it grows with the load of the machine, so that it says
nothing about speed: that a fault is noticed promptly is tested on a clock that the test sets, and seconds are measured
in benchmarks/.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from tests.tiers import patience

T = TypeVar("T")

LIMIT_SECONDS = 120.0
"""Of a wait, on an idle machine. A test that passes waits for a small part of it."""
PAUSE_SECONDS = 0.02
"""Between two looks at the state, at first; later a twentieth of what was waited, at most LONGEST_PAUSE_SECONDS."""
LONGEST_PAUSE_SECONDS = 0.1


def limit_seconds() -> float:
    """Of a wait that is no `until`, for the end of a process above all: it takes a number once, and that grows too."""
    return LIMIT_SECONDS * patience()


def until(
    state: Callable[[], T],
    what: str | Callable[[], object],
    *,
    seconds: float = LIMIT_SECONDS,
    pause: Callable[[float], object] = time.sleep,
) -> T:
    """Look at `state()` until it is true, and return it.

    `what` names the state, or is called for a description of what was found instead; AssertionError with it when the
    state is not true after `seconds` times `patience()`. `pause` takes the seconds between two looks: a browser page
    has its own, which lets it work meanwhile.
    """
    start = time.monotonic()
    while True:
        if found := state():
            return found
        waited = time.monotonic() - start
        if waited > seconds and waited > seconds * patience():
            # One more look: the process may have been stopped between the last look and the clock.
            if found := state():
                return found
            raise AssertionError(f"not within {waited:.0f} s: {what() if callable(what) else what}")
        pause(min(max(PAUSE_SECONDS, waited / 20), LONGEST_PAUSE_SECONDS))
