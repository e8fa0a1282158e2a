"""`alpa-explore app`: open the explorer in a browser tab, without a notebook, by voila."""

import argparse
import importlib.util
import os
import sys
from pathlib import Path

from alpa_explore.cli.lab import check_port, explorer_file
from alpa_explore.errors import MissingPackageError

COMMAND = """app  open the explorer without a notebook (needs voila)
    Open the explorer in a browser, on 127.0.0.1, without JupyterLab around it.
--no-browser  print the address instead of opening it
--port N (int)  port of the server (default: the first free one from 8866)
--theme (light|dark, = light)  colour theme (default: light)"""

EXTENSIONS = ("@jupyter-widgets/jupyterlab-manager", "@voila-dashboards/widgets-manager8", "anywidget")
"""The JupyterLab extensions that the explorer needs. Others may need parts of JupyterLab that voila lacks."""


def run(options: argparse.Namespace) -> int:
    """Replace this process by voila."""
    command = app_command(no_browser=options.no_browser, port=options.port, theme=options.theme)
    sys.stdout.flush()
    os.execve(command[0], command, app_environment())


def app_command(*, no_browser: bool, port: int | None, theme: str) -> list[str]:
    """The command that starts voila, in `app_environment`. MissingPackageError without voila or the explorer,
    OptionError for a bad port."""
    if importlib.util.find_spec("voila") is None:
        remedy = "pip install 'alpa-explore[app]'"
        raise MissingPackageError("voila is not installed", found=sys.executable, remedy=remedy)
    notebook = explorer_file("app.ipynb")
    check_port(port)
    command = [sys.executable, "-m", "voila", str(notebook), "--template=alpa_explore", f"--theme={theme}"]
    # A token, as in JupyterLab: the loopback address alone does not keep out other users of the machine.
    command += ["--Voila.ip=127.0.0.1", "--Voila.auto_token=True"]
    command += [f"--VoilaConfiguration.extension_allowlist={name}" for name in EXTENSIONS]
    command += [] if port is None else [f"--port={port}"]
    return [*command, "--no-browser"] if no_browser else command


def app_environment() -> dict[str, str]:
    """The environment of voila: this one, with the folder of the page template and the folder for runs.

    Without the latter, runs would go to the working folder of voila's kernels, which is among the installed files.
    """
    folders = [str(explorer_file("jupyter")), os.environ.get("JUPYTER_PATH", "")]
    runs = os.environ.get("ALPA_EXPLORE_RUNS") or str(Path("alpa-runs").absolute())
    return os.environ | {"JUPYTER_PATH": os.pathsep.join(filter(None, folders)), "ALPA_EXPLORE_RUNS": runs}
