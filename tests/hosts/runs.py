"""Waiting for runs on emulated hosts: until they have got so far, or have left no process."""

from collections.abc import Callable
from typing import TypeVar

from alpa_explore.runtime.run import Run, RunProgress
from tests.hosts.hosts import Hosts
from tests.waiting import until

T = TypeVar("T")


def reached(run: Run, state: Callable[[RunProgress], T]) -> T:
    """Wait until `state` of the run's progress is true, and return it; the run must not end before."""

    def look() -> T:
        found = state(run.progress)
        assert found or not run.wait(0), run.result(0)
        return found

    return until(look, lambda: run.progress)


def no_rank_is_left(*hosts: Hosts) -> bool:
    """Wait until no agent and no rank is left."""
    return until(
        lambda: not any(some.ranks(host) for some in hosts for host in range(some.count)),
        lambda: [some.ranks(host) for some in hosts for host in range(some.count)],
    )
