"""Debian's Chromium under playwright: found on the machine, never downloaded."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Playwright

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
HOW_TO_INSTALL = "apt-get install chromium chromium-driver (or point ALPA_EXPLORE_CHROMIUM at an executable)"

QUIET = (
    # A container's root has no sandbox; the rest keeps Chromium itself from calling home.
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
)


def find_chromium() -> Path | None:
    """The executable to use, or None; `ALPA_EXPLORE_CHROMIUM` goes before what is on the PATH."""
    chosen = os.environ.get("ALPA_EXPLORE_CHROMIUM")
    found = chosen or next((path for name in NAMES if (path := shutil.which(name))), None)
    return Path(found) if found and Path(found).exists() else None


def launch(playwright: Playwright, executable: Path) -> Browser:
    """A headless browser with nothing of the user's in it."""
    return playwright.chromium.launch(executable_path=executable, headless=True, args=list(QUIET))
