"""The Layouts tab: every uniform layout of the model on the cluster, priced; the plan beside them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from html import escape
from typing import TYPE_CHECKING, Any, get_args

import ipywidgets as W

from alpa_explore import units
from alpa_explore.baselines.layout import LABELS, Axis
from alpa_explore.figures.keys import key
from alpa_explore.figures.style import Figure
from alpa_explore.plans.report.compare import change_text
from alpa_explore.plans.report.tables import Row
from alpa_explore_widgets.elements.fields import CONTROLS, ChoiceField, choice_field, options, plain_button
from alpa_explore_widgets.elements.page_widget import box, set_shown
from alpa_explore_widgets.panels.verdict import spare_words
from alpa_explore_widgets.session.asking.layouts import question_of
from alpa_explore_widgets.session.session import Session
from alpa_explore_widgets.session.state import Answer, LayoutQuestion, State
from alpa_explore_widgets.tab_kinds.figure_panel import AskedPanel

if TYPE_CHECKING:
    from alpa_explore.uniform_layouts.beside_plan import PlanAsLayout
    from alpa_explore.uniform_layouts.measured import MeasuredLayout
    from alpa_explore.uniform_layouts.ranking import Layouts, PricedLayout

_ANY = ""
_FILTERS: tuple[Axis, ...] = get_args(Axis)
_OF: dict[Axis, str] = {"microbatch": ": samples of one replica"}
_ROWS = 200
"""Layouts that the table lists, the best under the filters; the CSV file has all."""
_COLUMNS = {
    "usual": ("time", "to best", "spare", "MFU", "why not"),
    "degrees": (*(LABELS[axis] for axis in _FILTERS), "time", "GiB"),
    "memory": ("time", "GiB", "spare", "what fills it"),
}
"""Choice of columns -> their headings, after the name of the layout."""


class LayoutsPanel(AskedPanel):
    """Which TP, PP, DP, CP, EP, microbatch, ZeRO and recomputation is best, and why not another?"""

    title = "Layouts"
    question = "Every uniform layout of this model on this cluster: which is fastest, and why not another?"
    nothing = "No layout is priced yet: press Price layouts."

    def __init__(self, session: Session) -> None:
        super().__init__(session, session.layouts.layouts)
        self.listed = W.HTML()
        """Below the figure: the layouts under the filters."""
        self.widget.children = (*self.widget.children, self.listed)

    def controls(self) -> list[W.Widget]:
        """The columns of the table, and the buttons."""
        self.columns = choice_field("Columns", "Of the table below the figure", {name: name for name in _COLUMNS})
        self.watch(self.columns)
        self.price = plain_button(**CONTROLS["layouts"]["price"], press=self._ask)
        self.cancel = plain_button("Cancel", "Price no more; what is known stays", self.asked.cancel)
        self.larger = plain_button("Plan there", "Plan on the fewest nodes on which a layout fits", self._plan_larger)
        return [self.columns, self.price, self.cancel, self.larger]

    def below(self) -> list[W.Widget]:
        """The filters as chips, and the progress."""
        self.filters = {
            axis: ChoiceField(
                label=LABELS[axis],
                hint=f"Only layouts with this {LABELS[axis]}{_OF.get(axis, '')}",
                choices=[[_ANY, "any", ""]],
            )
            for axis in _FILTERS
        }
        self.watch(*self.filters.values())
        self.progress = W.HTML()
        return [box("alpa-chips", *self.filters.values()), self.progress]

    def ask_first(self, _state: State) -> None:
        """The layouts on the cluster of the controls."""
        self._ask()

    def offer(self, answer: Answer[Any], state: State) -> None:
        """Filters, progress, and the fewest nodes."""
        set_shown(self.cancel, on=answer.running)
        self.show_progress(self.progress, self._progress_html(answer, state))
        self._offer_filters(answer.found)
        larger = None if answer.found is None else answer.found.fits_on
        set_shown(self.larger, on=larger is not None)
        if larger is not None:
            self.larger.description = f"Plan on {larger}"

    def depends_on(self, state: State) -> tuple[object, ...]:
        """The layouts that are known, the filters and the columns."""
        return (*super().depends_on(state), self.columns.value, *self._where().items())

    def ahead_depends_on(self, state: State) -> tuple[object, ...]:
        """The question but for its batch, and the filters."""
        question = question_of(replace(state.settings, num_microbatches=1))
        running = state.layouts is None or state.layouts.running
        return (question, running, self.asked.by_batch.found, *self._where().items())

    def update(self, state: State, theme: str, *, as_table: bool) -> None:
        """The figure, and the table below it; or the whole table in their place."""
        super().update(state, theme, as_table=as_table)
        answer = state.layouts
        layouts = None if answer is None or as_table else answer.found
        self.listed.value = (
            "" if answer is None or layouts is None else self._listed(answer, layouts, _beside(state, layouts))
        )

    def subject(self, state: State) -> tuple[str, str]:
        """Of the layouts, or of the controls before there are any."""
        found = None if state.layouts is None else state.layouts.found
        if found is not None:
            return found.model, str(found.cluster)
        settings = state.settings
        return settings.model, f"{settings.nodes}x{settings.devices_per_node}:{settings.device}"

    def draw_answer(self, answer: Answer[Any], state: State, theme: str) -> Figure:
        """See `alpa_explore.figures.layouts`."""
        from alpa_explore.figures.layouts import scatter_figure  # late: plotly takes seconds to import

        beside = _beside(state, answer.found)
        return scatter_figure(answer.found, theme=theme, where=self._where(), plan=beside, measured=answer.measured)

    def rows(self, state: State) -> Sequence[Row]:
        """Every layout under the filters, the fastest first."""
        found = None if state.layouts is None else state.layouts.found
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
            choices = options({_ANY: "any", **{str(value): str(value) for value in values}})
            set_shown(field, on=len(values) > 1)
            if choices != field.choices:
                if field.value not in [value for value, *_ in choices]:
                    field.value = _ANY
                field.choices = choices

    def _listed(self, answer: Answer[LayoutQuestion], layouts: Layouts, beside: PlanAsLayout | None) -> str:
        """The table: the best layouts under the filters, each with a button that opens it."""
        names, runs = _COLUMNS[self.columns.value], {id(one.priced): one for one in answer.measured}
        ranks = {id(priced): rank for rank, priced in enumerate(layouts.ranked, 1)}
        rows = []
        for priced in layouts.where(self._where())[:_ROWS]:
            values = _values(layouts, priced, runs.get(id(priced)))
            is_plan = beside is not None and beside.priced is priced
            opened = ""
            if priced.fits and not is_plan:
                opened = (
                    f'<button type="button" data-alpa-key="{key(layout=ranks[id(priced)])}" '
                    'title="Plan this layout, and show it">Open</button>'
                )
            cells = "".join(_cell(name, values[name]) for name in names)
            current = ' class="alpa-current"' if is_plan else ""
            rows.append(f"<tr{current}>{_cell('layout', priced.words)}{cells}<td>{opened}</td></tr>")
        head = "".join(f'<th scope="col"{_css(name)}>{name}</th>' for name in names)
        return (
            '<div class="alpa-table alpa-layouts"><table aria-label="Layouts"><thead><tr><th scope="col">layout</th>'
            f"{head}<th></th></tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
        )

    def _progress_html(self, answer: Answer[LayoutQuestion], state: State) -> str:
        """What is under way, or that the answer is for other settings; '' otherwise."""
        if answer.running:
            progress = answer.progress
            share = "" if progress is None or not progress.total else f' value="{progress.done}" max="{progress.total}"'
            counted = "" if answer.found is None else f"; {self.step(answer)}"
            return (
                f'<div class="alpa-progress" role="status"><progress aria-label="Pricing layouts"{share}></progress>'
                f"Pricing every layout of {escape(answer.question.words)}{counted}</div>"
            )
        if answer.question != question_of(state.settings) and not state.replanning:
            now = question_of(state.settings).words
            return self.note(f"These are the layouts of {answer.question.words}. Press Price layouts for {now}.")
        if answer.found is not None and not answer.found.whole:
            return self.note("Cancelled: these are the layouts that were priced by then.")
        return ""

    def _ask(self) -> None:
        self.session.layouts.ask_layouts()

    def _plan_larger(self) -> None:
        answer = self.session.store.state.layouts
        if answer is not None and answer.found is not None and answer.found.fits_on is not None:
            self.session.plan_on(answer.found.fits_on)


def _values(layouts: Layouts, priced: PricedLayout, run: MeasuredLayout | None) -> dict[str, str]:
    """Heading -> text of a cell."""
    best, room = layouts.best or priced, layouts.cluster.device.memory_bytes
    _, verdict, spare = spare_words(priced.bytes, room, is_tight=priced.tight)
    spare = spare.removesuffix(" to spare")
    parts = sorted(priced.parts_bytes, key=lambda part: -part[1])[:3]
    return {
        "time": units.seconds(priced.seconds),
        "to best": "" if priced is best else change_text(priced.seconds / best.seconds - 1.0),
        "GiB": units.number(priced.bytes / 2**30, 3),
        "spare": spare if verdict == "fits" else f"tight, {spare}" if priced.fits else "none",
        "MFU": units.percent(priced.mfu),
        "why not": _why_not(priced, best, run),
        "what fills it": ", ".join(f"{name} {units.bytes_(size)}" for name, size in parts),
        **{LABELS[axis]: str(getattr(priced.layout, axis)) for axis in _FILTERS},
    }


def _why_not(priced: PricedLayout, best: PricedLayout, run: MeasuredLayout | None) -> str:
    """What makes a layout worse than the best: memory, or the part of its time that is longer; what was measured."""
    measured = "" if run is None else f"measured {units.seconds(run.seconds)}; "
    if priced is best:
        return f"{measured}the fastest that fits with room to spare"
    if not priced.fits:
        return f"{measured}{priced.reason}"
    from alpa_explore.uniform_layouts.ranking import seconds_beside  # late: it loads what prices layouts

    name, seconds = max(seconds_beside(priced, best).items(), key=lambda part: part[1])
    more = f"+ {units.seconds(seconds)} {name}" if seconds > 0 else "as fast"
    return f"{measured}{'memory is tight; ' if priced.tight else ''}{more}"


def _cell(name: str, text: str) -> str:
    return f'<td{_css(name)} title="{escape(text)}">{escape(text, quote=False)}</td>'


def _css(name: str) -> str:
    """Of a column of numbers, or of the text that has what room is left."""
    if name in ("layout", LABELS["recompute"]):
        return ""
    return f' class="alpa-{"rest" if name in ("why not", "what fills it") else "number"}"'


def _beside(state: State, layouts: Layouts) -> PlanAsLayout | None:
    """The plan on screen, where it is of the same model."""
    plan = state.plan
    if plan is None or state.plan_settings is None or layouts.model.partition("@")[0] != state.plan_settings.model:
        return None
    from alpa_explore.uniform_layouts.beside_plan import plan_beside

    return plan_beside(layouts, plan)
