"""The problems of the ASPLOS 2025 contest with their memory limits: cost and bound by a time limit.

    python benchmarks/memory_limits.py FOLDER [--time-limit SECONDS] [--processor-time] [--only NAME …]

FOLDER has files asplos-2025-iopddl-NAME.json.gz and, if the best costs of the contest are to be shown,
contest_results.md. Each problem is solved by the command line in a process of its own, as a user would; the seconds are
those of the process. With `--processor-time` its clock shows half its processor time: on a machine that others use, a
limit of 60 s is what two idle cores do in 60 s.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import time
from pathlib import Path

HALF_PROCESSOR_TIME = """
import time
time.perf_counter = lambda: time.process_time() / 2
import alpa_explore.cli.solve
alpa_explore.cli.solve._age_seconds = time.perf_counter
from alpa_explore.cli import main
raise SystemExit(main())
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--time-limit", type=float, default=60.0)
    parser.add_argument("--processor-time", action="store_true")
    parser.add_argument("--only", nargs="*")
    options = parser.parse_args()
    best = _best(options.folder / "contest_results.md")
    print(f"{'problem':<9}{'limit':>15}{'cost':>15}{'bound':>15}{'best':>15}{'cost/best':>13}{'seconds':>9}")
    for path in sorted(options.folder.glob("asplos-2025-iopddl-*.json.gz")):
        name = path.name.split("-")[-1].split(".")[0]
        if options.only and name not in options.only:
            continue
        began = time.perf_counter()
        run = ["-c", HALF_PROCESSOR_TIME] if options.processor_time else ["-m", "alpa_explore.cli"]
        command = [sys.executable, *run, "solve", str(path)]
        done = subprocess.run(
            [*command, "--time-limit", str(options.time_limit), "--json"], capture_output=True, text=True, check=False
        )
        seconds = time.perf_counter() - began
        if done.returncode:
            print(f"{name:<9}{(done.stderr or done.stdout).strip()} ({seconds:.1f} s)", flush=True)
            continue
        answer, known = json.loads(done.stdout), best.get(name)
        shown = f"{known:>15,}{answer['objective'] / known:>13.4f}" if known else f"{'–':>15}{'–':>13}"
        print(
            f"{name:<9}{answer['usage_limit']:>15,.0f}{answer['objective']:>15,.0f}{answer['bound']:>15,.0f}"
            f"{shown}{seconds:>9.1f}",
            flush=True,
        )


def _best(path: Path) -> dict[str, int]:
    """Name -> the least cost that the contest's programs reached."""
    if not path.exists():
        return {}
    rows = re.findall(r"^\| (\w) \| (\d+) \|", path.read_text(), re.MULTILINE)
    return {name: int(cost) for name, cost in rows}


if __name__ == "__main__":
    main()
