"""Figures of other B, made before they are asked for: the page draws one at the key press, and Python's answer, which
comes a few hundredths of a second later, finds it drawn.

A replan for another B takes milliseconds, and a figure that depends on nothing but the plan and the history takes some
more. So once the selected tab shows a plan, the figures for all stops of the B slider are made in the background and
sent to the page: those next to the plan first, and where they take long, the others once the slider comes near them.
They stay right until something else than B changes; those with the history, until the slider rests.
"""

import threading
import time
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace

from alpa_explore.planner.replan import replan
from alpa_explore.plans.plan import Plan
from alpa_explore_widgets.session import tuning
from alpa_explore_widgets.session.background import NewestWins
from alpa_explore_widgets.session.history import Entry, History
from alpa_explore_widgets.session.state import State
from alpa_explore_widgets.tab_kinds.panel import Panel, same


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Made:
    """What is on the page of a panel."""

    made_of: tuple[object, ...]
    """What the figures depend on."""
    stops: frozenset[int]
    """The values of B that were tried; one without a plan or an answer has no figure."""
    figures: Mapping[str, bytes]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Job:
    panel: Panel
    state: State
    plan: Plan
    theme: str
    before: _Made


class FiguresAhead:
    """Keeps the figures of other B of the selected tab on the page."""

    def __init__(self, stops: Sequence[float]) -> None:
        """`stops` are those of the B slider."""
        self._stops = [int(stop) for stop in stops]
        self._worker: NewestWins[_Job] = NewestWins(self._make, "alpa-explore ahead")
        self._made: dict[Panel, _Made] = {}
        self._job: _Job | None = None
        """What is being made."""

    def follow(self, panel: Panel, state: State, theme: str, *, as_table: bool) -> None:
        """Make the figures of the selected tab, unless the page has them."""
        plan = state.plan
        if plan is None or not panel.made_ahead or as_table:
            return
        of_plan = (plan.costs, plan.cluster, plan.layers, replace(plan.options, num_microbatches=1))
        made_of = (theme, _waits(state), *panel.ahead_depends_on(_before_the_move(state)), *of_plan)
        if self._job is not None and self._job.panel is panel and same(made_of, self._job.before.made_of):
            return
        made = self._made.get(panel)
        if made is None or not same(made_of, made.made_of):
            made = self._made[panel] = _Made(made_of=made_of, stops=frozenset(), figures={})
            _send(panel, {})
        elif made.stops.issuperset(self._nearest(plan.options.num_microbatches)[: tuning.NEAR_FIGURES]):
            return
        self.close()
        if not (state.planning or state.replanning or _waits(state)) and plan.costs.complete and plan.basis is None:
            self._job = _Job(panel=panel, state=state, plan=plan, theme=theme, before=made)
            self._worker.submit(self._job)

    def forget(self, panel: Panel) -> None:
        """Keep no figures of other B on the page of `panel`."""
        self.close()
        if self._made.pop(panel, None) is not None:
            _send(panel, {})

    def wait(self, timeout: float | None = None) -> bool:
        """Block until the figures are made (for tests). Returns False on a timeout."""
        return self._worker.wait(timeout)

    def close(self) -> None:
        """Stop making figures."""
        self._job = None
        self._worker.cancel()

    def _nearest(self, b: int) -> list[int]:
        return sorted(self._stops, key=lambda stop: abs(stop - b))

    def _make(self, job: _Job, cancel: threading.Event) -> None:
        began = time.monotonic()
        tried, figures = set(job.before.stops), dict(job.before.figures)
        missing = [stop for stop in self._nearest(job.plan.options.num_microbatches) if stop not in tried]
        for number, b in enumerate(missing):
            # The page draws the figure of the plan first, and a key press does not wait for this.
            if cancel.wait(tuning.BETWEEN_FIGURES_SECONDS if number else tuning.BEFORE_FIGURES_SECONDS):
                return
            if number == tuning.FIRST_FIGURES:  # those next to the plan, where all take seconds
                self._show(job, tried, figures)
            if number >= tuning.FIRST_FIGURES and time.monotonic() - began > tuning.AHEAD_SECONDS:
                break
            tried.add(b)
            try:
                plan = replan(job.plan, num_microbatches=b, known_alone=True)
                if (job.panel.stage_of_rows() or 0) < len(plan.stages):
                    packed = job.panel.packed(_moved_to(plan, job.state), job.theme)
                    if packed is not None:
                        figures[str(b)] = packed
            except Exception:  # no plan or no figure for this B: the answer to the key press says why
                continue
        self._show(job, tried, figures, last=True)

    def _show(self, job: _Job, tried: Set[int], figures: Mapping[str, bytes], *, last: bool = False) -> None:
        with job.panel.lock:
            if job is not self._job:
                return
            if last:
                self._job = None
                self._made[job.panel] = replace(job.before, stops=frozenset(tried), figures=dict(figures))
            _send(job.panel, dict(figures))


def _waits(state: State) -> bool:
    """Whether B waits for Plan, as the settings are those of another model (`Session.set`)."""
    return state.plan_settings is None or state.plan_settings.model != state.settings.model


def _before_the_move(state: State) -> State:
    """The state with the part of the history that stays when B moves, or moves on."""
    entries = state.history.kept_by_add(replace_last=state.moving)
    return replace(state, history=History(entries=entries, position=len(entries) - 1))


def _moved_to(plan: Plan, state: State) -> State:
    """The state once this plan, of another B, is on screen."""
    assert state.plan_settings is not None, "there is a plan"
    b = plan.options.num_microbatches
    entry = Entry(settings=replace(state.plan_settings, num_microbatches=b), plan=plan)
    settings = replace(state.settings, num_microbatches=b)
    return replace(state, plan=plan, settings=settings, history=state.history.add(entry, replace_last=state.moving))


def _send(panel: Panel, figures: dict[str, bytes]) -> None:
    for figure in panel.figures:
        figure.ahead = figures
