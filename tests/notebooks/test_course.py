"""Every lesson of the course runs from top to bottom, in a kernel of its own, and is built like the others.

The kernels have imported what lessons import. That a lesson runs in one that has not is tested by the website
(tests/course/test_site.py, tests/browser/).
"""

import ast
import json
import re
from collections.abc import Iterator
from datetime import date
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import nbformat
import pytest
from alpa_explore_widgets.overview.cards import plan_svg
from nbclient import NotebookClient

import alpa_explore as ax
from alpa_explore.course.lessons.notebook import Lesson, course_folder, read_lesson, read_lessons, sections
from alpa_explore.course.lessons.sync import lessons_table, out_of_date
from alpa_explore.course.registry import EXERCISES
from alpa_explore.course.site.words import terms_of
from alpa_explore.models.catalog import entry
from tests.course.structure import faults
from tests.daily import today
from tests.notebooks.chosen import changed_files, chosen, named
from tests.notebooks.kernels import NAME, forked_kernels
from tests.waiting import LIMIT_SECONDS, patience

LESSONS = read_lessons(course_folder())
NOTEBOOKS = [lesson.path for lesson in LESSONS]
ROOT = course_folder().parent
RUN = 2
"""So many lessons are run, or more where more were changed; the others in the sweep."""
CHOSEN = chosen(LESSONS, changed_files(ROOT), today(), RUN)
PAGES = [course_folder() / f"{name}.ipynb" for name in ("index", "glossary", "lecturer", "project", "claims")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where lessons run: they cannot leave files in the repository."""
    folder = tmp_path_factory.mktemp("course")
    with pytest.MonkeyPatch.context() as patch:
        for name in ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR"):
            patch.setenv(name, str(folder / name.lower()))
        with forked_kernels(folder, ROOT):
            yield folder


@pytest.mark.slow
def test_the_picture_of_the_tour_is_that_of_the_plan_of_its_first_cell() -> None:
    cell = next(cell for cell in nbformat.read(NOTEBOOKS[0], as_version=4).cells if cell.cell_type == "code")
    (call,) = re.findall(r"explore\((.*)\)", cell.source)
    options = eval(f"dict(model={call})")
    plan = ax.plan(**{name: value for name, value in options.items() if name != "b_keeps"})
    assert (course_folder() / "images/tour.svg").read_text() == plan_svg(plan), "make screenshots"


@pytest.mark.slow
@pytest.mark.distributed
@pytest.mark.parametrize(
    "lesson", [pytest.param(x, marks=() if x in CHOSEN else pytest.mark.sweep(kept=0), id=x.name) for x in LESSONS]
)
def test_a_notebook_runs_from_top_to_bottom(lesson: Lesson, folder: Path) -> None:
    notebook = nbformat.read(lesson.path, as_version=4)
    limit = int(LIMIT_SECONDS * patience())
    # The first kernel starts when what all of them import is there.
    limits = {"timeout": limit, "startup_timeout": limit}
    resources = {"metadata": {"path": str(folder)}}
    NotebookClient(notebook, **limits, kernel_name=NAME, resources=resources).execute()
    assert [cell.source for cell in notebook.cells if cell.cell_type == "code" and cell.execution_count is None] == []


@pytest.mark.parametrize("notebook", sorted(ROOT.rglob("notebooks/**/*.ipynb")), ids=lambda path: path.stem)
def test_what_a_notebook_imports_of_the_library_is_there(notebook: Path) -> None:
    cells = nbformat.read(notebook, as_version=4).cells
    code = "\n".join(c.source for c in cells if c.cell_type == "code" and not c.source.startswith("%"))
    missing = [
        f"{node.module}.{alias.name}"
        for node in ast.walk(ast.parse(code))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("alpa_explore")
        for alias in node.names
        if not hasattr(import_module(str(node.module)), alias.name) and find_spec(f"{node.module}.{alias.name}") is None
    ]
    assert missing == []


def test_lessons_are_chosen_by_what_was_changed_and_in_turn() -> None:
    days = [date(2026, 11, 28 - n) for n in range(10)]
    assert {lesson.name for day in days for lesson in chosen(LESSONS, (), day, RUN)} == {x.name for x in LESSONS}
    ring = "alpa_explore/figures/course/planning/ring.py"
    assert [lesson.number for lesson in LESSONS if ring in named(lesson)] == ["03"]
    assert "alpa_explore/planner/interface.py" in named(LESSONS[0]), "by ax.plan"
    assert "widgets/alpa_explore_widgets/course.py" in named(LESSONS[7])
    for day in days:
        found = chosen(LESSONS, {ring, "notebooks/12_running.ipynb", "alpa_explore/cli/main.py"}, day, RUN)
        assert [lesson.number for lesson in found][:2] == ["12", "03"]
        assert len(found) == RUN
        assert chosen(LESSONS, {f"notebooks/{lesson.path.name}" for lesson in LESSONS[:7]}, day, RUN) == sorted(
            LESSONS[:7], key=lambda x: (LESSONS.index(x) - day.toordinal() * RUN) % len(LESSONS)
        )


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda lesson: lesson.name)
def test_a_lesson_asks_lets_guess_shows_explains_and_has_exercises(lesson: Lesson) -> None:
    assert faults(lesson) == []


def test_every_exercise_is_asked_by_a_lesson_that_is_there() -> None:
    numbers = {lesson.number for lesson in LESSONS}
    assert [key for key, exercise in EXERCISES.items() if exercise.lesson not in numbers] == []


def test_the_index_and_the_metadata_of_exercise_cells_are_up_to_date() -> None:
    assert list(out_of_date(course_folder())) == [], "alpa-explore course sync writes them"
    (index, *_) = PAGES
    assert lessons_table(LESSONS) in "\n".join(cell.source for cell in read_lesson(index).cells)


def test_the_roads_of_the_index_skip_no_lesson_and_add_up() -> None:
    words = "\n".join(cell.source for cell in read_lesson(PAGES[0]).cells)
    roads = re.findall(r"^\* \*\*.+\*\*, (\d+) minutes: ([\d, ]+)\.", words, re.MULTILINE)
    assert len(roads) >= 5
    known = {lesson.number: lesson for lesson in LESSONS}
    for minutes, names in roads:
        road = names.split(", ")
        assert sum(known[number].minutes for number in road) == int(minutes), names
        for place, number in enumerate(road):
            assert set(known[number].prerequisites) <= set(road[:place]), f"{number} on the road {names}"


NAMES = """
    A100 B200 H100 H800 V100 CPU GPU NVIDIA NCCL SHARP GPT OSS LM V3 H1 ZB MLP LP P0 RR RS0 S0R GB MB TFLOP PFLOP
    ARCHITECTURE
    """.split()
"""Of devices, makers, models, software and files, units, sharding specs as lesson 05 spells them, and two terms that
lessons 05 and 08 begin with."""


def test_an_abbreviation_of_a_lesson_is_a_name_or_in_the_glossary() -> None:
    glossary = "\n".join(cell.source for cell in read_lesson(PAGES[1]).cells)
    explained = {word for bold in re.findall(r"\*\*(.+?)\*\*", glossary) for word in bold.split(", ")}
    for lesson in LESSONS:
        texts = "\n".join(cell.source for cell in lesson.cells if cell.kind == "markdown")
        texts = re.sub(r"```.*?```|`[^`]*`|\$\$.*?\$\$|\$[^$]*\$", "", texts, flags=re.DOTALL)
        said = {word.rstrip("s") for word in re.findall(r"\b[A-Z][A-Z0-9]+s?\b", texts)}
        assert said - explained - set(NAMES) == set(), lesson.name


def sentences(lesson: Lesson) -> list[str]:
    """Those of its text, without code, formulas and headings, up to the outlook at its end."""
    cells = [c for heading, own in sections(lesson) if not heading.startswith("What we left out") for c in own]
    text = "\n".join(cell.source for cell in cells if cell.kind == "markdown")
    text = re.sub(r"```.*?```|\$\$.*?\$\$", "", text, flags=re.DOTALL)
    text = re.sub(r"\$[^$\n]*\$|\]\([^)\n]*\)|^#.*$|<[^>\n]*>", "", text, flags=re.MULTILINE)
    return re.split(r"(?<=[.?!])\s+|\n\n|\n\* |\n\|", text)


def test_a_word_of_the_glossary_is_explained_before_it_is_used() -> None:
    """In bold, by a lesson on the way to the one that uses it, or where that uses it first; a sentence that names
    another lesson looks ahead."""
    texts = {lesson.number: sentences(lesson) for lesson in LESSONS}
    before: dict[str, set[str]] = {}
    for lesson in LESSONS:
        before[lesson.number] = set(lesson.prerequisites).union(*(before[number] for number in lesson.prerequisites))
    unexplained = []
    for word in terms_of(read_lesson(PAGES[1])):
        said = rf"{re.escape(word)}(?:e?s)?\b"
        anywhere, bold = (
            re.compile(form, re.IGNORECASE if word == word.lower() else 0)
            for form in (rf"(?<![\w-]){said}(?!-)", rf"\*\*{said}[^*]*\*\*")
        )
        explain = {number for number, text in texts.items() if any(map(bold.search, text))}
        for number, text in texts.items():
            used = filter(anywhere.search, text)
            first = next((x for x in used if bold.search(x) or not re.search(r"lessons?\s\[?\d\d", x)), "")
            if first and not explain & before[number] and not bold.search(first):
                unexplained.append(f"{word!r} in {number}: {first}")
    assert unexplained == []


@pytest.mark.parametrize("path", [*NOTEBOOKS, *PAGES], ids=lambda path: path.stem)
def test_links_between_notebooks_lead_to_one(path: Path) -> None:
    links = [link for cell in read_lesson(path).cells for link in re.findall(r"\]\(([^)#:]+)\)", cell.source)]
    assert [link for link in links if not (path.parent / link).is_file()] == []


def test_the_table_of_the_paper_in_lesson_13_has_the_measured_and_the_stored_throughput() -> None:
    benchmarks = course_folder().parent / "benchmarks"
    table = json.loads((benchmarks / "alpa_paper.json").read_text(encoding="utf-8"))["throughput_pflops"]
    stored = json.loads((benchmarks / "paper_rows.json").read_text(encoding="utf-8"))
    by_gpus = {gpus: dict(zip(table["columns"][1:], row, strict=True)) for gpus, *row in table["rows"]}
    lesson = next(lesson for lesson in LESSONS if lesson.number == "13")
    words = "\n".join(cell.source for cell in lesson.cells)
    rows = re.findall(r"^\| (\S+) \| (\d+) \| (\S+) PFLOP/s \| (\S+) PFLOP/s \| (\S+) \|$", words, re.MULTILINE)
    assert len(rows) == 8
    for name, gpus, measured, predicted, ratio in rows:
        family = next(f for f in ("gpt", "moe", "wide_resnet") if name.replace("-", "_").startswith(f))
        paper, ours = by_gpus[int(gpus)][f"{family}_alpa"], stored[name]["pflops"]
        assert entry(name).gpus == int(gpus)
        assert (measured, predicted, ratio) == (f"{paper:.2f}", f"{ours:.2f}", f"{ours / paper:.2f}"), name
