"""What the tests would miss: one small fault at a time in a copy of the checkout, and the test that sees it.

    python benchmarks/mutations.py [--changed [REF]] [--only WORD …] [--all] [--jobs N] [--json FILE]

The faults are in mutations.toml beside this file. Each is written into a copy of the checkout, and the tests that it
names run there: first those of the default tier, then those of the slow tier, until one fails. With --all a fault that
they miss meets all tests of both tiers. `--changed` takes the faults of files that have changed since REF, or in the
last week. The table says which test saw each fault, and the processor seconds that it took.

It fails where a fault no longer applies to the sources, where a test that saw a fault fails without one, too, and where
less than 95 % are seen. A fault that changes nothing that a user can see does not belong on the list.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import queue
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIST = Path(__file__).with_suffix(".toml")
WANTED = 0.95
"""The share of faults that some test must see."""
TIERS = {
    "default": "not slow and not distributed and not hosts and not browser and not sweep",
    "slow": "slow and not sweep",
}
"""Tiers of tests/tiers.py that compute the same each time -> pytest's -m."""
QUIET = ("-q", "--tb=no", "-p", "no:xdist", "-p", "no:cacheprovider", "--hypothesis-seed=0")
FORKS = multiprocessing.get_context("forkserver")
IMPORTED = ["pytest", "hypothesis", "numpy", "torch", "numba", "plotly.graph_objects", "distributed", "ipywidgets"]
LIMIT_SECONDS = 300.0
HUNG = "Timeout ("
"""What faulthandler begins with when it ends a process at that limit."""
BAD = re.compile(r"^(?:FAILED|ERROR) (tests/\S+\.py(?:::.*?)?)(?: - .*)?$", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One replacement in one file."""

    file: str
    """Relative to the checkout."""
    old: str
    new: str
    breaks: str
    """In one sentence what is wrong then."""
    tests: tuple[str, ...]
    """Files or folders of the tests that should see it."""
    words: str = ""
    """pytest's -k among them."""

    @property
    def package(self) -> str:
        """'cost'; 'widgets'."""
        parts = Path(self.file).parts
        return parts[1] if parts[0] == "alpa_explore" and len(parts) > 2 else parts[0]

    def applied(self, text: str) -> str:
        """The sources of its file with the fault. ValueError where they do not have its text exactly once."""
        if (count := text.count(self.old)) != 1:
            raise ValueError(f"{self.file} has {count} times: {self.old}")
        return text.replace(self.old, self.new)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What became of a fault."""

    fault: Fault
    tier: str
    """That of the test that saw it; '' where none did."""
    test: str
    seconds: float
    """Processor seconds until then."""


def faults() -> tuple[Fault, ...]:
    """The list."""
    entries = tomllib.loads(LIST.read_text(encoding="utf-8"))["fault"]
    return tuple(Fault(**{**entry, "tests": tuple(entry["tests"])}) for entry in entries)


def changed_files(since: str) -> set[str]:
    """Files that differ from a commit, or from the last one that is older than a week where `since` is empty."""

    def git(*arguments: str) -> list[str]:
        done = subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True)
        return done.stdout.splitlines()

    commit = since or next(iter(git("rev-list", "-1", "--before=1 week ago", "HEAD")), "")
    return set(git("diff", "--name-only", commit)) if commit else {fault.file for fault in faults()}


def copy_checkout(folder: Path) -> None:
    """The files of the checkout as they are now, without what git ignores."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)


def run_tests(copy: Path, arguments: Sequence[str]) -> tuple[int, str, float]:
    """pytest in a copy: (its exit code, what it said, processor seconds)."""
    with tempfile.TemporaryDirectory() as folder:
        said, told = Path(folder) / "said", Path(folder) / "told"
        # A fault may make a test hang; on a busy machine it gets more time, as in tests/tiers.py.
        patience = max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
        limit = ["-o", f"faulthandler_timeout={LIMIT_SECONDS * patience:.0f}"]
        process = FORKS.Process(target=_in_copy, args=(copy, [*QUIET, *limit, *arguments], said, told))
        process.start()
        process.join()
        text = said.read_text(errors="replace") if said.exists() else ""
        if not told.exists() and HUNG not in text:
            raise RuntimeError(f"pytest ended with {process.exitcode}: {text}")
        code, seconds = json.loads(told.read_text()) if told.exists() else (1, 0.0)
        return code, text, seconds


def _in_copy(copy: Path, arguments: list[str], said: Path, told: Path) -> None:
    """In a process that has imported all but alpa_explore and its tests, which is half of the time of a short test."""
    os.chdir(copy)
    sys.dont_write_bytecode = False  # the next fault need not compile all modules again
    paths = [str(copy), str(copy / "widgets")]
    sys.path[:0] = paths
    os.environ |= {"PYTHONPATH": os.pathsep.join(paths), "COLUMNS": "400"}
    with said.open("wb") as stream:
        for descriptor in (1, 2):
            os.dup2(stream.fileno(), descriptor)
    import pytest

    code = int(pytest.main(arguments))
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    told.write_text(json.dumps([code, sum(u.ru_utime + u.ru_stime for u in used)]))
    os._exit(code)  # no thread of a test keeps it


def has_slow(tests: Path) -> bool:
    """Whether a file, or one in a folder, marks a test as slow."""
    files = tests.rglob("test_*.py") if tests.is_dir() else (tests,)
    return any("pytest.mark.slow" in file.read_text(encoding="utf-8") for file in files)


def try_fault(fault: Fault, copy: Path, *, every: bool) -> Outcome:
    """Write the fault into a copy, run its tests there, and mend it."""
    path = copy / fault.file
    text, stat = path.read_text(encoding="utf-8"), path.stat()
    path.write_text(fault.applied(text), encoding="utf-8")
    spent = 0.0
    try:
        named = [*fault.tests, *(["-k", fault.words] if fault.words else [])]
        for place in (named, *([["tests"]] if every else [])):
            for tier, markers in TIERS.items():
                if tier == "slow" and place is named and not any(has_slow(copy / test) for test in fault.tests):
                    continue
                code, said, seconds = run_tests(copy, ["-x", "-m", markers, *place])
                spent += seconds
                if code not in (0, 5):
                    found = BAD.search(said)
                    test = found[1] if found else "a test that hangs" if HUNG in said else f"pytest ended with {code}"
                    return Outcome(fault=fault, tier=tier, test=test, seconds=spent)
    finally:
        path.write_text(text, encoding="utf-8")
        os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))  # else what was compiled of it is taken for stale
    return Outcome(fault=fault, tier="", test="", seconds=spent)


def try_all(chosen: Sequence[Fault], *, every: bool = False, jobs: int = 1) -> list[Outcome]:
    """Try faults, some at once, each in a copy of its own; then all tests that saw one, without a fault."""
    if not chosen:
        return []
    for threads in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ.setdefault(threads, "1")  # as tests/conftest.py has it
    FORKS.set_forkserver_preload(IMPORTED)
    with tempfile.TemporaryDirectory(prefix="alpa-mutations-") as folder:
        copies: queue.SimpleQueue[Path] = queue.SimpleQueue()
        for number in range(jobs):
            copies.put(copy := Path(folder) / str(number))
            copy_checkout(copy)

        def tried(fault: Fault) -> Outcome:
            copy = copies.get()
            try:
                outcome = try_fault(fault, copy, every=every)
            finally:
                copies.put(copy)
            print(row(outcome), flush=True)
            return outcome

        with ThreadPoolExecutor(jobs) as pool:
            outcomes = list(pool.map(tried, chosen))
        # Whatever the parameters: a fault may change a value that is part of a test's name.
        seen = sorted({outcome.test.partition("[")[0] for outcome in outcomes if outcome.test.startswith("tests/")})
        code, said, _ = run_tests(copies.get(), seen) if seen else (0, "", 0.0)
    if code:
        raise SystemExit(f"These tests fail without a fault, too:\n{said}")
    return outcomes


def row(outcome: Outcome) -> str:
    """A line of the table."""
    where = f"{outcome.tier}: {outcome.test}" if outcome.tier else "SURVIVES"
    return f"{outcome.seconds:6.1f} s  {outcome.fault.file}: {outcome.fault.breaks}\n          {where}"


def main() -> int:
    """0 when all faults apply and enough of them are seen."""
    parser = argparse.ArgumentParser(description="Which small faults do the tests see?")
    parser.add_argument("--changed", nargs="?", const="", metavar="REF", help="files changed since REF, or in a week")
    parser.add_argument("--only", nargs="+", metavar="WORD", help="faults with such a word in file or sentence")
    parser.add_argument("--all", action="store_true", help="a fault that its tests miss meets both whole tiers")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="faults tried at once")
    parser.add_argument("--json", type=Path, help="write the outcomes there")
    options = parser.parse_args()
    chosen = list(faults())
    if options.changed is not None:
        files = changed_files(options.changed)
        chosen = [fault for fault in chosen if fault.file in files]
    if options.only:
        chosen = [f for f in chosen if any(word in f"{f.file} {f.breaks}" for word in options.only)]
    if not chosen:
        print("no such fault")
        return 0
    stale = []
    for fault in chosen:
        try:
            fault.applied((ROOT / fault.file).read_text(encoding="utf-8"))
        except (ValueError, OSError) as error:
            stale.append(str(error))
    if stale:
        print("\n".join(["Faults that no longer apply:", *stale]))
        return 1
    outcomes = try_all(chosen, every=options.all, jobs=options.jobs)
    if options.json:
        options.json.write_text(json.dumps([asdict(outcome) for outcome in outcomes], indent=1), encoding="utf-8")
    counts = Counter(outcome.tier or "none" for outcome in outcomes)
    share = 1 - counts["none"] / len(outcomes)
    seconds = sum(outcome.seconds for outcome in outcomes)
    print(f"\n{len(outcomes)} faults, {100 * share:.1f} % seen ({dict(counts)}), {seconds:.0f} processor seconds")
    for outcome in outcomes:
        if not outcome.tier:
            print(f"survives: {outcome.fault.file}: {outcome.fault.breaks}")
    return int(share < WANTED)


if __name__ == "__main__":
    sys.exit(main())
