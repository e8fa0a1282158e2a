"""Screenshots of the explorer.

    make screenshots                                                         the pictures of the README and the tour
    python widgets/screenshots/take.py --out FOLDER                          every tab, light and dark, 1400 × 900
    python widgets/screenshots/take.py --plan A --plan B --out FOLDER --width 1400 --width 900
                                                                             the same for plan files at two widths
    python widgets/screenshots/take.py --plan A --out FOLDER --tab Why --theme Dark --height 2000
    python widgets/screenshots/take.py --plan A --frames FOLDER              the explorer at each step of B, numbered

The README's animation is made of these: img2webp -loop 0 -d 900 -lossy -q 60 FOLDER/*.png -o notebooks/images/b.webp
(Debian's package webp; Pillow does it, too).

`--out` is a folder, for every tab (or those of `--tab`) in every theme and width, or one file `*.png` for one picture.
A picture is called PLAN/TAB_THEME_WIDTH.png. It is JupyterLab's default window, with the file browser open, as a new
user sees it; a plan file (`alpa-explore plan … -o FILE`) saves the planner's time, which else uses the user's cache. A
tab that computes for longer than `--patience` is taken as it is then, and named.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from alpa_explore_widgets.overview.cards import plan_svg
from playwright.sync_api import Page, TimeoutError

import alpa_explore as ax
from alpa_explore.store.cache import default_folder
from tests.browser.harness.alone import page_alone
from tests.browser.harness.explorer import show_tab, slider, tab_titles
from tests.browser.harness.page import LabPage

SIZE = 1400, 900
PICTURE = Path(__file__).parents[2] / "notebooks/images/explorer.png"
TOUR_PICTURE = PICTURE.with_name("tour.svg")
TOUR = {"cluster": "2x2:v100", "num_microbatches": 64, "num_layers": 4}
"""The plan of the tour, of gpt-350m."""
CELL = 'explore("gpt-1.3b", cluster="2x4:v100", num_microbatches=128, num_layers=6)'
THEMES = "Light", "Dark"
PLAN_SECONDS = 1800.0
FRAMES = 11
"""Steps of B in one direction."""
_THEME = "(theme) => window.jupyterapp.commands.execute('apputils:change-theme', { theme })"

# Drawn, and in the theme of the page: a dark figure has a ground of less than half the brightness.
_DRAWN = """(panel) => {
  const dark = document.body.dataset.jpThemeLight === 'false';
  const drawn = (plot) => {
    const ground = plot.calcdata && plot._fullLayout?.paper_bgcolor;
    return ground && isDark(ground) === dark;
  };
  const isDark = (text) => {
    const context = document.createElement('canvas').getContext('2d');
    context.fillStyle = text;
    return parseInt(context.fillStyle.slice(1, 3), 16) < 128;
  };
  const plots = [...panel.querySelectorAll('.alpa-figure-graph')].filter((plot) => plot.offsetWidth);
  return plots.length ? plots.every(drawn) : panel.offsetHeight > 40;
}"""


def main(arguments: list[str] | None = None) -> int:
    """Write the pictures; returns an exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    shown = parser.add_mutually_exclusive_group()
    shown.add_argument("--cell", default=CELL, help="what is run; two blank lines begin another cell")
    shown.add_argument("--plan", type=Path, action="append", metavar="FILE", help="a plan file (may be repeated)")
    parser.add_argument("--tab", action="append", help="only this tab (may be repeated)")
    parser.add_argument("--theme", choices=THEMES, action="append", help="only this theme (may be repeated)")
    parser.add_argument("--width", type=int, action="append", help="of the window, in pixels (may be repeated)")
    parser.add_argument("--height", type=int, default=SIZE[1], help="of the window, in pixels")
    parser.add_argument("--patience", type=float, default=PLAN_SECONDS, help="seconds that a tab may compute")
    parser.add_argument("--out", type=Path, default=PICTURE, help="a folder, or a file *.png")
    parser.add_argument("--frames", type=Path, metavar="FOLDER", help="the plan at each step of B, instead")
    options = parser.parse_args(arguments)
    widths = options.width or [SIZE[0]]
    os.environ["ALPA_EXPLORE_CACHE"] = str(default_folder())  # the server runs with an empty home folder
    with page_alone(widths[0], options.height) as lab:
        for name, cell in _cells(options.plan, options.cell):
            _open(lab, f"{name}.ipynb", cell)
            if options.frames is not None:
                _steps_of_b(lab, options.frames)
                continue
            if options.out.suffix == ".png":
                _shoot(lab, (options.tab or ["Overview"])[0], options.out, options.patience)
            else:
                _shoot_all(lab, options, options.out / name, widths)
            lab.shut_down()
        lab.guard.check()
    if options.out == PICTURE and options.frames is None:
        TOUR_PICTURE.write_text(plan_svg(ax.plan("gpt-350m", **TOUR)))
    return 0


def _cells(plans: Sequence[Path] | None, cell: str) -> list[tuple[str, str]]:
    """Names and calls of what is shown."""
    if plans is None:
        return [("explorer", cell)]
    text = "import alpa_explore as ax\n\nexplore(ax.load_plan({!r}))"
    return [(plan.name.split(".plan")[0], text.format(str(plan.resolve()))) for plan in plans]


def _shoot_all(lab: LabPage, options: argparse.Namespace, folder: Path, widths: Sequence[int]) -> None:
    """Every tab at every width in every theme. The tab is the outermost loop: what it computes is computed once."""
    for tab in options.tab or tab_titles(lab.page.locator(".alpa-explorer")):
        slug, patience = re.sub(r"\W+", "-", tab.lower()), options.patience
        for width in widths:
            lab.page.set_viewport_size({"width": width, "height": options.height})
            for theme in options.theme or THEMES:
                lab.page.evaluate(_THEME, f"JupyterLab {theme}")
                _shoot(lab, tab, folder / f"{slug}_{theme.lower()}_{width}.png", patience)
                patience = 1.0  # a tab that still computes has been waited for


def _steps_of_b(lab: LabPage, folder: Path) -> None:
    """From the least B `FRAMES` steps up and back, by the arrow keys of its slider."""
    folder.mkdir(parents=True, exist_ok=True)
    explorer = lab.page.locator(".alpa-explorer")
    explorer.evaluate("(e) => e.closest('.jp-Cell-outputWrapper').scrollIntoView({ block: 'start' })")
    handle = slider(explorer, "B, microbatches")
    handle.press("Home")
    for number, key in enumerate((*["ArrowRight"] * FRAMES, *["ArrowLeft"] * FRAMES)):
        lab.rest()
        place, end = explorer.bounding_box(), explorer.locator(".alpa-strip").bounding_box()
        assert place is not None
        assert end is not None
        clip = {"x": place["x"], "y": place["y"], "width": place["width"], "height": end["y"] - place["y"]}
        lab.page.screenshot(path=folder / f"{number:02}.png", clip=clip)
        handle.press(key)


def _open(lab: LabPage, name: str, cell: str) -> None:
    lab.load(lab.server.write_notebook(name, *f"from alpa_explore_widgets import explore\n{cell}".split("\n\n\n")))
    lab.run_all()
    lab.page.locator(".alpa-verdict").wait_for(timeout=1000 * PLAN_SECONDS)


def _shoot(lab: LabPage, tab: str, path: Path, patience: float = PLAN_SECONDS) -> None:
    page: Page = lab.page
    show_tab(page.locator(".alpa-explorer"), tab)
    # Until the kernel answers, the tab before is visible.
    name = re.sub(r"\W+", "-", tab.lower())
    panel = page.locator(f".alpa-panel-{name}:visible")
    panel.wait_for()
    lab.wait_idle()
    try:
        panel.locator(".alpa-progress:visible").first.wait_for(state="hidden", timeout=1000 * patience)
    except TimeoutError:
        print(f"{tab} still computes")
    lab.wait_until(lambda: bool(panel.evaluate(_DRAWN)), f"{tab} is drawn")
    page.locator(".alpa-explorer").evaluate("(e) => e.closest('.jp-Cell').scrollIntoView({ block: 'start' })")
    page.mouse.move(0, 0)
    lab.wait_drawn()
    path.parent.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=path)
    print(path)


if __name__ == "__main__":
    sys.exit(main())
