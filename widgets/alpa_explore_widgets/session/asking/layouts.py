"""Asks for layouts in the background: newest question first, answers as they come, what is known stays on cancel."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from alpa_explore.errors import CancelledError
from alpa_explore.execution.progress import Progress
from alpa_explore_widgets.session import tuning
from alpa_explore_widgets.session.asking.by_batch import AnswersByBatch
from alpa_explore_widgets.session.backend import Backend
from alpa_explore_widgets.session.background import NewestWins
from alpa_explore_widgets.session.fault import fault_of
from alpa_explore_widgets.session.settings import DEVICE_SETTINGS, Settings
from alpa_explore_widgets.session.sources import Sources
from alpa_explore_widgets.session.state import LayoutQuestion, LayoutsAnswer, ScalingAnswer, ScalingQuestion, StateStore

if TYPE_CHECKING:
    from alpa_explore.uniform_layouts.ranking import Layouts
    from alpa_explore.uniform_layouts.scaling import Scaling


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


class LayoutQuestions:
    """Both questions of a session."""

    def __init__(self, store: StateStore, sources: Sources, backend: Backend) -> None:
        self._store, self._sources, self._backend = store, sources, backend
        self.layouts: NewestWins[Settings] = NewestWins(self._run_layouts, "alpa-explore layouts")
        self.scaling: NewestWins[tuple[Settings, ScalingQuestion]] = NewestWins(self._run_scaling, "alpa-explore scale")
        self.layouts_by_batch: AnswersByBatch[LayoutQuestion, LayoutsAnswer] = AnswersByBatch(
            self._find_layouts, "alpa-explore layouts of a batch", _failed
        )
        self.scaling_by_batch: AnswersByBatch[ScalingQuestion, ScalingAnswer] = AnswersByBatch(
            self._find_scaling, "alpa-explore scale of a batch", _failed
        )
        self._prices: Mapping[str, float] = {}
        """Dollars for an hour of a device, as given last: also while its clusters are being priced."""

    def ask_layouts(self) -> None:
        """The layouts of the model and cluster of the controls."""
        with self._store.lock:
            settings = self._store.state.settings
            self._store.change(layouts=LayoutsAnswer(question=question_of(settings), running=True))
            self.layouts.submit(settings)

    def ask_scaling(self, devices: tuple[str, ...], nodes: tuple[int, ...], prices: Mapping[str, float]) -> None:
        """The best layouts of the model of the controls on these devices and numbers of nodes."""
        with self._store.lock:
            settings = self._store.state.settings
            question = scaling_question(settings, devices, nodes)
            self._prices = prices
            self._store.change(scaling=ScalingAnswer(question=question, running=True))
            self.scaling.submit((settings, question))

    def set_prices(self, prices: Mapping[str, float]) -> None:
        """The same points at other prices: nothing is computed anew but dollars."""
        with self._store.lock:
            answer, self._prices = self._store.state.scaling, prices
            if answer is not None and answer.scaling is not None:
                self._store.change(scaling=self._priced(answer))

    def follow_batch(self) -> None:
        """Where the answers on screen are for another batch than that of the controls, show those for this one."""
        with self._store.lock:
            state = self._store.state
            layouts, scaling, settings = state.layouts, state.scaling, state.settings
            if layouts is not None and not layouts.running:
                self.layouts_by_batch.follow(settings, layouts.question, question_of(settings), self._show_layouts)
            if scaling is not None and not scaling.running:
                asked = scaling_question(settings, scaling.question.devices, scaling.question.nodes)
                self.scaling_by_batch.follow(settings, scaling.question, asked, self._show_scaling)

    def layouts_at(self, settings: Settings) -> LayoutsAnswer | None:
        """The layouts for the batch of `settings`; None where more differs from the question on screen, or that one has
        no answer yet."""
        answer = self._store.state.layouts
        if answer is None or answer.running:
            return None
        return self.layouts_by_batch.at(settings, answer.question, question_of(settings))

    def scaling_at(self, settings: Settings) -> ScalingAnswer | None:
        """The clusters for the batch of `settings`; None as for `layouts_at`."""
        shown = self._store.state.scaling
        if shown is None or shown.running:
            return None
        asked = scaling_question(settings, shown.question.devices, shown.question.nodes)
        answer = self.scaling_by_batch.at(settings, shown.question, asked)
        return None if answer is None else self._priced(answer)

    def _show_layouts(self, answer: LayoutsAnswer) -> None:
        with self._store.lock:
            shown = self._store.state.layouts
            if shown is not None and answer.question in (shown.question, question_of(self._store.state.settings)):
                self._store.change(layouts=answer)

    def _show_scaling(self, answer: ScalingAnswer) -> None:
        with self._store.lock:
            settings = self._store.state.settings
            if answer.question == scaling_question(settings, answer.question.devices, answer.question.nodes):
                self._store.change(scaling=self._priced(answer))

    def _find_layouts(self, settings: Settings, question: LayoutQuestion, **reports: Any) -> LayoutsAnswer | None:
        """The answer, or the fault in its place; None where nothing was known when it was cancelled."""
        try:
            found, measured = self._backend.layouts(
                self._sources.reference(settings),
                self._sources.cluster(settings),
                global_batch=question.global_batch,
                precision=settings.precision,
                **reports,
            )
        except CancelledError:
            return None
        except Exception as error:  # a background thread has no cell in which to show it
            return LayoutsAnswer(question=question, fault=fault_of(error, "The layouts could not be priced"))
        return LayoutsAnswer(question=question, layouts=found, measured=measured)

    def _find_scaling(
        self, settings: Settings, question: ScalingQuestion, *, known_alone: bool = False, **reports: Any
    ) -> ScalingAnswer | None:
        """The answer, or the fault in its place; None where more clusters than the known ones were asked for."""
        try:
            found = self._backend.scaling(
                self._sources.reference(settings),
                question.devices,
                question.nodes,
                global_batch=question.global_batch,
                precision=question.precision,
                prices=self._prices,
                known_alone=known_alone,
                **reports,
            )
        except Exception as error:  # a background thread has no cell in which to show it
            return ScalingAnswer(question=question, fault=fault_of(error, "The clusters could not be priced"))
        return ScalingAnswer(question=question, scaling=found) if found.whole or not known_alone else None

    def _run_layouts(self, settings: Settings, cancel: threading.Event) -> None:
        question = question_of(settings)

        def change(**changes: Any) -> None:
            with self._store.lock:
                answer = self._store.state.layouts
                if answer is not None and answer.question == question:
                    self._store.change(layouts=replace(answer, **changes))

        def partial(found: Layouts) -> None:
            change(layouts=found)

        say = _paced(lambda progress: change(progress=progress))
        answer = self._find_layouts(settings, question, progress=say, partial=partial, cancel=cancel)
        if answer is None:
            change(running=False, progress=None)
            return
        if answer.layouts is not None and answer.layouts.whole:
            self.layouts_by_batch.keep(question, answer)
        self._show_layouts(answer)

    def _run_scaling(self, job: tuple[Settings, ScalingQuestion], cancel: threading.Event) -> None:
        settings, question = job

        def change(**changes: Any) -> None:
            with self._store.lock:
                answer = self._store.state.scaling
                if answer is not None and answer.question == question:
                    self._store.change(scaling=self._priced(replace(answer, **changes)))

        def partial(found: Scaling) -> None:
            change(scaling=found)

        say = _paced(lambda progress: change(progress=progress))
        answer = self._find_scaling(settings, question, progress=say, partial=partial, cancel=cancel)
        assert answer is not None, "asked for all that there is"
        if answer.scaling is not None and answer.scaling.whole:
            self.scaling_by_batch.keep(question, answer)
        known = {} if answer.scaling is None else {"scaling": answer.scaling}
        change(**known, fault=answer.fault, running=False, progress=None)

    def _priced(self, answer: ScalingAnswer) -> ScalingAnswer:
        """The answer in dollars of the prices that were given last."""
        from alpa_explore.uniform_layouts.scaling import with_prices

        found = answer.scaling
        if found is None or dict(found.prices) == dict(self._prices):
            return answer
        return replace(answer, scaling=with_prices(found, self._prices))


def _failed(answer: LayoutsAnswer | ScalingAnswer) -> bool:
    return answer.fault is not None


def _paced(say: Callable[[Progress], None]) -> Callable[[Progress], None]:
    """`say`, but at most every `tuning.REPORT_SECONDS`: each report is a message to the browser."""
    last = float("-inf")

    def paced(progress: Progress) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= tuning.REPORT_SECONDS:
            last = now
            say(progress)

    return paced
