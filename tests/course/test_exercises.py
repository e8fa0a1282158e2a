"""Every exercise: its own solution is right, every mistake is wrong, its premise holds, its reason has its answer."""

import re
from collections import Counter

import pytest

from alpa_explore.course.ask import solution_text
from alpa_explore.course.cards import text_html
from alpa_explore.course.coding.task import tasks
from alpa_explore.course.kinds import SCALES, Choice, Number, Refusal
from alpa_explore.course.registry import EXERCISES, for_student, grade

STUDENTS = ("everybody", "s1", "s2")
CLASS = [f"student {number}" for number in range(40)]
CASES = [
    pytest.param(exercise, student, id=f"{key}-{student}")
    for key, exercise in EXERCISES.items()
    for student in STUDENTS
]
_CODE = re.compile(r"<(pre|code)\b.*?</\1>", re.DOTALL)


@pytest.mark.parametrize(("exercise", "student"), CASES)
def test_an_exercise_is_answered_by_its_own_solution_and_by_no_mistake(exercise, student) -> None:
    exercise, truth = for_student(exercise, student), for_student(exercise, student).truth
    assert exercise.holds, exercise.premise
    space: dict[str, object] = {}
    exec(exercise.code, space)
    verdict = grade(exercise, space["answer"])
    assert verdict.state == "right", (space["answer"], truth, verdict.text)
    assert verdict.text == exercise.why

    mistakes = exercise.mistakes
    assert mistakes, "at least one wrong answer that is explained"
    for mistake in mistakes:
        verdict = grade(exercise, mistake.answer)
        assert (verdict.state, verdict.text) == ("wrong", mistake.reason), (mistake.answer, truth)
    kind = exercise.kind
    assert not isinstance(kind.read(truth), Refusal)
    assert grade(exercise, _typed(kind, truth)).state == "right", "as a person types it"
    assert any(text in exercise.why for text in _forms(kind, truth)), "the reason has the answer"
    if isinstance(kind, Choice):
        assert len(set(kind.options)) == len(kind.options) >= 2
    texts = [exercise.question, solution_text(exercise), *exercise.hints]
    for text in (*texts, *(mistake.reason for mistake in mistakes)):
        assert "*" not in _CODE.sub("", text_html(text)), text


def _typed(kind, truth) -> str:
    """The truth as text, in one of the forms that are understood."""
    if isinstance(kind, Number):
        return f"{truth:.12g}"
    return str(truth) if isinstance(kind, Choice) else " ".join(map(str, truth))


def _forms(kind, truth) -> list[str]:
    """How a reason may write the truth."""
    if not isinstance(kind, Number):
        return [str(truth), ", ".join(map(str, truth)), " and ".join(map(str, truth))]
    shown = re.split(r"[()]", kind.show(truth))
    return [*filter(None, map(str.strip, shown)), *(f"{truth:{form}}" for form in (",", ",.0f", ".3g", ".4g"))]


@pytest.mark.parametrize(("exercise", "student"), CASES)
def test_a_factor_that_is_overlooked_is_not_taken_for_another_unit(exercise, student) -> None:
    exercise = for_student(exercise, student)
    kind, truth = exercise.kind, exercise.truth
    for factor in (2, 1 / 2, 4, 1 / 4) if isinstance(kind, Number) and truth else ():
        assert grade(exercise, factor * truth).state == "wrong", factor


@pytest.mark.parametrize(("exercise", "student"), CASES)
def test_a_share_above_one_is_marked_wrong_with_a_reason_and_a_percentage_is_asked_about(exercise, student) -> None:
    exercise = for_student(exercise, student)
    if not isinstance(exercise.kind, Number) or exercise.kind.unit != "share":
        return
    assert 0 <= exercise.truth <= 1, "else it is a fraction"
    known = [mistake.answer for mistake in exercise.mistakes]
    for answer in (1.3, "1.3", 40 * exercise.truth + 1):
        if not any(exercise.kind.slip(float(answer), other) for other in (exercise.truth, *known)):
            verdict = grade(exercise, answer)
            assert verdict.state == "wrong"
            assert verdict.text.startswith("The answer is between 0 and 1") or verdict.text in map(str, known)
    verdict = grade(exercise, 100 * exercise.truth)
    assert verdict.state == "hint"
    assert "percent" in verdict.text


@pytest.mark.parametrize(("exercise", "student"), CASES)
def test_an_answer_is_never_marked_wrong_for_its_form(exercise, student) -> None:
    exercise = for_student(exercise, student)
    kind, truth = exercise.kind, exercise.truth
    for text in _understood(kind, truth):
        assert grade(exercise, text).state == "right", (text, truth)
    for mistake in exercise.mistakes:
        said = {grade(exercise, text).text for text in _understood(kind, mistake.answer)}
        assert said == {mistake.reason}, "a usual mistake is seen in every form"
    for text in _refused(kind, truth):
        verdict = grade(exercise, text)
        assert verdict.state == "hint", (text, truth)
        assert kind.asks in verdict.text, "it says which form is read"


def _understood(kind, truth) -> list[str]:
    if isinstance(kind, Number):
        plain = [f"{truth / scale:.12g}" + end for end, scale in SCALES[kind.unit].items()]
        apart = [f"  {truth / scale:.12g} {end} " for end, scale in SCALES[kind.unit].items()]
        comma = [f"{truth:.12e}".replace(".", ","), f"{truth:+.12e}", f"{truth:.9E}"]
        return [*plain, *apart, *comma]
    if isinstance(kind, Choice):
        letter = "abcdefghijkl"[kind.options.index(truth)]
        return [letter, letter.upper(), f"{letter})", f" {letter}. ", truth, truth.upper(), f"{truth} "]
    joined = [sign.join(map(str, truth)) for sign in (" ", ",", ", ", ";", "\t", "  ")]
    return [*joined, *(f"[{one}]" for one in joined), *(f"( {one} )" for one in joined), f"{list(truth)}"]


def _refused(kind, truth) -> list[str]:
    if isinstance(kind, Number):
        one = f"{truth:.6g}"
        return ["", "?", "about " + one, f"{one} {one}", f"{one} parsecs", f"[{one}]", f"{one}^2", f"{one}/1", "1e999"]
    if isinstance(kind, Choice):
        return ["", "?", "z", "a or b", "1", "0 1 2", "[0, 1, 2]", "4 ms", "0,27"]
    return ["", "[]", "none", "all", " and ".join([*map(str, truth), "1"]), "1-2", "4 ms", "1 2 ms"]


@pytest.mark.slow
@pytest.mark.parametrize("exercise", EXERCISES.values(), ids=EXERCISES)
def test_no_student_of_a_class_has_a_reason_that_contradicts_its_answer_or_is_marked_for_its_form(exercise) -> None:
    for student in CLASS:
        test_an_exercise_is_answered_by_its_own_solution_and_by_no_mistake(exercise, student)
        test_an_answer_is_never_marked_wrong_for_its_form(exercise, student)


def test_exercises_have_three_grades() -> None:
    grades = Counter(exercise.grade for exercise in EXERCISES.values())
    assert grades["one step"] + grades["several steps"] == len(EXERCISES)
    assert min(*grades.values(), len(tasks())) >= 15, "a formula, several steps, a function to write"


@pytest.mark.parametrize("exercise", EXERCISES.values(), ids=EXERCISES)
def test_a_class_has_many_different_draws(exercise) -> None:
    assert len({repr(for_student(exercise, f"student {number}").numbers) for number in range(200)}) >= 20


@pytest.mark.parametrize("exercise", EXERCISES.values(), ids=EXERCISES)
def test_an_exercise_asks_and_helps_in_words(exercise) -> None:
    exercise = for_student(exercise, "s1")
    assert exercise.question.rstrip().endswith(("?", ".")), "it ends with the question"
    hints = exercise.hints
    assert len(hints) >= 2, "hints come in steps"
    texts = [exercise.title, exercise.premise, exercise.question, *hints]
    assert all(text.strip() and "None" not in text and "nan" not in text.split() for text in texts)
