"""`alpa-explore course`: the lessons as a list, as a website that needs no kernel and no network, as an examination."""

import argparse
import sys
from pathlib import Path

from alpa_explore.cli.output import answer, wrote
from alpa_explore.errors import OptionError
from alpa_explore.plans.report.tables import row_of
from alpa_explore.plans.report.text import render_table

COMMAND = """course  the course: list its lessons, build it as a website, or write an examination
    list: the lessons, with minutes, exercises and goals. build: run all lessons and write them as a website with live
    figures and quizzes, which needs no kernel, no network and no server. exam: write questions and, apart from them,
    answers, with the numbers of each seed. sync: write nbgrader's metadata and the table of the index again, after a
    lesson or an exercise was changed.
action (list|build|exam|sync)
--notebooks FOLDER  the folder of the lessons (default: that of the source)
-o --output FOLDER  build, exam: where the website or the questions go
--repository URL  build: the address of the source, which pages link; on GitHub also Binder
--lesson NUMBER (several)  build, exam: only this lesson; may be repeated
--seed NAME (several)  exam: a file for this name; may be repeated (default: A)
--json  list: print JSON"""


def run(options: argparse.Namespace) -> int:
    """List the lessons, write the website, or bring the notebooks up to date."""
    from alpa_explore.course.lessons.notebook import course_folder

    folder = Path(options.notebooks) if options.notebooks is not None else course_folder()
    if options.action == "sync":
        return _sync(folder)
    if options.action == "exam":
        return _exam(folder, options)
    if options.action == "build":
        return _build(folder, options)
    return _list(folder, options)


def _list(folder: Path, options: argparse.Namespace) -> int:
    from alpa_explore.course.lessons.notebook import read_lessons
    from alpa_explore.course.registry import exercises_of

    rows = [
        {
            **row_of(lesson, "lesson=number title minutes"),
            "exercises": len(exercises_of(lesson.number)),
            "builds_on": ", ".join(lesson.prerequisites),
            "goals": "; ".join(lesson.goals),
        }
        for lesson in read_lessons(folder)
    ]
    return answer(options, rows, lambda: render_table(rows))


def _build(folder: Path, options: argparse.Namespace) -> int:
    from alpa_explore.course.site.build import build_site
    from alpa_explore.course.site.what_if import MODELS

    if not options.output:
        raise OptionError("The website needs a place", found="no -o", remedy="Name a folder: -o site/.")
    site = build_site(
        folder,
        Path(options.output),
        options.lesson,
        priced=None if options.lesson else MODELS,
        commands=options.commands,
        repository=options.repository or "",
        report=lambda line: print(line, file=sys.stderr, flush=True),
    )
    wrote(site / "index.html")
    return 0


def _exam(folder: Path, options: argparse.Namespace) -> int:
    from alpa_explore.course.exam import write_exam
    from alpa_explore.course.lessons.notebook import read_lessons

    if not options.output:
        raise OptionError("The questions need a place", found="no -o", remedy="Name a folder: -o exam/.")
    lessons = [lesson.number for lesson in read_lessons(folder, options.lesson)]
    for path in write_exam(Path(options.output), lessons, options.seed or ["A"]):
        wrote(path)
    return 0


def _sync(folder: Path) -> int:
    from alpa_explore.course.lessons.sync import sync

    for path in sync(folder):
        wrote(path)
    return 0
