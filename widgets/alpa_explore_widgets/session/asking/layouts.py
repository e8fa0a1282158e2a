"""Asks for layouts in the background: newest question first, answers as they come, what is known stays on cancel."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from alpa_explore.errors import CancelledError
from alpa_explore_widgets.session import tuning
from alpa_explore_widgets.session.answers.layouts import (
    LayoutQuestion,
    LayoutsAnswer,
    ScalingAnswer,
    ScalingQuestion,
)
from alpa_explore_widgets.session.background import NewestWins
from alpa_explore_widgets.session.fault import fault_of
from alpa_explore_widgets.session.settings import DEVICE_SETTINGS, Settings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from alpa_explore.execution.progress import Progress
    from alpa_explore.uniform_layouts.ranking import Layouts
    from alpa_explore.uniform_layouts.scaling import Scaling
    from alpa_explore_widgets.session.library.backend import Backend
    from alpa_explore_widgets.session.sources import Sources
    from alpa_explore_widgets.session.state import StateStore


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


class LayoutQuestions:
    """Both questions of a session."""

    def __init__(self, store: StateStore, sources: Sources, backend: Backend) -> None:
        self._store, self._sources, self._backend = store, sources, backend
        self.layouts: NewestWins[Settings] = NewestWins(self._run_layouts, "alpa-explore layouts")
        self.scaling: NewestWins[tuple[Settings, ScalingQuestion, Mapping[str, float]]] = NewestWins(
            self._run_scaling, "alpa-explore scale"
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
            question = ScalingQuestion(
                model=settings.model,
                devices=devices,
                nodes=nodes,
                devices_per_node=None,
                global_batch=settings.microbatch * settings.num_microbatches,
                sequence=settings.sequence,
                precision=settings.precision,
            )
            self._prices = prices
            self._store.change(scaling=ScalingAnswer(question=question, running=True))
            self.scaling.submit((settings, question, prices))

    def set_prices(self, prices: Mapping[str, float]) -> None:
        """The same points at other prices: nothing is computed anew but dollars."""
        from alpa_explore.uniform_layouts.scaling import with_prices

        with self._store.lock:
            answer, self._prices = self._store.state.scaling, prices
            if answer is not None and answer.scaling is not None:
                self._store.change(scaling=replace(answer, scaling=with_prices(answer.scaling, prices)))

    def cancel_layouts(self) -> None:
        """Price no more layouts; those that are known stay."""
        self.layouts.cancel()

    def cancel_scaling(self) -> None:
        """Price no more clusters; those that are known stay."""
        self.scaling.cancel()

    def _run_layouts(self, settings: Settings, cancel: threading.Event) -> None:
        def change(**changes: Any) -> None:
            with self._store.lock:
                answer = self._store.state.layouts
                if answer is not None and answer.question == question_of(settings):
                    self._store.change(layouts=replace(answer, **changes))

        def partial(found: Layouts) -> None:
            change(layouts=found)

        try:
            found, measured = self._backend.layouts(
                self._sources.reference(settings),
                self._sources.cluster(settings),
                global_batch=settings.microbatch * settings.num_microbatches,
                precision=settings.precision,
                progress=_paced(lambda progress: change(progress=progress)),
                partial=partial,
                cancel=cancel,
            )
        except CancelledError:
            change(running=False, progress=None)
        except Exception as error:  # a background thread has no cell in which to show it
            change(running=False, progress=None, fault=fault_of(error, "The layouts could not be priced"))
        else:
            change(layouts=found, measured=measured, running=False, progress=None)

    def _run_scaling(self, job: tuple[Settings, ScalingQuestion, Mapping[str, float]], cancel: threading.Event) -> None:
        from alpa_explore.uniform_layouts.scaling import with_prices

        settings, question, prices = job

        def change(**changes: Any) -> None:
            with self._store.lock:
                answer = self._store.state.scaling
                if answer is not None and answer.question == question:
                    self._store.change(scaling=replace(answer, **changes))

        def show(found: Scaling, **changes: Any) -> None:
            with self._store.lock:
                change(scaling=with_prices(found, self._prices), **changes)

        try:
            found = self._backend.scaling(
                self._sources.reference(settings),
                question.devices,
                question.nodes,
                global_batch=question.global_batch,
                precision=question.precision,
                prices=prices,
                progress=_paced(lambda progress: change(progress=progress)),
                partial=show,
                cancel=cancel,
            )
        except Exception as error:  # a background thread has no cell in which to show it
            change(running=False, progress=None, fault=fault_of(error, "The clusters could not be priced"))
        else:
            show(found, running=False, progress=None)


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
