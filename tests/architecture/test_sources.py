"""Habits of the house that a reader should be able to rely on in every file."""

import ast
import re

import pytest

from tests.architecture.sources import PACKAGES, ROOT, files, name_of, syntax_tree

MAX_LINES = 500
REASON = re.compile(r"more than 500 lines because \w+", re.IGNORECASE)
URL = re.compile(r"(?:https?|wss?)://(?P<host>[\w.\[\]:-]+)")
LOCAL_HOSTS = re.compile(r"^(127\.0\.0\.1|localhost|\[::1\])(:|$)|^www\.w3\.org$")
"""w3.org names XML namespaces; nothing is fetched from there."""


def test_a_file_over_500_lines_says_why_at_its_top() -> None:
    contents = {name_of(path): path.read_text().splitlines() for path in files(".py", ".js", ".css")}
    long = {name: len(lines) for name, lines in contents.items() if len(lines) > MAX_LINES}
    unexplained = {name: count for name, count in long.items() if not REASON.search("\n".join(contents[name][:20]))}
    assert unexplained == {}, "divide these, or write 'more than 500 lines because …' in their first 20 lines"


def swallowed(tree: ast.Module) -> list[int]:
    """Lines of handlers that let an error vanish: a bare except; a broad one, or suppress(), that does nothing."""
    broad = {"Exception", "BaseException"}
    lines = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ExceptHandler):
            named = {n.id for n in ast.walk(node.type) if isinstance(n, ast.Name)} if node.type else broad
            idle = all(
                isinstance(s, ast.Pass) or (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant))
                for s in node.body
            )
            if node.type is None or (idle and named & broad):
                lines.append(node.lineno)
        if isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) == "suppress":
            lines += [node.lineno for argument in node.args if isinstance(argument, ast.Name) and argument.id in broad]
    return lines


def test_no_error_is_swallowed() -> None:
    may = [path for path in files(".py") if re.search(r"\bexcept\b|\bsuppress\b", path.read_text())]
    assert {name_of(path): lines for path in may if (lines := swallowed(syntax_tree(path)))} == {}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("try: f()\nexcept: raise", [2]),
        ("try: f()\nexcept Exception: pass", [2]),
        ("try: f()\nexcept (ValueError, Exception): ...", [2]),
        ("import contextlib\nwith contextlib.suppress(Exception): f()", [2]),
        ("try: f()\nexcept KeyError: pass", []),
        ("try: f()\nexcept Exception as error: report(error)", []),
    ],
)
def test_the_search_for_swallowed_errors_finds_them(source: str, expected: list[int]) -> None:
    assert swallowed(ast.parse(source)) == expected


def lines_of(pattern: str) -> list[str]:
    """The lines of the library and the front end that match."""
    texts = {name_of(path): path.read_text() for path in files(".py", folders=PACKAGES)}
    return [
        f"{name}:{text.count(chr(10), 0, match.start()) + 1}"
        for name, text in texts.items()
        for match in re.finditer(pattern, text, re.MULTILINE)
    ]


def test_modules_keep_no_state_in_globals() -> None:
    assert lines_of(r"^ +global \w") == []


def test_a_file_is_read_in_an_encoding_that_is_named() -> None:
    # The locale's is another one on some machines, and while a solver's library has set another locale.
    assert lines_of(r"\.read_text\(\)|\.open\(\)|(?<![.\w])open\([^()]*\)(?<!encoding=\"utf-8\"\))$") == []


def test_a_module_says_what_it_is() -> None:
    texts = {name_of(path): path.read_text().strip() for path in files(".py", folders=PACKAGES)}
    assert [name for name, text in texts.items() if text and not re.match(r'(#.*\n)*r?"""\S', text)] == []


def test_the_front_end_names_no_other_machine() -> None:
    named = {
        name_of(path): [
            match["host"] for match in URL.finditer(path.read_text()) if not LOCAL_HOSTS.search(match["host"])
        ]
        for path in files(".py", ".js", ".css", folders=("widgets", "alpa_explore/figures"))
    }
    assert {name: hosts for name, hosts in named.items() if hosts} == {}


def test_tests_mirror_the_sources() -> None:
    tests = {path.name for path in (ROOT / "tests").iterdir() if path.is_dir() and path.name != "__pycache__"}
    sources = {path.name for path in (ROOT / "alpa_explore").iterdir() if path.is_dir()}
    apart = {
        "architecture",
        "browser",
        "cli",
        "distributed",
        "golden",
        "hosts",
        "notebooks",
        "paper",
        "problems",
        "widgets",
        "zoo",
    }
    assert tests - sources - apart == set(), "a folder of tests is named after the package it tests"
