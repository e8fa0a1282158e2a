"""When a Dask worker, the scheduler or the launcher is given up, on a clock that the test sets."""

import pytest

from alpa_explore.runtime import tuning
from alpa_explore.runtime.targets import dask_host
from alpa_explore.runtime.targets.dask_host import HostFacts
from alpa_explore.runtime.targets.dask_workers import WorkerRanks, silence
from alpa_explore.runtime.targets.mirror import Mirror

LOST, GONE = tuning.WORKER_LOST_SECONDS, tuning.WORKER_GONE_SECONDS


@pytest.mark.parametrize(
    ("heard", "known", "scheduler", "connected", "lost", "told"),
    [
        (0.0, 0.0, 0.0, True, None, ""),
        (LOST, 0.0, 0.0, True, None, ""),
        (LOST + 1, 0.0, 0.0, True, True, "w on n does not answer: for 9 s"),
        (LOST, LOST, LOST, True, None, ""),
        (LOST + 1, LOST + 1, LOST + 1, True, False, "The Dask scheduler is gone: no answer for 9 s"),
        (0.0, 0.0, GONE, False, None, ""),
        (0.0, 0.0, GONE + 1, False, False, "The Dask scheduler is gone: no answer for 4 s"),
        (0.0, 0.0, GONE + 1, True, None, ""),
        (0.0, GONE, 0.0, True, None, ""),
        (0.0, GONE + 1, 0.0, True, True, "w on n is gone: it left the cluster"),
        (1.0, GONE + 1, 1.1, True, None, ""),
    ],
)
def test_a_share_is_given_up_when_its_time_is_over(heard, known, scheduler, connected, lost, told, tmp_path) -> None:
    """Seconds since the worker answered, since the scheduler knew it, and since that answered itself."""
    now = 1000.0
    host = HostFacts(name="n", address="10.0.0.1", interface=None, machine="m", devices=1, visible=(), code="")
    share = WorkerRanks(
        worker="w", first=0, count=1, host=host, mirror=Mirror(tmp_path), heard=now - heard, known=now - known
    )
    found = silence(share, now=now, scheduler_heard=now - scheduler, connected=connected)
    if lost is None:
        assert found is None
    else:
        assert found[0] == lost
        assert told in f"{found[1]}: {found[2]}"


def test_a_worker_ends_its_ranks_when_the_launcher_has_been_silent_for_long(tmp_path) -> None:
    share = dask_host.HostedRun("run", str(tmp_path))
    share.heard = 50.0
    assert not share.unwatched(50.0 + tuning.WATCHED_SECONDS)
    assert share.unwatched(50.1 + tuning.WATCHED_SECONDS)
