"""The base class of the tabs: a question, and what answers it for the plan on screen."""

import re
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from html import escape
from threading import RLock
from typing import Any, ClassVar, overload

import ipywidgets as W

from alpa_explore.plans.plan import Plan
from alpa_explore.plans.report.tables import Row
from alpa_explore_widgets.elements.page_widget import PageFigure, box
from alpa_explore_widgets.session.state import State


def css_name(title: str) -> str:
    """The title of a panel as part of a CSS class: 'fit-scale'."""
    return re.sub(r"\W+", "-", title.lower())


class Panel(ABC):
    """A tab. It is brought up to date only while it is selected; after a change meanwhile, on selection."""

    title: ClassVar[str]
    """The text of the tab; unique in the explorer."""
    question: ClassVar[str]
    """The question that the tab answers; the tooltip of the tab."""
    of_plan: ClassVar[bool] = True
    """Whether the contents change with the plan."""
    needs_plan: ClassVar[bool] = True
    """Whether there is nothing to show before there is a plan."""
    made_ahead: ClassVar[bool] = False
    """Whether the contents for other B are made ahead (`figures_ahead`): where they depend on nothing but the plan and
    what `depends_on` names."""
    waits: ClassVar[bool] = True
    """Whether the contents are out of date while the planner runs; where not, what comes is added."""
    has_picture: ClassVar[bool] = False
    """Whether the contents can be saved as a picture."""

    def __init__(self) -> None:
        self.finding = W.HTML()
        controls = self.controls()
        head = box("alpa-panel-head", self.finding, *([box("alpa-panel-controls", *controls)] if controls else []))
        css = f"alpa-panel alpa-panel-{css_name(self.title)}"
        self.widget = box(css, head, *self.below(), *self.contents(), kind=W.VBox)
        self.lock: AbstractContextManager[object] = RLock()
        """Held while the panel is drawn; the explorer replaces it by the lock of its state."""
        self.redrawn: Callable[[], None] = lambda: None
        """Called after `redraw`, with the lock held; the explorer replaces it."""
        self._shown: tuple[State, str, bool] | None = None
        self._drawn: tuple[object, ...] = ()

    @property
    def figures(self) -> Sequence[PageFigure]:
        """The figures of the panel: they get the selection and make it."""
        return ()

    @property
    def drawn(self) -> bool:
        """Whether it has shown an answer."""
        return bool(self._drawn)

    def controls(self) -> list[W.Widget]:
        """Widgets beside the finding; none by default."""
        return []

    def below(self) -> list[W.Widget]:
        """Widgets between the finding and the contents."""
        return []

    @abstractmethod
    def contents(self) -> list[W.Widget]:
        """The widgets that answer the question."""

    def plan_of(self, state: State) -> Plan:
        """The plan that is shown."""
        assert state.plan is not None, "shown before there was a plan"
        return state.plan

    def busy(self, state: State) -> bool:
        """Whether another answer is being computed."""
        return self.waits and (state.replanning or (state.following and state.plan is not None and not state.estimated))

    def show(self, state: State, theme: str, *, as_table: bool = False) -> None:
        """Bring the contents up to date; called only while the tab is selected."""
        shown = self._shown = (state, theme, as_table)
        self.follow(state)
        if self._shown is not shown:
            return  # `follow` changed the state, which has been shown since
        for figure in self.figures:
            figure.selection = state.selection
        assert state.plan is not None or not self.needs_plan, "shown before there was a plan"
        inputs = (as_table, state.plan if self.of_plan else None, theme, *self.depends_on(state))
        if same(inputs, self._drawn):
            return
        self._drawn = inputs
        try:
            self.update(state, theme, as_table=as_table)
        except Exception as error:  # a figure that fails must not break the rest of the explorer
            self.finding.value = figure_fault_html(self.title, error)
            for figure in self.figures:
                figure.layout.display = "none"

    def watch(self, *fields: W.Widget) -> None:
        """Draw again after the value of a field changed."""
        for field in fields:
            field.observe(self._chosen, "value")

    @contextmanager
    def quietly(self, field: W.Widget, chosen: Callable[[dict[str, Any]], None] | None = None) -> Iterator[None]:
        """Change a field without what its choice does (`chosen`, by default drawing again): the panel is being drawn
        already, or the field was not changed by the user."""
        field.unobserve(chosen or self._chosen, "value")
        yield
        field.observe(chosen or self._chosen, "value")

    def _chosen(self, _change: dict[str, Any]) -> None:
        self.redraw()

    def redraw(self) -> None:
        """Draw again after a control of the panel changed."""
        with self.lock:
            if self._shown is not None:
                self._drawn = ()
                state, theme, as_table = self._shown
                self.show(state, theme, as_table=as_table)
                self.redrawn()

    def depends_on(self, _state: State) -> tuple[object, ...]:
        """The inputs of the contents besides plan and theme. (The selection is none: the browser fades marks.)"""
        return ()

    def ahead_depends_on(self, state: State) -> tuple[object, ...]:
        """The inputs of the contents for other B besides plan and theme."""
        return self.depends_on(state)

    def packed(self, state: State, theme: str) -> bytes | None:
        """The contents for a state, as `figures` show them ahead, or None where there are none; only where
        `made_ahead`."""
        raise NotImplementedError

    def follow(self, _state: State) -> None:
        """Update the panel's own controls, before the contents."""
        return

    def stage_of_rows(self) -> int | None:
        """The stage that all rows of the table are about; None if there is none."""
        return None

    @abstractmethod
    def update(self, state: State, theme: str, *, as_table: bool) -> None:
        """Show the contents for a state, as a table if that is what is chosen; `theme` is 'light' or 'dark'."""

    @abstractmethod
    def rows(self, state: State) -> Sequence[Row]:
        """The rows of the table that shows the same as the contents."""


def same(a: tuple[object, ...], b: tuple[object, ...]) -> bool:
    """Whether all inputs of contents are the same; stage costs are compared by identity: comparing them by value would
    walk through thousands of them."""
    return len(a) == len(b) and all(
        x is y or (not hasattr(x, "screened") and x == y) for x, y in zip(a, b, strict=True)
    )


def figure_fault_html(title: str, error: Exception) -> str:
    """The error of a figure that could not be drawn, shown in its place."""
    detail = escape("".join(traceback.format_exception(error)))
    return (
        f'<div class="alpa-message" role="alert"><p><b>The {escape(title)} figure failed:</b> '
        f"{escape(type(error).__name__)}: {escape(str(error))}</p><p>The others are not affected. This is a fault of "
        f"alpa_explore: please report it.</p><details><summary>Details</summary><pre>{detail}</pre></details></div>"
    )


@dataclass(frozen=True, slots=True, eq=False)
class Tab:
    """A tab whose panel may not be made yet."""

    kind: type[Panel]
    """Has title, question and the other texts of the panel."""
    make: Callable[[], Panel]


class PanelList(Sequence["Panel"]):
    """The panels in the order of the tabs; asking for one makes it. `tabs` are their texts, for which none is made."""

    def __init__(self, tabs: Sequence[Tab], made: Callable[[Panel], None]) -> None:
        """`made` is called with each panel when it is made."""
        self.tabs = list(tabs)
        self._made: dict[Tab, Panel] = {}
        self._call = made

    @property
    def made(self) -> Sequence[Panel]:
        """The panels that are made, in the order in which they were."""
        return list(self._made.values())

    def at(self, title: str) -> int:
        """The place of a tab."""
        return [tab.kind.title for tab in self.tabs].index(title)

    def __len__(self) -> int:
        return len(self.tabs)

    @overload
    def __getitem__(self, place: int) -> Panel: ...

    @overload
    def __getitem__(self, place: slice) -> Sequence[Panel]: ...

    def __getitem__(self, place: int | slice) -> Panel | Sequence[Panel]:
        if isinstance(place, slice):
            return [self._panel(tab) for tab in self.tabs[place]]
        return self._panel(self.tabs[place])

    def _panel(self, tab: Tab) -> Panel:
        if tab not in self._made:
            self._made[tab] = tab.make()
            self._call(self._made[tab])
        return self._made[tab]
