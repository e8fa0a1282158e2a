"""Screenshots of the explorer (`make screenshots`).

Without arguments it writes notebooks/images/explorer.png (light, 1400 × 900), the picture of the README. `--all FOLDER`
writes every tab, light and dark; `--runs FOLDER` the Run tab during and after a small run. `--width 900` narrows the
window. It is JupyterLab's default window, with the file browser open, as a new user sees it. The planner uses the
user's cache; with `--plan FILE` it does not run at all.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from pathlib import Path

from playwright.sync_api import Page

from alpa_explore.store.cache import default_folder
from tests.browser.harness.alone import page_alone
from tests.browser.harness.explorer import type_number
from tests.browser.harness.page import LabPage

SIZE = 1400, 900
PICTURE = Path(__file__).parents[2] / "notebooks/images/explorer.png"
CELL = 'explore("gpt-1.3b", cluster="2x4:v100", num_microbatches=128, num_layers=6)'
TABS = (
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
    "Compare",
    "Solvers",
    "Accuracy",
    "Run",
)
RUN_CELL = """import alpa_explore as ax

explore(ax.baseline("gpt-tiny", "1x4:cpu", "megatron", tp=2, dp=1, pp=2, num_microbatches=4, num_layers=4, delta=1.0))
"""
THEMES = "Light", "Dark"
PLAN_SECONDS = 1800.0
RUN_SECONDS = 120.0
_THEME = "(theme) => window.jupyterapp.commands.execute('apputils:change-theme', { theme })"


def main(arguments: list[str] | None = None) -> int:
    """Write the pictures; returns an exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    shown = parser.add_mutually_exclusive_group()
    shown.add_argument("--cell", default=CELL, help="the call that is shown")
    shown.add_argument("--plan", type=Path, metavar="FILE", help="a plan file to show instead")
    parser.add_argument("--tab", choices=TABS, action="append", help="only this tab (may be repeated)")
    parser.add_argument("--theme", choices=THEMES, action="append", help="only this theme")
    parser.add_argument("--width", type=int, default=SIZE[0], help="of the window, in pixels")
    parser.add_argument("--out", type=Path, default=PICTURE)
    parser.add_argument("--all", type=Path, metavar="FOLDER", help="every tab, light and dark, instead")
    parser.add_argument("--runs", type=Path, metavar="FOLDER", help="the Run tab with a small run, instead")
    options = parser.parse_args(arguments)
    cell = options.cell
    if options.plan is not None:
        cell = f"import alpa_explore as ax\n\nexplore(ax.load_plan({str(options.plan.resolve())!r}))"
    os.environ["ALPA_EXPLORE_CACHE"] = str(default_folder())  # the server runs with an empty home folder
    with page_alone(options.width, SIZE[1]) as lab:
        if options.runs is not None:
            run_pictures(lab, options.runs)
        else:
            _open(lab, "explorer.ipynb", cell)
        if options.all is not None:
            for theme in options.theme or THEMES:
                lab.page.evaluate(_THEME, f"JupyterLab {theme}")
                for tab in options.tab or TABS:
                    _shoot(lab, tab, options.all / f"{tab}_{theme}.png".lower())
        elif options.runs is None:
            _shoot(lab, (options.tab or TABS)[0], options.out)
        lab.shut_down()
        lab.guard.check()
    return 0


def run_pictures(lab: LabPage, folder: Path) -> None:
    """The Run tab with a running run, a finished one, and a stopped one of another plan than that on screen."""
    _open(lab, "run.ipynb", RUN_CELL)
    page = lab.page
    page.get_by_role("tab", name="Run", exact=True).click()
    status = page.locator(".alpa-run-status")

    def both(name: str) -> None:
        for theme in THEMES:
            page.evaluate(_THEME, f"JupyterLab {theme}")
            _shoot(lab, "Run", folder / f"run_{name}_{theme}.png".lower())

    def start(steps: int) -> None:
        type_number(page.locator(".alpa-explorer"), "Steps", str(steps))
        page.get_by_role("button", name=f"Start {steps} steps", exact=True).click()

    start(8)
    status.get_by_text("Done").wait_for(timeout=1000 * RUN_SECONDS)
    both("done")
    start(40)
    status.get_by_text(re.compile(r"\b([6-9]|[1-3]\d) of 40 steps")).wait_for(timeout=1000 * RUN_SECONDS)
    both("running")
    page.get_by_role("slider", name="B, microbatches").press("ArrowRight")
    page.get_by_role("button", name="Stop").click()
    status.get_by_text("another plan").wait_for()
    status.get_by_text("Stopped").wait_for(timeout=1000 * RUN_SECONDS)
    both("stopped")


def _open(lab: LabPage, name: str, cell: str) -> None:
    lab.open(lab.server.write_notebook(name, f"from alpa_explore_widgets import explore\n{cell}"))
    lab.run_all()
    lab.page.locator(".alpa-tiles").wait_for(timeout=1000 * PLAN_SECONDS)


def _shoot(lab: LabPage, tab: str, path: Path) -> None:
    page: Page = lab.page
    page.get_by_role("tab", name=tab, exact=True).click()
    figures = page.locator(".alpa-figure-graph:visible")
    lab.wait_until(lambda: figures.count() == 1, "one figure is shown")
    lab.wait_until(
        lambda: figures.first.evaluate("(g) => Boolean(g._fullLayout && g.calcdata)"), "the figure is drawn", 60
    )
    page.locator(".alpa-explorer").evaluate("(e) => e.closest('.jp-Cell').scrollIntoView({ block: 'start' })")
    page.mouse.move(0, 0)
    page.wait_for_timeout(700)  # fading, and the resize of the figure
    path.parent.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=path)
    print(path)


if __name__ == "__main__":
    sys.exit(main())
