"""A test of a tier that starts processes is run once more when it fails; nothing else is, and nothing is kept quiet."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmarks import repeats
from tests import conftest, tiers
from tests.daily import DAY
from tests.tiers import Failure, Outcome, Results, Spent, Tier, enter, read_report, run, table_of_times, tell_repeated
from tests.waiting import until

ONCE = """
from pathlib import Path
from types import SimpleNamespace
import pytest

def once(name):
    mark = Path(__file__).with_name(name)
    if not mark.exists():
        mark.touch()
        raise AssertionError(f"only the first time: {name}")
"""
"""Begins a file of tests: `once` fails when it is called first."""


def results(*names: str, code: int = 1, passed: int = 5) -> Results:
    failures = tuple(Failure(tests=(name,), text=f"why {name}") for name in names)
    return Results(code=code, passed=passed, failed=len(names), skipped=0, failures=failures)


GOOD = Results(code=0, passed=1, failed=0, skipped=0, failures=())


@pytest.fixture
def answers(monkeypatch):
    """Runs of pytest in turn, and with what they were called."""

    def give(*given: Results) -> list[list[str]]:
        left, calls = list(given), []

        def fake(arguments, **_where):
            calls.append(list(arguments))
            return left.pop(0)

        monkeypatch.setattr(tiers, "pytest", fake)
        return calls

    return give


def outcome(repeats: int = 3) -> Outcome:
    tier = Tier(name="processes", markers="some", workers=2, repeats=repeats)
    return run(tier, no_skips=True, cache="cache")


def test_what_fails_is_run_once_more_alone_and_said_when_it_passes_then(answers, capsys) -> None:
    calls = answers(results("a::t[x y]"), GOOD)
    came = outcome()
    assert calls[1][0] == "--no-skips"
    assert calls[1][-3:] == ["-p", "no:xdist", "a::t[x y]"]
    assert (came.passed, came.failed) == (6, 0)
    assert "6 passed, 0 failed" in came.line()
    assert "1 PASSED ONLY WHEN REPEATED" in came.line()
    tell_repeated([came])
    told = capsys.readouterr().out
    assert "processes: a::t[x y]\nwhy a::t[x y]" in told
    assert "1 PASSED ONLY WHEN REPEATED" in told


def test_what_fails_twice_fails(answers) -> None:
    calls = answers(results("a::t", "a::u"), results("a::t", passed=0), GOOD)
    came = outcome()
    assert len(calls) == 3
    assert (came.passed, came.failed) == (6, 1)
    assert [failure.tests for failure in came.repeated] == [("a::u",)]
    assert came.line().splitlines()[1:] == ["    FAILED a::t"]


def test_what_is_skipped_or_not_found_when_it_is_repeated_has_not_passed(answers) -> None:
    nothing = Results(code=0, passed=0, failed=0, skipped=1, failures=())
    answers(results("a::t"), nothing)
    assert outcome().failed == 1


@pytest.mark.parametrize(
    ("first", "repeats"),
    [
        pytest.param(results("a", "b", "c", "d"), 3, id="more failures than accidents"),
        pytest.param(results("a"), 0, id="a tier that computes the same each time"),
        pytest.param(results("a", code=2), 3, id="pytest was interrupted"),
        pytest.param(results(code=4), 3, id="pytest could not begin"),
    ],
)
def test_nothing_else_is_repeated(answers, first, repeats) -> None:
    calls = answers(first)
    came = outcome(repeats)
    assert len(calls) == 1
    assert came.failed >= 1
    assert came.repeated == ()


@pytest.mark.parametrize(("given", "found"), [("max 100000", 2), ("150000 100000", 1), ("50000 100000", 1), (None, 2)])
def test_a_container_has_the_cores_that_it_is_given(given, found, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(tiers.os, "sched_getaffinity", lambda _: {0, 1}, raising=False)
    if given:
        (tmp_path / "cpu.max").write_text(f"{given}\n")
    assert tiers.cores(tmp_path) == found


def test_only_tiers_that_start_processes_repeat() -> None:
    found = {tier.name: tier.repeats for tier in tiers.TIERS}
    assert found == {"default": 0, "slow": 0, "distributed": 3, "hosts": 3, "browser": 3, "sweep": 0}


def test_a_report_has_each_test_once_and_groups_those_whose_set_up_failed() -> None:
    bad, setup = (
        '<failure message="no">text</failure>',
        '<error message="failed on setup with &quot;no&quot;">page</error>',
    )
    here = "tests.test_tiers"
    cases = [
        f'<testcase classname="{here}" name="good"/>',
        f'<testcase classname="{here}" name="bad[1.5]">{bad}</testcase>',
        f'<testcase classname="{here}" name="bad[1.5]"><error message="failed on teardown">late</error></testcase>',
        f'<testcase classname="{here}" name="one">{setup}</testcase>',
        f'<testcase classname="{here}.TestClass" name="two">{setup}</testcase>',
        f'<testcase classname="{here}" name="left out"><skipped/></testcase>',
    ]
    report = f"<testsuites><testsuite>{''.join(cases)}</testsuite></testsuites>"
    found = read_report(report, code=1, root=tiers.ROOT)
    file = "tests/test_tiers.py"
    assert (found.passed, found.failed, found.skipped) == (1, 3, 1)
    assert [f.tests for f in found.failures] == [(f"{file}::bad[1.5]",), (f"{file}::one", f"{file}::TestClass::two")]
    assert "text" in found.failures[0].text
    assert "page" in found.failures[1].text


def test_a_report_of_a_run_that_was_interrupted_is_read() -> None:
    """Fault of this suite: pytest then reports a case without a name, and what had run until then was lost."""
    cases = '<testcase classname="tests.test_tiers" name="good"/><testcase classname="" name=""><error/></testcase>'
    found = read_report(f"<testsuites>{cases}</testsuites>", code=2, root=tiers.ROOT)
    assert (found.passed, found.failed, found.spent[0].test) == (1, 1, "tests/test_tiers.py::good")


@pytest.mark.distributed
@pytest.mark.parametrize("beside", [False, True])
def test_pytest_itself_is_asked_and_read_rightly(tmp_path: Path, monkeypatch, capfd, beside) -> None:
    """The whole, with tests that fail once, always, in a shared set-up, and after they have passed."""
    text = f"""{ONCE}
@pytest.fixture(scope="module")
def page():
    once("page")

@pytest.fixture
def closing():
    yield
    once("closing")

def test_good(): pass
def test_always(): raise AssertionError("always")
class TestPages:
    def test_one(self, page): pass
    @pytest.mark.parametrize("what", ["a [b]::c.d"])
    def test_two(self, page, what): pass
def test_closed(closing): pass
"""
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner/test_some.py").write_text(text)
    tier = Tier(name="some", markers="not other", workers=2, share="loadfile", repeats=3, fills=True)
    came = run(tier, no_skips=False, cache=str(tmp_path / "cache"), root=tmp_path, beside=beside)
    tell_repeated([came])
    told = capfd.readouterr().out
    file = "inner/test_some.py"
    assert [failure.tests for failure in came.repeated] == [
        (f"{file}::TestPages::test_one", f"{file}::TestPages::test_two[a [b]::c.d]"),
        (f"{file}::test_closed",),
    ]
    assert (came.passed, came.failed, came.skipped) == (4, 1, 0)
    assert "only the first time: page" in told
    assert "only the first time: closing" in told
    assert came.processor_seconds > 0
    assert ("some        | FAILED inner/test_some.py::test_always" in told) is beside


def test_the_table_of_times_has_each_tier_the_heaviest_tests_and_what_was_repeated() -> None:
    spent = [Spent(test=f"t{n}", seconds=n, processor_seconds=100 - n) for n in range(30)]
    again = Failure(tests=("t7",), text="late")
    table = table_of_times(
        [
            Outcome(tier="one", seconds=61, processor_seconds=90, spent=tuple(spent[::2])),
            Outcome(tier="two", seconds=30, processor_seconds=15, spent=tuple(spent[1::2]), repeated=(again,)),
            Outcome(tier="three", missing="no browser"),
        ],
        71.4,
    )
    rows = [line.split() for line in table.splitlines()]
    assert rows[1:3] == [["61", "90", "one"], ["30", "15", "two"]]
    assert rows[3][:3] == ["71", "105", "all,"]
    assert [row for row in rows if row and row[-1].startswith("t") and row[-1][1:].isdigit()] == [
        *([f"{n}.0", f"{100 - n}.0", f"t{n}"] for n in range(20)),
        ["repeated:", "t7"],
    ]
    assert "three" not in table


def test_a_test_that_is_repeated_twice_in_ten_runs_has_a_fault(tmp_path: Path) -> None:
    ledger = tmp_path / "some/runs.jsonl"

    def add(*tests: str) -> list[str]:
        repeated = tuple(Failure(tests=(test,), text="") for test in tests)
        return enter(
            ledger, [Outcome(tier="hosts", passed=4, repeated=repeated), Outcome(tier="browser", missing="no")]
        )

    assert add("a") == []
    assert add("b") == []
    assert add("a", "c") == ["a"]
    for _ in range(8):
        assert add() == []
    assert add("a") == ["a"], "the one before was nine runs ago"
    assert add("b") == [], "the one before was eleven runs ago"
    runs = [json.loads(line) for line in ledger.read_text().splitlines()]
    assert len(runs) == 13
    assert runs[2]["tiers"] == {
        "hosts": {"passed": 4, "failed": 0, "seconds": 0, "processor_seconds": 0, "repeated": ["a", "c"]}
    }


def test_what_is_unsteady_fails_the_run(monkeypatch, tmp_path, capsys) -> None:
    late = Outcome(tier="hosts", passed=4, repeated=(Failure(tests=("a",), text="late"),))
    monkeypatch.setattr(tiers, "run", lambda *_tier, **_options: late)
    monkeypatch.setattr("sys.argv", ["tiers.py", "hosts", "--ledger", str(tmp_path / "runs.jsonl")])
    assert [tiers.main(folder=tmp_path), tiers.main(folder=tmp_path)] == [0, 1]
    assert "Repeated twice in 10 runs, which is a fault: a" in capsys.readouterr().out
    assert "repeated: a" in (tmp_path / "times.txt").read_text()


def test_runs_of_a_tier_are_collected_with_what_did_not_pass_at_once(monkeypatch, tmp_path, capsys) -> None:
    late = Outcome(tier="hosts", passed=4, failed=1, broken=("b",), repeated=(Failure(tests=("a",), text="late"),))
    monkeypatch.setattr(tiers, "run", lambda *_tier, **_options: late)
    monkeypatch.setattr(repeats, "STORE", tmp_path / "repeats.json")
    for words, code in (("hosts --times 2", 1), ("hosts --busy", 1), ("", 0)):
        monkeypatch.setattr("sys.argv", ["repeats.py", *words.split()])
        assert repeats.main() == code
    rows = json.loads((tmp_path / "repeats.json").read_text())
    assert [(row["tier"], row["passed"], row["failed"], row["repeated"]) for row in rows] == [
        ("hosts", 4, ["b"], {"a": "late"})
    ] * 3
    assert [row["loaded"] for row in rows] == [False, False, True]
    told = capsys.readouterr().out.splitlines()
    assert told[-2:] == ["3 times not at once: b", "3 times not at once: a"]


def test_limits_grow_with_the_load_and_with_fewer_cores(monkeypatch) -> None:
    for found, load, grown in ((2, 0.3, 1.0), (2, 8.0, 4.0), (1, 0.3, 2.0), (1, 8.0, 8.0), (64, 8.0, 1.0)):
        monkeypatch.setattr(tiers, "cores", lambda found=found: found)
        monkeypatch.setattr("os.getloadavg", lambda load=load: (load, 0.0, 0.0))
        assert tiers.patience() == grown


def test_a_wait_ends_with_the_state_or_says_what_it_found(monkeypatch) -> None:
    clock = [0.0]

    def pause(seconds: float) -> None:
        clock[0] += seconds

    monkeypatch.setattr("tests.waiting.patience", lambda: 3.0)
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    assert until(lambda: clock[0] > 5 and "there", "it is there", seconds=2.0, pause=pause) == "there"
    clock[0] = 0.0
    with pytest.raises(AssertionError, match=r"not within 6 s: found 6\.0"):
        until(lambda: False, lambda: f"found {clock[0]:.1f}", seconds=2.0, pause=pause)


def test_a_test_whose_file_does_not_say_its_tier_is_refused_for_its_tier_would_not_read_the_file(
    tmp_path: Path,
) -> None:
    said, unsaid = tmp_path / "test_said.py", tmp_path / "test_unsaid.py"
    said.write_text("pytestmark = pytest.mark.hosts")
    unsaid.write_text("from elsewhere import pytestmark")

    def item(path: Path) -> SimpleNamespace:
        return SimpleNamespace(path=path, get_closest_marker=lambda name: name == "hosts" or None)

    conftest.pytest_collection_modifyitems([item(said)])
    with pytest.raises(pytest.UsageError, match=r"test_unsaid\.py: hosts"):
        conftest.pytest_collection_modifyitems([item(said), item(unsaid)])

    def config(tier: str | None) -> SimpleNamespace:
        return SimpleNamespace(getoption=lambda _name: tier)

    assert conftest.pytest_ignore_collect(unsaid, config("hosts")) is True
    for path, tier in ((said, "hosts"), (unsaid, None), (tmp_path, "hosts")):
        assert conftest.pytest_ignore_collect(path, config(tier)) is None


def test_some_parameters_run_in_their_tier_and_the_others_in_the_sweep() -> None:
    def items(name: str, count: int, **kept: int) -> list[SimpleNamespace]:
        made = []
        for number in range(count):
            marks = [pytest.mark.slow.mark, *(pytest.mark.sweep(**kept).mark for _ in kept)]
            item = SimpleNamespace(path=Path(__file__), nodeid=f"{name}[{number}::x]", own_markers=marks)
            item.get_closest_marker = lambda name, item=item: next(
                (m for m in item.own_markers if m.name == name), None
            )
            made.append(item)
        return made

    ten, three, one, free = items("t", 10, kept=4), items("u", 3, kept=5), items("v", 4, kept=1), items("w", 2)
    conftest.pytest_collection_modifyitems([*ten, *three, *one, *free])
    for same, left_out in ((ten, [1, 2, 4, 5, 7, 8]), (three, []), (one, [1, 2, 3]), (free, [])):
        assert [i for i, item in enumerate(same) if item.get_closest_marker("sweep")] == left_out
        assert all(item.get_closest_marker("slow") for item in same)


def test_parameters_that_run_in_turn_have_all_run_after_some_days(monkeypatch) -> None:
    run: list[int] = []
    for day in range(8, 12):
        monkeypatch.setenv(DAY, f"2026-11-{day:02}")
        items = [SimpleNamespace(path=Path(__file__), nodeid=f"t[{n}]", own_markers=[]) for n in range(10)]
        for item in items:
            item.own_markers.append(pytest.mark.sweep(kept=3, in_turn=True).mark)
            item.get_closest_marker = lambda name, item=item: next(
                (m for m in item.own_markers if m.name == name), None
            )
        conftest.pytest_collection_modifyitems(items)
        today = [n for n, item in enumerate(items) if not item.own_markers]
        assert len(today) == 3
        run += today
    assert set(run) == set(range(10))


def test_the_sweep_runs_only_when_it_is_named(monkeypatch, tmp_path) -> None:
    asked: list[str] = []

    def fake(tier: Tier, **_options: object) -> Outcome:
        asked.append(tier.name)
        return Outcome(tier=tier.name)

    monkeypatch.setattr(tiers, "run", fake)
    for words in ([], ["sweep"]):
        monkeypatch.setattr("sys.argv", ["tiers.py", *words, "--ledger", str(tmp_path / "runs.jsonl")])
        assert tiers.main(folder=tmp_path) == 0
    assert sorted(asked[:5]) == sorted(["default", "slow", "distributed", "hosts", "browser"])
    assert asked[0] == "default"
    assert asked[5:] == ["sweep"]


@pytest.mark.parametrize(
    ("cores", "room", "names", "together"),
    [
        (2, 8, "default slow distributed hosts browser", True),
        (1, 8, "default slow distributed hosts browser", False),
        (2, 2, "default slow distributed hosts browser", False),
        (2, 8, "default slow", False),
        (2, 8, "hosts browser", False),
        (2, 8, "slow browser", True),
    ],
)
def test_the_slow_tier_takes_what_tiers_that_wait_leave_of_the_cores(monkeypatch, cores, room, names, together) -> None:
    begun: list[str] = []
    ended: list[str] = []

    def fake(tier: Tier, *, beside: bool = False, **_options: object) -> Outcome:
        begun.append(tier.name)
        assert beside is (together and tier.name != "default")
        if beside:
            until(lambda: {"slow", chosen[-1].name} <= {*begun} or tier.name not in ("slow", chosen[-1].name), "both")
        ended.append(tier.name)
        return Outcome(tier=tier.name)

    monkeypatch.setattr(tiers, "run", fake)
    monkeypatch.setattr(tiers, "CORES", cores)
    monkeypatch.setattr(tiers, "ROOM", room)
    chosen = [tier for tier in tiers.TIERS if tier.name in names.split()]
    outcomes = tiers.run_all(chosen, no_skips=True, cache="cache")
    assert [outcome.tier for outcome in outcomes] == names.split()
    assert [name for name in begun if name != "slow"] == [name for name in names.split() if name != "slow"]
    if not together:
        assert ended == begun == names.split()
