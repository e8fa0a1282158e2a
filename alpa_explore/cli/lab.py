"""`alpa-explore lab`: open JupyterLab on the tour, for this machine only and without requests to other hosts."""

import argparse
import importlib.util
import os
import sys
from pathlib import Path
from urllib.parse import quote

from alpa_explore.errors import MissingPackageError, OptionError

COMMAND = """lab  open JupyterLab on the tour
    Open JupyterLab on 127.0.0.1, on the tour or a notebook of yours.
notebook NOTEBOOK (optional)  notebook or folder to open (default: the tour; the current folder where the tour is not
    installed)
--no-browser  print the address instead of opening it
--port N (int)  port of the server (default: the first free one from 8888)"""

PACKAGE = Path(__file__).resolve().parents[1]


def run(options: argparse.Namespace) -> int:
    """Replace this process by JupyterLab."""
    command = lab_command(options.notebook, no_browser=options.no_browser, port=options.port)
    sys.stdout.flush()
    os.execv(command[0], command)


def lab_command(notebook: str | None, *, no_browser: bool, port: int | None) -> list[str]:
    """The command that starts JupyterLab.

    OptionError for an invalid notebook or port, MissingPackageError without JupyterLab or the explorer.
    """
    if importlib.util.find_spec("jupyterlab") is None:
        raise MissingPackageError(
            "JupyterLab is not installed", found=sys.executable, remedy="pip install 'jupyterlab>=4.4,<5'"
        )
    configuration = explorer_file("jupyter_config.py")
    check_port(port)
    folder, opened = _place(notebook)
    command = [sys.executable, "-m", "jupyterlab", f"--config={configuration}"]
    # Repeats the configuration file: a user's own configuration must not open the server to other machines.
    command += ["--ServerApp.ip=127.0.0.1", f"--ServerApp.root_dir={folder}"]
    command += [] if port is None else [f"--ServerApp.port={port}"]
    command += ["--no-browser"] if no_browser else []
    command += ["--allow-root"] if getattr(os, "geteuid", lambda: 1)() == 0 else []
    # As an option, not as an argument, so that the printed address leads to the notebook as well.
    return command if opened is None else [*command, f"--LabApp.default_url=/lab/tree/{quote(opened.name)}"]


def explorer_file(name: str) -> Path:
    """A file of the explorer's package. MissingPackageError where that is not installed."""
    # Located, not imported: the library depends on its front end by name only.
    explorer = importlib.util.find_spec("alpa_explore_widgets")
    if explorer is None or explorer.origin is None:
        raise MissingPackageError(
            "The explorer is not installed", found="no package alpa_explore_widgets", remedy="pip install alpa-explore"
        )
    return Path(explorer.origin).with_name(name)


def check_port(port: int | None) -> None:
    """OptionError for an invalid port number."""
    if port is not None and not 0 <= port < 65536:
        raise OptionError(
            "A port is a number from 0 to 65535", found=str(port), remedy="Leave it out to take a free one."
        )


def _place(notebook: str | None) -> tuple[Path, Path | None]:
    """(root folder of the server, file to open)."""
    if notebook is None:
        tour = PACKAGE.parent / "notebooks" / "00_tour.ipynb"
        return (tour.parent, tour) if tour.is_file() else (Path.cwd(), None)
    path = Path(notebook).resolve()
    if path.is_dir():
        return path, None
    if not path.is_file():
        raise OptionError("There is no such notebook", found=notebook, remedy="Check the name; a folder works as well.")
    return path.parent, path
