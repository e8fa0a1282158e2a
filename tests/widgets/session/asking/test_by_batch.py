"""Answers for other global batches: kept, found once, and never for another question."""

import threading
from dataclasses import replace

import pytest
from alpa_explore_widgets.session import tuning
from alpa_explore_widgets.session.asking.layouts import AnswersByBatch, question_of
from alpa_explore_widgets.session.settings import Settings
from alpa_explore_widgets.session.state import LayoutQuestion

from tests.waiting import LIMIT_SECONDS
from tests.widgets.conftest import SETTINGS

ASKED = question_of(SETTINGS)


def with_batch(batch: int) -> LayoutQuestion:
    return replace(ASKED, global_batch=batch)


class Finder:
    """Answers with the batch, and counts."""

    def __init__(self) -> None:
        self.found: list[int] = []
        self.most_known = 80
        self.go_on = threading.Event()
        self.go_on.set()

    def __call__(self, _settings: Settings, question: LayoutQuestion, *, known_alone: bool) -> str | None:
        assert self.go_on.wait(LIMIT_SECONDS)
        if known_alone and question.global_batch > self.most_known:
            return None
        self.found.append(question.global_batch)
        return f"batch {question.global_batch}"


def test_another_batch_is_found_once_and_then_shown_at_once() -> None:
    find, shown = Finder(), list[str]()
    answers = AnswersByBatch(find, "test")
    answers.keep(ASKED, "first")
    for _ in range(2):
        answers.follow(SETTINGS, ASKED, with_batch(77), shown.append)
        assert answers.worker.wait(LIMIT_SECONDS)
    assert shown == ["batch 77", "batch 77"]
    assert answers.at(SETTINGS, ASKED, with_batch(77)) == "batch 77"
    assert answers.at(SETTINGS, with_batch(77), ASKED) == "first"
    assert find.found == [77]


def test_an_answer_that_failed_is_shown_but_found_again() -> None:
    find, shown = Finder(), list[str]()
    answers = AnswersByBatch(find, "test", lambda answer: answer == "batch 77")
    answers.keep(ASKED, "first")
    for batch in (77, 78, 77, 78):
        answers.follow(SETTINGS, ASKED, with_batch(batch), shown.append)
        assert answers.worker.wait(LIMIT_SECONDS)
    assert shown == ["batch 77", "batch 78", "batch 77", "batch 78"]
    assert find.found == [77, 78, 77]


def test_asking_again_while_it_is_being_found_does_not_start_anew() -> None:
    find, shown = Finder(), list[str]()
    answers = AnswersByBatch(find, "test")
    answers.keep(ASKED, "first")
    find.go_on.clear()
    for _ in range(3):
        answers.follow(SETTINGS, ASKED, with_batch(77), shown.append)
    find.go_on.set()
    assert answers.worker.wait(LIMIT_SECONDS)
    assert shown == ["batch 77"]
    assert find.found == [77]


def test_nothing_is_found_without_an_answer_for_some_batch_or_for_another_model() -> None:
    find, shown = Finder(), list[str]()
    answers = AnswersByBatch(find, "test")
    answers.follow(SETTINGS, ASKED, with_batch(77), shown.append)
    assert answers.at(SETTINGS, ASKED, with_batch(77)) is None
    answers.keep(ASKED, "first")
    other = replace(with_batch(77), model="another")
    answers.follow(SETTINGS, ASKED, other, shown.append)
    assert answers.at(SETTINGS, ASKED, other) is None
    assert answers.worker.wait(LIMIT_SECONDS)
    assert (shown, find.found) == ([], [])


def test_what_is_not_known_is_found_for_the_slider_but_not_ahead_of_it() -> None:
    find, shown = Finder(), list[str]()
    answers = AnswersByBatch(find, "test")
    answers.keep(ASKED, "first")
    assert answers.at(SETTINGS, ASKED, with_batch(81)) is None
    assert find.found == []
    answers.follow(SETTINGS, ASKED, with_batch(81), shown.append)
    assert answers.worker.wait(LIMIT_SECONDS)
    assert shown == [answers.at(SETTINGS, ASKED, with_batch(81))] == ["batch 81"]


def test_the_oldest_answers_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "KEPT_ANSWERS", 2)
    find = Finder()
    answers = AnswersByBatch(find, "test")
    answers.keep(ASKED, "first")
    for batch in (77, 78, 78, 77):
        answers.at(SETTINGS, with_batch(78), with_batch(batch))
    assert find.found == [77, 78]
