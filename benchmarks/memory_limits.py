"""The problems of the ASPLOS 2025 contest with their memory limits: cost and bound by a time limit.

    python benchmarks/memory_limits.py FOLDER [--time-limit SECONDS] [--only NAME …]

FOLDER has files asplos-2025-iopddl-NAME.json.gz and, if the winners' costs are to be shown, contest_results.md. Each
problem is solved by the command line in a process of its own, as a user would; the seconds are those of the process.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import time
from pathlib import Path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--time-limit", type=float, default=60.0)
    parser.add_argument("--only", nargs="*")
    options = parser.parse_args()
    winners = _winners(options.folder / "contest_results.md")
    print(f"{'problem':<9}{'limit':>15}{'cost':>15}{'bound':>15}{'winner':>15}{'cost/winner':>13}{'seconds':>9}")
    for path in sorted(options.folder.glob("asplos-2025-iopddl-*.json.gz")):
        name = path.name.split("-")[-1].split(".")[0]
        if options.only and name not in options.only:
            continue
        began = time.perf_counter()
        command = [sys.executable, "-m", "alpa_explore.cli", "solve", str(path)]
        done = subprocess.run(
            [*command, "--time-limit", str(options.time_limit), "--json"], capture_output=True, text=True, check=False
        )
        seconds = time.perf_counter() - began
        if done.returncode:
            print(f"{name:<9}{(done.stderr or done.stdout).strip()} ({seconds:.1f} s)", flush=True)
            continue
        answer, winner = json.loads(done.stdout), winners.get(name)
        shown = f"{winner:>15,}{answer['objective'] / winner:>13.4f}" if winner else f"{'–':>15}{'–':>13}"
        print(
            f"{name:<9}{answer['usage_limit']:>15,.0f}{answer['objective']:>15,.0f}{answer['bound']:>15,.0f}"
            f"{shown}{seconds:>9.1f}",
            flush=True,
        )


def _winners(path: Path) -> dict[str, int]:
    """Name -> cost of the contest's winner."""
    if not path.exists():
        return {}
    rows = re.findall(r"^\| (\w) \| \d+ \| (\d+) \|", path.read_text(), re.MULTILINE)
    return {name: int(cost) for name, cost in rows}


if __name__ == "__main__":
    main()
