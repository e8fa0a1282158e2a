"""Answers for other global batches: once a question is answered for one batch, another one takes tenths of a second.

So a move of the B slider is followed at once, and an answer that was given is kept.
"""

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Generic, TypeVar

from alpa_explore_widgets.session import tuning
from alpa_explore_widgets.session.background import NewestWins
from alpa_explore_widgets.session.settings import Settings
from alpa_explore_widgets.session.state import Question

Answer = TypeVar("Answer")


class AnswersByBatch(Generic[Question, Answer]):
    """Keeps the last answers, and finds those for other batches in the background."""

    def __init__(
        self, find: Callable[..., Answer | None], name: str, failed: Callable[[Answer], bool] = lambda _answer: False
    ) -> None:
        """`find(settings, question, known_alone=…)` answers a question and reports errors in its answer; None where
        that would take what is not `known_alone`. `name` is that of the thread. An answer that has `failed` is shown
        but not kept: asked again, it is found again."""
        self._find, self._failed = find, failed
        self._kept: dict[Question, Answer] = {}
        self._lock = threading.Lock()
        self.found = 0
        """Number of answers that were found for the slider, perhaps by a capture: others may be known now."""
        self._wanted: Question | None = None
        """The question that is being answered."""
        self.worker: NewestWins[tuple[Settings, Question, Callable[[Answer], None]]] = NewestWins(self._run, name)

    def keep(self, question: Question, answer: Answer) -> None:
        """Remember an answer."""
        with self._lock:
            self._kept.pop(question, None)
            self._kept[question] = answer
            for oldest in list(self._kept)[: -tuning.KEPT_ANSWERS]:
                del self._kept[oldest]

    def at(self, settings: Settings, answered: Question, question: Question) -> Answer | None:
        """The answer that is kept, or is found without capturing anything; None where there is none, or more than the
        batch differs from what was answered."""
        return self._at(settings, question, known_alone=True) if self._in_reach(answered, question) else None

    def follow(
        self, settings: Settings, answered: Question, question: Question, show: Callable[[Answer], None]
    ) -> None:
        """Show the answer to a question that differs in the batch alone from the one on screen, which was answered: at
        once where it is kept."""
        if question == answered or not self._in_reach(answered, question):
            return
        answer = self._kept.get(question)
        if answer is not None:
            show(answer)
        elif question != self._wanted:
            self._wanted = question
            self.worker.submit((settings, question, show))

    def _in_reach(self, answered: Question, question: Question) -> bool:
        """Whether the batch is all that differs, and one of its batches has a whole answer."""
        if replace(question, global_batch=answered.global_batch) != answered:
            return False
        with self._lock:
            return any(replace(kept, global_batch=answered.global_batch) == answered for kept in self._kept)

    def _at(self, settings: Settings, question: Question, *, known_alone: bool) -> Answer | None:
        answer = self._kept.get(question)
        if answer is None:
            answer = self._find(settings, question, known_alone=known_alone)
            if answer is not None and not self._failed(answer):
                self.keep(question, answer)
        return answer

    def _run(self, job: tuple[Settings, Question, Callable[[Answer], None]], _cancel: threading.Event) -> None:
        settings, question, show = job
        try:
            answer = self._at(settings, question, known_alone=False)
            self.found += 1
            if answer is not None:
                show(answer)
        finally:
            if self._wanted == question:
                self._wanted = None
