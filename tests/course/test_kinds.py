"""Kinds of answers: what is read, what is refused with a hint, and what counts as the same."""

import pytest

from alpa_explore.course.kinds import Choice, Items, Number, Refusal

COLOURS = Choice(options=("A red one.", "A blue one."))


def refusal(kind, answer: object) -> str:
    read = kind.read(answer)
    assert isinstance(read, Refusal)
    return read.hint


@pytest.mark.parametrize("answer", ["b", "B", "b)", " b. ", "a blue one", "A blue one."])
def test_a_choice_is_its_letter_or_its_text(answer: str) -> None:
    assert COLOURS.same(COLOURS.read(answer), "A blue one.")


@pytest.mark.parametrize("answer", ["c", "", "green", 1, None, ["b"]])
def test_what_is_no_option_is_refused(answer: object) -> None:
    assert '"a" to "b"' in refusal(COLOURS, answer)


def test_the_order_of_items_counts_where_it_should() -> None:
    ranks = Items(of="ranks")
    assert ranks.same(ranks.read([2, 1, 1]), (1, 2))
    sizes = Items(of="sizes of the mesh", ordered=True)
    assert sizes.same(sizes.read([2, 4]), (2, 4))
    assert not sizes.same(sizes.read((4, 2)), (2, 4))
    assert sizes.side((4, 2), (2, 4)) == "0 of 2 are right, 2 are not."
    assert sizes.side((4,), (2, 4)) == "There are 2, not 1."
    assert ranks.side((1, 3), (1, 2)) == "1 of 2 are right, 1 are not."


@pytest.mark.parametrize("answer", [[[1], [2]], [None], [], "", "ranks 1 and 2", "[a]", True, None, {}])
def test_what_is_no_list_of_numbers_is_refused(answer: object) -> None:
    assert "ranks" in refusal(Items(of="ranks"), answer)


@pytest.mark.parametrize(
    "text", ["0 1 2", "0,1,2", "[0, 1, 2]", " (0; 1; 2) ", "{2, 1, 0}", "'0', '1', '2'", "0.0 1 2"]
)
def test_a_list_is_read_whatever_stands_between_its_items(text: str) -> None:
    ranks = Items(of="ranks")
    assert ranks.same(ranks.read(text), [0, 1, 2])
    assert ranks.same(ranks.read("3"), [3])
    assert ranks.same(ranks.read(3), [3])


@pytest.mark.parametrize(
    ("unit", "truth", "answer", "name"),
    [
        ("s", 0.0042, 4.2, "milliseconds"),
        ("s", 0.0042, 4200, "microseconds"),
        ("B", 3 * 2**30, 3, "GiB"),
        ("B", 3e9, 3, "GB"),
        ("B", 3e9, 3 * 2**30, "GB, read as GiB"),
        ("B", 3 * 2**30, 3e9, "GiB, read as GB"),
        ("share", 0.3, 30, "percent"),
        ("FLOP", 2e12, 2, "TFLOP"),
        ("B/s", 25e9, 200e9, "bits per second"),
    ],
)
def test_another_unit_is_recognised(unit: str, truth: float, answer: float, name: str) -> None:
    kind = Number(unit=unit)
    assert not kind.same(answer, truth)
    assert f"An answer in {name}?" in kind.slip(answer, truth)
    assert kind.slip(truth * 1.3, truth) == ""


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (Number(unit="s"), "4 ms", 0.004),
        (Number(unit="s"), "4,5e-3 s", 0.0045),
        (Number(unit="B"), "2GiB", 2**31),
        (Number(unit="share"), "30 %", 0.3),
        (Number(unit="share"), "0,27", 0.27),
        (Number(unit="share"), ".5", 0.5),
        (Number(unit="s"), "3 seconds", 3),
        (Number(unit="B"), "1,234,567 kB", 1234567000),
        (Number(unit="B"), "1,234.5", 1234.5),
        (Number(), "−3", -3),
        (Number(unit="B"), '"50 GiB"', 50 * 2**30),
    ],
)
def test_a_number_in_text_is_read_with_its_unit_and_its_comma(kind: Number, text: str, value: float) -> None:
    assert kind.read(text) == pytest.approx(value, rel=1e-12)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1,234", "can mean 1234 or 1.234"),
        ("4 parsecs", "known are s, seconds, ms"),
        ("1,23,4", "Where are the commas"),
        ("16 384", "The answer is text"),
        ("about 3", "The answer is text"),
        ("1/8", "Unknown here: '/8'"),
        ("1e999", "a number of seconds"),
        ("", "The answer is text"),
    ],
)
def test_text_that_can_be_read_in_two_ways_or_in_none_is_refused(text: str, expected: str) -> None:
    assert expected in refusal(Number(unit="s"), text)


def test_a_share_above_one_is_wrong_with_a_reason_and_a_fraction_may_be_above_one() -> None:
    kind = Number(unit="share")
    for value, truth in ((27.3, 0.0588), (1.3, 0.3), (0.9, 0.5)):
        assert kind.slip(value, truth) == "", "no other unit explains it"
    assert kind.side(1.3, 0.3) == (
        "The answer is between 0 and 1; if 1.3 % (0.013) is meant, it is too small, by a factor of about 23."
    )
    assert "if 27.3 % (0.273) is meant, it is too large" in kind.side(27.3, 0.0588)
    regret = Number(unit="fraction")
    assert regret.side(1.4, 1.2) == "It is too large, by a factor of about 1.2."
    assert "percent" in regret.slip(120, 1.2)


def test_counted_numbers_are_exact() -> None:
    count = Number(tolerance=0)
    assert count.same(count.read(12), 12)
    assert not count.same(count.read(12.01), 12)
    assert count.asks == "a whole number"
    assert count.show(12) == "12"
    assert Number(unit="s").show(0.0042) == "0.0042 (4.2 ms)"
    assert Number().show(3.947) == "3.947"


def test_a_wrong_number_is_too_large_or_too_small() -> None:
    kind = Number()
    assert kind.side(2.0, 1.0) == "It is too large, by a factor of about 2."
    assert kind.side(1.0, 1.05) == "It is a little too small."
    assert kind.side(-1.0, 1.0) == "It is too small."
