"""How JupyterLab is started for this project: `jupyter lab --config=THIS_FILE`, as `alpa-explore lab` and the tests do.

Loopback only, no request to another machine, and a course whose notebooks stay as they were stored: running one is not
an edit, so it leaves no trace in git. Jupyter reads this file; nothing imports it.
"""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

c = get_config()  # type: ignore[name-defined]  # noqa: F821  Jupyter provides it

c.ServerApp.ip = "127.0.0.1"
# Lab would ask its makers' feed for news, the package index for a newer Lab, and the index again for extensions.
c.LabApp.news_url = None
c.LabApp.check_for_updates_class = "jupyterlab.handlers.announcements.NeverCheckForUpdate"
c.LabApp.extension_manager = "readonly"
# Where an installation puts it, too; here as well for a package that was installed editable.
c.LabServerApp.extra_labextensions_path = [str(Path(__file__).parent / "labextension")]
# Looking for language servers runs every one it can find on the machine.
c.LanguageServerManager.autodetect = False


def without_announcements(_handler: object, page_config: dict[str, Any]) -> dict[str, Any]:
    """On each page: without the plugin that asks in a pop-up whether to fetch news, whatever the server allows."""
    disabled = {*page_config.get("disabledExtensions", []), "@jupyterlab/apputils-extension:announcements"}
    return page_config | {"disabledExtensions": sorted(disabled)}


c.ServerApp.tornado_settings = {"page_config_hook": without_announcements}

COURSE = re.compile(r"(^|/)\d\d_\w+\.ipynb$")
"""Notebooks of the course are numbered; a copy that Lab makes ('00_tour-Copy1') is the user's own and keeps outputs."""


def without_traces(model: dict[str, Any], path: str, **_: Any) -> None:
    """On saving: a notebook of the course goes to disk without outputs, counts, widget state and Python's version."""
    if model["type"] != "notebook" or not COURSE.search(path):
        return
    notebook = model["content"]
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            cell.update(outputs=[], execution_count=None, metadata={})
    metadata = notebook["metadata"]
    metadata.pop("widgets", None)
    if "language_info" in metadata:
        metadata["language_info"] = {"name": metadata["language_info"]["name"]}


# A function, not its name: jupyter_server 2 cannot load this one from a string. Server and Lab each read this file, and
# the second reading would warn that it replaces the hook of the first.
warnings.filterwarnings("ignore", message="Overriding existing pre_save_hook", category=UserWarning)
c.FileContentsManager.pre_save_hook = without_traces
