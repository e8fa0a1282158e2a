"""The configuration of JupyterLab for this project: `jupyter lab --config=THIS_FILE`, as in `alpa-explore lab` and the
browser tests.

The server listens on loopback only and contacts no other machine, and the notebooks of the course are saved without
outputs, so that running one does not change it in git. Jupyter executes this file; nothing imports it.
"""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

c = get_config()  # type: ignore[name-defined]  # noqa: F821  Jupyter provides it

c.ServerApp.ip = "127.0.0.1"
# By default Lab fetches news from a feed, and looks for a newer Lab and for extensions on the package index.
c.LabApp.news_url = None
c.LabApp.check_for_updates_class = "jupyterlab.handlers.announcements.NeverCheckForUpdate"
c.LabApp.extension_manager = "readonly"
# An installation puts the extension on Lab's own path; this one is for an editable installation.
c.LabServerApp.extra_labextensions_path = [str(Path(__file__).parent / "labextension")]
# The search for language servers would run every one that is installed on the machine.
c.LanguageServerManager.autodetect = False


def without_announcements(_handler: object, page_config: dict[str, Any]) -> dict[str, Any]:
    """The configuration of each page, without the plugin whose pop-up asks whether to fetch news."""
    disabled = {*page_config.get("disabledExtensions", []), "@jupyterlab/apputils-extension:announcements"}
    return page_config | {"disabledExtensions": sorted(disabled)}


c.ServerApp.tornado_settings = {"page_config_hook": without_announcements}

COURSE = re.compile(r"(^|/)(\d\d_\w+|index|glossary|lecturer)\.ipynb$")
"""The notebooks of the course; a copy that Lab makes ('00_tour-Copy1') is the user's and keeps its outputs."""

KEPT_METADATA = ("nbgrader", "tags")
"""Of a cell: what people wrote, not what Jupyter notes."""


def strip_course_notebook(model: dict[str, Any], path: str, **_: Any) -> None:
    """Before a notebook of the course is saved: remove outputs, execution counts, widget state and Python's version."""
    if model["type"] != "notebook" or not COURSE.search(path):
        return
    notebook = model["content"]
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            kept = {key: cell["metadata"][key] for key in KEPT_METADATA if key in cell.get("metadata", {})}
            cell.update(outputs=[], execution_count=None, metadata=kept)
    metadata = notebook["metadata"]
    metadata.pop("widgets", None)
    if "language_info" in metadata:
        metadata["language_info"] = {"name": metadata["language_info"]["name"]}


# The function itself, because jupyter_server 2 cannot load it by name from this file. The server and Lab each execute
# this file, and the second execution would warn that it replaces the hook of the first.
warnings.filterwarnings("ignore", message="Overriding existing pre_save_hook", category=UserWarning)
c.FileContentsManager.pre_save_hook = strip_course_notebook
