"""The explorer as a user sees it: in JupyterLab, in a browser, by keyboard.

After each test the fixture asserts that nothing was requested from another machine and that the console has no errors.
"""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.browser.harness.explorer import (
    SMALL,
    first_explorer,
    is_chosen,
    seen_figure,
    show_again,
    show_tab,
    slider,
    tab,
    type_number,
)
from tests.browser.harness.page import LabPage

pytestmark = [pytest.mark.browser, pytest.mark.slow]


_HOLD = """(code) => new Promise((held) => {
  const { kernel } = window.jupyterapp.shell.currentWidget.sessionContext.session;
  kernel.requestExecute({ code }).onIOPub = ({ header }) => header.msg_type === 'stream' && held();
})"""


@pytest.fixture
def shown(lab: LabPage) -> LabPage:
    """A page with a new explorer."""
    lab.show(SMALL)
    return lab


@pytest.fixture
def looked_at(lab_as_left: LabPage) -> LabPage:
    """A page with an explorer of the same plan, with nothing selected."""
    show_again(lab_as_left, SMALL)
    return lab_as_left


@contextmanager
def held(lab: LabPage) -> Iterator[None]:
    """Within the block the kernel answers nothing that is set on the page: a thread has the lock of the explorer until
    a pipe is closed. (A kernel that is only busy answers comms in other threads.)"""
    pipe = lab.server.root / "hold"
    os.mkfifo(pipe)
    lab.page.evaluate(_HOLD, f"with _1.session.store.lock:\n print('held')\n open({pipe.name!r}).read()")
    try:
        yield
    finally:
        pipe.write_text("")
        pipe.unlink()


def test_a_figure_shows_a_selection_before_the_kernel_knows_of_it(looked_at: LabPage) -> None:
    lab, explorer = looked_at, first_explorer(looked_at)
    before = seen_figure(lab, explorer)["data"]
    with held(lab):
        explorer.locator(".alpa-stages button").first.press("Enter")
        faded = lambda: any("selectedpoints" in trace for trace in seen_figure(lab, explorer)["data"])  # noqa: E731
        lab.wait_until(faded, "the figure fades what is not selected")
    assert not any("selectedpoints" in trace for trace in before)


_MARKS = """() => {
  const shown = [...document.querySelectorAll('.alpa-panel')].find((panel) => panel.offsetHeight > 40);
  return [...shown.querySelectorAll('.cartesianlayer .trace')].map((group) => [
    group.style.opacity,
    ...[...group.querySelectorAll('path.point, .point path')].map((path) => path.style.opacity),
    ...[...group.querySelectorAll('.point text')].map((text) => text.style.fill),
  ]);
}"""
"""Opacities of each trace and its marks, and colours of what is written on them, in the figure on screen."""


def test_marks_are_faded_at_once_as_plotly_draws_them_a_moment_later(looked_at: LabPage) -> None:
    lab, explorer = looked_at, first_explorer(looked_at)
    note = f"() => (globalThis.early = JSON.stringify(({_MARKS})()))"
    lab.page.evaluate("globalThis.listening = new AbortController()")  # the page is shared
    lab.page.evaluate(f"addEventListener('alpa-drawn', {note}, {{ capture: true, signal: listening.signal }})")
    for name in ("Cluster", "Layers"):
        show_tab(explorer, name)
        explorer.locator(f".alpa-panel:visible .js-plotly-plot[aria-label^='{name} of'] .trace").first.wait_for()
        lab.rest()
        drawn = [json.dumps(lab.page.evaluate(_MARKS), separators=(",", ":"))]
        for _ in range(2):  # a stage is selected, then nothing is
            lab.page.evaluate("globalThis.early = null")
            explorer.locator(".alpa-stages button").first.press("Enter")
            lab.wait_until(lambda: lab.page.evaluate("globalThis.early") is not None, "marks are faded")
            lab.rest()
            drawn.append(json.dumps(lab.page.evaluate(_MARKS), separators=(",", ":")))
            assert lab.page.evaluate("globalThis.early") == drawn[-1], name
        assert drawn[0] == drawn[2] != drawn[1], name
    lab.page.evaluate("listening.abort()")


def test_figures_of_another_b_are_drawn_before_python_answers_and_stay_when_it_does(lab: LabPage) -> None:
    lab.show(SMALL)
    explorer = first_explorer(lab)
    headline, b = explorer.locator(".alpa-time"), slider(explorer, "B, microbatches")
    steps = iter((("12", "16", "24"), ("32", "48", "64")))
    for name, part, picture in (
        ("t_max", ".alpa-figure", ".js-plotly-plot"),
        ("Overview", ".alpa-linked", ".alpa-linked"),
    ):
        show_tab(explorer, name)
        panel, values = explorer.locator(".alpa-panel:visible"), next(steps)
        shown = panel.locator(picture)
        shown.wait_for()
        ready = lambda: (panel.locator(part).get_attribute("data-ahead") or "").split()  # noqa: B023, E731
        lab.wait_until(lambda: set(values) <= set(ready()), f"the figures of {values} are on the page")  # noqa: B023
        lab.rest()
        html, before = shown.inner_html(), headline.inner_text()
        with held(lab):
            for value in values:
                b.press("ArrowRight")
                assert b.get_attribute("aria-valuetext") == value
                lab.wait_drawn()
                assert shown.inner_html() != html, f"{name} of B = {value} is drawn"
                html = shown.inner_html()
            assert headline.inner_text() == before
            counts = lab.counts()
            assert counts["asked"] > counts["answered"]
        explorer.get_by_text(f"{values[-1]} × 8").wait_for()
        lab.rest()
        assert shown.inner_html() == html, f"{name} of the third B stays"


def test_tabs_are_one_stop_that_keys_walk_through_with_names_for_screen_readers(looked_at: LabPage) -> None:
    explorer = first_explorer(looked_at)
    tab(explorer, "Layers").focus()
    for key, name in (
        ("ArrowRight", "Cluster"),
        ("End", "Accuracy"),
        ("ArrowRight", "Overview"),
        ("ArrowLeft", "Accuracy"),
        ("Home", "Overview"),
        ("ArrowRight", "Fit & scale"),
    ):
        looked_at.page.keyboard.press(key)
        looked_at.wait_until(lambda: is_chosen(explorer, name), f"{key} chooses {name}")  # noqa: B023
    panel = explorer.get_by_role("tabpanel", name="Fit & scale")
    panel.wait_for()
    assert tab(explorer, "Fit & scale").get_attribute("aria-controls") == panel.get_attribute("id")
    assert "?" in tab(explorer, "Fit & scale").get_attribute("title"), "its question is its tooltip"
    looked_at.page.keyboard.press("Shift+Tab")
    inside = "() => Boolean(document.activeElement.closest('.alpa-tabs'))"
    assert not looked_at.page.evaluate(inside), "the line is one stop of the Tab key"


def test_what_is_not_b_waits_for_plan_and_plan_is_pressed_by_keyboard(shown: LabPage) -> None:
    explorer = first_explorer(shown)
    type_number(explorer, "Layers", "3", "Tab")
    explorer.get_by_text("Out of date").wait_for()
    assert "layers 2 → 3" in explorer.locator(".alpa-plan-button").inner_text()
    assert explorer.locator(".alpa-verdict.alpa-stale").count() == 1
    explorer.get_by_label("Precision", exact=True).select_option("float32")
    explorer.get_by_text("precision default → float32").wait_for()

    # A press directly after an edit takes effect after it, whichever message arrives first.
    slider(explorer, "FLOP tolerance").press("ArrowRight")
    explorer.get_by_role("button", name="Plan", exact=True).press("Enter")

    shown.wait_until(lambda: explorer.locator(".alpa-stale").count() == 0, "the plan is up to date")
    assert explorer.get_by_text("Out of date").count() == 0
    assert explorer.locator(".alpa-fact[title*='in float32']").count() == 1


def test_keys_pressed_in_the_explorer_are_no_commands_of_the_notebook(looked_at: LabPage) -> None:
    explorer = first_explorer(looked_at)
    cells = "() => window.jupyterapp.shell.currentWidget.content.model.cells.length"
    before = looked_at.page.evaluate(cells)
    for place in (
        tab(explorer, "Layers"),
        explorer.get_by_role("button", name="Plan", exact=True),
        slider(explorer, "B, microbatches"),
    ):
        place.focus()
        for key in ("a", "b", "x"):  # add a cell above, below, cut
            looked_at.page.keyboard.press(key)
    assert looked_at.page.evaluate(cells) == before


def test_a_click_in_a_figure_selects_everywhere_and_escape_clears(looked_at: LabPage) -> None:
    explorer = first_explorer(looked_at)
    graph = looked_at.figure(explorer.locator(".alpa-panel:visible"))
    # A click on a bar: pixels depend on fonts, so the event that plotly would send is emitted instead.
    graph.evaluate(
        """(g) => { const at = g.data.findIndex((t) => t.customdata?.some((k) => String(k).includes('layer:1')));
          const place = g.data[at].customdata.findIndex((k) => String(k).includes('layer:1'));
          g.emit('plotly_click', { points: [{ customdata: g.data[at].customdata[place], data: g.data[at] }] }); }"""
    )
    explorer.locator(".alpa-selected").wait_for()
    assert "layer 1" in explorer.locator(".alpa-selected").inner_text()

    def faded() -> bool:
        return any(trace.get("selectedpoints") is not None for trace in seen_figure(looked_at, explorer)["data"])

    looked_at.wait_until(faded, "marks that are not selected are faded")
    show_tab(explorer, "Cluster")
    looked_at.wait_until(faded, "also in the next tab")
    tab(explorer, "Cluster").press("Escape")
    looked_at.wait_until(lambda: explorer.locator(".alpa-selected").count() == 0, "nothing is selected")
    looked_at.wait_until(lambda: not faded(), "nothing is faded")


def test_a_stage_is_selected_by_keyboard_in_the_legend_and_in_a_table(looked_at: LabPage) -> None:
    explorer = first_explorer(looked_at)
    legend = explorer.locator(".alpa-stages button").first
    legend.press("Enter")
    explorer.locator(".alpa-selected").wait_for()
    looked_at.wait_until(lambda: legend.get_attribute("aria-pressed") == "true", "the legend shows the selection")
    legend.press("Escape")
    looked_at.wait_until(lambda: explorer.locator(".alpa-selected").count() == 0, "Escape clears")
    explorer.get_by_role("button", name="Tables").press("Enter")
    row = explorer.locator(".alpa-panel:visible tr[data-alpa-key]").first
    row.wait_for()
    row.press("Enter")
    looked_at.wait_until(lambda: row.get_attribute("aria-selected") == "true", "the row is selected")
    assert "layer 0" in explorer.locator(".alpa-selected").inner_text()


def test_pin_undo_and_a_file_saved_and_opened_again(shown: LabPage, tmp_path: Path) -> None:
    explorer = first_explorer(shown)
    explorer.get_by_role("button", name="Pin").press("Enter")
    explorer.locator(".alpa-verdict em").first.wait_for()
    slider(explorer, "B, microbatches").press("ArrowRight")
    explorer.get_by_text("12 × 8").wait_for()
    shown.wait_until(lambda: explorer.locator(".alpa-better").count() > 0, "the change is shown")
    tab(explorer, "Compare").press("Enter")
    explorer.locator(".alpa-finding:visible", has_text="B 8 → 12").wait_for()
    assert {"this plan", "the pinned plan"} <= {y for trace in seen_figure(shown, explorer)["data"] for y in trace["y"]}
    explorer.get_by_role("button", name="Export").press("Enter")
    with shown.page.expect_download() as waiting:
        explorer.get_by_role("menuitem", name="Save plan").press("Enter")
    waiting.value.save_as(tmp_path / "mine.plan.json")
    assert waiting.value.suggested_filename == "mlp-tiny_1x4_B12.plan.json"

    explorer.get_by_role("button", name="Undo").press("Enter")
    explorer.get_by_text("8 × 8").wait_for()

    with shown.page.expect_file_chooser() as choosing:
        explorer.get_by_role("button", name="Open…").press("Enter")
    choosing.value.set_files(tmp_path / "mine.plan.json")
    explorer.get_by_text("12 × 8").wait_for()
    assert explorer.locator(".alpa-message").count() == 0


def test_a_run_shows_its_loss_as_it_goes_stops_when_asked_and_ends_beside_its_prediction(lab: LabPage) -> None:
    lab.show(SMALL.replace("1x4:v100", "1x2:cpu"))
    explorer = first_explorer(lab)
    show_tab(explorer, "Run")
    status = explorer.locator(".alpa-run-status")
    status.get_by_text("Ready").wait_for()
    explorer.get_by_label("On", exact=True).select_option("cpu")

    def start_run(steps: int) -> None:
        type_number(explorer, "Steps", str(steps))
        explorer.get_by_role("button", name=f"Start {steps:,} steps").press("Enter")

    def last_step() -> int:
        traces = {trace.get("name"): trace for trace in seen_figure(lab, explorer)["data"]}
        return max(traces["loss"]["x"], default=0) if "loss" in traces else 0

    start_run(100_000)
    lab.wait_until(lambda: last_step() >= 2, "losses come while it runs")
    before = last_step()
    lab.wait_until(lambda: last_step() > before, "and more of them")
    explorer.get_by_role("button", name="Stop").press("Enter")
    status.get_by_text("Stopped after").wait_for()

    start_run(2)
    status.get_by_text("Done: 2 steps").wait_for()
    explorer.locator(".alpa-finding:visible", has_text="that were predicted for cpu").wait_for()

    def drawn() -> set[str]:
        return {str(trace.get("name")) for trace in seen_figure(lab, explorer)["data"]}

    lab.wait_until(lambda: {"predicted: computing", "measured: computing"} <= drawn(), "both are drawn")
    explorer.get_by_role("button", name="Tables").press("Enter")
    explorer.locator(".alpa-panel:visible td", has_text="rank 1").wait_for()
