"""The page: one file, plotly.js once, nothing loaded from elsewhere, and names of a stranger are escaped."""

import json
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest

from alpa_explore.accuracy.record import stored_record
from alpa_explore.cli.output import write_page
from alpa_explore.errors import PlanFileError
from alpa_explore.figures.accuracy_page import accuracy_html
from alpa_explore.figures.comparisons.baselines import baselines_figure
from alpa_explore.figures.comparisons.solvers import solvers_figure
from alpa_explore.figures.html_page import figure_html
from alpa_explore.figures.layouts import scatter_figure
from alpa_explore.figures.page import page_html
from alpa_explore.figures.report_page import Tried, report_html
from alpa_explore.plans.plan import Plan
from tests.accuracy.example import example_record
from tests.figures.comparisons.test_solvers import compared, row
from tests.figures.conftest import HOSTILE
from tests.figures.layouts.test_layout_figures import priced_layouts


class Elements(HTMLParser):
    """Tags with attributes, in order, and the text of scripts."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    def named(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


@pytest.fixture(scope="module")
def page(plan: Plan) -> str:
    return page_html(plan)


PAGES: dict[str, Callable[[Plan], str]] = {
    "plan": page_html,
    "report": lambda plan: report_html([Tried(plan=plan), Tried(plan=plan)], chosen=1),
    "baselines": lambda plan: figure_html(baselines_figure([plan, plan])),
    "layouts": lambda plan: figure_html(scatter_figure(priced_layouts())),
    "solvers": lambda plan: figure_html(solvers_figure(compared(row("auto", 0.1, 2.0, 2.0)))),
    "accuracy": lambda plan: accuracy_html(example_record()),
}


@pytest.mark.parametrize("kind", PAGES)
def test_a_page_contains_plotly_once_and_loads_nothing(kind: str, plan: Plan) -> None:
    page = PAGES[kind](plan)
    elements = Elements(page)
    assert page.startswith("<!doctype html>")
    assert not elements.named("link") + elements.named("img")
    assert not [a for _, attributes in elements.tags for a in attributes if a == "src"]
    assert len(re.findall(r"plotly\.js v\d", page)) == 1
    assert len(page) < 8e6


def test_the_page_has_a_language_a_title_headings_and_a_table_for_each_figure(page: str, plan: Plan) -> None:
    elements = Elements(page)
    assert elements.named("html") == [{"lang": "en"}]
    assert len(elements.named("h1")) == 1
    figures = 7 + 3 * len(plan.stages) + bool(stored_record().runs)
    assert len(elements.named("h2")) == len(elements.named("figure")) == len(elements.named("table")) == figures
    assert all(figure["aria-label"] for figure in elements.named("figure"))
    assert "gpt-example on 2x4:v100 · alpa_explore" in elements.texts
    assert any("4 stages (2 on 1 device, 1 on 4 devices, 1 on 2 devices)" in text for text in elements.texts)


def test_the_page_has_each_figure_in_both_themes(page: str, plan: Plan) -> None:
    match = re.search(r'<script type="application/json" id="figures">(.*?)</script>', page, re.DOTALL)
    data = json.loads(match[1])
    assert set(data["figures"]) == {"layers", "cluster", "t-max", "microbatches", "stage-costs", "timeline", "why"} | {
        f"{name}-{s.index}" for s in plan.stages for name in ("sharding", "memory", "frontier")
    } | ({"accuracy"} if stored_record().runs else set())
    assert all(set(themes) == {"light", "dark"} for themes in data["figures"].values())
    assert data["config"]["displaylogo"] is data["config"]["showSendToCloud"] is False


@pytest.mark.slow
def test_names_of_a_stranger_add_no_element(hostile_plan: Plan, page: str) -> None:
    text = page_html(hostile_plan)
    hostile = Elements(text)
    assert [tag for tag, _ in hostile.tags] == [tag for tag, _ in Elements(page).tags]
    assert HOSTILE not in text
    assert not [a for _, attributes in hostile.tags for a in attributes if a.startswith("on")]


def test_the_page_is_written_atomically(plan: Plan, page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("alpa_explore.figures.page.page_html", lambda _: page)
    write_page(plan, str(tmp_path / "a.html"))
    assert (tmp_path / "a.html").read_text() == page
    assert page.endswith("</html>\n")
    with pytest.raises(PlanFileError, match="The page was not written"):
        write_page(plan, str(tmp_path / "missing" / "a.html"))


def test_a_page_promises_nothing_of_clicks_which_only_the_explorer_has(page: str) -> None:
    assert "t_max" in page
    assert "click: " not in page
