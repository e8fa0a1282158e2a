"""What a notebook calls: questions, verdicts, hints, solutions and points, and that no answer raises."""

import json
import os
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from alpa_explore.course import exercise, hint, points, reveal, solution, student, students
from alpa_explore.course.definition import Exercise
from alpa_explore.course.registry import EXERCISES, for_student

RING = EXERCISES["03.1"]


def test_a_question_has_the_numbers_of_the_student() -> None:
    student("s1")
    first = str(exercise("03.1"))
    student("s2")
    assert str(exercise("03.1")) != first
    student("s1")
    assert str(exercise("03.1", ...)) == first


def test_a_right_answer_is_explained_and_counts() -> None:
    student("s1")
    assert points("03") == 0
    card = exercise("3.1", for_student(RING, "s1").truth)
    assert card.look == "right"
    assert "p − 1" in card.text
    assert points("03") == RING.points
    assert f"{RING.points} of " in points("03")._repr_html_()
    assert "There is no lesson '99'" in str(points("99"))


def test_a_typical_mistake_is_explained() -> None:
    student("s1")
    mistake = for_student(RING, "s1").mistakes[0]
    card = exercise("03.1", mistake.answer)
    assert (card.look, card.text) == ("wrong", f"{mistake.reason} `hint('03.1')` helps.")
    assert points("03") == 0
    assert exercise("03.1", f"{1e3 * mistake.answer:.9g}").look == "hint", "the same mistake in milliseconds"


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("4 parsecs", "known are s, seconds"),
        ((0, 27), "a decimal point in place of a comma"),
        ("fast", "The answer is text"),
        ([1.0], "of type list"),
        (True, "of type bool"),
        (float("nan"), "nan"),
        (1j, "of type complex"),
        (object(), "of type object"),
        ({}, "of type dict"),
    ],
)
def test_an_answer_of_another_type_gets_a_hint_and_counts_as_no_attempt(answer: object, expected: str) -> None:
    card = exercise("03.1", answer)
    assert card.look == "hint"
    assert expected in card.text
    assert students.current().of("03.1").tries == 0


def test_an_answer_without_quotes_or_brackets_is_taken_as_it_is_meant() -> None:
    assert exercise("00.2", *for_student(EXERCISES["00.2"], students.EVERYBODY).truth).look == "right"
    assert "a decimal point" in exercise("03.1", 0, 27).text
    assert exercise("03.1", f"{1e3 * for_student(RING, students.EVERYBODY).truth:.6g} ms").look == "right"


def test_an_answer_in_another_unit_gets_a_hint() -> None:
    card = exercise("03.1", 1e3 * for_student(RING, students.EVERYBODY).truth)
    assert card.look == "hint"
    assert "An answer in milliseconds?" in card.text


@pytest.mark.parametrize("kind", [np.float32, np.array, Fraction])
def test_numbers_of_other_libraries_are_numbers(kind) -> None:
    assert exercise("03.1", kind(for_student(RING, students.EVERYBODY).truth)).look == "right"


@pytest.mark.parametrize(
    ("name", "expected"), [("03.99", "03.1"), ("nonsense", "Known"), (None, "Known"), ("3.x", "03.1")]
)
def test_an_unknown_exercise_names_the_nearest(name: object, expected: str) -> None:
    for card in (exercise(name, 1.0), hint(name), solution(name)):
        assert card.look == "hint"
        assert expected in card.text


def test_hints_come_in_steps() -> None:
    hints = RING.hints
    texts = [hint("03.1").text for _ in range(len(hints) + 1)]
    assert hints[0] in texts[0]
    assert hints[1] not in texts[0]
    assert all(text in texts[-1] for text in hints)
    assert texts[-1] == texts[-2]


@pytest.mark.parametrize("asked", EXERCISES.values(), ids=EXERCISES)
def test_a_hint_begins_with_what_was_overlooked_in_the_last_answer(asked: Exercise) -> None:
    student("s1")
    for mistake in for_student(asked, "s1").mistakes:
        exercise(asked.id, mistake.answer)
        students.desk.cache_clear()  # another session
        student("s1")
        shown = hint(asked.id).text
        assert shown.startswith("Your last answer, ")
        assert any(one.reason in shown for one in for_student(asked, "s1").mistakes)
        assert for_student(asked, "s1").hints[0] in shown
    exercise(asked.id, for_student(asked, "s1").truth)
    assert "last answer" not in hint(asked.id).text, "it was right"


def test_a_hint_says_of_another_wrong_answer_how_far_it_is() -> None:
    exercise("03.1", 1e9)
    assert "too large" in hint("03.1").text
    assert "too large" in hint("03.1").text
    exercise("03.1", "fast")
    assert "too large" in hint("03.1").text, "that was no answer"


def test_a_solution_is_behind_a_fold_with_its_code() -> None:
    card = solution("03.1")
    assert card.text == ""
    assert "answer = " in card.folds[0].text
    assert "<details" in card._repr_html_()


def test_progress_is_there_in_the_next_session(course_folder: Path) -> None:
    student("s1")
    exercise("03.1", for_student(RING, "s1").truth)
    students.desk.cache_clear()
    assert "(solved)" not in str(exercise("03.1"))
    student("s1")
    assert "(solved)" in str(exercise("03.1"))
    assert [path.suffix for path in course_folder.iterdir()] == [".json"]


def test_two_notebooks_of_a_student_do_not_forget_each_other(course_folder: Path) -> None:
    first, second = students.known("s1"), students.known("s1")
    first.of("03.1").solved = True
    first.save()
    second.of("03.2").tries = 2
    second.save()
    remembered = students.known("s1")
    assert remembered.of("03.1").solved
    assert remembered.of("03.2").tries == 2


def test_names_that_look_alike_are_different_students() -> None:
    names = ("anna b", "anna/b", "anna-b", "../anna-b", "Анна", "")
    assert len({students.file_of(name) for name in names}) == len(names)
    assert {students.file_of(name).parent for name in names} == {students.file_of("x").parent}


@pytest.mark.parametrize(
    "content", ["", "[]", "{", '{"format": 1, "attempts": {"03.1": {"tries": "x", "wrong": {}}, "y": 3}}', "\x00"]
)
def test_a_damaged_file_costs_only_what_it_held(content: str, course_folder: Path) -> None:
    course_folder.mkdir()
    students.file_of("s1").write_text(content)
    student("s1")
    assert exercise("03.1", for_student(RING, "s1").truth).look == "right"
    assert json.loads(students.file_of("s1").read_text())["attempts"]["03.1"]["solved"]


def test_a_folder_that_cannot_be_made_is_said_once_and_nothing_fails(
    course_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    course_folder.write_text("a file, where a folder should be")
    assert "this session only" in student("s1").text
    assert exercise("03.1", for_student(RING, "s1").truth).look == "right"
    assert points("03") == RING.points
    assert os.environ["ALPA_EXPLORE_COURSE"] == str(course_folder)


def test_names_and_answers_are_no_html() -> None:
    assert "<script" not in student("<script>alert(1)</script>")._repr_html_()
    assert "<script" not in exercise("<script>")._repr_html_()


def test_a_guess_stands_beside_what_came_out() -> None:
    assert reveal(0.25, 0.26, "share", what="The bubble").look == "right"
    far = reveal(0.5, 0.25, "share", what="The bubble")
    assert "The bubble is 0.25 (25 %)" in far.title
    assert "too large" in far.text
    assert reveal(..., 3.0).look == "plain"
    assert 'data-truth="0.25" data-unit="share"' in reveal(..., 0.25, "share")._repr_html_()
    assert reveal("many", 3.0).look == "hint"
    assert "percent" in reveal(25, 0.25, "share").text
