"""The Layouts tab: every uniform layout of the model on the cluster, priced; the plan beside them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from html import escape
from typing import TYPE_CHECKING, Any, get_args

import ipywidgets as W

from alpa_explore import units
from alpa_explore.baselines.layout import LABELS, Axis
from alpa_explore_widgets.elements.fields import ChoiceField
from alpa_explore_widgets.session.asking.layouts import question_of
from alpa_explore_widgets.tab_kinds.figure_panel import AskedPanel

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from alpa_explore.plans.report.tables import Row
    from alpa_explore.uniform_layouts.beside_plan import PlanAsLayout
    from alpa_explore.uniform_layouts.ranking import Layouts, PricedLayout
    from alpa_explore_widgets.session.session import Session
    from alpa_explore_widgets.session.state import LayoutsAnswer, State

_ANY = ""
_FILTERS: tuple[Axis, ...] = ("context", "expert", "microbatch", "zero_stage", "recompute", "chunks")
_MAX_OFFERED = 12
"""Layouts that can be opened as a plan: the fastest under the filters; set by hand."""


class LayoutsPanel(AskedPanel):
    """Which TP, PP, DP, CP, EP, microbatch, ZeRO and recomputation is best, and why not another?"""

    title = "Layouts"
    question = "Every uniform layout of this model on this cluster: which is fastest, and what does the plan gain?"
    nothing = "No layout is priced yet: press Price layouts."
    started = "The model is captured, then every layout is priced: those that are known appear here."

    def __init__(self, session: Session) -> None:
        self._session = session
        self._offered: tuple[PricedLayout, ...] = ()
        super().__init__()

    def controls(self) -> list[W.Widget]:
        """The axes, and the buttons."""
        axes = [[axis, LABELS[axis], ""] for axis in get_args(Axis)]
        self.across = ChoiceField(label="Across", hint="The degree of the columns", choices=axes, value="tensor")
        self.down = ChoiceField(label="Down", hint="The degree of the rows", choices=axes, value="pipeline")
        self.price = self.button(
            "Price layouts", "Price every uniform layout of the model and cluster of the controls", self._ask
        )
        self.cancel = self.button("Cancel", "Price no more; what is known stays", self._session.layouts.layouts.cancel)
        self.watch(self.across, self.down)
        return [self.across, self.down, self.price, self.cancel]

    def below(self) -> list[W.Widget]:
        """The filters, the layout to open as a plan, and the progress."""
        self.filters = {
            axis: ChoiceField(
                label=LABELS[axis], hint=f"Only layouts with this {LABELS[axis]}", choices=[[_ANY, "any", ""]]
            )
            for axis in _FILTERS
        }
        self.watch(*self.filters.values())
        self.layout = ChoiceField(label="Layout", hint="One of the fastest under the filters", choices=[[_ANY, "", ""]])
        self.open = self.button("Open as plan", "Plan this layout as a baseline, with its microbatches", self._open)
        self.larger = self.button("Plan there", "Plan on the fewest nodes on which a layout fits", self._plan_larger)
        self.note, self.progress = W.HTML(), W.HTML()
        rows = W.HBox([*self.filters.values(), self.layout, self.open, self.larger])
        rows.add_class("alpa-panel-controls")
        return [rows, self.note, self.progress]

    def follow(self, state: State) -> None:
        """Ask when first opened; offer what is there."""
        if state.layouts is None:
            self._ask()
            return  # the change of the state shows this tab again
        answer = state.layouts
        self.cancel.disabled = not answer.running
        self.show_progress(self.progress, _progress_html(answer, state))
        self._offer_filters(answer.layouts)
        self._offer_layouts(answer.layouts)
        larger = None if answer.layouts is None else answer.layouts.fits_on
        self.larger.layout.display = "none" if larger is None else ""
        if larger is not None:
            self.larger.description = f"Plan on {larger}"

    def depends_on(self, state: State) -> tuple[object, ...]:
        """The layouts that are known, the axes and the filters."""
        answer = state.layouts
        known = (None, None, False) if answer is None else (answer.layouts, answer.fault, answer.running)
        return (*known, self.across.value, self.down.value, *self._where().items())

    def ahead_depends_on(self, state: State) -> tuple[object, ...]:
        """The question but for its batch, the axes and the filters."""
        question = question_of(replace(state.settings, num_microbatches=1))
        running = state.layouts is None or state.layouts.running
        found = self._session.layouts.layouts_by_batch.found
        return (question, running, found, self.across.value, self.down.value, *self._where().items())

    def packed(self, state: State, theme: str) -> bytes | None:
        """The figure for the batch of a state."""
        answer = self._session.layouts.layouts_at(state.settings)
        return None if answer is None else super().packed(replace(state, layouts=answer), theme)

    def subject(self, state: State) -> tuple[str, str]:
        """Of the layouts, or of the controls before there are any."""
        found = None if state.layouts is None else state.layouts.layouts
        if found is not None:
            return found.model, str(found.cluster)
        settings = state.settings
        return settings.model, f"{settings.nodes}x{settings.devices_per_node}:{settings.device}"

    def draw(self, state: State, theme: str) -> go.Figure:
        """See `alpa_explore.figures.layouts.heat_map`."""
        answer = state.layouts
        if answer is None or answer.layouts is None:
            return self.missing(answer, theme)
        from alpa_explore.figures.layouts.heat_map import heat_map_figure  # late: plotly takes seconds to import

        return heat_map_figure(
            answer.layouts,
            theme,
            x=_axis(self.across.value),
            y=_axis(self.down.value),
            where=self._where(),
            plan=_beside(state, answer.layouts),
            measured=answer.measured,
        )

    def rows(self, state: State) -> Sequence[Row]:
        """Every layout under the filters, the fastest first."""
        found = None if state.layouts is None else state.layouts.layouts
        if found is None:
            return []
        from alpa_explore.uniform_layouts.report import layouts_table

        hidden = ("tp", "pp", "dp", "cp", "ep", "expert_tp", "microbatches", "interleaving", "zero", "recomputation")
        rows = layouts_table(found, None, found.where(self._where()))
        return [{name: value for name, value in row.items() if name not in (*hidden, "microbatch")} for row in rows]

    def _where(self) -> dict[Axis, Any]:
        """The values that the filters keep."""
        chosen = {axis: field.value for axis, field in self.filters.items() if field.value != _ANY}
        return {axis: value if axis == "recompute" else int(value) for axis, value in chosen.items()}

    def _offer_filters(self, layouts: Layouts | None) -> None:
        for axis, field in self.filters.items():
            values = () if layouts is None else layouts.values(axis)
            choices = [[_ANY, "any", ""], *([str(value), str(value), ""] for value in values)]
            field.layout.display = "" if len(values) > 1 else "none"
            if choices != field.choices:
                if field.value not in [value for value, *_ in choices]:
                    field.value = _ANY
                field.choices = choices

    def _offer_layouts(self, layouts: Layouts | None) -> None:
        fitting = () if layouts is None else tuple(p for p in layouts.where(self._where()) if p.fits)
        offered = fitting[:_MAX_OFFERED]
        self.open.disabled = not offered
        if offered != self._offered:
            self._offered = offered
            choices = [[str(i), f"{units.seconds(p.seconds)}: {p.words}", ""] for i, p in enumerate(offered)]
            self.layout.choices = choices or [[_ANY, "", ""]]
            self.layout.value = "0" if offered else _ANY
            self.note.value = ""

    def _ask(self) -> None:
        self._session.layouts.ask_layouts()

    def _open(self) -> None:
        if not self.layout.value.isdecimal() or int(self.layout.value) >= len(self._offered):
            return
        answer = self._session.store.state.layouts
        if answer is not None and answer.layouts is not None:
            self._session.open_layout(answer.layouts.rank(self._offered[int(self.layout.value)]))

    def _plan_larger(self) -> None:
        answer = self._session.store.state.layouts
        if answer is not None and answer.layouts is not None and answer.layouts.fits_on is not None:
            self._session.plan_on(answer.layouts.fits_on)


def _axis(name: str) -> Axis:
    return next(axis for axis in get_args(Axis) if axis == name)


def _beside(state: State, layouts: Layouts) -> PlanAsLayout | None:
    """The plan on screen, where it is of the same model."""
    plan = state.plan
    if plan is None or state.plan_settings is None or layouts.model.partition("@")[0] != state.plan_settings.model:
        return None
    from alpa_explore.uniform_layouts.beside_plan import plan_beside

    return plan_beside(layouts, plan)


def _note(text: str) -> str:
    return f'<p class="alpa-question" role="status">{escape(text)}</p>'


def _progress_html(answer: LayoutsAnswer, state: State) -> str:
    """What is under way, or that the answer is for other settings; '' otherwise."""
    if answer.running:
        progress = answer.progress
        counted = "" if progress is None else f", {progress.pass_name}: {progress.done:,} of {progress.total:,}"
        share = "" if progress is None or not progress.total else f' value="{progress.done}" max="{progress.total}"'
        return (
            f'<div class="alpa-progress" role="status"><progress aria-label="Pricing layouts"{share}></progress>'
            f"Pricing every layout of {escape(answer.question.words)}{escape(counted)}</div>"
        )
    if answer.question != question_of(state.settings) and not state.replanning:
        now = question_of(state.settings).words
        return _note(f"These are the layouts of {answer.question.words}. Press Price layouts for {now}.")
    if answer.layouts is not None and not answer.layouts.whole:
        return _note("Cancelled: these are the layouts that were priced by then.")
    return ""
