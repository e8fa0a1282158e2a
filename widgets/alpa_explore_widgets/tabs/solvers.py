"""The Solvers tab: the first layer of the selected stage, solved by every formulation on request."""

from collections.abc import Callable, Sequence
from html import escape

import ipywidgets as W

from alpa_explore.execution.progress import Progress
from alpa_explore.figures.style import Figure
from alpa_explore.plans.report.tables import Row
from alpa_explore_widgets.elements.fields import plain_button
from alpa_explore_widgets.session import tuning
from alpa_explore_widgets.session.state import State
from alpa_explore_widgets.tab_kinds.figure_panel import PlanPanel, note_figure


class SolversPanel(PlanPanel):
    """How large, how fast and how close to the optimum are the formulations of the sharding problem?"""

    title, name = "Solvers", "solvers"
    room = "comparisons"
    question = "The sharding of one layer by three formulations and the exact solver: how fast, how close to optimal?"

    def __init__(self, compare: Callable[[], None], cancel: Callable[[], None]) -> None:
        self._compare, self._cancel = compare, cancel
        super().__init__()

    def controls(self) -> list[W.Widget]:
        """The buttons."""
        hint = "Solve the first layer of the selected stage by each formulation; takes from seconds to a minute"
        self.compare = plain_button("Compare", hint, self._compare)
        self.cancel = plain_button("Cancel", "Start no further formulation; those that are done stay", self._cancel)
        return [self.compare, self.cancel]

    def below(self) -> list[W.Widget]:
        """The progress."""
        self.progress = W.HTML()
        self.progress.layout.display = "none"
        return [self.progress]

    def follow(self, state: State) -> None:
        """Show the progress; offer what can be pressed."""
        comparing = state.comparing
        self.compare.disabled = comparing is not None
        self.cancel.disabled = comparing is None or comparing.pass_name.startswith("stopping")
        self.progress.value = "" if comparing is None else comparing_html(comparing)
        self.progress.layout.display = "none" if comparing is None else ""

    def depends_on(self, state: State) -> tuple[object, ...]:
        """The last comparison."""
        return (state.comparison,)

    def draw(self, state: State, theme: str) -> Figure:
        """See `alpa_explore.figures.comparisons.solvers`; before the first comparison, a note on how to get one."""
        if state.comparison is not None:
            figure: Figure = self._function("figure")(state.comparison, theme=theme)
            return figure
        return note_figure("No comparison yet: press Compare.", theme)

    def rows(self, state: State) -> Sequence[Row]:
        """One row per formulation."""
        return [] if state.comparison is None else self._function("table")(state.comparison)


def comparing_html(comparing: Progress) -> str:
    """The progress of a comparison: the formulation that runs, how many are done, and the time."""
    return (
        f'<div class="alpa-progress" role="status"><progress aria-label="Comparing" max="{comparing.total}" '
        f'value="{comparing.done}"></progress>Comparing, {escape(comparing.pass_name)}: {comparing.done} of '
        f"{comparing.total} formulations done, {comparing.elapsed_seconds:.0f} s elapsed, at most "
        f"{tuning.COMPARE_SECONDS:.0f} s each</div>"
    )
