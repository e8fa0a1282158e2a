"""Debian's Chromium for playwright: an installed one, never a download."""

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
    # root in a container cannot have the sandbox; the other options keep Chromium from contacting its maker.
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
    """The executable, or None; `ALPA_EXPLORE_CHROMIUM` has precedence over the PATH."""
    chosen = os.environ.get("ALPA_EXPLORE_CHROMIUM")
    executable = chosen or next((path for name in NAMES if (path := shutil.which(name))), None)
    return Path(executable) if executable and Path(executable).exists() else None


def launch(playwright: Playwright, executable: Path) -> Browser:
    """A headless browser without the user's profile."""
    return playwright.chromium.launch(executable_path=executable, headless=True, args=list(QUIET))
