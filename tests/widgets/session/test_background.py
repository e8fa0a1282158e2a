import threading

import pytest
from alpa_explore_widgets.session.background import NewestWins

from tests.waiting import LIMIT_SECONDS, PAUSE_SECONDS


def test_a_thread_lives_only_while_there_is_work() -> None:
    worker: NewestWins[int] = NewestWins(lambda _job, _cancel: None, "short-lived worker")
    for job in range(3):
        worker.submit(job)
        assert worker.wait(LIMIT_SECONDS)
    for thread in threading.enumerate():
        if thread.name == "short-lived worker":
            thread.join(LIMIT_SECONDS)
            assert not thread.is_alive()


def assert_set(event: threading.Event) -> None:
    assert event.wait(LIMIT_SECONDS)


def test_waiting_gives_up_when_its_time_is_over() -> None:
    release = threading.Event()
    worker: NewestWins[int] = NewestWins(lambda _job, _cancel: assert_set(release), "test")
    worker.submit(1)
    assert not worker.wait(PAUSE_SECONDS)
    release.set()
    assert worker.wait(LIMIT_SECONDS)


def test_a_job_that_fails_is_reported_and_the_next_one_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    reported: list[str] = []
    ran: list[int] = []
    monkeypatch.setattr(threading, "excepthook", lambda fault: reported.append(str(fault.exc_value)))

    def work(job: int, _cancel: threading.Event) -> None:
        ran.append(job)
        if job == 1:
            raise ValueError("job 1 failed")

    worker: NewestWins[int] = NewestWins(work, "test")
    for job in (1, 2):
        worker.submit(job)
        assert worker.wait(LIMIT_SECONDS)
    assert reported == ["job 1 failed"]
    assert ran == [1, 2]


def test_cancel_stops_the_running_job_and_forgets_the_waiting_one() -> None:
    ran: list[int] = []
    started = threading.Event()

    def work(job: int, cancel: threading.Event) -> None:
        ran.append(job)
        started.set()
        assert cancel.wait(LIMIT_SECONDS)

    worker: NewestWins[int] = NewestWins(work, "test")
    worker.submit(1)
    assert started.wait(LIMIT_SECONDS)
    worker.submit(2)
    worker.cancel()
    assert worker.wait(LIMIT_SECONDS)
    assert ran == [1]
