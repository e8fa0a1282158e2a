"""Tests wait for states, by `tests.waiting.until`: no test sleeps, reads a clock, or gives a wait a number of seconds.

A number of seconds says something about the machine: where programs share its cores, it is too short one day. What a
program that a test starts does, as the text of a script, is not looked at.
"""

import ast
from functools import cache

import pytest

from tests.architecture.sources import files, name_of, syntax_tree

CLOCKS = {"monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns"}
PAUSES = {"sleep", "wait_for_timeout"}
WAITS = {"join", "result", "wait"}
"""Calls that give up after so many seconds, where they are given a number; others are told by `timeout`."""

MAY = {
    "tests/waiting.py::until": "it is the one way of waiting",
    "tests/tiers.py::run": "it says how long a tier took",
    "tests/tiers.py::main": "it says how long all took",
    "tests/execution/tasks.py::slow": "a task that takes time is what executors are for",
    "tests/browser/harness/page.py::GuardedPage": "it is the pause of `until` on a page, which works meanwhile",
    "tests/runtime/test_retries.py::test_a_worker_that_was_lost_is_not_waited_for_unless_no_other_one_is_listed": (
        "its event loop has a clock of its own"
    ),
}
"""Function of a test file -> why it may."""


def seconds(tree: ast.Module) -> dict[ast.stmt, list[int]]:
    """Each function, class or other statement of a module -> its lines that sleep, read a clock, or give a wait a
    number of seconds."""
    imported = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module in ("time", "asyncio")
        for alias in node.names
        if alias.name in CLOCKS | PAUSES
    }
    return {
        part: sorted({node.lineno for node in ast.walk(part) if isinstance(node, ast.expr) and _counts(node, imported)})
        for part in tree.body
    }


def _counts(node: ast.expr, imported: set[str]) -> bool:
    if isinstance(node, ast.Attribute):
        return node.attr in CLOCKS | PAUSES and _is_of_time(node)
    if isinstance(node, ast.Call):
        waits = isinstance(node.func, ast.Attribute) and node.func.attr in WAITS
        given = [*(node.args if waits else ()), *(word.value for word in node.keywords if word.arg == "timeout")]
        return any(_is_a_number_of_seconds(value) for value in given)
    return isinstance(node, ast.Name) and node.id in imported


def _is_of_time(node: ast.Attribute) -> bool:
    """Whether `node` is of the module time or asyncio, of a module's own `time`, or Playwright's pause."""
    if node.attr == "wait_for_timeout":
        return True
    named = {part.id for part in ast.walk(node.value) if isinstance(part, ast.Name)}
    named |= {part.attr for part in ast.walk(node.value) if isinstance(part, ast.Attribute)}
    return bool(named & {"time", "asyncio"})


def _is_a_number_of_seconds(value: ast.expr) -> bool:
    """`wait(0)` only looks."""
    return isinstance(value, ast.Constant) and type(value.value) in (int, float) and value.value > 0


@cache
def found() -> dict[str, list[int]]:
    """'file::function' -> the lines where it sleeps, reads a clock, or gives a wait a number of seconds."""
    return {
        f"{name_of(path)}::{getattr(part, 'name', '')}": lines
        for path in files(".py", folders=("tests",))
        for part, lines in seconds(syntax_tree(path)).items()
        if lines
    }


@pytest.mark.slow
def test_no_test_sleeps_or_reads_a_clock() -> None:
    others = {name: lines for name, lines in found().items() if name not in MAY}
    assert others == {}, (
        "wait for a state by tests.waiting.until; give the library a clock; measure seconds in benchmarks/"
    )


@pytest.mark.slow
def test_nothing_is_excused_without_need() -> None:
    assert [name for name in MAY if name not in found()] == []


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import time\ntime.sleep(1)", [2]),
        ("from time import sleep as rest\nrest(1)", [2]),
        ("import asyncio\nasync def f(): await asyncio.sleep(0)", [2]),
        ("module.time.sleep(1)", [1]),
        ("import time\nstart = time.monotonic()", [2]),
        ("until(f, pause=time.sleep)", [1]),
        ("page.wait_for_timeout(500)", [1]),
        ("event.wait(10)", [1]),
        ("thread.join(timeout=0.5)", [1]),
        ("run.result(60)", [1]),
        ("subprocess.run(command, timeout=60)", [1]),
        ("event.wait(0)", []),
        ("future.result()", []),
        ("', '.join(words)", []),
        ("SCRIPT = 'import time; time.sleep(1)'", []),
        ("import time\ntime.process_time()", []),
        ("clock.sleep(3)", []),
        ("device.run(1.0)", []),
    ],
)
def test_the_search_for_seconds_finds_them(source: str, expected: list[int]) -> None:
    assert [line for lines in seconds(ast.parse(source)).values() for line in lines] == expected
