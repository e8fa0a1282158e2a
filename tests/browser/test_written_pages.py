"""The pages that are written to a file, in a browser: a plan's figures, and the report of what was tried."""

from dataclasses import replace
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from alpa_explore.figures.page import page_html
from alpa_explore.figures.report_page import Tried, report_html
from tests.browser.conftest import guarded
from tests.figures.conftest import HOSTILE
from tests.plans.example import example_plan
from tests.waiting import LIMIT_SECONDS

pytestmark = pytest.mark.browser


def test_every_figure_is_drawn_no_script_of_a_stranger_runs_and_nothing_is_loaded(
    browser: Browser, tmp_path: Path
) -> None:
    plan, path = example_plan(mark=HOSTILE), tmp_path / "a.html"
    path.write_text(page_html(plan), encoding="utf-8")
    seen: list[str] = []
    with guarded(browser) as (page, guard):
        page.on("request", lambda request: seen.append(request.url.split("?")[0]))
        page.on("dialog", lambda dialog: seen.append(dialog.message))
        page.on("console", lambda message: seen.append(message.text))
        for scheme, paper in (("light", "rgb(255, 255, 255)"), ("dark", "rgb(17, 17, 17)")):
            page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]  # one of the schemes
            page.goto(path.as_uri())
            page.wait_for_selector(f"html[data-drawn={scheme}]", timeout=1000 * LIMIT_SECONDS)
            drawn = page.locator("figure .main-svg:first-child")
            assert drawn.count() == 8 + 3 * len(plan.stages)
            assert drawn.first.evaluate("(svg) => svg.style.background") == paper
            assert page.locator("figure a, figure img, figure script").count() == 0
        guard.check()
    assert set(seen) == {path.as_uri()}


def test_the_table_of_the_report_sorts_nothing_is_requested_and_nothing_complains(
    browser: Browser, tmp_path: Path
) -> None:
    plan, path = example_plan(), tmp_path / "report.html"
    slower = replace(plan.predicted, iteration_seconds=2 * plan.predicted.iteration_seconds)
    tried = [
        Tried(plan=example_plan(num_microbatches=16)),
        Tried(plan=plan),
        Tried(plan=replace(plan, options=replace(plan.options, delta=0.25), predicted=slower)),
    ]
    path.write_text(report_html(tried, chosen=1), encoding="utf-8")
    complaints: list[str] = []
    with guarded(browser) as (page, guard):
        page.on("console", lambda message: complaints.append(message.text))
        page.goto(path.as_uri())
        page.wait_for_selector("html[data-drawn]", timeout=1000 * LIMIT_SECONDS)
        heading = page.get_by_role("button", name="iteration", exact=True)

        def rows(value: str) -> list[float]:
            found: list[float] = page.eval_on_selector_all(
                "table[data-sortable] tbody tr", f"(rows, at) => rows.map((row) => {value})", column
            )
            return found

        column = heading.evaluate("(button) => button.parentElement.cellIndex")
        number = "parseInt(row.cells[0].textContent)"
        heading.focus()
        page.keyboard.press("Enter")
        rising, times = rows(number), rows("Number(row.cells[at].dataset.value)")
        assert times == sorted(times)
        heading.click()
        assert rows(number) == rising[::-1]
        assert heading.evaluate("(button) => button.parentElement.getAttribute('aria-sort')") == "descending"
        page.get_by_role("button", name="plan", exact=True).click()
        assert rows(number) == [1, 2, 3]
        guard.check()
    assert complaints == []
