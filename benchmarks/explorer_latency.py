"""Latency of the explorer in a browser: from a key on the B slider, or a selection, until the figure is painted.

    python benchmarks/explorer_latency.py PLAN_FILE|deep [--presses 15] [--tab NAME …] [--json FILE]

For each tab, the median of (capture-phase keydown → plotly_afterplot → next frame) in milliseconds, the same for a
selection, and the time until its figure is first shown. Also: the same for a key on the delta slider that changes the
layers, the seconds until the first figure, the bytes over the web socket, and the size of the saved notebook. Needs
Chromium. A plan of GPT-39B on 8 × 8 devices is made by

    alpa-explore plan gpt-39b --cluster 8x8:v100 -B 1024 --layers 16 -o gpt-39b.plan.json

`deep` plans a GPT of 112 blocks with 10,105 operators, whose figures should all take less than a second.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from playwright.sync_api import Locator

import alpa_explore as ax
from alpa_explore.models.configs import GPTConfig
from alpa_explore.models.factory import make_inputs, make_module
from tests.browser.harness.alone import page_alone
from tests.browser.harness.page import PLOT, LabPage

TABS = ("Layers", "Cluster", "t_max", "Microbatches", "Timeline", "Sharding", "Costs", "Memory", "Why", "Search")
_WATCH = """(root) => {
  globalThis.alpaTimes = [];
  let pressed = null;
  const begin = () => (pressed = performance.now());
  root.addEventListener('keydown', begin, true);
  root.addEventListener('click', begin, true);
  for (const graph of root.querySelectorAll('.alpa-figure-graph')) {
    const listen = () => graph.on
      ? graph.on('plotly_afterplot', () => requestAnimationFrame(() => {
          if (pressed !== null) globalThis.alpaTimes.push(performance.now() - pressed);
          pressed = null;
        }))
      : setTimeout(listen, 50);
    listen();
  }
}"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("plan", metavar="PLAN_FILE|deep")
    parser.add_argument("--presses", type=int, default=15)
    parser.add_argument("--tab", choices=TABS, action="append", help="only this tab (may be repeated)")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    with TemporaryDirectory() as folder, page_alone() as lab:
        plan = plan_deep(Path(folder)) if options.plan == "deep" else Path(options.plan)
        figures = measure(lab, plan, options.presses, options.tab)
        lab.shut_down()
    for name, value in figures.items():
        print(f"{name:32} {value:,.0f}" if value >= 100 else f"{name:32} {value:.3g}")
    if options.json is not None:
        options.json.write_text(json.dumps(figures, indent=1))
    return 0


def measure(lab: LabPage, plan: Path, presses: int, only: Sequence[str] | None = None) -> dict[str, float]:
    """Name -> figure; milliseconds unless the name says otherwise. With `only`, of these tabs alone."""
    received: list[int] = []
    lab.page.on("websocket", lambda socket: socket.on("framereceived", lambda payload: received.append(len(payload))))
    name = lab.server.write_notebook(
        "latency.ipynb",
        "import alpa_explore as ax\nfrom alpa_explore_widgets import explore\n"
        f"explore(ax.load_plan({str(plan.resolve())!r}))",
    )
    lab.open(name)
    start = time.perf_counter()
    lab.run_all(300)
    explorer = lab.page.locator(".alpa-explorer").first
    lab.figure(explorer, seconds=120)
    figures = {"first figure, s": time.perf_counter() - start}
    for tab in only or TABS:  # every tab has drawn its figure before a key is pressed
        start = time.perf_counter()
        explorer.get_by_role("tab", name=tab, exact=True).click()
        panel = explorer.locator(".alpa-panel:visible", has=lab.page.locator(f"{PLOT}[aria-label^='{tab} of ']"))
        lab.figure(panel, seconds=120)  # until the kernel answers, the previous tab is visible
        figures[f"first shown, {tab}"] = 1000 * (time.perf_counter() - start)
    explorer.evaluate(_WATCH)
    slider = explorer.get_by_role("slider", name="B, microbatches")
    legend = explorer.locator(".alpa-stages button").first
    for tab in only or TABS:
        explorer.get_by_role("tab", name=tab, exact=True).click()
        lab.page.wait_for_timeout(1500)
        figures[f"B slider, {tab}"] = _median(lab, presses, slider, ("ArrowLeft", "ArrowRight"))
        figures[f"selection, {tab}"] = _median(lab, 5, legend, ("Enter",))
    figures["web socket, MB"] = sum(received) / 1e6
    if plan.stem != "deep" and not only:
        figures["delta slider, new layers"] = _delta(lab, explorer)
    lab.save()
    lab.page.wait_for_timeout(2000)
    figures["saved notebook, kB"] = (lab.server.root / name).stat().st_size / 1e3
    return figures


def _delta(lab: LabPage, explorer: Locator) -> float:
    """Milliseconds of a key press from delta 0.15, where a GPT has the layers of 0.5, to 0.1, where it has others."""
    explorer.get_by_role("tab", name="t_max", exact=True).click()
    slider = explorer.get_by_role("slider", name="δ, FLOP tolerance")
    slider.focus()
    for _ in range(8):
        slider.press("ArrowLeft")
        lab.page.wait_for_timeout(500)
    lab.page.wait_for_timeout(20_000)  # the model of a plan from a file is captured first
    times: list[float] = []
    for _ in range(5):
        slider.press("ArrowRight")
        lab.page.wait_for_timeout(1500)
        lab.page.evaluate("globalThis.alpaTimes = []")
        slider.press("ArrowLeft")
        lab.page.wait_for_timeout(5000)
        times += lab.page.evaluate("globalThis.alpaTimes")[-1:]
    return statistics.median(times) if times else float("nan")


def plan_deep(folder: Path) -> Path:
    """Writes the plan of a model of ten thousand operators; returns its path."""
    config = GPTConfig(layers=112, hidden=256, heads=4, vocabulary=1024, sequence=128)
    inputs = make_inputs(config, 4, "meta", 0)
    graph = ax.capture(make_module(config, "meta", 0), inputs, name="gpt-112-blocks")
    ax.plan(graph, "2x4:v100", num_microbatches=32, num_layers=16).save(folder / "deep.plan.json")
    return folder / "deep.plan.json"


def _median(lab: LabPage, presses: int, place: Locator, keys: tuple[str, ...]) -> float:
    """Median milliseconds of some key presses after a first one that is not counted; nan where nothing was painted."""
    lab.page.evaluate("globalThis.alpaTimes = []")
    place.focus()
    for number in range(presses + 1):
        place.press(keys[number % len(keys)])
        lab.page.wait_for_timeout(700)
    times: list[float] = lab.page.evaluate("globalThis.alpaTimes")
    return statistics.median(times[1:]) if len(times) > 1 else float("nan")


if __name__ == "__main__":
    sys.exit(main())
