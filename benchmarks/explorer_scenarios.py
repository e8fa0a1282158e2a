"""Three questions, answered in the explorer by real keys and mouse from an empty notebook: clicks, keys and seconds.

    python benchmarks/explorer_scenarios.py [--model llama-3-70b] [--cluster 2x8:h100] [--json FILE]

- fits: does it fit, with which layout, and what would twice the bandwidth bring? Where it does not, the first offer is
  taken: another recomputation, or the fewest nodes on which it fits.
- spare: open the fastest layout that keeps a tenth of the memory free.
- slower: why is the plan slower than the published run? (llama-3-8b on 1x8:h100 has some.)

Printed beside are the processor seconds of the kernel, which a busy machine leaves as they are, and what was answered.
The caches are those of the user: a first run computes what a second one reads. Needs Chromium.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from playwright.sync_api import Locator

from alpa_explore.cluster import Cluster
from alpa_explore.store.cache import default_folder
from tests.browser.harness.alone import page_alone
from tests.browser.harness.explorer import tab
from tests.browser.harness.page import LabPage

_PROCESSOR = "sum(__import__('os').times()[:4])"
"""User and system seconds of the kernel and of its children that have ended."""
_FREE = 0.1
"""Of the memory of a device."""
_LEVER = re.compile("2 × (network|node links)")
"""Beginning of the changes that double a link."""
_PATIENCE = 1000 * 3600
"""Milliseconds: a busy machine takes many times what an idle one does."""


class Hands:
    """A person at the page: counts what is clicked and typed."""

    def __init__(self, lab: LabPage) -> None:
        self.lab, self.clicks, self.keys = lab, 0, 0

    def click(self, place: Locator) -> None:
        place.click(timeout=_PATIENCE)
        self.clicks += 1

    def type(self, text: str, *more: str) -> None:
        self.lab.page.keyboard.type(text)
        for key in more:
            self.lab.page.keyboard.press(key)
        self.keys += len(text) + len(more)


def fits(hands: Hands, model: str, cluster: str) -> str:
    """From an empty notebook to the verdict, and to the answer of Why about a link of twice the bandwidth."""
    hands.click(hands.lab.page.locator(".jp-Cell .cm-content").first)
    call = f'explore("{model}", cluster="{cluster}")'
    hands.type("from alpa_explore_widgets import explore", "Enter")
    hands.type(call, "Shift+Enter")
    explorer = hands.lab.page.locator(".alpa-explorer").first
    planned, refused = explorer.get_by_text("Planned in"), explorer.locator(".alpa-message")
    planned.or_(refused).first.wait_for(timeout=_PATIENCE)
    said = ""
    if refused.count():  # it says what would fit, each with a button
        refused.get_by_text("ooking for").wait_for(state="hidden", timeout=_PATIENCE)
        said = " ".join(refused.inner_text().split())
        offers = explorer.locator(".alpa-buttons button:visible", has_text=re.compile("Plan (with|on) "))
        if not offers.count():
            return said
        hands.click(offers.first)
        planned.wait_for(timeout=_PATIENCE)
    said += " ".join(explorer.locator(".alpa-verdict").inner_text().split())
    hands.click(tab(explorer, "Why"))
    explorer.locator(".alpa-panel-why.alpa-shown-panel li").first.wait_for(timeout=_PATIENCE)
    levers = explorer.locator(".alpa-why li", has_text=_LEVER)
    if not levers.count():
        return f"{said}; no link is to be doubled"
    hands.click(levers.first.get_by_role("button", name="Try"))
    open_points = re.compile("not asked|estimate|planning")
    levers.first.get_by_text(open_points).first.wait_for(state="hidden", timeout=_PATIENCE)
    return f"{said}; {' '.join(levers.first.inner_text().split())}"


def spare(hands: Hands, _model: str, cluster: str) -> str:
    """Open the fastest layout in the table with so much to spare."""
    explorer = hands.lab.page.locator(".alpa-explorer").first
    hands.click(tab(explorer, "Layouts"))
    panel = explorer.locator(".alpa-panel-layouts.alpa-shown-panel:not(.alpa-late-panel)")
    panel.get_by_role("table", name="Layouts").wait_for(timeout=_PATIENCE)
    panel.locator(".alpa-progress:visible").first.wait_for(state="hidden", timeout=_PATIENCE)
    least = _FREE * Cluster.parse(cluster).device.memory_bytes / 2**30
    names = panel.get_by_role("columnheader").all_inner_texts()
    for row in panel.locator("tbody tr").all():
        cells = row.locator("td").all_inner_texts()
        free = cells[names.index("spare")].split(" ")
        if len(free) > 1 and free[1] == "GiB" and float(free[0]) >= least and "Open" in cells[-1]:
            hands.click(row.get_by_role("button", name="Open"))
            explorer.locator(".alpa-words", has_text=cells[0]).wait_for(timeout=_PATIENCE)
            return f"{cells[0]}, {' '.join(free)} to spare"
    return "no other layout leaves so much"


def slower(hands: Hands, _model: str, _cluster: str) -> str:
    """What Layouts says of the plan beside the fastest measured run."""
    explorer = hands.lab.page.locator(".alpa-explorer").first
    hands.click(tab(explorer, "Layouts"))
    finding = explorer.locator(".alpa-panel-layouts.alpa-shown-panel .alpa-finding")
    hands.click(finding)
    at = finding.inner_text().find("measured run")
    return finding.inner_text()[at - 2 :] if at >= 0 else "no run of this kind was measured"


SCENARIOS: dict[str, Callable[[Hands, str, str], str]] = {"fits": fits, "spare": spare, "slower": slower}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="llama-3-70b")
    parser.add_argument("--cluster", default="2x8:h100")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    os.environ["ALPA_EXPLORE_CACHE"] = str(default_folder())  # the server runs with an empty home folder
    found = {}
    with page_alone() as lab:
        lab.load(lab.server.write_notebook("empty.ipynb", ""))
        for name, scenario in SCENARIOS.items():
            hands, start, before = Hands(lab), time.perf_counter(), float(lab.ask(_PROCESSOR))
            said = scenario(hands, options.model, options.cluster)
            seconds, processor = time.perf_counter() - start, float(lab.ask(_PROCESSOR)) - before
            found[name] = {"clicks": hands.clicks, "keys": hands.keys, "seconds": seconds, "processor": processor}
            took = f"{seconds:6.1f} s, {processor:5.1f} s of a processor"
            print(f"{name:8}{hands.clicks} clicks {hands.keys:3} keys {took}: {said}", flush=True)
        lab.shut_down()
        lab.guard.check()
    if options.json is not None:
        options.json.write_text(json.dumps(found, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
