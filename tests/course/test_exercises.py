"""Every exercise, for three students: its own solution is right, every mistake is wrong, and its premise holds."""

import pytest

from alpa_explore.course.grading import grade, mistakes_of, numbers_of, truth_of
from alpa_explore.course.kinds import Choice, Refusal
from alpa_explore.course.registry import EXERCISES

STUDENTS = ("everybody", "s1", "s2")
CASES = [
    pytest.param(exercise, student, id=f"{key}-{student}")
    for key, exercise in EXERCISES.items()
    for student in STUDENTS
]


@pytest.mark.parametrize(("exercise", "student"), CASES)
def test_an_exercise_is_answered_by_its_own_solution_and_by_no_mistake(exercise, student) -> None:
    numbers, truth = numbers_of(exercise, student), truth_of(exercise, student)
    assert exercise.holds(numbers), exercise.premise
    space: dict[str, object] = {}
    exec(exercise.code(numbers), space)
    verdict = grade(exercise, student, space["answer"])
    assert verdict.state == "right", (space["answer"], truth, verdict.text)
    assert verdict.text == exercise.why(numbers, truth)

    mistakes = mistakes_of(exercise, student)
    assert mistakes, "at least one wrong answer that is explained"
    for mistake in mistakes:
        verdict = grade(exercise, student, mistake.answer)
        assert (verdict.state, verdict.text) == ("wrong", mistake.reason), (mistake.answer, truth)
    kind = exercise.kind(numbers)
    assert not isinstance(kind.read(truth), Refusal)
    if isinstance(kind, Choice):
        assert len(set(kind.options)) == len(kind.options) >= 2


@pytest.mark.parametrize("exercise", EXERCISES.values(), ids=EXERCISES)
def test_an_exercise_asks_and_helps_in_words(exercise) -> None:
    numbers = numbers_of(exercise, "s1")
    assert exercise.question(numbers).rstrip().endswith(("?", ".")), "it ends with the question"
    hints = exercise.hints(numbers)
    assert len(hints) >= 2, "hints come in steps"
    texts = [exercise.title, exercise.premise, exercise.question(numbers), *hints]
    assert all(text.strip() and "None" not in text and "nan" not in text.split() for text in texts)
