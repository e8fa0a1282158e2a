"""The reference of the website: it has every command and function, and its examples run."""

import ast
import shlex
from pathlib import Path

import pytest

from alpa_explore.cli import commands, parser
from alpa_explore.course.site.reference import examples, outputs, public_functions, reference_text
from tests.course.example_outputs import NOT_RUN, command_outputs, function_outputs, same


def test_every_command_and_function_is_there_with_an_example() -> None:
    shown, made = examples(), commands()
    assert list(shown["commands"]) == list(made)
    assert sorted(shown["functions"]) == list(public_functions())
    text = reference_text(made)
    assert all(f"\n### {name}\n" in text for name in made)
    assert all(f"\n### ax.{name}\n" in text for name in public_functions())
    assert " at 0x" not in text, "nothing in it depends on the run"
    assert reference_text(commands()) == text


def test_examples_that_are_not_run_are_understood() -> None:
    for name, example in examples()["commands"].items():
        program, *words = shlex.split(example)
        assert (program, words[0]) == ("alpa-explore", name)
        assert parser().parse_args(words).command == name
    for example in examples()["functions"].values():
        ast.parse(example)


def test_every_example_that_is_run_has_its_output() -> None:
    for kind, shown in examples().items():
        assert list(outputs()[kind]) == [name for name in shown if name not in NOT_RUN]
        assert all(outputs()[kind].values()), "each prints something"


@pytest.mark.slow
@pytest.mark.distributed
@pytest.mark.parametrize("of_a_plan", [True, False])
def test_the_examples_of_commands_print_what_the_page_says(
    of_a_plan: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one process, which imports torch once."""
    monkeypatch.chdir(tmp_path)
    every = {name: example for name, example in examples()["commands"].items() if name not in NOT_RUN}
    made = [name for name, example in every.items() if "a.plan.json" in example or name in ("compare-run", "logs")]
    found = command_outputs(made if of_a_plan else [name for name in every if name not in made])
    assert [name for name, text in found.items() if not same(name, outputs()["commands"][name], text)] == []


@pytest.mark.slow
@pytest.mark.distributed
def test_the_examples_of_functions_print_what_the_page_says(tmp_path: Path) -> None:
    found = function_outputs(tmp_path)
    assert [name for name, text in found.items() if not same(name, outputs()["functions"][name], text)] == []
