"""The website: what its pages hold, which outputs it can show, and that it is written whole or not at all."""

import json
import os
import re
import stat
import subprocess
import sys
from html import unescape
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from alpa_explore.cli import commands
from alpa_explore.course.coding.task import tasks
from alpa_explore.course.lessons.notebook import Cell, Lesson, course_folder, read_lesson, read_lessons
from alpa_explore.course.lessons.sync import BEGIN, END
from alpa_explore.course.registry import EXERCISES
from alpa_explore.course.site import build as site_build
from alpa_explore.course.site.build import MARK, build_site
from alpa_explore.course.site.execute import RunCell, run_lesson
from alpa_explore.course.site.markdown import formula_html, markdown_html
from alpa_explore.course.site.outputs import PLOTLY, WIDGET, Figures, outputs_html
from alpa_explore.course.site.page import Site, moving_pipeline_html, page_html, plan_html, quiz_data, quiz_html
from alpa_explore.course.site.saved_plan import plan_data, save_plan
from alpa_explore.course.site.words import SLIDE_WORDS, said, sections_of, terms_of
from alpa_explore.errors import CourseError
from tests.course.example_lesson import CELLS, write
from tests.plans.example import example_plan

LIGHT_BYTES = 3e6
"""Of a page without a figure, with all that it loads."""
FIGURE = {
    "data": [{"type": "bar", "x": [1], "hovertext": ["one<br>click: selects one"]}],
    "layout": {"title": {"text": "One &amp; <br>two"}, "height": 300, "template": {"x": 1}},
}


def shown(data: dict[str, object]) -> dict[str, object]:
    return {"output_type": "display_data", "data": data, "metadata": {}}


def example_run(tmp_path: Path) -> tuple[Lesson, list[RunCell]]:
    lesson = read_lesson(write(tmp_path / "03_example.ipynb", CELLS))
    runs = []
    for cell in lesson.cells:
        outputs = [shown({PLOTLY: FIGURE})] if "of_states" in cell.source else []
        runs.append(RunCell(cell=cell, outputs=outputs))
    return lesson, runs


def data_of(page: str) -> dict:
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)[1])


def test_a_page_has_parts_figures_quizzes_and_ways_to_other_lessons(tmp_path: Path) -> None:
    lesson, run = example_run(tmp_path)
    other = read_lesson(write(tmp_path / "04_other.ipynb", [("markdown", "# 04 · <Other>")]))
    page = page_html(run, lesson, Site(lessons=[lesson, other])).html
    data = data_of(page)
    assert list(data["quizzes"]) == ["03.1"]
    assert len(data["figures"]) == 1
    assert data["figures"][0]["data"] == [{**FIGURE["data"][0], "hovertext": ["one"]}], "nothing is clicked on a page"
    assert "template" not in data["figures"][0]["layout"], "all figures share those of the themes"
    parts = re.findall(r'<section class="part" id="part-\d+" data-said="[^"]*">(.*?)</section>', page, re.DOTALL)
    starts = [re.search(r"<h[12] id=\"([\w-]+)\"|<form", part)[0] for part in parts]
    assert [s.partition('"')[2].rstrip('"') for s in starts] == [
        "03-example",
        "question-a-ring",
        "guess",
        "figure",
        "explanation",
        "exercises",
        "",
        "what-we-left-out",
    ]
    assert 'href="04_other.html">04 · &lt;Other&gt; →' in page
    assert page.index("</h1>") < page.index("After it you can") < page.index("Question: a ring")
    assert 'href="notebooks/03_example.ipynb" download' in page
    assert "<math" in page
    assert "points(" not in page
    assert "my_guess = ..." not in page
    assert page.count("lines of Python</summary>") == 1, "long code is behind a fold"
    assert page.count('<form class="guess">') == 1
    assert 'exercise("03.1"' not in page.partition("<script type")[0].replace("&quot;", '"')
    assert not re.search(r"""(?:src|href)="(?:https?:)?//""", page)


def test_a_page_leads_to_its_source_where_that_is_known(tmp_path: Path) -> None:
    lesson, run = example_run(tmp_path)
    page = page_html(run, lesson, Site(lessons=[lesson], repository="https://github.com/owner/name")).html
    assert '<a href="https://github.com/owner/name">Source</a>' in page
    assert "https://mybinder.org/v2/gh/owner/name/HEAD?urlpath=lab/tree/notebooks/03_example.ipynb" in page
    elsewhere = page_html(run, lesson, Site(lessons=[lesson], repository="https://git.example/x")).html
    assert "https://git.example/x" in elsewhere
    assert "mybinder" not in elsewhere


def test_a_slide_of_the_lessons_says_at_most_thirty_words() -> None:
    lessons = read_lessons(course_folder())
    silent = []
    for lesson in lessons:
        body = page_html([RunCell(cell=cell) for cell in lesson.cells], lesson, Site(lessons=lessons)).body
        parts = re.findall(r'<section class="part" id="part-\d+" data-said="([^"]*)">(.*?)</section>', body, re.DOTALL)
        assert len(parts) >= 8, lesson.name
        assert max(len(words.split()) for words, _ in parts) <= SLIDE_WORDS, lesson.name
        silent += [re.search(r"<h\d[^>]*>(.*?)<", part)[1] for words, part in parts if not words]
    assert set(silent) <= {"Exercises", "The plan"}


@pytest.mark.parametrize(
    ("html", "expected"),
    [
        ("<h2>A</h2><p>One. Two (x). Which?</p><p>No.</p>", "One. Two (x). Which?"),
        ("<p>Text.</p><p>How long?</p><div class='x'></div>", "How long?"),
        ("<ul><li><strong>Trees.</strong> a</li><li><strong>Sums</strong> b</li></ul><p>c</p>", "Trees. Sums."),
        (f"<p>Short, {'word ' * 40}.</p>", "Short…"),
        (f"<p>{'word ' * 40}</p>", f"{'word ' * 29}…"),
        ('<form><p>Why?</p><div class="buttons"></div><p>A hint?</p></form>', "Why?"),
        ("<h2>A</h2><pre>x</pre>", ""),
    ],
)
def test_a_slide_says_the_question_or_the_first_sentences(html: str, expected: str) -> None:
    assert said(html) == expected


def test_the_pipeline_of_the_first_page_is_that_of_the_simulator() -> None:
    html = moving_pipeline_html()
    assert html.count("<rect") == 2 * 4 * 8
    assert "27" in re.search(r"waits: (\S+) ", html)[1], "3 of 11"
    rows = [
        sorted(
            (float(x), float(w))
            for x, y, w in re.findall(r'<rect x="([\d.]+)" y="(\d+)" width="([\d.]+)"', html)
            if y == row
        )
        for row in ("0", "24", "48", "72")
    ]
    for row in rows:
        assert len(row) == 16
        assert all(x + w <= after for (x, w), (after, _) in pairwise(row)), "a device does one thing at a time"


def test_what_a_cell_prints_is_folded_where_its_card_waits_for_a_guess(tmp_path: Path) -> None:
    lesson, _ = example_run(tmp_path)
    cell = Cell(kind="code", source="print(4)\nreveal(my_guess, 4)", metadata={})
    card = shown({"text/html": '<div class="alpa-card" data-truth="4">guess first</div>'})
    printed = {"output_type": "stream", "name": "stdout", "text": "it is 4\n"}
    site = Site(lessons=[lesson])
    body = page_html([RunCell(cell=cell, outputs=[printed, card])], lesson, site).body
    assert body.index("<details>") < body.index("it is 4") < body.index("</details>") < body.index("guess first")
    assert "<details>" not in page_html([RunCell(cell=cell, outputs=[printed])], lesson, site).body


def test_a_unit_stays_with_its_number_and_what_the_page_shows_anyway_is_left_out() -> None:
    first = read_lessons(course_folder(), ["00"])[0]
    body = page_html([RunCell(cell=cell) for cell in first.cells], first, Site(lessons=[first])).body
    assert "80\u00a0GiB" in body
    assert "\u00a0" not in "".join(match[0] for match in re.finditer(r"<(pre|code)\b.*?</\1>", body, re.DOTALL))
    assert ("tour.svg" in first.path.read_text(), "tour.svg" in body) == (True, False), "for readers of the file alone"


def test_the_live_what_if_stands_first_in_the_list_of_pages(tmp_path: Path) -> None:
    lesson, run = example_run(tmp_path)
    pages = [
        read_lesson(write(tmp_path / f"{name}.ipynb", [("markdown", f"# {name}")])) for name in ("other", "what_if")
    ]
    html = page_html(run, lesson, Site(lessons=[lesson], pages=pages)).html
    assert html.index('href="what_if.html"') < html.index('href="03_example.html"') < html.index('href="other.html"')


@pytest.mark.slow
@pytest.mark.distributed
def test_what_a_page_says_about_running_a_task_is_what_grades_it(tmp_path: Path) -> None:
    task = tasks()["layout"]
    cell = Cell(kind="code", source=f'from alpa_explore.course import task\n\ntask("{task.name}")', metadata={})
    lesson, _ = example_run(tmp_path)
    page = page_html([RunCell(cell=cell)], lesson, Site(lessons=[lesson])).body
    code = unescape(re.sub(r"<[^>]+>", "", page.rpartition("<pre")[2].partition(">")[2].partition("</pre>")[0]))
    assert task.starter in code
    for solution, expected in ((task.right, "✓"), (task.wrong[0], "not yet")):
        (tmp_path / "solution.py").write_text(code.replace(task.starter, solution), encoding="utf-8")
        own = {**os.environ, "ALPA_EXPLORE_COURSE": str(tmp_path / "progress")}
        ran = subprocess.run(
            [sys.executable, "solution.py"], cwd=tmp_path, env=own, capture_output=True, text=True, check=True
        )
        assert expected in ran.stdout, ran.stdout


@pytest.mark.slow
@pytest.mark.distributed
@pytest.mark.sweep(kept=1, in_turn=True)
@pytest.mark.parametrize("number", ["02", "06", "10", "12"])
def test_a_lesson_gives_the_same_page_with_other_hashes(
    number: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (lesson,) = read_lessons(course_folder(), [number])
    site, pages = Site(lessons=[lesson]), []
    for place in ("1", "2"):
        monkeypatch.setenv("PYTHONHASHSEED", place)
        pages.append(page_html(run_lesson(lesson, tmp_path / place), lesson, site).html)
    assert pages[0] == pages[1]


def test_formulas_have_a_font_that_can_set_them() -> None:
    font = (files("alpa_explore.course.site") / "font" / "stix-two-math.woff2").read_bytes()
    assert font[:4] == b"wOF2"
    assert len(font) < 100_000
    assert "SIL OPEN FONT LICENSE" in (files("alpa_explore.course.site") / "font" / "OFL.txt").read_text()


GLOSSARY = """# Glossary

| word | meaning |
|---|---|
| **ring** | Devices that each send to the *next*. |
| **all-reduce** | A collective whose result is the sum. |
| **α, β** | Symbols. |
| **gap** *(of a solver)* | A share. |"""


def test_a_word_of_the_glossary_is_linked_where_a_page_says_it_first(tmp_path: Path) -> None:
    glossary = read_lesson(write(tmp_path / "glossary.ipynb", [("markdown", GLOSSARY)]))
    terms = terms_of(glossary)
    assert list(terms) == ["ring", "all-reduce"]
    text = "## The ring\n\nA string, `ring`, [ring](x.ipynb) and then two rings; a gap of a ring in an all-reduce."
    lesson = read_lesson(write(tmp_path / "03_x.ipynb", [("markdown", f"# 03 · X\n\n{text}")]))
    site = Site(lessons=[lesson], pages=[glossary], terms=terms)
    page = page_html([RunCell(cell=cell) for cell in lesson.cells], lesson, site).body
    linked = re.findall(r'<a class="term" href="([^"]+)" data-meaning="([^"]+)">(.*?)</a>', page)
    assert linked == [
        ("glossary.html#word-ring", "Devices that each send to the next.", "rings"),
        ("glossary.html#word-all-reduce", "A collective whose result is the sum.", "all-reduce"),
    ]
    itself = page_html([RunCell(cell=cell) for cell in glossary.cells], glossary, site).body
    assert '<strong id="word-all-reduce">all-reduce</strong>' in itself
    assert "data-meaning" not in itself


def test_the_search_looks_through_the_words_of_sections() -> None:
    body = '<h1 id="a">A <i>b</i></h1><p>One &amp; two</p><pre>code</pre><h2 id="c">C</h2><math><mi>x</mi></math> three'
    assert sections_of("03_x", "03 · X", body) == [
        ["03_x.html#a", "03 · X", "A b", "One & two"],
        ["03_x.html#c", "03 · X", "C", "three"],
    ]


def test_every_exercise_can_be_asked_by_a_page() -> None:
    for exercise in EXERCISES.values():
        data = json.loads(json.dumps(quiz_data(exercise), allow_nan=False))
        assert data["kind"] in ("number", "choice", "items")
        assert data["truth"] not in ("", None, [])
        html = quiz_html(exercise)
        assert html.count("<li hidden>") >= 2
        assert "Show the solution" in html


def test_outputs_have_a_form_without_a_kernel() -> None:
    figures = Figures()
    html = outputs_html(
        [
            {"output_type": "stream", "name": "stdout", "text": "a <b>\n"},
            {"output_type": "stream", "name": "stderr", "text": "noise"},
            {
                "output_type": "stream",
                "name": "stdout",
                "text": ["b", "c\n", "Running HiGHS 1.16.0 (git hash: x)\n", "/tmp/ipykernel_12/345.py:8: x\n"],
            },
            shown({PLOTLY: FIGURE, "text/html": "no"}),
            shown({"text/html": ["<i>x", "</i>"], "text/plain": "no"}),
            shown({"image/png": "aGk=\n"}),
            shown({"image/svg+xml": "<svg></svg>"}),
            shown({WIDGET: {}, "text/plain": "Widget()"}),
            shown({"text/plain": "42"}),
        ],
        figures,
    )
    assert 'tabindex="0">a &lt;b&gt;\nbc\nthis cell:8: x</pre>' in html, "the same in each build"
    assert "noise" not in html
    assert 'data-figure="0" style="height:300px"' in html
    assert 'aria-label="One &amp;  two"' in html
    assert "<i>x</i>" in html
    assert 'src="data:image/png;base64,aGk="' in html
    assert "<svg></svg>" in html
    assert "This part needs Python" in html
    assert ">42</pre>" in html
    assert "no" not in re.findall(r">(\w+)<", html)


@pytest.mark.slow
def test_an_explorer_becomes_its_plan(tmp_path: Path) -> None:
    plan = example_plan()

    class Explorer:
        plan = None

        def wait(self, seconds: float):
            return plan

        def _repr_mimebundle_(self):
            return {"text/html": "<table></table>"}, {}

    save_plan(Explorer(), str(tmp_path / "plan.json"), 1.0)
    figures = Figures()
    html = plan_html(json.loads((tmp_path / "plan.json").read_text()), figures)
    assert len(figures.data) == html.count('class="figure"') >= 8
    assert "The same as a table" in html
    assert plan.model.name in html

    save_plan(SimpleNamespace(plan=3), str(tmp_path / "other.json"), 1.0)
    save_plan(None, str(tmp_path / "other.json"), 1.0)
    assert not (tmp_path / "other.json").exists(), "what is no explorer has no plan"


@pytest.mark.slow
def test_the_widget_of_an_explorer_is_replaced_by_its_plan(tmp_path: Path) -> None:
    lesson, run = example_run(tmp_path)
    cell = Cell(kind="code", source="explore(plan)", metadata={})
    outputs = [shown({WIDGET: {}}), shown({"text/html": '<div class="alpa-saved">No plan was ready</div>'})]
    plan = plan_data(example_plan(), "<table><tr><td>stage 0</td></tr></table>")
    page = page_html([*run, RunCell(cell=cell, outputs=outputs, plan=plan)], lesson, Site(lessons=[lesson])).html
    assert "stage 0" in page
    assert "No plan was ready" not in page
    assert "needs Python" not in page


@pytest.mark.parametrize(
    ("latex", "expected"),
    [
        (r"t_{max}", "<msub><mi>t</mi><mrow><mi>max</mi></mrow></msub>"),
        (r"FLOP(ab)", '<mi>FLOP</mi><mo stretchy="false">(</mo><mi>a</mi><mi>b</mi>'),
        (r"x_i^2", "<msubsup><mi>x</mi><mi>i</mi><mn>2</mn></msubsup>"),
        (r"\frac{a}{b}", "<mfrac><mrow><mi>a</mi></mrow><mrow><mi>b</mi></mrow></mfrac>"),
        (r"\sum_{i=1}^{n} t_i", "<munderover><mo largeop"),
        (r"\max_i x", "<munder><mo>max</mo><mi>i</mi></munder>"),
        (r"\text{if } b \le 3", "<mtext>if&#160;</mtext><mi>b</mi><mo>≤</mo><mn>3</mn>"),
        (r"\left( x \right)", '<mo stretchy="true" fence="true">(</mo><mi>x</mi>'),
        (r"\begin{cases} a & b \\ c & d \end{cases}", "<mtable><mtr>"),
        (r"a < b", "<mo>&lt;</mo>"),
        (r"s \in \{0, 1\}", '<mo stretchy="false">{</mo><mn>0</mn>'),
        (r"\underbrace{B}_{\text{microbatches}}", "<munder><munder>"),
        (r"1{,}000", "<mn>1</mn>"),
        (r"\tfrac12 x", "<mfrac><mn>1</mn><mn>2</mn></mfrac><mi>x</mi>"),
        (r"\begin{pmatrix} 0 & \tfrac12 \\ 1 & 0 \end{pmatrix}", "<mtable><mtr>"),
        (r"\min m", '<mo>&#x2061;</mo><mspace width="0.17em"/><mi>m</mi>'),
        (r"\log(m)", '<mo>&#x2061;</mo><mo stretchy="false">(</mo>'),
        (r"f'(x)", '<msup><mi>f</mi><mo>′</mo></msup><mo stretchy="false">(</mo>'),
    ],
)
def test_formulas_are_mathml(latex: str, expected: str) -> None:
    html = formula_html(latex, block=False)
    assert expected in html
    assert html.count("<mrow>") == html.count("</mrow>")


@pytest.mark.parametrize(
    "latex",
    [r"\unknowncommand", "{a", "a}", r"\left( a", r"x_1_2", r"\frac{a}", r"\text a", r"\begin{tikz}x\end{tikz}"],
)
def test_a_formula_that_cannot_be_shown_is_named(latex: str) -> None:
    with pytest.raises(CourseError, match="A formula cannot be shown"):
        formula_html(latex, block=True)


def test_texts_become_html_with_links_between_pages() -> None:
    html = markdown_html(
        "See [the ring](03_collectives.ipynb#ring) and [x](images/a.png). <!-- note -->\n\n```python\nx = 1\n```"
    )
    assert 'href="03_collectives.html#ring"' in html
    assert 'href="images/a.png"' in html
    assert "note" not in html
    assert 'class="code"' in html


def test_the_texts_of_the_course_can_be_shown() -> None:
    for path in sorted(course_folder().glob("*.ipynb")):
        for cell in read_lesson(path).cells:
            if cell.kind == "markdown":
                assert markdown_html(cell.source)


class TestBuild:
    @pytest.fixture
    def notebooks(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        folder = tmp_path / "notebooks"
        folder.mkdir()
        write(folder / "03_example.ipynb", CELLS)
        write(folder / "index.ipynb", [("markdown", f"# Index\n\n{BEGIN}\n{END}")])
        monkeypatch.setattr(
            site_build,
            "run_lessons",
            lambda lessons, _folder, report: [[RunCell(cell=c) for c in lesson.cells] for lesson in lessons],
        )
        return folder

    def test_the_folder_holds_all_that_its_pages_load(self, notebooks: Path, tmp_path: Path) -> None:
        site = build_site(notebooks, tmp_path / "deep" / "site")
        assert {p.name for p in site.iterdir()} == {
            "03_example.html",
            "index.html",
            "grading.js",
            "site.css",
            "site.js",
            "search-index.js",
            "plotly.min.js",
            "notebooks",
            MARK,
        }
        assert {p.name for p in (site / "notebooks").iterdir()} == {"03_example.ipynb", "index.ipynb"}
        assert "font/woff2;base64," in (site / "site.css").read_text()
        assert '<a href="03_example.html">03 · Example</a>' in (site / "index.html").read_text()
        loaded = re.findall(r'(?:src|href)="([^"#:]+)"', (site / "03_example.html").read_text())
        assert all((site / name.partition("#")[0]).is_file() for name in loaded)
        assert stat.S_IMODE(site.stat().st_mode) == 0o755
        assert [p.name for p in site.parent.iterdir()] == ["site"], "nothing temporary is left"

    def test_a_website_is_the_same_each_time_and_light_without_figures(self, notebooks: Path, tmp_path: Path) -> None:
        one, two = (
            build_site(notebooks, tmp_path / name, priced={"llama-tiny": (1,)}, commands=commands())
            for name in ("one", "two")
        )
        names = sorted(p.name for p in one.iterdir() if p.is_file())
        assert {"what_if.html", "what_if.js", "reference.html"} <= set(names)
        assert [(one / name).read_bytes() for name in names] == [(two / name).read_bytes() for name in names]
        for page in one.glob("*.html"):
            text = page.read_text(encoding="utf-8")
            loaded = [
                one / name for name in re.findall(r'<(?:script defer src|link rel="stylesheet" href)="([^"]+)"', text)
            ]
            assert one / "plotly.min.js" not in loaded, page.name
            size = page.stat().st_size + sum(path.stat().st_size for path in loaded)
            assert size + (one / "search-index.js").stat().st_size < LIGHT_BYTES, page.name

    def test_a_website_is_replaced_and_other_files_are_not(self, notebooks: Path, tmp_path: Path) -> None:
        site = build_site(notebooks, tmp_path / "site")
        (site / "old.html").write_text("old")
        build_site(notebooks, site)
        assert not (site / "old.html").exists()
        other = tmp_path / "thesis"
        other.mkdir()
        (other / "chapter.tex").write_text("x")
        with pytest.raises(CourseError, match="holds other files"):
            build_site(notebooks, other)
        assert (other / "chapter.tex").read_text() == "x"
        with pytest.raises(CourseError, match="this is a file"):
            build_site(notebooks, other / "chapter.tex")

    def test_a_lesson_that_fails_leaves_the_old_website(
        self, notebooks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        site = build_site(notebooks, tmp_path / "site")
        before = {p: p.read_bytes() for p in site.rglob("*") if p.is_file()}

        def fail(*_: object) -> None:
            raise CourseError("Lesson 03_example failed", found="cell 2", remedy="Mend it.")

        monkeypatch.setattr(site_build, "run_lessons", fail)
        with pytest.raises(CourseError, match="03_example failed"):
            build_site(notebooks, site)
        assert {p: p.read_bytes() for p in site.rglob("*") if p.is_file()} == before
        assert sorted(p.name for p in tmp_path.iterdir()) == ["notebooks", "site"]

    def test_a_place_that_cannot_be_written_is_named_before_lessons_run(
        self, notebooks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "file").write_text("")
        ran: list[object] = []
        monkeypatch.setattr(site_build, "run_lessons", lambda *_: ran.append(1))
        with pytest.raises(CourseError, match="file"):
            build_site(notebooks, tmp_path / "file" / "site")
        monkeypatch.setattr("os.access", lambda *_: False)
        (tmp_path / "read-only").mkdir()
        with pytest.raises(CourseError, match="read-only"):
            build_site(notebooks, tmp_path / "read-only")
        assert ran == []

    @pytest.mark.slow
    @pytest.mark.distributed
    def test_the_cell_that_fails_is_named(self, tmp_path: Path) -> None:
        cells = [("markdown", "# 03 · Example"), ("code", "x = 1"), ("code", "1 / 0")]
        write(tmp_path / "03_example.ipynb", cells)
        with pytest.raises(CourseError, match=r"cell 3 \('1 / 0'\): ZeroDivisionError"):
            build_site(tmp_path, tmp_path / "site")
        assert not (tmp_path / "site").exists()


def test_the_workflow_installs_what_the_lessons_need_and_publishes_what_it_builds() -> None:
    home = course_folder().parent
    file = home / ".github" / "workflows" / "course.yml"
    steps = yaml.safe_load(file.read_text(encoding="utf-8"))["jobs"]["build"]["steps"]
    commands = " ".join(step.get("run", "") for step in steps)
    assert '".[hf]"' in commands, "a config of Hugging Face needs transformers"
    assert ".[hf]" in (home / "binder" / "requirements.txt").read_text(encoding="utf-8")
    (build,) = [step["run"] for step in steps if "course build" in step.get("run", "")]
    (uploaded,) = [step["with"]["path"] for step in steps if "upload-pages" in step.get("uses", "")]
    assert f" -o {uploaded} " in build
