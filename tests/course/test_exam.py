"""The examination and the weeks: drawn by seeds, with the answers apart."""

from pathlib import Path

from alpa_explore.cli import main
from alpa_explore.course.ask import solution_text
from alpa_explore.course.coding.task import tasks
from alpa_explore.course.exam import write_exam
from alpa_explore.course.lessons.notebook import course_folder, read_lessons
from alpa_explore.course.lessons.sync import weeks
from alpa_explore.course.registry import EXERCISES, exercises_of, for_student

LESSONS = read_lessons(course_folder())
WEEK_MINUTES = 90 + 120
"""A class, and two hours at home."""


def test_the_weeks_have_every_lesson_once_after_those_it_builds_on_and_fit_a_class_and_two_hours() -> None:
    order = [number for week in weeks() for number in week.lessons]
    assert len(weeks()) == 12
    assert sorted(order) == [lesson.number for lesson in LESSONS]
    known = {lesson.number: lesson for lesson in LESSONS}
    for place, number in enumerate(order):
        assert set(known[number].prerequisites) <= set(order[:place]), number
    assert all(week.minutes([known[number] for number in week.lessons]) <= WEEK_MINUTES for week in weeks())


def test_an_examination_asks_every_exercise_and_keeps_its_answers_apart(tmp_path: Path) -> None:
    paths = write_exam(tmp_path / "exam", [lesson.number for lesson in LESSONS], ["A"])
    assert [path.name for path in paths] == ["questions-A.md", "answers-A.md"]
    questions, answers = (path.read_text(encoding="utf-8") for path in paths)
    for exercise in (for_student(one, "A") for one in EXERCISES.values()):
        assert f"## {exercise.id} {exercise.title}" in questions
        assert exercise.question.strip() in questions
        assert exercise.code in answers
        assert exercise.code not in questions
        for mistake in exercise.mistakes:
            assert f": {mistake.reason.strip()}" in answers, "for a part of the points"
            assert f": {mistake.reason.strip()}" not in questions
    for task in tasks().values():
        assert task.statement in questions
        assert task.right in answers
        assert task.right not in questions
    for week in weeks():
        assert week.essay in questions
        assert week.answer in answers
        assert week.answer not in questions


def test_seeds_give_other_numbers_and_the_same_seed_the_same(tmp_path: Path) -> None:
    first, again = (write_exam(tmp_path / name, ["03"], ["A", "B"]) for name in ("one", "two"))
    texts = [path.read_text(encoding="utf-8") for path in first]
    assert texts == [path.read_text(encoding="utf-8") for path in again]
    assert texts[0].splitlines()[1:] != texts[2].splitlines()[1:]
    assert texts[0].count("## 03.") == len(exercises_of("03"))
    assert texts[0].count("## Essay") == 1


def test_the_command_writes_the_lessons_that_are_named(tmp_path: Path) -> None:
    assert main(["course", "exam", "-o", str(tmp_path), "--lesson", "8", "--seed", "mine"]) == 0
    answers = (tmp_path / "answers-mine.md").read_text(encoding="utf-8")
    assert solution_text(for_student(EXERCISES["08.1"], "mine")).strip() in answers
    assert "07.1" not in answers
    assert main(["course", "exam"]) == 2
    assert main(["course", "exam", "-o", str(tmp_path / "x"), "--seed", "../up"]) == 2
    assert not (tmp_path / "x").exists()


def test_model_answers_are_on_no_page_of_the_course() -> None:
    texts = [path.read_text(encoding="utf-8") for path in course_folder().glob("*.ipynb")]
    assert len(texts) > len(LESSONS)
    for week in weeks():
        assert any(week.essay in text for text in texts)
        assert not any(week.answer[:60] in text for text in texts)
