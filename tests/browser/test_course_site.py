"""The website of the course, opened from a file: figures move, quizzes are graded, slides turn; no request leaves."""

import json
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from alpa_explore.course.definition import Exercise
from alpa_explore.course.kinds import Choice, Number
from alpa_explore.course.registry import EXERCISES, grade
from alpa_explore.course.site.build import build_site
from alpa_explore.course.site.page import quiz_data
from alpa_explore.figures import tuning
from tests.browser.conftest import guarded
from tests.browser.harness.page import GuardedPage
from tests.course.example_lesson import CELLS, write

pytestmark = [pytest.mark.browser, pytest.mark.slow]

GRADING = (files("alpa_explore.course.site") / "grading.js").read_text(encoding="utf-8")

EXPLORER = """\
from alpa_explore_widgets import explore

explore("mlp-tiny", cluster="1x2:a100", num_microbatches=4, num_layers=2)"""

TABLE = """\
import numpy as np
from alpa_explore_widgets.course import sliders

from alpa_explore.figures.course.planning.stage_table_player import stage_table_player

latency = np.full((2, 3, 2, 2), np.inf)
latency[0, 1, 0], latency[1, 2, 0], latency[0, 2, 1] = 0.04, 0.05, 0.06
sliders(stage_table_player(latency, [1, 2], 2, 8, ["1×1", "1×2"]))"""


LEGEND = """\
import plotly.graph_objects as go

from alpa_explore.figures.style import layout_of

bars = [go.Bar(x=["a"], y=[1], name=f"a name that is long {n}") for n in range(3)]
go.Figure(bars, layout_of("Three bars", theme="light", height=300))"""

PANELS = 'go.Figure(bars[:1], layout_of("Panels", theme="light", height=300, xaxis2={"domain": [0.6, 1]}))'


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four lessons, run and written once."""
    folder = tmp_path_factory.mktemp("notebooks")
    write(folder / "03_example.ipynb", CELLS)
    write(folder / "04_explorer.ipynb", [("markdown", "# 04 · An explorer"), ("code", EXPLORER)])
    write(folder / "05_table.ipynb", [("markdown", "# 05 · A table"), ("code", TABLE)])
    write(folder / "06_wide.ipynb", [("markdown", "# 06 · Wide"), ("code", LEGEND), ("code", PANELS)])
    write(folder / "index.ipynb", [("markdown", "# Index\n\n[The ring](03_example.ipynb)")])
    return build_site(folder, tmp_path_factory.mktemp("out") / "site")


@pytest.fixture
def page(browser: Browser, site: Path) -> Iterator[GuardedPage]:
    """The first lesson; at the end no request left the machine, and the console has no error."""
    with guarded(browser) as (opened, guard):
        opened.goto((site / "03_example.html").as_uri())
        opened.locator("html[data-ready]").wait_for()
        yield GuardedPage(opened, guard)
        guard.check()


def test_a_slider_moves_the_bars_also_in_the_dark(page: GuardedPage) -> None:
    plot = page.figure()
    bars = "(plot) => Array.from(plot.data[0].y)"
    assert plot.evaluate(bars) == [1, 2]
    page.page.get_by_role("slider", name="n").press("End")
    page.wait_until(lambda: plot.evaluate(bars) == [3, 6], "the last step")

    light = plot.evaluate("(plot) => plot._fullLayout.paper_bgcolor")
    page.page.get_by_role("button", name="Theme").click()
    page.page.locator('.figure[data-drawn="dark"]').wait_for()
    page.wait_until(lambda: plot.evaluate(bars) == [3, 6], "the step that was chosen is kept")
    assert plot.evaluate("(plot) => plot._fullLayout.paper_bgcolor") != light


def test_a_quiz_is_graded_in_the_page(page: GuardedPage) -> None:
    exercise = EXERCISES["03.1"]
    truth, mistake = exercise.truth, exercise.mistakes[0]
    quiz = page.page.locator("form.quiz")
    field, verdict = quiz.get_by_role("textbox"), quiz.get_by_role("status")

    def answer(text: str) -> str:
        field.fill(text)
        field.press("Enter")
        return verdict.inner_text()

    assert "Right" in (right := answer(f"{truth:.6g}"))
    assert "p − 1" in right
    assert "Right" in answer(f"{truth:.6f}".replace(".", ",")), "with a decimal comma"
    wrong = answer(f"{mistake.answer:.6g}")
    assert "Not yet" in wrong
    assert mistake.reason[:40] in wrong
    assert "too large" in answer("1e9")
    assert "milliseconds" in answer(f"{1e3 * truth:.6g}")
    assert "Right" in answer(f"{1e3 * truth:.6g} ms")
    assert "Not marked" in answer("fast")
    assert "Not marked" in answer("")

    field.fill(f"{mistake.answer:.6g}")
    quiz.get_by_role("button", name="Hint").click()
    assert mistake.reason[:40] in verdict.inner_text(), "a hint looks at the answer first"
    tab = page.page
    tab.reload()
    tab.locator("html[data-ready]").wait_for()
    field.fill("")

    hints = quiz.locator(".hints li:visible")
    button = quiz.get_by_role("button", name="Hint")
    assert hints.count() == 0
    for shown in range(1, len(exercise.hints) + 1):
        button.click()
        assert hints.count() == shown
    assert button.is_disabled()


ANSWERS = ("", "fast", "0 1 2", "0,1,2", "[0, 1, 2]", "1,234", "1,234,567", "1,23,4", "0,27", "30 %", "4 ms", "2 GiB")
ANSWERS += ("0 1 2.", "(0;1;2)", "'0 1 2'", '"4 ms"', "'0,27'", "0, 1 and 2", "0,5; 0,25", "a", "b)", "4ms", "~4 ms")
ANSWERS += ("1.5 × 10^9", "16 384 B", "1/8")
ANSWERS += ("4 parsecs", "−3", "1e999", ".5", "16 384", "2;0", "3", "nan", "Infinity", "0x10", "1e-3", "٣")


def test_a_guess_is_revealed_and_kept_with_answers_and_theme(page: GuardedPage) -> None:
    tab = page.page
    field, card = tab.get_by_label("Your guess"), tab.locator(".alpa-card[data-truth]")
    field.fill("soon")
    field.press("Enter")
    assert "a number of seconds" in tab.locator("form.guess .verdict").inner_text()
    assert "guess first" in card.inner_text()
    field.fill("8 ms")
    field.press("Enter")
    assert "The all-reduce is 0.004" in card.inner_text()
    assert "too large, by a factor of about 2" in card.inner_text()
    truth = EXERCISES["03.1"].truth
    tab.locator("form.quiz").get_by_role("textbox").fill(f"{truth:.6g}")
    tab.locator("form.quiz").get_by_role("textbox").press("Enter")
    tab.get_by_role("button", name="Theme").click()
    dark = tab.evaluate("document.documentElement.dataset.theme")

    tab.reload()
    tab.locator("html[data-ready]").wait_for()
    assert tab.evaluate("document.documentElement.dataset.theme") == dark
    assert field.input_value() == "8 ms"
    assert "too large" in card.inner_text()
    assert "Right" in tab.locator("form.quiz").get_by_role("status").inner_text()


def test_a_page_works_where_storage_is_blocked(browser: Browser, site: Path) -> None:
    with guarded(browser) as (opened, guard):
        opened.add_init_script(
            "Object.defineProperty(window, 'localStorage', { get() { throw new Error('blocked'); } })"
        )
        opened.goto((site / "03_example.html").as_uri())
        opened.locator("html[data-ready]").wait_for()
        opened.get_by_label("Your guess").fill("4 ms")
        opened.get_by_label("Your guess").press("Enter")
        assert "You guessed well" in opened.locator(".alpa-card[data-truth]").inner_text()
        assert opened.locator("script[src='plotly.min.js']").count() == 1
        opened.goto((site / "index.html").as_uri())
        opened.locator("html[data-ready]").wait_for()
        assert opened.locator("script[src='plotly.min.js']").count() == 0, "no figure, no plotly"
        guard.check()


def test_the_text_is_readable_without_javascript(browser: Browser, site: Path) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto((site / "03_example.html").as_uri())
    for heading in ("03 · Example", "Question: a ring", "Explanation", "What we left out"):
        assert page.get_by_role("heading", name=heading).is_visible()
    assert page.locator("math").first.is_visible()
    # Where a test takes scripts away, Chromium still hides what is for browsers without them.
    assert "need JavaScript" in str(page.locator("noscript").text_content())
    assert page.get_by_text("How long does it take?").first.is_visible()
    page.get_by_role("link", name="04 · An explorer").first.click()
    assert page.get_by_role("heading", name="04 · An explorer").is_visible()
    assert page.locator(".plan table").first.is_visible(), "a plan is text, too"
    context.close()


def test_a_page_is_used_by_keyboard_alone_and_shows_where_the_focus_is(page: GuardedPage) -> None:
    tab = page.page
    seen = []
    outlined = "e => [getComputedStyle(e).outlineStyle, e.tagName, e.textContent.trim() || e.type]"
    for _ in range(200):
        tab.keyboard.press("Tab")
        focus = tab.evaluate_handle("document.activeElement").as_element()
        assert focus is not None
        style, tag, text = focus.evaluate(outlined)
        if tag == "BODY":
            break
        assert style != "none", f"{tag} {text} has no ring"
        seen.append((tag, text))
    names = [text for _, text in seen]
    for needed in ("Theme", "Hint", "Check"):
        assert any(needed in text for text in names), (needed, names)
    assert sum(tag == "INPUT" for tag, _ in seen) >= 3, "search, guess and answer"


def typed_answers(exercise: Exercise) -> list[str]:
    """What people may type: the truth and mistakes in several forms, and what is no answer."""
    kind, truth = exercise.kind, exercise.truth
    if isinstance(kind, Choice):
        return list(kind.options)
    if isinstance(kind, Number):
        values = [truth * factor for factor in (1, 1.001, 1.0301, 1.5, -1, 2**-30, 1e-9, 1e-3, 1e3, 60, 100, 8)]
        values += [mistake.answer for mistake in exercise.mistakes]
        return [*ANSWERS, *(f"{value:.12g}" for value in values)]
    return [*ANSWERS, " ".join(map(str, truth)), str(list(truth)), str(list(truth)[::-1])]


def test_the_page_grades_as_the_notebook_does(browser: Browser) -> None:
    asked = [[json.loads(json.dumps(quiz_data(e))), typed_answers(e)] for e in EXERCISES.values()]
    page = browser.new_page()
    graded = "asked.map(([quiz, answers]) => answers.map((answer) => gradeAnswer(quiz, answer)[0]))"
    states = page.evaluate(f"(asked) => {{ {GRADING}; return {graded}; }}", asked)
    page.close()
    for exercise, (_, answers), found in zip(EXERCISES.values(), asked, states, strict=True):
        expected = {answer: grade(exercise, answer).state for answer in answers}
        assert dict(zip(answers, found, strict=True)) == expected, exercise.id


def test_slides_turn_by_arrow_keys(page: GuardedPage, site: Path) -> None:
    page.page.goto(f"{(site / '03_example.html').as_uri()}?slides")
    heading = page.page.locator(".part:visible").locator("h1, h2, h4").first
    assert heading.inner_text() == "03 · Example"
    seen = []
    for _ in range(7):
        page.page.keyboard.press("ArrowRight")
        seen.append(heading.inner_text())
    assert seen[:3] == ["Question: a ring", "Guess", "Figure"]
    assert seen[-1] == "What we left out"
    assert "8 of 8" in page.page.locator("#counter").inner_text()
    page.page.keyboard.press("ArrowLeft")
    assert heading.inner_text().startswith("03.1")
    for _ in range(2):
        page.page.keyboard.press("ArrowLeft")
    assert heading.inner_text() == "Explanation"
    assert page.page.locator(".part:visible math").first.is_visible(), "the formula is the picture of this slide"
    assert page.page.locator(".part:visible pre:visible").count() == 0, "code is for the page"
    notes = page.page.locator("#notes")
    assert not notes.is_visible()
    page.page.keyboard.press("n")
    assert "is the wait of a message" in notes.inner_text()
    assert "Next: Exercises" in notes.inner_text()
    page.page.keyboard.press("ArrowLeft")
    assert page.figure().is_visible()
    page.page.set_viewport_size({"width": 1280, "height": 560})
    page.page.keyboard.press("ArrowRight")
    page.page.keyboard.press("ArrowLeft")
    figure = page.page.locator("figure:visible").bounding_box()
    assert figure["y"] + figure["height"] <= 560, "it is shown smaller"
    assert page.page.evaluate("document.documentElement.scrollHeight <= window.innerHeight")
    page.page.keyboard.press("Escape")
    assert not notes.is_visible()
    assert page.page.locator(".said").count() == 0
    assert page.page.locator(".part:visible").count() == 8

    page.page.goto(f"{(site / '05_table.html').as_uri()}?slides")
    slider = page.page.locator("figure.interactive input[type=range]").first
    before = slider.input_value(), page.page.locator("#counter").inner_text()
    slider.press("ArrowRight" if before[0] == "0" else "ArrowLeft")
    assert slider.input_value() != before[0], "it has the arrow keys while it has the focus"
    assert page.page.locator("#counter").inner_text() == before[1]


def test_an_explorer_is_its_plan_with_figures_behind_a_fold(page: GuardedPage) -> None:
    page.page.get_by_role("link", name="04 · An explorer").first.click()
    page.page.locator("html[data-ready]").wait_for()
    assert page.page.locator(".plan table").first.is_visible()
    page.page.get_by_text("The figures of this plan").click()
    layers = page.figure()
    assert "layers" in layers.evaluate("(plot) => plot.layout.title.text")


def test_a_narrow_screen_scrolls_in_one_direction(page: GuardedPage) -> None:
    page.page.set_viewport_size({"width": 390, "height": 800})
    page.page.reload()
    page.figure()
    assert page.page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    assert page.page.locator("nav details").get_attribute("open") is None
    page.page.goto(page.page.url.replace("03_example", "05_table"))
    plot = page.figure()
    assert plot.evaluate("(plot) => plot.clientWidth") == tuning.LABELLED_PIXELS, "wide enough for its numbers"
    assert plot.bounding_box()["width"] < 390, "and shown smaller"
    frame = plot.locator("xpath=..")
    assert abs(frame.bounding_box()["height"] - plot.bounding_box()["height"]) < 120, "no gap is left below it"
    size = page.page.get_by_role("button", name="Full size")
    size.press("Enter")
    assert size.get_attribute("aria-pressed") == "true"
    assert plot.bounding_box()["width"] == tuning.LABELLED_PIXELS, "it scrolls in its place"
    size.press("Enter")
    page.page.set_viewport_size({"width": 900, "height": 800})
    page.wait_until(lambda: size.count() == 0, "there is room again")
    assert plot.bounding_box()["width"] > tuning.LABELLED_PIXELS
    page.page.set_viewport_size({"width": 390, "height": 800})
    page.page.goto(page.page.url.replace("05_table", "06_wide"))
    page.page.locator("div.figure").last.scroll_into_view_if_needed()
    top = "(plot) => plot._fullLayout.margin.t"
    assert page.figure().evaluate(top) == 46 + 20 + 2 * 20, "a legend in three lines has its room"
    assert page.figure(index=1).evaluate("(plot) => plot.clientWidth") == 540, "and so have panels"
    for width in (390, 1280):
        page.page.set_viewport_size({"width": width, "height": 800})
        for name in ("04_explorer", "index"):
            page.page.goto(page.page.url.replace(page.page.url.rpartition("/")[2], f"{name}.html"))
            page.page.locator("html[data-ready]").wait_for()
            assert page.page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), (name, width)
    page.page.set_viewport_size({"width": 390, "height": 800})
    page.page.goto(page.page.url.replace("index", "05_table"))
    page.figure()
    assert page.page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), "it scrolls in its place"


def test_a_table_is_filled_for_the_t_max_of_a_slider_and_played(page: GuardedPage) -> None:
    page.page.get_by_role("link", name="05 · A table").first.click()
    page.page.locator("html[data-ready]").wait_for()
    plot = page.figure()

    def title() -> str:
        return str(plot.evaluate("(plot) => plot.layout.title.text")).replace("<br>", " ")

    # By hand: one stage 60 + 7 · 60 ms, two stages 40 + 50 + 7 · 50 ms.
    assert title() == "t_max 50 ms: Σt 90 ms + 7 × 50 ms = 440 ms in 2 stages, the least of all."
    t_max, step = page.page.get_by_role("slider", name="t_max"), page.page.get_by_role("slider", name="Cells filled")
    t_max.press("End")
    page.wait_until(lambda: "= 480 ms in 1 stage" in title(), "T of the largest t_max")
    assert t_max.get_attribute("aria-valuetext") == "60 ms"
    step.press("Home")
    page.wait_until(lambda: "all cells are empty" in title(), "the empty table")
    page.page.get_by_role("button", name="Play").click()
    page.wait_until(lambda: "F(1, 1, 1) = 50 ms: layer 1 on 1×1" in title(), "the first cell")
    page.page.get_by_role("button", name="Theme").click()
    page.page.locator('.figure[data-drawn="dark"]').wait_for()
    page.wait_until(lambda: "in 1 stage" in title(), "the table is played to its end")
    assert step.get_attribute("aria-valuetext") == "all: T"
    t_max.press("Home")
    page.wait_until(lambda: "no partition" in title(), "T of the least t_max")
    page.page.get_by_role("button", name="Play").wait_for()


def test_the_pipeline_of_the_first_page_moves_and_stands_still_where_less_motion_is_asked(page: GuardedPage) -> None:
    page.page.emulate_media(reduced_motion="no-preference")
    page.page.goto(page.page.url.replace("03_example", "index"))
    bar = page.page.locator(".moving g").last
    names = "(bar) => bar.getAnimations().map((one) => one.animationName)"
    assert bar.evaluate(names) == ["film"]
    page.page.emulate_media(reduced_motion="reduce")
    assert bar.evaluate(names) == []
    assert bar.evaluate("(bar) => getComputedStyle(bar).opacity") == "1"


def test_formulas_are_set_in_the_font_of_the_site(page: GuardedPage) -> None:
    assert page.page.evaluate("document.fonts.ready.then(() => document.fonts.check('16px \"STIX Two Math\"'))")
    loaded = "[...document.fonts].map((font) => [font.family, font.status])"
    assert page.page.evaluate(loaded) == [["STIX Two Math", "loaded"]]
