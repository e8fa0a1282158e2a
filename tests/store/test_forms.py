"""JSON has the form that is asked for, or the place of what has not is named."""

import pytest

from alpa_explore.store.read import EACH, conform

FORM = {"ranks": [int], "tasks": {EACH: [str, float]}, "name": str}
GOOD = {"ranks": [0, 1], "tasks": {"0F": ["a", 0.5], "0B": ["b", 2]}, "name": "x", "more": None}


def test_what_has_the_form_is_returned_and_keys_without_one_are_left_alone() -> None:
    assert conform(GOOD, FORM) is GOOD


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("ranks", [0, -1], r"\['ranks'\]\[1\] is -1 in place of a whole number"),
        ("ranks", [True], "is True"),
        ("ranks", {"0": 1}, "in place of a list"),
        ("tasks", [], "in place of an object"),
        ("tasks", {"0F": ["a"]}, "1 entries in place of 2"),
        ("tasks", {"0F": ["a", float("nan")]}, "a finite number"),
        ("name", None, "is None in place of a text"),
        ("name", ["x" * 100], "…"),
    ],
)
def test_what_has_not_is_named_by_its_place(key: str, value: object, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        conform({**GOOD, key: value}, FORM)


def test_a_key_that_is_missing_is_named() -> None:
    with pytest.raises(ValueError, match="no 'name'"):
        conform({"ranks": [], "tasks": {}}, FORM)
