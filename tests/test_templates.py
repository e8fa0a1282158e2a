"""Texts whose expressions are computed, and shown as people read numbers."""

import pytest

from alpa_explore.templates import computed, filled, joined


def test_an_expression_is_shown_in_its_format() -> None:
    names = {"n": (3, 2**20), "size": lambda n: n[1]}
    assert filled("{n[0] - 1} of {size(n):bytes}, {2 / 3:.2f}, {{n}}", names) == "2 of 1 MiB, 0.67, {n}"
    assert filled("{n:list} {n:listed}", names) == "[3, 1048576] 3, 1048576"


def test_a_further_name_is_computed_when_it_is_used_and_not_before() -> None:
    named = {"twice": "2 * n", "four_times": "2 * twice", "never": "1 / 0"}
    assert filled("{four_times}", {"n": 5}, named) == "20"
    with pytest.raises(ZeroDivisionError):
        filled("{never}", {"n": 5}, named)


def test_an_expression_may_take_several_lines_and_loop_over_names() -> None:
    assert computed("\nsum(\n  n * k for k in known\n)", {"n": 2, "known": (1, 2)}) == 6


def test_the_lines_of_a_paragraph_are_joined_in_every_text_of_a_table() -> None:
    table = {"a": "one\ntwo\n\nthree", "b": ["- x\n- y\nz"]}
    assert joined(table) == {"a": "one two\n\nthree", "b": ["- x\n- y z"]}
