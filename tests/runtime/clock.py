"""Clocks that a test sets: what waits for seconds waits on them, and takes none."""

import asyncio
import selectors


class Clock:
    """A clock that goes on only where somebody waits on it."""

    def __init__(self):
        self.seconds = 0.0

    def now(self):
        return self.seconds

    def pause(self, seconds):
        self.seconds += seconds


def run_on(clock, coroutine):
    """The result of a coroutine, whose sleeps and limits of time are those of a clock. Nothing else is waited for."""

    class Selector(selectors.DefaultSelector):
        def select(self, timeout=None):
            assert timeout is not None, "nothing would ever happen"
            clock.pause(timeout)
            return super().select(0)

    def loop():
        made = asyncio.SelectorEventLoop(Selector())
        made.time = clock.now
        return made

    with asyncio.Runner(loop_factory=loop) as runner:
        return runner.run(coroutine)
