"""Every error that a user can meet says what failed, what was found, and what to do."""

import ast
import pickle
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from alpa_explore import errors
from tests.architecture.sources import PACKAGES, files, name_of, syntax_tree

KINDS = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.AlpaExploreError)]
KIND_NAMES = {kind.__name__ for kind in KINDS}


def constructions(path: Path) -> Iterator[ast.Call]:
    """Each place in a file where one of our errors is made."""
    for node in ast.walk(syntax_tree(path)):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", None)) in KIND_NAMES:
            yield node


def lacks(call: ast.Call) -> bool:
    """True when what, found or remedy is not given, or is blank."""
    keywords = {keyword.arg: keyword.value for keyword in call.keywords}
    given = [call.args[0] if len(call.args) == 1 else None, keywords.get("found"), keywords.get("remedy")]
    blank = [isinstance(value, ast.Constant) and not str(value.value).strip() for value in given]
    return None in given or any(blank)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_an_error_shows_its_three_parts_and_survives_a_process_border(kind: type[errors.AlpaExploreError]) -> None:
    error = kind("Planning failed", found="8 bytes too many", remedy="Use 2 nodes.")
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is kind
    assert str(copy) == str(error) == "Planning failed: 8 bytes too many. Use 2 nodes."
    assert kind.__doc__
    assert kind.exit_code in (1, 2)


@pytest.mark.parametrize("empty", ["what", "found", "remedy"])
def test_an_error_with_an_empty_part_cannot_be_made(empty: str) -> None:
    parts = {"what": "w", "found": "f", "remedy": "r"} | {empty: ""}
    with pytest.raises(AssertionError):
        errors.AlpaExploreError(parts["what"], found=parts["found"], remedy=parts["remedy"])


def test_wherever_an_error_is_made_it_gets_what_found_and_remedy() -> None:
    may = [
        path for path in files(".py", folders=PACKAGES) if any(f"{kind}(" in path.read_text() for kind in KIND_NAMES)
    ]
    made = [(name_of(path), call) for path in may for call in constructions(path)]
    assert len(made) > 10, "the search finds the places where errors are made"
    assert [f"{name}:{call.lineno}" for name, call in made if lacks(call)] == []


@pytest.mark.parametrize(
    "source",
    ["E('w', found='f')", "E('w', found='f', remedy='')", "E(found='f', remedy='r')", "E(' ', found='f', remedy='r')"],
)
def test_the_search_for_incomplete_errors_finds_them(source: str) -> None:
    call = ast.parse(source, mode="eval").body
    assert isinstance(call, ast.Call)
    assert lacks(call)


def test_every_kind_of_error_lives_in_errors_py() -> None:
    kind = re.compile(rf"^ *class \w+\([^)]*\b({'|'.join(KIND_NAMES)})\b", re.MULTILINE)
    having = [name_of(path) for path in files(".py", folders=PACKAGES) if kind.search(path.read_text())]
    assert having == ["alpa_explore/errors.py"]
