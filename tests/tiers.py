"""Runs the tiers of tests one after the other, and says plainly what was skipped and what to install.

    python tests/tiers.py                 every tier that this machine can run
    python tests/tiers.py default slow    these
    python tests/tiers.py --no-skips      a tier or a test that would be skipped is a failure (CI)

Tiers are apart because they want different things of a machine: a processor, processes that find each other, network
namespaces, a browser. Tests that start processes of their own or wait for a browser use about one core, so as many run
at once as there are cores, file by file, for tests of a file share what they started; emulated hosts mostly wait, so
more of those run at once.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CORES = os.cpu_count() or 1
HOSTS_AT_ONCE = CORES + 1
"""A test of emulated hosts computes for about a third of its time on one core, and waits for limits of time else."""
TOGETHER = min(CORES, 4)
"""A test that starts ranks or a browser takes about a core and 2 GB."""
NO_TESTS = 5
"""pytest's exit code when nothing was collected."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of a tier; `missing` says why it was not run."""

    tier: str
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    seconds: float = 0.0
    missing: str | None = None

    def line(self) -> str:
        """One line for the closing table."""
        if self.missing:
            return f"{self.tier:<12} NOT RUN: {self.missing}"
        counts = f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped"
        return f"{self.tier:<12} {counts} in {self.seconds:.0f} s"


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
    Tier(name="default", markers="not slow and not distributed and not hosts and not browser", workers=CORES),
    Tier(name="slow", markers="slow and not distributed and not hosts and not browser", workers=CORES),
    Tier(name="distributed", markers="distributed and not hosts and not browser", workers=TOGETHER, share="loadfile"),
    Tier(name="hosts", markers="hosts and not browser", workers=HOSTS_AT_ONCE, missing=hosts_are_missing),
    Tier(name="browser", markers="browser", workers=TOGETHER, share="loadfile", missing=browser_is_missing),
)


def run(tier: Tier, *, no_skips: bool, cache: str) -> Outcome:
    """Run one tier; pytest writes to the terminal as always. `cache`: where tiers share solved problems."""
    if missing := tier.missing():
        return Outcome(tier=tier.name, missing=missing)
    print(f"\n== {tier.name} tier", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", "-m", tier.markers, f"--junitxml={report}", "--durations=5"]
        command += ["-n", str(tier.workers), "--dist", tier.share]
        command += ["--no-skips"] if no_skips else []
        start = time.perf_counter()
        environment = os.environ | {"ALPA_EXPLORE_TEST_CACHE": cache}
        code = subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode
        seconds = time.perf_counter() - start
        counts = dict.fromkeys(("tests", "failures", "errors", "skipped"), 0)
        if report.exists():
            for suite in ElementTree.parse(report).iter("testsuite"):
                counts = {name: count + int(suite.get(name, 0)) for name, count in counts.items()}
    failed, skipped = counts["failures"] + counts["errors"], counts["skipped"]
    passed = counts["tests"] - failed - skipped
    if code not in (0, NO_TESTS) and not failed:
        failed = 1  # pytest itself ended badly: collection, an interrupt, a skip where none is allowed
    return Outcome(tier=tier.name, passed=passed, failed=failed, skipped=skipped, seconds=seconds)


def main() -> int:
    """Returns 0 when all that ran passed (and, with --no-skips, all was run)."""
    names = [tier.name for tier in TIERS]
    parser = argparse.ArgumentParser(description="Run the tiers of tests.")
    parser.add_argument("tiers", nargs="*", metavar="TIER", help=f"of {', '.join(names)}; all when none is named")
    parser.add_argument("--no-skips", action="store_true", help="fail when a tier or a test would be skipped")
    options = parser.parse_args()
    if unknown := set(options.tiers) - set(names):
        parser.error(f"no such tier: {', '.join(sorted(unknown))}; choose from {', '.join(names)}")
    chosen = [tier for tier in TIERS if not options.tiers or tier.name in options.tiers]

    with tempfile.TemporaryDirectory() as cache:
        outcomes = [run(tier, no_skips=options.no_skips, cache=cache) for tier in chosen]
    print("\n== summary")
    for outcome in outcomes:
        print(outcome.line())
    not_run = [outcome for outcome in outcomes if outcome.missing]
    passed, failed, skipped = (sum(getattr(o, what) for o in outcomes) for what in ("passed", "failed", "skipped"))
    if not_run and options.no_skips:
        failed += len(not_run)
        print("A tier was not run, and --no-skips does not allow that.")
    print(f"{passed} passed, {failed} failed, {skipped} skipped", flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
