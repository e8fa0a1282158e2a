"""Runs the tiers of tests, and says plainly what was skipped and what to install.

    python tests/tiers.py                 every tier that this machine can run, but `sweep`
    python tests/tiers.py default slow    these
    python tests/tiers.py sweep           the parameters that `@pytest.mark.sweep` leaves out: before a release
    python tests/tiers.py --no-skips      a tier or a test that would be skipped is a failure (CI)

A run ends with a table of where its time went, and keeps it in out/tests/times.txt: wall and processor seconds of each
tier, the heaviest tests, what was repeated.

Tiers are apart because they want different things of a machine: a processor, processes that find each other, network
namespaces, a browser. Tests with a browser use about one core, so as many run at once as there are cores, file by file,
for tests of a file share what they started; tests that start ranks, and emulated hosts, wait in part, so more of those
run at once. The slow tier only computes: it runs beside those three with a low priority, and takes what they leave of
the cores. Each line that they print then begins with its tier.

A test that starts processes may fail by an accident of the machine. In the tiers of such tests one that fails is run
once more, by itself, after its tier: one that passes then is reported with its first failure and fails nothing, one
that fails twice fails the run, and more than three failures are taken for what they are. The default and slow tier
compute the same each time: there a failure is a failure. A ledger of runs keeps what was repeated: a test that is
repeated twice in ten runs has a fault, and fails the run.

A machine with one core, little memory or much load runs fewer tests at once and gives each more time.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

import psutil

from alpa_explore.execution.available_memory import available_bytes

ROOT = Path(__file__).resolve().parent.parent


def cores(group: Path = Path("/sys/fs/cgroup")) -> int:
    """The cores that this process may use: those that it may run on, and in a container those that it is given."""
    there = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        share, period = (group / "cpu.max").read_text(encoding="ascii").split()
        return max(1, min(there, int(share) // int(period)))
    except (OSError, ValueError):  # no such group, or the share is "max"
        return there


def patience() -> float:
    """By how much limits of time grow on this machine now: with one core, and with processes that wait for a core."""
    return max(1.0, 2 / cores(), os.getloadavg()[0] / cores())


CORES = cores()
ROOM = max(1, (available_bytes() or psutil.virtual_memory().total) // (3 * 2**30))
"""So many workers have memory, of the container where it has a limit: one takes about 2 GB at most, and something else
runs, too."""
HOSTS_AT_ONCE = min(CORES + 1, ROOM)
"""A test of emulated hosts computes for about a third of its time on one core, and waits for limits of time else."""
RANKS_AT_ONCE = min(CORES + 1, 4, ROOM)
"""A test that starts ranks computes for about two thirds of its time on one core, and takes up to 2 GB."""
TOGETHER = min(CORES, 4, ROOM)
"""A test with a browser computes for about half of its time, in bursts on both cores, and takes about 2 GB."""
HANG_SECONDS = 300
"""After so long a test is taken to hang, on an idle machine."""
HEAVIEST = 20
"""So many tests are named in the table of times."""
LEDGER_RUNS = 10
"""The runs that the ledger of repeats looks back on; a test that is repeated twice in them fails the run."""
NO_TESTS = 5
"""pytest's exit code when nothing was collected."""
TESTS_FAILED = 1
"""pytest's exit code when all tests were run and some failed; others mean that it could not run them all."""
LOW_PRIORITY = 4
"""What the tier that takes the rest of the cores adds to its niceness: it gets four tenths of what a busy test gets."""
BESIDE = 4.0
"""By how much the limit of a test grows in a tier that runs beside another."""
REPEATS = 3
"""So many failures of a tier may be accidents of the machine; more mean that something is broken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tier:
    """Some of the tests, and what they need."""

    name: str
    markers: str
    """pytest's -m expression; together the tiers are all tests, and no test is in two."""
    workers: int
    """pytest's workers."""
    share: str = "worksteal"
    """How tests are shared out among the workers: pytest-xdist's --dist."""
    missing: Callable[[], str | None] = lambda: None
    """What this machine lacks and how to get it, or None."""
    marked: str = ""
    """The marker that all tests of this tier have: files without it are not read. Empty: all files are."""
    repeats: int = 0
    """So many failures are run once more; 0 where the same test always computes the same."""
    by_name: bool = False
    """Run only when it is named."""
    fills: bool = False
    """It only computes, and runs beside the tiers that also wait, with a low priority."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A test that failed, or the tests of a file that failed because what they share could not be set up."""

    tests: tuple[str, ...]
    """pytest's names of them, as its command line takes them."""
    text: str
    """What pytest said of the first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """The time of one test, its fixtures included."""

    test: str
    seconds: float
    processor_seconds: float
    """Of its process and of the processes that it has started and waited for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """What one run of pytest came to."""

    code: int
    passed: int
    failed: int
    skipped: int
    failures: tuple[Failure, ...]
    spent: tuple[Spent, ...] = ()
    processor_seconds: float = 0.0
    """Of all processes that it started and waited for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of a tier; `missing` says why it was not run."""

    tier: str
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    seconds: float = 0.0
    processor_seconds: float = 0.0
    missing: str | None = None
    repeated: tuple[Failure, ...] = ()
    """What passed only when it was run once more; counted in `passed`."""
    broken: tuple[str, ...] = ()
    """The tests that failed."""
    spent: tuple[Spent, ...] = field(default=(), repr=False)

    def line(self) -> str:
        """One line for the closing table."""
        if self.missing:
            return f"{self.tier:<12} NOT RUN: {self.missing}"
        counts = f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped"
        tests = sum(len(failure.tests) for failure in self.repeated)
        times = f"in {self.seconds:.0f} s, {self.processor_seconds:.0f} s of processor time"
        line = f"{self.tier:<12} {counts} {times}" + (f"; {tests} PASSED ONLY WHEN REPEATED" * bool(tests))
        return "\n".join((line, *(f"    FAILED {test}" for test in self.broken)))


def browser_is_missing() -> str | None:
    """What the browser tier lacks."""
    sys.path.insert(0, str(ROOT))
    from tests.browser.harness.chromium import HOW_TO_INSTALL, find_chromium

    if importlib.util.find_spec("playwright") is None:
        return "playwright is not installed: make install-dev"
    return None if find_chromium() else f"no Chromium here: {HOW_TO_INSTALL}"


def hosts_are_missing() -> str | None:
    """What the tier of emulated hosts lacks."""
    sys.path.insert(0, str(ROOT))
    from tests.hosts.hosts import missing

    return missing()


TIERS = (
    Tier(
        name="default",
        markers="not sweep and not slow and not distributed and not hosts and not browser",
        workers=CORES,
    ),
    Tier(
        name="slow",
        markers="slow and not sweep and not distributed and not hosts and not browser",
        workers=CORES,
        marked="slow",
        fills=True,
    ),
    Tier(
        name="distributed",
        markers="distributed and not sweep and not hosts and not browser",
        workers=RANKS_AT_ONCE,
        share="loadfile",
        marked="distributed",
        repeats=REPEATS,
    ),
    Tier(
        name="hosts",
        markers="hosts and not sweep and not browser",
        workers=HOSTS_AT_ONCE,
        share="loadfile",
        missing=hosts_are_missing,
        marked="hosts",
        repeats=REPEATS,
    ),
    Tier(
        name="browser",
        markers="browser and not sweep",
        workers=TOGETHER,
        share="loadfile",
        missing=browser_is_missing,
        marked="browser",
        repeats=REPEATS,
    ),
    Tier(name="sweep", markers="sweep", workers=CORES, marked="sweep", by_name=True),
)


def side_by_side(chosen: Sequence[Tier]) -> tuple[list[Tier], list[Tier]]:
    """Those that run one after the other while the others, in turn too, take what they leave of the cores; both empty
    where one core or too little memory allows no more than one tier at once."""
    first = [tier for tier in chosen if tier.repeats]
    filling = [tier for tier in chosen if tier.fills]
    both = max((tier.workers for tier in first), default=0) + max((tier.workers for tier in filling), default=0)
    return (first, filling) if first and filling and CORES > 1 and both <= ROOM else ([], [])


def run_all(chosen: Sequence[Tier], *, no_skips: bool, cache: str) -> list[Outcome]:
    """Run tiers, some side by side; in the order in which they were given."""
    first, filling = side_by_side(chosen)
    alone = [tier for tier in chosen if tier not in (*first, *filling)]
    outcomes = {tier.name: run(tier, no_skips=no_skips, cache=cache) for tier in alone}
    if first:

        def in_turn(tiers: Sequence[Tier]) -> dict[str, Outcome]:
            return {tier.name: run(tier, no_skips=no_skips, cache=cache, beside=True) for tier in tiers}

        with ThreadPoolExecutor(2) as pool:
            for some in pool.map(in_turn, (first, filling)):
                outcomes |= some
    return [outcomes[tier.name] for tier in chosen]


def run(tier: Tier, *, no_skips: bool, cache: str, root: Path = ROOT, beside: bool = False) -> Outcome:
    """Run one tier; pytest writes to the terminal as always. `cache`: where tiers share solved problems. `beside`:
    another tier runs meanwhile."""
    if missing := tier.missing():
        return Outcome(tier=tier.name, missing=missing)
    print(f"\n== {tier.name} tier", flush=True)
    common = ["--no-skips"] if no_skips else []
    common += ["-o", f"faulthandler_timeout={HANG_SECONDS * patience() * (BESIDE if beside else 1.0):.0f}"]
    shared = ["-m", tier.markers, "--durations=5", "-n", str(tier.workers), "--dist", tier.share]
    shared += [f"--marked={tier.marked}"] if tier.marked else []
    start = time.perf_counter()
    how = {"cache": cache, "root": root, "prefix": f"{tier.name:<12}| " if beside else "", "low": beside and tier.fills}
    results = pytest([*common, *shared], **how)
    processor_seconds = results.processor_seconds
    passed, failed, repeated = results.passed, results.failed, []
    if results.code not in (0, NO_TESTS) and not failed:
        failed = 1  # pytest itself ended badly: collection, an interrupt, a skip where none is allowed
    if results.code == TESTS_FAILED and 0 < len(results.failures) <= tier.repeats:
        for failure in results.failures:
            print(f"\n== {tier.name} tier, once more: {', '.join(failure.tests)}", flush=True)
            again = pytest([*common, "-p", "no:xdist", *failure.tests], **how)
            processor_seconds += again.processor_seconds
            if again.code == 0 and again.passed == len(failure.tests):
                repeated.append(failure)
                passed, failed = passed + len(failure.tests), failed - len(failure.tests)
    return Outcome(
        tier=tier.name,
        passed=passed,
        failed=failed,
        skipped=results.skipped,
        seconds=time.perf_counter() - start,
        processor_seconds=processor_seconds,
        repeated=tuple(repeated),
        broken=tuple(test for f in results.failures if f not in repeated for test in f.tests),
        spent=results.spent,
    )


def pytest(arguments: Sequence[str], *, cache: str, root: Path, prefix: str, low: bool) -> Results:
    """Run pytest once, and read what it reports. Each line that it prints begins with `prefix`."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", f"--junitxml={report}", *arguments]
        if low and shutil.which("nice"):
            command = ["nice", "-n", str(LOW_PRIORITY), *command]
        # Compiled modules are kept: otherwise each worker, rank and kernel compiles all that it imports once more.
        kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        environment = kept | {"ALPA_EXPLORE_TEST_CACHE": cache}
        piped = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True} if prefix else {}
        process = subprocess.Popen(command, cwd=root, env=environment, **piped)
        reader = threading.Thread(target=tell, args=(process.stdout, prefix))
        if prefix:
            reader.start()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = code = os.waitstatus_to_exitcode(status)
        if prefix:
            reader.join()
        results = read_report(report.read_text() if report.exists() else "<testsuites/>", code=code, root=root)
        return replace(results, processor_seconds=used.ru_utime + used.ru_stime)


def tell(lines: Iterable[str], prefix: str) -> None:
    """Print what one of several tiers says, a whole line at a time."""
    for line in lines:
        sys.stdout.write(f"{prefix}{line.rstrip()}\n")
        sys.stdout.flush()


def read_report(report: str, *, code: int, root: Path) -> Results:
    """What pytest's XML says. A test is in it twice where it failed and its fixtures failed after it."""
    outcomes: dict[str, str] = {}
    texts: dict[str, str] = {}
    groups: dict[str, list[str]] = {}
    spent: list[Spent] = []
    for case in ElementTree.fromstring(report).iter("testcase"):
        test = name_of(case, root)
        properties = {found.get("name"): found.get("value") for found in case.iter("property")}
        processor = float(properties.get("processor_seconds") or 0.0)
        spent.append(Spent(test=test, seconds=float(case.get("time", 0.0)), processor_seconds=processor))
        bad = [element for element in case if element.tag in ("failure", "error")]
        if bad:
            outcomes[test] = "failed"
            texts.setdefault(test, "\n".join(f"{element.get('message', '')}\n{element.text or ''}" for element in bad))
            shared = any("failed on setup" in element.get("message", "") for element in bad)
            group = groups.setdefault(test.partition("::")[0] if shared else test, [])
            if test not in group:
                group.append(test)
        else:
            outcomes.setdefault(test, "skipped" if case.find("skipped") is not None else "passed")
    counts = {what: list(outcomes.values()).count(what) for what in ("passed", "failed", "skipped")}
    failures = tuple(Failure(tests=tuple(group), text=texts[group[0]]) for group in groups.values())
    return Results(code=code, failures=failures, spent=tuple(spent), **counts)


def name_of(case: ElementTree.Element, root: Path) -> str:
    """pytest's name of a test: the report has dots in place of the separators of its file's path."""
    parts = [part for part in case.get("classname", "").split(".") if part]
    for end in range(len(parts), 0, -1):
        path = Path(*parts[:end]).with_suffix(".py")
        if (root / path).is_file():
            return "::".join([path.as_posix(), *parts[end:], case.get("name", "")])
    return case.get("name", "")  # of a file that could not be read, which pytest names by its path


def tell_repeated(outcomes: Sequence[Outcome]) -> None:
    """Say loudly which tests passed only when they were repeated, and how they failed first."""
    told = [(outcome, failure) for outcome in outcomes for failure in outcome.repeated]
    if not told:
        return
    tests = sum(len(failure.tests) for _, failure in told)
    print(f"\n== {tests} PASSED ONLY WHEN REPEATED: find out why")
    for outcome, failure in told:
        print(f"\n-- {outcome.tier}: {', '.join(failure.tests)}\n{failure.text.strip()}")


def table_of_times(outcomes: Sequence[Outcome], seconds: float) -> str:
    """Where the time went: a line a tier, `seconds` of all, the heaviest tests, what was repeated."""
    lines = ["wall s  processor s  of tier"]
    lines += [f"{o.seconds:6.0f}  {o.processor_seconds:11.0f}  {o.tier}" for o in outcomes if not o.missing]
    processor = sum(outcome.processor_seconds for outcome in outcomes)
    load = os.getloadavg()[0]
    lines += [f"{seconds:6.0f}  {processor:11.0f}  all, on {CORES} cores, with a load of {load:.1f} at the end"]
    heaviest = sorted((test for o in outcomes for test in o.spent), key=lambda test: -test.processor_seconds)[:HEAVIEST]
    lines += ["", "wall s  processor s  of the heaviest tests (processes that tests share count where they end)"]
    lines += [f"{test.seconds:6.1f}  {test.processor_seconds:11.1f}  {test.test}" for test in heaviest]
    repeated = [test for o in outcomes for failure in o.repeated for test in failure.tests]
    lines += ["", "repeated: " + (", ".join(repeated) or "none")]
    return "\n".join(lines)


def enter(ledger: Path, outcomes: Sequence[Outcome]) -> list[str]:
    """Add a run to the ledger, a line of JSON a run; the tests that were repeated twice or more in its last runs."""
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    run_now = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit.stdout.strip(),
        "load": os.getloadavg()[0],
        "tiers": {
            o.tier: {
                "passed": o.passed,
                "failed": o.failed,
                "seconds": round(o.seconds),
                "processor_seconds": round(o.processor_seconds),
                "repeated": [test for failure in o.repeated for test in failure.tests],
            }
            for o in outcomes
            if not o.missing
        },
    }
    ledger.parent.mkdir(parents=True, exist_ok=True)
    with ledger.open("a") as file:
        file.write(json.dumps(run_now) + "\n")
    runs = [json.loads(line) for line in ledger.read_text().splitlines()[-LEDGER_RUNS:]]
    times: dict[str, int] = {}
    for run_before in runs:
        for test in {test for tier in run_before["tiers"].values() for test in tier["repeated"]}:
            times[test] = times.get(test, 0) + 1
    return sorted(test for test in {t for o in outcomes for f in o.repeated for t in f.tests} if times[test] > 1)


def main(folder: Path = ROOT / "out/tests") -> int:
    """Returns 0 when all that ran passed (and, with --no-skips, all was run). `folder`: for the table of times."""
    names = [tier.name for tier in TIERS]
    parser = argparse.ArgumentParser(description="Run the tiers of tests.")
    parser.add_argument(
        "tiers", nargs="*", metavar="TIER", help=f"of {', '.join(names)}; all but sweep when none is named"
    )
    parser.add_argument("--no-skips", action="store_true", help="fail when a tier or a test would be skipped")
    parser.add_argument(
        "--ledger", type=Path, default=ROOT / "out/tests/runs.jsonl", help="where each run is kept (%(default)s)"
    )
    options = parser.parse_args()
    if unknown := set(options.tiers) - set(names):
        parser.error(f"no such tier: {', '.join(sorted(unknown))}; choose from {', '.join(names)}")
    chosen = [tier for tier in TIERS if (tier.name in options.tiers if options.tiers else not tier.by_name)]

    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as cache:
        outcomes = run_all(chosen, no_skips=options.no_skips, cache=cache)
    tell_repeated(outcomes)
    times = table_of_times(outcomes, time.perf_counter() - start)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "times.txt").write_text(times + "\n")
    print(f"\n== times (kept in {folder / 'times.txt'})\n{times}")
    print("\n== summary")
    for outcome in outcomes:
        print(outcome.line())
    not_run = [outcome for outcome in outcomes if outcome.missing]
    passed, failed, skipped = (sum(getattr(o, what) for o in outcomes) for what in ("passed", "failed", "skipped"))
    if not_run and options.no_skips:
        failed += len(not_run)
        print("A tier was not run, and --no-skips does not allow that.")
    if unsteady := enter(options.ledger, outcomes):
        failed += len(unsteady)
        passed -= len(unsteady)
        print(f"Repeated twice in {LEDGER_RUNS} runs, which is a fault: {', '.join(unsteady)} ({options.ledger})")
    print(f"{passed} passed, {failed} failed, {skipped} skipped", flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
