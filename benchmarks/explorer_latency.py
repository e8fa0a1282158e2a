"""Latency of the explorer in a browser: from a key on the B slider, or a selection, until the figure is painted.

    python benchmarks/explorer_latency.py PLAN_FILE|deep [--tab TAB …] [--presses 15] [--json FILE]
    python benchmarks/explorer_latency.py PLAN_FILE --against TREE [--rounds 3]

`--against` measures this tree and another one (a clone of an earlier commit) in turn, on the same plan file, and prints
both medians and their ratio; the file must be one that the earlier commit can open.

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
import os
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
from tests.browser.harness.explorer import tab as select_tab
from tests.browser.harness.page import PLOT, LabPage

HERE = Path(__file__).resolve().parents[1]
TABS = (
    "Overview",
    "Fit & scale",
    "Layouts",
    "Layers",
    "Cluster",
    "t_max",
    "Microbatches",
    "Timeline",
    "Sharding",
    "Costs",
    "Memory",
    "Why",
    "Search",
)
OF_LAYOUTS = ("Fit & scale", "Layouts")
"""Tabs that ask about uniform layouts; an earlier version has none."""
WITHOUT_B = ("Sharding",)
"""Tabs that another B leaves as they are."""
GRAPH = ".alpa-flow-canvas"
_WATCH = """(root) => {
  globalThis.alpaTimes = [];
  let pressed = null;
  const begin = () => (pressed = performance.now());
  root.addEventListener('keydown', begin, true);
  root.addEventListener('click', begin, true);
  root.addEventListener('alpa-painted', () => {
    if (pressed !== null) globalThis.alpaTimes.push(performance.now() - pressed);
    pressed = null;
  });
  for (const graph of root.querySelectorAll('.alpa-figure-graph')) {
    const listen = () => graph.on
      ? graph.on('plotly_afterplot', () => requestAnimationFrame(() => {
          if (pressed !== null) globalThis.alpaTimes.push(performance.now() - pressed);
          pressed = null;
        }))
      : setTimeout(listen, 50);
    listen();
  }
  root.addEventListener('alpa-drawn', () => requestAnimationFrame(() => {
    if (pressed !== null) globalThis.alpaTimes.push(performance.now() - pressed);
    pressed = null;
  }));
}"""

_SWITCH = """async ([tab, title]) => {
  const root = document.querySelector('.alpa-explorer');
  const shows = () => [...root.querySelectorAll('.alpa-panel')].filter((panel) => panel.offsetHeight > 40);
  const isThere = () => {
    const [panel, ...more] = shows();
    if (!panel || more.length) return false;
    if (title === 'Overview') return Boolean(panel.querySelector('.alpa-card'));
    const graph = panel.querySelector(`.alpa-flow-canvas[aria-label^="${title} of "]`);
    if (graph?.checkVisibility()) return true;
    return Boolean(panel.querySelector(`.js-plotly-plot[aria-label^="${title} of "]`)?.calcdata);
  };
  const start = performance.now();
  tab.click();
  while (!isThere()) await new Promise(requestAnimationFrame);
  await new Promise(requestAnimationFrame);
  return performance.now() - start;
}"""
"""Milliseconds from a click on a tab until it alone is seen, with its figure."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("plan", metavar="PLAN_FILE|deep")
    parser.add_argument("--tab", choices=TABS, action="append", help="only this tab (may be repeated)")
    parser.add_argument("--presses", type=int, default=15)
    parser.add_argument("--against", type=Path, metavar="TREE", help="another checkout, measured in turn with this one")
    parser.add_argument("--rounds", type=int, default=3, help="with --against: how often each is measured")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    trees = [HERE] if options.against is None else [options.against.resolve(), HERE]
    rounds: dict[Path, list[dict[str, float]]] = {tree: [] for tree in trees}
    with TemporaryDirectory() as folder:
        plan = plan_deep(Path(folder)) if options.plan == "deep" else Path(options.plan)
        for _ in range(1 if options.against is None else options.rounds):
            for tree in trees:
                rounds[tree].append(measure_tree(tree, plan, options.tab or TABS, options.presses))
    medians = [{name: statistics.median(r[name] for r in rounds[t]) for name in rounds[t][0]} for t in trees]
    for name in medians[0]:
        columns = [f"{m[name]:,.0f}" if m[name] >= 100 else f"{m[name]:.3g}" for m in medians]
        ratio = f"{medians[0][name] / medians[1][name]:8.2f} times" if len(medians) > 1 else ""
        print(f"{name:32}", *(f"{column:>8}" for column in columns), ratio)
    if options.json is not None:
        options.json.write_text(json.dumps({str(t): rounds[t] for t in trees}, indent=1))
    return 0


def measure_tree(tree: Path, plan: Path, tabs: Sequence[str], presses: int) -> dict[str, float]:
    """`measure` with the packages of a checkout: PYTHONPATH comes before what is installed."""
    os.environ["PYTHONPATH"] = os.pathsep.join([str(tree), str(tree / "widgets")])
    with page_alone() as lab:
        figures = measure(lab, plan, tabs, presses)
        lab.shut_down()
    return figures


def measure(lab: LabPage, plan: Path, tabs: Sequence[str], presses: int) -> dict[str, float]:
    """Name -> figure; milliseconds unless the name says otherwise."""
    received: list[int] = []
    lab.page.on("websocket", lambda socket: socket.on("framereceived", lambda payload: received.append(len(payload))))
    name = lab.server.write_notebook(
        "latency.ipynb",
        "import alpa_explore as ax\nfrom alpa_explore_widgets import explore\n"
        f"explore(ax.load_plan({str(plan.resolve())!r}))",
    )
    lab.load(name)
    start = time.perf_counter()
    lab.run_all()
    explorer = lab.page.locator(".alpa-explorer").first
    explorer.wait_for()
    explorer.locator(".alpa-card:visible").first.wait_for(timeout=120_000)
    figures = {"first figure, s": time.perf_counter() - start}
    for tab in tabs:  # every tab has drawn its figure before a key is pressed
        start = time.perf_counter()
        _select(explorer, tab)
        if tab == "Overview":
            explorer.locator(".alpa-card").first.wait_for()
        else:
            drawn = lab.page.locator(
                f"{PLOT}[aria-label^='{tab} of ']:visible, {GRAPH}[aria-label^='{tab} of ']:visible"
            )
            panel = explorer.locator(".alpa-panel:visible", has=drawn)
            panel.wait_for(timeout=120_000)  # until the kernel answers, the previous tab is visible
            if not panel.locator(f"{GRAPH}:visible").count():
                lab.figure(panel)
        figures[f"first shown, {tab}"] = 1000 * (time.perf_counter() - start)
        if tab in OF_LAYOUTS:
            explorer.locator(".alpa-panel:visible progress").wait_for(state="hidden", timeout=300_000)
            figures[f"answered, {tab}"] = 1000 * (time.perf_counter() - start)
    figures |= _switches(lab, explorer, tabs)
    explorer.evaluate(_WATCH)
    slider = explorer.get_by_role("slider", name="B, microbatches")
    legend = explorer.locator(".alpa-stages button").first
    for tab in tabs:
        _select(explorer, tab)
        lab.page.wait_for_timeout(1500)
        if tab not in WITHOUT_B:
            figures[f"B slider, {tab}"] = _median(lab, presses, slider, ("ArrowLeft", "ArrowRight"))
        figures[f"selection, {tab}"] = _median(lab, 5, legend, ("Enter",))
    figures["web socket, MB"] = sum(received) / 1e6
    if plan.stem != "deep":
        figures["delta slider, new layers"] = _delta(lab, explorer)
    lab.save()
    lab.page.wait_for_timeout(2000)
    figures["saved notebook, kB"] = (lab.server.root / name).stat().st_size / 1e3
    return figures


def _select(explorer: Locator, title: str) -> None:
    """Select a tab."""
    select_tab(explorer, title).click()


def _switches(lab: LabPage, explorer: Locator, tabs: Sequence[str]) -> dict[str, float]:
    """Median milliseconds from a click on a tab until its figure, drawn before, is seen."""
    times: dict[str, list[float]] = {tab: [] for tab in tabs}
    for _ in range(3):
        for tab in tabs:
            _select(explorer, tab)
            lab.page.wait_for_timeout(400)
            _select(explorer, tabs[0] if tab != tabs[0] else tabs[-1])
            lab.page.wait_for_timeout(400)
            times[tab].append(lab.page.evaluate(_SWITCH, [select_tab(explorer, tab).element_handle(), tab]))
    return {f"tab switch, {tab}": statistics.median(of_tab) for tab, of_tab in times.items()}


def _delta(lab: LabPage, explorer: Locator) -> float:
    """Milliseconds of a key press from delta 0.15, where a GPT has the layers of 0.5, to 0.1, where it has others."""
    _select(explorer, "t_max")
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
