"""`alpa-explore app`: the explorer alone in a browser tab, without a notebook around it, through voila."""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
from pathlib import Path
from typing import Any

from alpa_explore.cli.lab import check_port, explorer_file
from alpa_explore.errors import MissingPackageError


def add(commands: Any) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "app", help="the explorer alone, without a notebook (needs voila)", allow_abbrev=False,
        description="Open the explorer in a browser, on 127.0.0.1, without JupyterLab around it.",
    )  # fmt: skip
    parser.add_argument("--no-browser", action="store_true", help="print the address instead of opening it")
    parser.add_argument("--port", type=int, metavar="N", help="listen there (default: the first free one from 8866 on)")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Become voila."""
    command = app_command(no_browser=options.no_browser, port=options.port)
    # voila's kernels work in the folder of its notebook, among the installed files.
    os.environ.setdefault("ALPA_EXPLORE_RUNS", str(Path("alpa-runs").absolute()))
    sys.stdout.flush()
    os.execv(command[0], command)


def app_command(*, no_browser: bool, port: int | None) -> list[str]:
    """The command that starts voila. MissingPackageError without voila or the explorer, OptionError for a bad port."""
    if importlib.util.find_spec("voila") is None:
        remedy = "pip install 'alpa-explore[app]'"
        raise MissingPackageError("voila is not installed", found=sys.executable, remedy=remedy)
    notebook = explorer_file("app.ipynb")
    check_port(port)
    command = [sys.executable, "-m", "voila", str(notebook), "--Voila.ip=127.0.0.1"]
    command += [] if port is None else [f"--port={port}"]
    return [*command, "--no-browser"] if no_browser else command
