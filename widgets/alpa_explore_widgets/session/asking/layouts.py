"""Asks for layouts in the background: newest question first, answers as they come, what is known stays on cancel."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from alpa_explore.errors import CancelledError
from alpa_explore_widgets.session import tuning
from alpa_explore_widgets.session.backend import Backend
from alpa_explore_widgets.session.background import NewestWins, paced
from alpa_explore_widgets.session.settings import DEVICE_SETTINGS, Settings
from alpa_explore_widgets.session.sources import Sources
from alpa_explore_widgets.session.state import Answer, LayoutQuestion, Question, ScalingQuestion, StateStore, fault_of

if TYPE_CHECKING:
    from alpa_explore.uniform_layouts.measured import MeasuredLayout
    from alpa_explore.uniform_layouts.ranking import Layouts
    from alpa_explore.uniform_layouts.scaling import Scaling

Found = TypeVar("Found")


class AnswersByBatch(Generic[Question, Found]):
    """Keeps the last answers, and finds those for other batches in the background."""

    def __init__(
        self, find: Callable[..., Found | None], name: str, failed: Callable[[Found], bool] = lambda _answer: False
    ) -> None:
        """`find(settings, question, known_alone=…)` answers a question and reports errors in its answer; None where
        that would take what is not `known_alone`. `name` is that of the thread. An answer that has `failed` is shown
        but not kept: asked again, it is found again."""
        self._find, self._failed = find, failed
        self._kept: dict[Question, Found] = {}
        self._lock = threading.Lock()
        self.found = 0
        """Number of answers that were found for the slider, perhaps by a capture: others may be known now."""
        self._wanted: Question | None = None
        """The question that is being answered."""
        self.worker: NewestWins[tuple[Settings, Question, Callable[[Found], None]]] = NewestWins(self._run, name)

    def keep(self, question: Question, answer: Found) -> None:
        """Remember an answer."""
        with self._lock:
            self._kept.pop(question, None)
            self._kept[question] = answer
            for oldest in list(self._kept)[: -tuning.KEPT_ANSWERS]:
                del self._kept[oldest]

    def at(self, settings: Settings, answered: Question, question: Question) -> Found | None:
        """The answer that is kept, or is found without capturing anything; None where there is none, or more than the
        batch differs from what was answered."""
        return self._at(settings, question, known_alone=True) if self._in_reach(answered, question) else None

    def follow(self, settings: Settings, answered: Question, question: Question, show: Callable[[Found], None]) -> None:
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

    def _at(self, settings: Settings, question: Question, *, known_alone: bool) -> Found | None:
        answer = self._kept.get(question)
        if answer is None:
            answer = self._find(settings, question, known_alone=known_alone)
            if answer is not None and not self._failed(answer):
                self.keep(question, answer)
        return answer

    def _run(self, job: tuple[Settings, Question, Callable[[Found], None]], _cancel: threading.Event) -> None:
        settings, question, show = job
        try:
            answer = self._at(settings, question, known_alone=False)
            self.found += 1
            if answer is not None:
                show(answer)
        finally:
            if self._wanted == question:
                self._wanted = None


def question_of(settings: Settings) -> LayoutQuestion:
    """The layouts that are asked for at these settings."""
    return LayoutQuestion(
        model=settings.model,
        nodes=settings.nodes,
        devices_per_node=settings.devices_per_node,
        device=settings.device,
        figures=tuple(getattr(settings, name) for name in DEVICE_SETTINGS),
        global_batch=settings.microbatch * settings.num_microbatches,
        sequence=settings.sequence,
        precision=settings.precision,
    )


def scaling_question(settings: Settings, devices: tuple[str, ...], nodes: tuple[int, ...]) -> ScalingQuestion:
    """The clusters that are asked about at these settings."""
    return ScalingQuestion(
        model=settings.model,
        devices=devices,
        nodes=nodes,
        devices_per_node=None,
        global_batch=settings.microbatch * settings.num_microbatches,
        sequence=settings.sequence,
        precision=settings.precision,
    )


class Asked(Generic[Question]):
    """One of the questions: what was asked last, in the state, and the answers for other batches."""

    def __init__(
        self,
        store: StateStore,
        field: str,
        question_at: Callable[[Settings, Question], Question],
        find: Callable[..., tuple[Any, tuple[MeasuredLayout, ...]] | None],
        failed: str,
        seen: Callable[[Answer[Question]], Answer[Question]] = lambda answer: answer,
    ) -> None:
        """`field` is that of the state. `question_at` is a question at other settings. `find(settings, question,
        **reports)` gives (what is found, measured runs), or None for less than was asked; `failed` says that it could
        not. An answer is shown as `seen`."""
        self._store, self.field, self._finder, self._failed = store, field, find, failed
        self._question_at: Callable[[Settings, Question], Question] = question_at
        self._seen: Callable[[Answer[Question]], Answer[Question]] = seen
        self.worker: NewestWins[tuple[Settings, Question]] = NewestWins(self._run, f"alpa-explore {field}")
        self.by_batch: AnswersByBatch[Question, Answer[Question]] = AnswersByBatch(
            self._find, f"alpa-explore {field} of a batch", lambda answer: answer.fault is not None
        )

    @property
    def answer(self) -> Answer[Question] | None:
        """That on screen."""
        answer: Answer[Question] | None = getattr(self._store.state, self.field)
        return answer

    def ask(self, settings: Settings, question: Question) -> None:
        """Ask for `question`, which is that at `settings`."""
        self._store.change(**{self.field: Answer(question=question, running=True)})
        self.worker.submit((settings, question))

    def cancel(self) -> None:
        """Find no more; what is known stays."""
        self.worker.cancel()

    def show_again(self) -> None:
        """What is found may be seen in another way now."""
        if self.answer is not None and self.answer.found is not None:
            self._store.change(**{self.field: self._seen(self.answer)})

    def follow_batch(self, settings: Settings) -> None:
        """Where the answer on screen is for another batch than that of the controls, show that for this one."""
        answer = self.answer
        if answer is not None and not answer.running:
            asked = self._question_at(settings, answer.question)
            self.by_batch.follow(settings, answer.question, asked, self._show)

    def at(self, settings: Settings) -> Answer[Question] | None:
        """The answer for the batch of `settings`; None where more differs from the question on screen, or that one has
        no answer yet."""
        shown = self.answer
        if shown is None or shown.running:
            return None
        answer = self.by_batch.at(settings, shown.question, self._question_at(settings, shown.question))
        return None if answer is None else self._seen(answer)

    def _show(self, answer: Answer[Question]) -> None:
        with self._store.lock:
            shown, present = self.answer, self._question_at(self._store.state.settings, answer.question)
            if shown is not None and answer.question in (shown.question, present):
                self._store.change(**{self.field: self._seen(answer)})

    def _find(self, settings: Settings, question: Question, **reports: Any) -> Answer[Question] | None:
        """The answer, or the fault in its place; None where nothing was known when it was cancelled."""
        try:
            found = self._finder(settings, question, **reports)
        except CancelledError:
            return None
        except Exception as error:  # a background thread has no cell in which to show it
            return Answer(question=question, fault=fault_of(error, self._failed))
        return None if found is None else Answer(question=question, found=found[0], measured=found[1])

    def _run(self, job: tuple[Settings, Question], cancel: threading.Event) -> None:
        settings, question = job

        def change(**changes: Any) -> None:
            with self._store.lock:
                answer = self.answer
                if answer is not None and answer.question == question:
                    self._store.change(**{self.field: self._seen(replace(answer, **changes))})

        say = paced(lambda progress: change(progress=progress))
        answer = self._find(settings, question, progress=say, partial=lambda found: change(found=found), cancel=cancel)
        known: dict[str, Any] = {}
        if answer is not None and answer.found is not None:
            known = {"found": answer.found, "measured": answer.measured}
            if answer.found.whole:
                self.by_batch.keep(question, answer)
        fault = None if answer is None else answer.fault
        change(**known, fault=fault, running=False, progress=None)


class LayoutQuestions:
    """Both questions of a session."""

    def __init__(self, store: StateStore, sources: Sources, backend: Backend) -> None:
        self._store, self._sources, self._backend = store, sources, backend
        self.layouts: Asked[LayoutQuestion] = Asked(
            *(store, "layouts", lambda settings, _: question_of(settings), self._find_layouts),
            failed="The layouts could not be priced",
        )
        self.scaling: Asked[ScalingQuestion] = Asked(
            *(store, "scaling", lambda settings, q: scaling_question(settings, q.devices, q.nodes), self._find_scaling),
            failed="The clusters could not be priced",
            seen=self._priced,
        )
        self._prices: Mapping[str, float] = {}
        """Dollars for an hour of a device, as given last: also while its clusters are being priced."""

    def ask_layouts(self) -> None:
        """The layouts of the model and cluster of the controls."""
        with self._store.lock:
            settings = self._store.state.settings
            self.layouts.ask(settings, question_of(settings))

    def ask_scaling(self, devices: tuple[str, ...], nodes: tuple[int, ...], prices: Mapping[str, float]) -> None:
        """The best layouts of the model of the controls on these devices and numbers of nodes."""
        with self._store.lock:
            settings, self._prices = self._store.state.settings, prices
            self.scaling.ask(settings, scaling_question(settings, devices, nodes))

    def set_prices(self, prices: Mapping[str, float]) -> None:
        """The same points at other prices: nothing is computed anew but dollars."""
        with self._store.lock:
            self._prices = prices
            self.scaling.show_again()

    def follow_batch(self) -> None:
        """Where the answers on screen are for another batch than that of the controls, show those for this one."""
        with self._store.lock:
            for asked in (self.layouts, self.scaling):
                asked.follow_batch(self._store.state.settings)

    def _find_layouts(
        self, settings: Settings, question: LayoutQuestion, **reports: Any
    ) -> tuple[Layouts, tuple[MeasuredLayout, ...]]:
        model, cluster = self._sources.reference(settings), self._sources.cluster(settings)
        batch, precision = question.global_batch, settings.precision
        return self._backend.layouts(model, cluster, global_batch=batch, precision=precision, **reports)

    def _find_scaling(
        self, settings: Settings, question: ScalingQuestion, *, known_alone: bool = False, **reports: Any
    ) -> tuple[Scaling, tuple[MeasuredLayout, ...]] | None:
        """None where more clusters than the known ones were asked for."""
        found = self._backend.scaling(
            *(self._sources.reference(settings), question.devices, question.nodes),
            global_batch=question.global_batch,
            precision=question.precision,
            prices=self._prices,
            known_alone=known_alone,
            **reports,
        )
        return (found, ()) if found.whole or not known_alone else None

    def _priced(self, answer: Answer[ScalingQuestion]) -> Answer[ScalingQuestion]:
        """The answer in dollars of the prices that were given last."""
        from alpa_explore.uniform_layouts.scaling import with_prices

        found = answer.found
        if found is None or dict(found.prices) == dict(self._prices):
            return answer
        return replace(answer, found=with_prices(found, self._prices))
