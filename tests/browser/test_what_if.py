"""The layouts that a page prices by itself, beside the library; and the page that asks for them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from pathlib import Path
from random import Random
from typing import Any

import pytest
from playwright.sync_api import Browser

from alpa_explore.baselines.layout import Layout
from alpa_explore.cluster import Cluster
from alpa_explore.course.site import what_if
from alpa_explore.course.site.build import build_site
from alpa_explore.course.site.what_if import DEVICE, MODELS, asked_layouts, what_if_tables
from alpa_explore.execution.executors import Executor
from alpa_explore.planner.resources import Resources
from alpa_explore.uniform_layouts.layouts import Question
from alpa_explore.uniform_layouts.ranking import PricedLayout
from tests.browser.conftest import guarded
from tests.browser.harness.page import GuardedPage
from tests.course.example_lesson import write

pytestmark = [pytest.mark.browser, pytest.mark.slow]

SCRIPT = (files("alpa_explore.course.site") / "what_if.js").read_text(encoding="utf-8")
QUESTIONS = 200
DIVISIONS = 5
"""Of each model, drawn from all that the page has: the library prices a division in up to a second."""


def question(model: str, layout: Layout, batch: int) -> dict[str, Any]:
    """As the page asks."""
    degrees = {"tp": layout.tensor, "pp": layout.pipeline, "dp": layout.data, "cp": layout.context, "ep": layout.expert}
    more = {"microbatch": layout.microbatch, "zero": layout.zero_stage, "recompute": layout.recompute, "batch": batch}
    return {"model": model, "devices": layout.devices, **degrees, **more}


def division(layout: Layout) -> tuple[int, ...]:
    """What a row of the tables is for."""
    return layout.tensor, layout.context, layout.expert, layout.microbatch


@cache
def divisions(model: str, known: frozenset[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """A few of those that a model has on its first cluster."""
    return Random(model).sample(sorted(known), DIVISIONS)


def some_layouts(question: Question, cluster: Cluster, resources: Resources) -> list[Layout]:
    """Those of a few divisions, the same on every cluster of a model."""
    name, smallest = question.model.name, Cluster.parse(f"{MODELS[question.model.name][0]}x8:{DEVICE}")
    known = divisions(name, frozenset(map(division, asked_layouts(question, smallest, resources))))
    return [layout for layout in asked_layouts(question, cluster, resources) if division(layout) in known]


def drawn() -> list[tuple[str, PricedLayout, int]]:
    """As many questions of each model, with the library's price; of each cluster, degree and kind some."""
    random, found = Random(47), []
    with Executor("threads") as executor:
        resources = Resources(executor=executor, store=None, progress=None, cancel=None)
        for model, nodes in MODELS.items():
            asked = Question.of(model, None, None, None, cache=True)
            every = []
            for count in nodes:
                cluster = Cluster.parse(f"{count}x8:{DEVICE}")
                every += [(cluster, layout) for layout in some_layouts(asked, cluster, resources)]
            chosen = random.sample(every, QUESTIONS // len(MODELS))
            asked.prices.works.prepare(chosen, resources)
            found += [(model, asked.prices.on(cluster).price(layout), asked.global_batch) for cluster, layout in chosen]
    return found


def test_the_page_and_the_library_agree_on_random_questions(browser: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(what_if, "asked_layouts", some_layouts)
    tables, asked = json.loads(json.dumps(what_if_tables(MODELS))), drawn()
    page = browser.new_page()
    questions = [question(model, priced.layout, batch) for model, priced, batch in asked]
    answers = page.evaluate(
        f"([tables, questions]) => {{ {SCRIPT}; return questions.map((one) => whatIf.price(tables, one)); }}",
        [tables, questions],
    )
    page.close()
    assert len(answers) == QUESTIONS
    for (model, priced, _), answer in zip(asked, answers, strict=True):
        what = f"{model}: {priced.words}"
        assert not answer.get("refused"), f"{what}: {answer}"
        assert answer["seconds"] == pytest.approx(priced.seconds, rel=0.01), what
        assert answer["bytes"] == pytest.approx(priced.bytes, rel=0.01), what
        assert answer["mfu"] == pytest.approx(priced.mfu, rel=0.01), what
        assert answer["fits"] == priced.fits, what
        for (name, size), (expected, of_library) in zip(answer["parts"], priced.parts_bytes, strict=True):
            assert (name, size) == (expected, pytest.approx(of_library, rel=0.01, abs=1e6)), what
    shapes = {(q["pp"] > 1, q["zero"], q["recompute"], q["cp"] > 1, q["ep"] > 1) for q in questions}
    assert len(shapes) > 20, "pipelines, ZeRO, recomputation, context and experts are among them"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index, a glossary, and the page with two small models."""
    folder = tmp_path_factory.mktemp("notebooks")
    write(folder / "03_example.ipynb", [("markdown", "# 03 · A ring\n\nThe all-reduce of a ring sends twice.")])
    write(
        folder / "glossary.ipynb",
        [("markdown", "# Glossary\n\n| word | meaning |\n|---|---|\n| **all-reduce** | A sum. |")],
    )
    write(folder / "index.ipynb", [("markdown", "# Index\n\nBegin.")])
    small = {"llama-tiny": (1, 2), "mixtral-tiny": (1,)}
    return build_site(folder, tmp_path_factory.mktemp("out") / "site", priced=small)


@pytest.fixture(params=[1280, 390])
def page(browser: Browser, site: Path, request: pytest.FixtureRequest) -> Iterator[GuardedPage]:
    """The live what-if on a wide and on a narrow screen; at the end no request left the machine, and no error came."""
    with guarded(browser) as (opened, guard):
        opened.set_viewport_size({"width": request.param, "height": 800})
        opened.goto((site / "what_if.html").as_uri())
        opened.locator("html[data-ready]").wait_for()
        yield GuardedPage(opened, guard)
        assert opened.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), "it scrolls one way"
        guard.check()


def test_a_layout_is_chosen_refused_and_bettered_in_the_page(page: GuardedPage) -> None:
    tab = page.page
    answer, dp = tab.locator("#layout-form .answer"), tab.locator("output[name=dp]")

    def seconds() -> str:
        return answer.locator("b").inner_text()

    assert "an iteration" in seconds()
    tab.get_by_label("GPUs").select_option("16")
    tab.get_by_label("Tensor (TP)").select_option("4")
    assert dp.inner_text() == "4"
    before = seconds()
    assert "TP 4 · PP 1 · DP 4" in answer.inner_text()
    assert "fits" in before
    assert "weights" in (tab.locator(".memory").get_attribute("aria-label") or "")
    assert tab.locator(".legend .limit").inner_text() == "a device has 80.0 GiB"
    assert "in which gradients are summed" in answer.inner_text(), "one stage is no pipeline, and fills none"
    tab.get_by_label("Pipeline (PP)").select_option("2")
    assert "in which the pipeline fills and drains" in answer.inner_text()
    tab.get_by_label("Pipeline (PP)").select_option("2")
    tab.get_by_label("ZeRO").select_option("3")
    assert seconds() == "There is no such layout."
    assert "a pipeline would gather weights" in answer.inner_text()
    tab.get_by_role("button", name="Show the fastest").click()
    assert "ms an iteration" in seconds()
    tab.get_by_role("button", name="Copy a link").click()
    link, chosen = tab.url, answer.inner_text()
    assert "#devices=16" in link
    tab.goto("about:blank")
    tab.goto(link)
    tab.locator("html[data-ready]").wait_for()
    assert answer.inner_text() == chosen, "the link has the layout"

    tab.get_by_label("Model").select_option("mixtral-tiny")
    tab.get_by_label("Tensor (TP)").select_option("1")
    tab.get_by_label("Pipeline (PP)").select_option("1")
    tab.get_by_label("Experts (EP)").select_option("8")
    tab.get_by_label("ZeRO").select_option("1")
    assert "EP 8" in answer.inner_text()


def test_pages_are_searched_and_words_explained_without_a_request(page: GuardedPage) -> None:
    tab = page.page
    field = tab.get_by_role("searchbox")
    field.fill("RING twice")
    found = tab.locator("#found li")
    page.wait_until(lambda: found.count() == 1, "the section that has both words")
    field.fill("nowhere")
    page.wait_until(lambda: "Nothing has these words." in found.inner_text(), "nothing is found")
    field.fill("twice")
    found.get_by_role("link", name="03 · A ring").click()
    tab.locator("html[data-ready]").wait_for()
    word = tab.locator("a.term")
    assert word.inner_text() == "all-reduce"
    word.focus()
    tab.keyboard.press("Tab")
    tab.keyboard.press("Shift+Tab")
    meaning = "(word) => getComputedStyle(word, '::after').content"
    page.wait_until(lambda: word.evaluate(meaning) == '"A sum."', "its meaning, for the keyboard too")
    word.press("Enter")
    tab.locator("#word-all-reduce").wait_for()
