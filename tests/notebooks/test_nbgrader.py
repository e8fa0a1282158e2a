"""A lesson as homework, as the lecturer's guide says: nbgrader hands it out, runs what came back, reads the points."""

import csv
import os
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from alpa_explore.course.lessons.notebook import course_folder
from alpa_explore.course.registry import exercises_of, for_student
from tests.waiting import LIMIT_SECONDS, patience

WEEK, LESSON = "week2", "03_collectives"
ASKED = exercises_of("03")
SOLVED = {"anna": len(ASKED), "ben": 1}
"""Student -> exercises that are answered right; the next one has a usual mistake, the others no answer."""


def nbgrader(course: Path, *words: str) -> None:
    """Run one of its commands in a course of its own."""
    folders = ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR", "ALPA_EXPLORE_COURSE")
    own = {**os.environ, **{name: str(course / name.lower()) for name in folders}}
    programs = Path(sys.executable).parent  # it calls alembic by its name
    own["PATH"] = f"{programs}{os.pathsep}{own['PATH']}"
    limit = 4 * LIMIT_SECONDS * patience()
    ran = subprocess.run(
        [str(programs / "nbgrader"), *words],
        cwd=course,
        env=own,
        capture_output=True,
        text=True,
        timeout=limit,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert "App | WARNING]" not in ran.stderr, ran.stderr


def answered(notebook: nbformat.NotebookNode, name: str) -> nbformat.NotebookNode:
    """What a student hands in."""
    for cell in notebook.cells:
        cell.source = cell.source.replace('student("everybody")', f"student({name!r})")
        for place, exercise in enumerate(ASKED):
            own = for_student(exercise, name)
            truth, mistake = own.truth, own.mistakes[0].answer
            answer = truth if place < SOLVED[name] else mistake if place == SOLVED[name] else ...
            if answer is not ...:
                cell.source = cell.source.replace(
                    f'exercise("{exercise.id}", ...)', f'exercise("{exercise.id}", {answer!r})'
                )
    return notebook


@pytest.mark.slow
def test_nbgrader_hands_a_lesson_out_and_reads_the_points_of_what_comes_back(tmp_path: Path) -> None:
    (tmp_path / "source" / WEEK).mkdir(parents=True)
    shutil.copy(course_folder() / f"{LESSON}.ipynb", tmp_path / "source" / WEEK)
    config = [
        "c = get_config()",
        'c.CourseDirectory.course_id = "alpa"',
        f"c.ExecutePreprocessor.timeout = {int(LIMIT_SECONDS * patience())}",
    ]
    (tmp_path / "nbgrader_config.py").write_text("\n".join(config), encoding="utf-8")
    nbgrader(tmp_path, "generate_assignment", WEEK)
    released = tmp_path / "release" / WEEK / f"{LESSON}.ipynb"
    source = nbformat.read(course_folder() / f"{LESSON}.ipynb", as_version=4)
    handed_out = nbformat.read(released, as_version=4)
    assert [cell.source for cell in handed_out.cells] == [cell.source for cell in source.cells], "nothing is taken out"
    for name in SOLVED:
        folder = tmp_path / "submitted" / name / WEEK
        folder.mkdir(parents=True)
        nbformat.write(answered(nbformat.read(released, as_version=4), name), folder / released.name)
    nbgrader(tmp_path, "autograde", WEEK)
    nbgrader(tmp_path, "export")
    with (tmp_path / "grades.csv").open(encoding="utf-8") as file:
        rows = {row["student_id"]: (float(row["score"]), float(row["max_score"])) for row in csv.DictReader(file)}
    points = [exercise.points for exercise in ASKED]
    assert rows == {name: (sum(points[:count]), sum(points)) for name, count in SOLVED.items()}
    nbgrader(tmp_path, "generate_feedback", WEEK)
    for name, count in SOLVED.items():
        page = (tmp_path / "feedback" / name / WEEK / f"{LESSON}.html").read_text(encoding="utf-8")
        assert page.count(": right") == count
        assert page.count(": not yet") == (count < len(ASKED))
