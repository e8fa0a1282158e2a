"""The comparison of formulations: its progress, and Cancel, which keeps what was computed."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
from alpa_explore_widgets.explorer import Explorer
from alpa_explore_widgets.session.backend import Backend
from alpa_explore_widgets.session.session import Session
from alpa_explore_widgets.session.settings import Settings
from alpa_explore_widgets.session.sources import Sources
from alpa_explore_widgets.tabs.solvers import SolversPanel

from alpa_explore.errors import OptionError
from tests.waiting import LIMIT_SECONDS
from tests.widgets.conftest import plan_and_wait


class Comparing:
    """A comparison of three steps; each waits for its gate."""

    def __init__(self) -> None:
        self.gates = [threading.Event() for _ in range(3)]
        self.at = threading.Semaphore(0)
        self.error: Exception | None = None

    def __call__(self, _plan: object, _stage: int, *, progress: Any, partial: Any, cancel: threading.Event) -> str:
        for number, (gate, name) in enumerate(zip(self.gates, ("auto", "factor", "independent"), strict=True)):
            progress(name)
            self.at.release()
            assert gate.wait(LIMIT_SECONDS)
            if self.error is not None:
                raise self.error
            partial(f"{number + 1} rows")
            if cancel.is_set():
                break
        return f"{number + 1} rows"


@pytest.fixture
def comparing() -> Comparing:
    return Comparing()


@pytest.fixture
def explorer(planner: Any, comparing: Comparing, with_settings: Callable[..., Settings], drawn: object) -> Explorer:
    functions = Backend(capture=planner.capture, plan=planner.plan, compare=comparing)
    session = Session(with_settings(), Sources(functions.capture), functions)
    made = Explorer(session)
    plan_and_wait(session)
    made.tabs.selected = [panel.title for panel in made.panels].index("Solvers")
    return made


def panel_of(explorer: Explorer) -> SolversPanel:
    return next(panel for panel in explorer.panels if isinstance(panel, SolversPanel))


def test_progress_is_shown_and_cancel_keeps_the_rows_so_far(explorer: Explorer, comparing: Comparing) -> None:
    panel, store = panel_of(explorer), explorer.session.store
    assert (panel.compare.disabled, panel.cancel.disabled) == (False, True)
    panel.compare.click()
    assert comparing.at.acquire(timeout=LIMIT_SECONDS)
    assert (panel.compare.disabled, panel.cancel.disabled) == (True, False)
    assert "Comparing, auto: 0 of 4 formulations done, 0 s elapsed" in panel.progress.value
    comparing.gates[0].set()
    assert comparing.at.acquire(timeout=LIMIT_SECONDS)
    assert store.state.comparison == "1 rows"
    assert "Comparing, factor: 1 of 4" in panel.progress.value
    panel.cancel.click()
    assert "stopping after factor" in panel.progress.value
    assert panel.cancel.disabled
    comparing.gates[1].set()
    assert explorer.session.wait(LIMIT_SECONDS)
    assert (store.state.comparison, store.state.comparing) == ("2 rows", None)
    assert panel.progress.value == ""
    assert not panel.compare.disabled


def test_an_error_ends_it_and_is_shown(explorer: Explorer, comparing: Comparing) -> None:
    comparing.error = OptionError("w", found="one device", remedy="r.")
    comparing.gates[0].set()
    panel_of(explorer).compare.click()
    assert explorer.session.wait(LIMIT_SECONDS)
    state = explorer.session.store.state
    assert state.comparing is None
    assert state.fault.found == "one device"
