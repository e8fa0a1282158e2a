"""Seconds from running a cell of JupyterLab until its explorer shows a plan and the figure of the first tab is painted.

    python benchmarks/explorer_start.py [--against FOLDER] [--rounds 3] [--model gpt-350m] [--json FILE]

- fresh machine: the caches of solves and of compiled kernels are empty, as in the first cell of the tour;
- fresh kernel: all problems of the plan are in the cache, and nothing is imported yet;
- warm kernel: the same cell once more, in the same kernel and on the same page.

`--against` measures another copy of the repository in turn with this one, so that a busy machine slows both. Printed
are the median of the rounds, and the processor time of the kernel with its worker processes. Needs Chromium.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.browser.harness.alone import page_alone
from tests.browser.harness.page import LabPage

HERE = Path(__file__).resolve().parents[1]
Seconds = dict[str, list[float]]
PLANS = {
    "gpt-350m": 'explore("gpt-350m", cluster="2x2:v100", num_microbatches=64, num_layers=4)',
    "gpt-1.3b": 'explore("gpt-1.3b", cluster="1x4:v100")',
    "moe-tiny": 'explore("moe-tiny")',
}
"""The first is that of the tour."""
_CLEAR = "window.jupyterapp.commands.execute('notebook:clear-all-cell-outputs')"
_PROCESSOR = "sum(__import__('os').times()[:4])"
"""User and system seconds of the kernel and of its children that have ended."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", type=Path, metavar="FOLDER")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--model", choices=PLANS, default="gpt-350m")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    trees = [HERE] if options.against is None else [options.against.resolve(), HERE]
    found: dict[str, Seconds] = {str(tree): defaultdict(list) for tree in trees}
    for _ in range(options.rounds):
        for tree in trees:
            measure(tree, PLANS[options.model], found[str(tree)])
    medians = {
        tree: {name: statistics.median(runs) for name, runs in seconds.items()} for tree, seconds in found.items()
    }
    for name in medians[str(trees[0])]:
        print(f"{name:28}", "   ".join(f"{medians[str(tree)][name]:6.1f} s" for tree in trees))
    if options.json is not None:
        options.json.write_text(json.dumps(found, indent=1))
    return 0


def measure(tree: Path, call: str, found: Seconds) -> None:
    """One round: append the seconds of each case to `found`."""
    with TemporaryDirectory() as caches, code_of(tree, Path(caches)), page_alone() as lab:
        for case in ("fresh machine", "fresh kernel"):
            lab.load(lab.server.write_notebook("start.ipynb", f"from alpa_explore_widgets import explore\n{call}"))
            before = float(lab.ask(_PROCESSOR))
            found[case].append(until_painted(lab))
            found[f"{case}, processor"].append(float(lab.ask(_PROCESSOR)) - before)
            if case == "fresh kernel":
                lab.page.evaluate(_CLEAR)
                lab.wait_until(lambda: not lab.page.locator(".alpa-explorer").count(), "the output is cleared")
                found["warm kernel"].append(until_painted(lab))
            lab.shut_down()


def until_painted(lab: LabPage) -> float:
    """Run the cells; the seconds until the plan and its figure are on the page."""
    start = time.perf_counter()
    lab.run_all()
    explorer = lab.page.locator(".alpa-explorer").first
    explorer.get_by_text("Planned in").wait_for()
    explorer.locator(".alpa-card:visible").first.wait_for()
    return time.perf_counter() - start


@contextmanager
def code_of(tree: Path, caches: Path) -> Iterator[None]:
    """Servers that are started in the block run the code of `tree`, with caches of their own."""
    changed = {
        "PYTHONPATH": os.pathsep.join((str(tree), str(tree / "widgets"))),
        "ALPA_EXPLORE_CACHE": str(caches / "solves"),
        "NUMBA_CACHE_DIR": str(caches / "kernels"),
    }
    before = {name: os.environ.get(name) for name in changed}
    os.environ.update(changed)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


if __name__ == "__main__":
    sys.exit(main())
