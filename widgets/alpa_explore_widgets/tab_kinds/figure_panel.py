"""The base classes of the tabs with a figure of plotly."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from html import escape, unescape
from importlib import import_module
from typing import Any, ClassVar

import ipywidgets as W

from alpa_explore import units
from alpa_explore.figures.keys import key, read_key
from alpa_explore.figures.style import TOOL_PIXELS, Figure
from alpa_explore.plans.phrases import logical_mesh_phrase, stage_phrase
from alpa_explore.plans.report.tables import Row
from alpa_explore_widgets.elements.fields import choice_field, options
from alpa_explore_widgets.elements.figures import PlotlyFigure
from alpa_explore_widgets.elements.page_widget import PageFigure, set_class
from alpa_explore_widgets.elements.tables import table_html
from alpa_explore_widgets.session.asking.layouts import Asked
from alpa_explore_widgets.session.session import Session
from alpa_explore_widgets.session.state import Answer, State
from alpa_explore_widgets.tab_kinds.panel import Panel

TITLE_LINE_PIXELS = 20
"""Height of one line of a figure's title (`figures.style.dress`)."""
TOP_PIXELS = 28
"""Margin above a figure without its title: room for a legend."""
RIGHT_PIXELS = 12
"""Least margin on the right: half of the last label of an axis."""
HEIGHT = 500
"""Default height of a figure in pixels: the whole explorer fits a 1400 × 900 screen."""
_STEPS = {"capture": "capture the model", "works": "read the work of its parts", "layouts": "price layouts"}
"""Pass of pricing, in order -> what it does; layouts are shown from the first on."""


class FigurePanel(Panel):
    """A tab with one figure of plotly, or the table that shows the same, or what stands in its place before there is
    anything to draw."""

    has_picture = True

    def __init__(self) -> None:
        self.figure = PlotlyFigure(height=HEIGHT, label=f"{self.title}: waiting for the first plan")
        self.table = W.HTML()
        super().__init__()

    @property
    def figures(self) -> Sequence[PageFigure]:
        """The one figure."""
        return (self.figure,)

    def contents(self) -> list[W.Widget]:
        """The figure and the table, of which one is hidden."""
        return [self.figure, self.table]

    def instead(self, _state: State) -> tuple[str, str] | None:
        """Where there is no figure yet: what is said above its place, as text, and what stands in it, as HTML."""
        return None

    def update(self, state: State, theme: str, *, as_table: bool) -> None:
        """Draw the figure, or say what is in its place, or make the table."""
        written = ("", table_html(self.rows(state), state.plan, self.stage_of_rows())) if as_table else None
        written = written or self.instead(state)
        self.table.layout.display = "none" if written is None else ""
        self.figure.layout.display = "none" if written is not None else None
        if written is not None:
            said, self.table.value = written
            self.finding.value = f'<p class="alpa-finding alpa-whole">{escape(said, quote=False)}</p>' if said else ""
            return
        figure, title = self.figure_and_title(state, theme)
        name, where = self.subject(state)
        # Before the figure, which fills what is left of the window: else the page would draw it twice.
        self.finding.value = f'<p class="alpa-finding" tabindex="0">{title}</p>'
        self.figure.draw(figure, f"{self.title} of {name} on {where}. {unescape(title)}")

    def figure_and_title(self, state: State, theme: str) -> tuple[Figure, str]:
        """The figure as it is shown, and what is said above it."""
        figure = self.draw(state, theme)
        if figure.layout.uirevision is None:
            figure.update_layout(uirevision=self.subject(state)[0])  # a zoom survives a change of B
        return figure, lift_title(figure)

    def packed(self, state: State, theme: str) -> bytes | None:
        """The figure for a state."""
        if self.instead(state) is not None:
            return None
        figure, _ = self.figure_and_title(state, theme)
        return PlotlyFigure.pack(figure)

    def subject(self, state: State) -> tuple[str, str]:
        """(model, cluster) of which the figure is, in words."""
        plan = self.plan_of(state)
        return plan.model.name, str(plan.cluster)

    @abstractmethod
    def draw(self, state: State, theme: str) -> Figure:
        """The figure; `theme` is 'light' or 'dark'."""


class PlanPanel(FigurePanel):
    """A tab whose figure and table are NAME_figure(plan) and NAME_table(plan) of module NAME (`name`) in a room
    of alpa_explore.figures (`room`)."""

    name: ClassVar[str]
    """The module of the figure."""
    room: ClassVar[str] = "decisions"
    """The package of `alpa_explore.figures` that holds it."""

    def arguments(self, _state: State) -> dict[str, Any]:
        """What figure and table take besides the plan."""
        return {}

    def figure_arguments(self, _state: State) -> dict[str, Any]:
        """What the figure alone takes besides."""
        return {}

    def draw(self, state: State, theme: str) -> Figure:
        """The figure of the module `name`."""
        arguments = self.arguments(state) | self.figure_arguments(state)
        figure: Figure = self._function("figure")(state.plan, theme=theme, **arguments)
        return figure

    def rows(self, state: State) -> Sequence[Row]:
        """The table of the module `name`."""
        rows: Sequence[Row] = self._function("table")(state.plan, **self.arguments(state))
        return rows

    def _function(self, kind: str) -> Callable[..., Any]:
        return figure_function(self.room, self.name, kind)


class AskedPanel(FigurePanel):
    """A tab about what is asked for in the background and needs no plan; answers that come are added."""

    needs_plan, waits = False, False
    made_ahead = True
    nothing: ClassVar[str]
    """What is said before the first question."""

    def __init__(self, session: Session, asked: Asked[Any]) -> None:
        self.session, self.asked = session, asked
        super().__init__()

    def follow(self, state: State) -> None:
        """Ask when first opened; offer to ask again only where there can be an answer."""
        set_class(self.widget, "alpa-bare", on=self.session.sources.is_user_model(state.settings.model))
        answer = self.answer(state)
        if answer is None:
            self.ask_first(state)  # the change of the state shows this tab again
        else:
            self.offer(answer, state)

    @abstractmethod
    def ask_first(self, state: State) -> None:
        """Ask for what is of most use with these settings."""

    @abstractmethod
    def offer(self, answer: Answer[Any], state: State) -> None:
        """Offer what can be done with an answer."""

    def answer(self, state: State) -> Answer[Any] | None:
        """That on screen."""
        answer: Answer[Any] | None = getattr(state, self.asked.field)
        return answer

    def depends_on(self, state: State) -> tuple[object, ...]:
        """What is known."""
        answer = self.answer(state)
        if answer is None:
            return (None, None, False)
        return (answer.found, answer.fault, answer.running, answer.progress if answer.found is None else None)

    def packed(self, state: State, theme: str) -> bytes | None:
        """The figure for the batch of a state."""
        answer = self.asked.at(state.settings)
        changes: dict[str, Any] = {self.asked.field: answer}
        return None if answer is None else super().packed(replace(state, **changes), theme)

    def instead(self, state: State) -> tuple[str, str] | None:
        """Why nothing is known, or not yet."""
        answer = self.answer(state)
        if answer is not None and answer.found is not None:
            return None
        if answer is not None and answer.fault is not None:
            fault = answer.fault
            return f"{fault.what}: {fault.found}. {fault.remedy}", ""
        if answer is None or not answer.running:
            return self.nothing, ""
        steps = list(_STEPS)
        at = 0 if answer.progress is None else steps.index(answer.progress.pass_name)
        items = [f"<li>✓ {name}</li>" for name in steps[:at]]
        items += [
            f'<li aria-current="step">{self.step(answer)}</li>',
            *(f"<li>{_STEPS[s]}</li>" for s in steps[at + 1 :]),
        ]
        return "", f'<ol class="alpa-steps">{"".join(items)}</ol>'

    def step(self, answer: Answer[Any]) -> str:
        """What is being done for an answer, how much of it is done, and how long the rest takes."""
        progress = answer.progress
        if progress is None or not progress.total:
            return _STEPS["capture"]
        left = progress.eta_seconds
        more = "" if not left else f", {units.seconds(left)} left"
        return f"{_STEPS[progress.pass_name]}: {progress.done:,} of {progress.total:,}{more}"

    def draw(self, state: State, theme: str) -> Figure:
        """The figure of what is known."""
        answer = self.answer(state)
        assert answer is not None, "drawn before anything is known"
        return self.draw_answer(answer, state, theme)

    @abstractmethod
    def draw_answer(self, answer: Answer[Any], state: State, theme: str) -> Figure:
        """The figure of what is found."""

    def note(self, text: str) -> str:
        """What is said of an answer."""
        return f'<p class="alpa-question" role="status">{escape(text)}</p>'

    def show_progress(self, line: W.HTML, html: str) -> None:
        """What is under way; nothing in its place where there is nothing to say."""
        line.value, line.layout.display = html, "" if html else "none"


def figure_function(room: str, name: str, kind: str) -> Callable[..., Any]:
    """NAME_kind of a module of alpa_explore.figures, imported late: plotly takes seconds to import."""
    function: Callable[..., Any] = getattr(import_module(f"alpa_explore.figures.{room}.{name}"), f"{name}_{kind}")
    return function


def lift_title(figure: Figure) -> str:
    """Remove and return the title of a figure: as text of the page above the figure it wraps and can be selected.

    The margin for the tool bar is removed as well: on the page it stands beside the figure (`explorer.css`).
    """
    lines = (figure.layout.title.text or "").split("<br>")
    figure.layout.title.text = ""
    top, right = figure.layout.margin.t, figure.layout.margin.r
    if right is not None:
        figure.layout.margin.r = max(right - TOOL_PIXELS, RIGHT_PIXELS)
    if top is not None:
        new_top = max(TOP_PIXELS, top - TITLE_LINE_PIXELS * len(lines) - TOP_PIXELS // 2)
        if figure.layout.height is not None:
            figure.layout.height -= top - new_top
        figure.layout.margin.t = new_top
    return " ".join(lines)


class StagePanel(PlanPanel):
    """Shows the selected stage; choosing another one here selects it in every tab."""

    def __init__(self, select: Callable[[str], None]) -> None:
        self._select = select
        super().__init__()

    def controls(self) -> list[W.Widget]:
        """The choice of the stage."""
        hint = "The stage that this figure shows. It becomes the selected stage in all tabs."
        self.stage = choice_field("Stage", hint, {"0": "stage 0"})
        self.stage.observe(self._stage_chosen, "value")
        return [self.stage]

    def follow(self, state: State) -> None:
        """Offer the stages of the plan, and choose the selected one."""
        assert state.plan is not None, "shown before there was a plan"
        stages = state.plan.stages
        selected = read_key(state.selection).get("stage", self.stage.value)
        with self.stage.hold_sync():
            texts = {str(s.index): f"{stage_phrase(s)} ({logical_mesh_phrase(s.logical_mesh)})" for s in stages}
            self.stage.choices = options(texts)
            with self.quietly(self.stage, self._stage_chosen):
                self.stage.value = selected if int(selected) < len(stages) else str(len(stages) - 1)

    def depends_on(self, _state: State) -> tuple[object, ...]:
        """The stage."""
        return (self.stage.value,)

    def stage_of_rows(self) -> int:
        """The stage that is shown."""
        return int(self.stage.value)

    def arguments(self, _state: State) -> dict[str, Any]:
        """The stage."""
        return {"stage": self.stage_of_rows()}

    def _stage_chosen(self, change: dict[str, Any]) -> None:
        self._select(key(stage=int(change["new"])))
