"""A command is declared by a text that reads as its --help."""

import argparse

import pytest

from alpa_explore.cli.options import add_command

TEXT = """bake  bake bread
    Bake bread of some flour,

    in an oven.
flour FLOUR (many)  what it is made of,
    in any order
--salt G (float, = 9.5)  grams of salt
--loaves N (count, required)  how many; auto: as many as fit
--top WITH (several)  what is on it
--crust (soft|hard)  how it is outside
--steam (yes or no)  with steam
--hot (exclusive)  in a hot oven
--cold (exclusive, oven = cold)  in a cold one
-B --batches (refused)  give --loaves instead
with friends:
--guests N (int)  who comes
options:
--quiet  say nothing"""


def parser() -> argparse.ArgumentParser:
    return add_command(argparse.ArgumentParser(prog="kitchen").add_subparsers(), TEXT, None)


def test_a_text_gives_types_defaults_lists_choices_and_flags() -> None:
    given = "rye --loaves auto --top seeds --top salt --crust SOFT --no-steam --cold --guests 3 --quiet".split()
    found = vars(parser().parse_args(given))
    assert found == {
        **{"flour": ["rye"], "salt": 9.5, "loaves": "auto", "top": ["seeds", "salt"], "crust": "soft", "steam": False},
        **{"hot": False, "oven": "cold", "batches": None, "guests": 3, "quiet": True},
    }


def test_what_is_not_given_has_its_default() -> None:
    found = parser().parse_args(["rye", "--loaves", "2"])
    assert (found.loaves, found.top, found.crust, found.steam, found.guests) == (2, [], None, None, None)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (["--loaves", "2"], "required: FLOUR"),
        (["rye"], "required: --loaves"),
        (["rye", "--loaves", "x"], "neither a number nor 'auto': 'x'"),
        (["rye", "--loaves", "2", "--crust", "none"], "invalid choice: 'none'"),
        (["rye", "--loaves", "2", "--hot", "--cold"], "not allowed with"),
        (["rye", "--loaves", "2", "-B", "4"], "-B 4: give --loaves instead"),
    ],
)
def test_what_the_text_does_not_allow_is_refused(
    given: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        parser().parse_args(given)
    assert why in capsys.readouterr().err


def test_the_help_has_the_words_of_the_text_in_its_order_and_nothing_of_what_is_refused() -> None:
    text = " ".join(parser().format_help().split())
    places = [
        text.index(words)
        for words in (
            "Bake bread of some flour, in an oven.",
            "FLOUR what it is made of, in any order",
            "--salt G grams of salt",
            "--quiet say nothing",
            "with friends: --guests N who comes",
        )
    ]
    assert places == sorted(places)
    assert "--batches" not in text
