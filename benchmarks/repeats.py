"""The tiers that wait for processes, hosts and pages, run again and again: what fails by accident, and how often.

    python benchmarks/repeats.py [TIER …] [--times N] [--busy]

Each run is added to repeats.json beside this file as soon as it has ended, so that twenty runs can be made in several
sittings: date, commit, the load before and after it, seconds, what passed, what failed, and what passed only when it
was repeated, with the first lines of why. `--busy` loads every core meanwhile. Without a tier it shows what is known.
Exits with 1 where a test of a new run failed, or passed only when it was repeated.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
STORE = HERE / "repeats.json"
WAITING = ("distributed", "hosts", "browser")
IDLE_LOAD = 1.0
"""A load up to this before a run: something else runs now and then, and takes little."""


@contextmanager
def load(processes: int) -> Iterator[None]:
    """So many processes compute meanwhile."""
    spinning = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(processes)]
    try:
        yield
    finally:
        for process in spinning:
            process.kill()
            process.wait()


def row_of(name: str, busy: bool) -> dict[str, Any]:
    """One run of a tier."""
    sys.path.insert(0, str(HERE.parent))
    from tests.tiers import CORES, TIERS, run

    (tier,) = (tier for tier in TIERS if tier.name == name)
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=HERE, capture_output=True, text=True, check=True
    )
    row: dict[str, Any] = {
        "tier": name,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit.stdout.strip(),
        "load before": round(os.getloadavg()[0], 1),
        "loaded": busy,
    }
    with tempfile.TemporaryDirectory() as cache, load(CORES if busy else 0):
        outcome = run(tier, no_skips=True, cache=cache)
    if outcome.missing:
        raise SystemExit(f"The tier {name} cannot run here: {outcome.missing}")
    return row | {
        "load after": round(os.getloadavg()[0], 1),
        "seconds": round(outcome.seconds),
        "passed": outcome.passed,
        "failed": list(outcome.broken) or ["pytest itself"] * outcome.failed,
        "repeated": {test: failure.text[:500] for failure in outcome.repeated for test in failure.tests},
    }


def is_busy(row: dict[str, Any]) -> bool:
    """Whether something else loaded the cores: this script, or other work on the machine."""
    return bool(row["loaded"]) or row["load before"] > IDLE_LOAD


def summary(rows: Sequence[dict[str, Any]]) -> str:
    """A line a tier and load, and one a test that did not pass at once."""
    lines = ["runs  without a failure  seconds    tier"]
    for name in WAITING:
        for busy in (False, True):
            some = [row for row in rows if row["tier"] == name and is_busy(row) is busy]
            clean = sum(not row["failed"] and not row["repeated"] for row in some)
            times = sorted(row["seconds"] for row in some)
            lines += [f"{len(some):4}  {clean:17}  {times[0]:4}-{times[-1]:<5} {name}{', busy' * busy}"] if some else []
    bad = Counter(test for row in rows for test in (*row["failed"], *row["repeated"]))
    return "\n".join(lines + [f"{count} times not at once: {test}" for test, count in bad.most_common()])


def main() -> int:
    """0 where every test of every new run passed at once."""
    parser = argparse.ArgumentParser(description="Run the tiers that wait again and again.")
    parser.add_argument("tiers", nargs="*", metavar="TIER", help=f"of {', '.join(WAITING)}; none: show what is known")
    parser.add_argument("--times", type=int, default=1, help="runs of each tier (%(default)s)")
    parser.add_argument("--busy", action="store_true", help="load every core meanwhile")
    options = parser.parse_args()
    if unknown := set(options.tiers) - set(WAITING):
        parser.error(f"no such tier: {', '.join(sorted(unknown))}; choose from {', '.join(WAITING)}")
    known = json.loads(STORE.read_text(encoding="utf-8")) if STORE.exists() else []
    new: list[dict[str, Any]] = []
    for _ in range(options.times):
        for name in options.tiers:
            new.append(row_of(name, options.busy))
            STORE.write_text(json.dumps(known + new, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(summary(known + new))
    return int(any(row["failed"] or row["repeated"] for row in new))


if __name__ == "__main__":
    sys.exit(main())
