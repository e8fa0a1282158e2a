"""Servers for tests, with an empty HOME: JupyterLab as `alpa-explore lab` starts it, and `alpa-explore app`."""

import json
import os
import re
import shutil
import subprocess
import sys
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.request import Request, urlopen

import nbformat

from alpa_explore.cli.lab import lab_command
from tests.waiting import until

EXTENSION = Path(__file__).parents[3] / "widgets/alpa_explore_widgets/labextension/alpa-explore"
STOP_SECONDS = 10.0


def private_environment(home: Path) -> dict[str, str]:
    """The environment of a new user, without the configuration, history and cache of the real one.

    Only `ALPA_EXPLORE_CACHE` is kept: the tests set it to a folder of their own, which their servers share.
    """
    folders = {
        "HOME": home,
        "IPYTHONDIR": home / ".ipython",
        "JUPYTER_CONFIG_DIR": home / ".jupyter",
        "JUPYTER_DATA_DIR": home / ".local/share/jupyter",
        "JUPYTER_RUNTIME_DIR": home / "runtime",
        "JUPYTERLAB_SETTINGS_DIR": home / "lab/settings",
        "JUPYTERLAB_WORKSPACES_DIR": home / "lab/workspaces",
        "XDG_CACHE_HOME": home / ".cache",
        "XDG_CONFIG_HOME": home / ".config",
        "XDG_DATA_HOME": home / ".local/share",
    }
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("JUPYTER", "IPYTHON"))}
    return kept | {name: str(folder) for name, folder in folders.items()}


@dataclass(frozen=True, slots=True)
class Address:
    """The address of a running server."""

    url: str
    token: str

    def page(self, path: str) -> str:
        """The address of a path of the server, with the token."""
        joint = "&" if "?" in path else "?"
        return f"{self.url}{path.lstrip('/')}{joint}token={self.token}"


class Server(ABC):
    """`with …Server(home) as server:` runs a command with an empty home folder until the block ends."""

    name: str
    command: tuple[str, ...]

    def __init__(self, home: Path) -> None:
        self.home = home
        self.root = home / "work"
        self.log = home / "server.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._address: Address | None = None

    @property
    def address(self) -> Address:
        """AssertionError if the server is not running."""
        assert self._address is not None, "the server is not running"
        return self._address

    @property
    def process_id(self) -> int:
        """The process of the server; its kernels are its children."""
        assert self._process is not None, "the server is not running"
        return self._process.pid

    @abstractmethod
    def find_address(self) -> Address | None:
        """The address at which the server listens; None as long as it does not."""

    def __enter__(self) -> Self:
        self.root.mkdir(parents=True, exist_ok=True)
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                self.command, cwd=self.root, env=private_environment(self.home), stdout=log, stderr=subprocess.STDOUT
            )
        try:
            self._address = self._wait()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_error: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.stop()

    def _wait(self) -> Address:
        process = self._process

        def address() -> Address | None:
            if process is not None and process.poll() is not None:
                raise RuntimeError(f"{self.name} ended with {process.returncode}:\n{self.log_end()}")
            return self.find_address()

        found = until(address, lambda: f"{self.name} does not start:\n{self.log_end()}")
        assert found is not None
        return found

    def log_end(self) -> str:
        """The last lines that the server wrote."""
        return self.log.read_text()[-3000:]

    def stop(self) -> None:
        """End the server and with it its kernels."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None


class LabServer(Server):
    """JupyterLab and Notebook 7; `root` is the folder whose files the browser shows."""

    name = "JupyterLab"

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self.root.mkdir(parents=True, exist_ok=True)
        # The extension of this checkout comes before an installed one, which may be older.
        shutil.copytree(EXTENSION, home / ".local/share/jupyter/labextensions" / EXTENSION.name, dirs_exist_ok=True)
        # The command of `alpa-explore lab`, and options for tests.
        self.command = (
            *lab_command(str(self.root), no_browser=True, port=0),
            "--ServerApp.terminals_enabled=False",
            "--LabApp.expose_app_in_browser=True",
            "--JupyterNotebookApp.expose_app_in_browser=True",
        )

    def find_address(self) -> Address | None:
        """From the file that the server writes when it listens, with the port that the system chose."""
        record = _read_record(self.home / "runtime" / f"jpserver-{self.process_id}.json")
        return None if record is None else Address(url=record["url"], token=record["token"])

    def write_notebook(self, name: str, *cells: str) -> str:
        """Store a notebook of these code cells under the root; returns its path as Lab names it."""
        notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in cells])
        notebook.metadata.kernelspec = {"name": "python3", "display_name": "Python 3 (ipykernel)", "language": "python"}
        notebook.metadata.language_info = {"name": "python"}
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        nbformat.write(notebook, path)
        return name

    def stop_kernel(self, notebook: str) -> None:
        """Stop the kernel of a notebook, whatever has become of its page."""
        for session in json.loads(self._request("GET", "api/sessions")):
            if session["path"] == notebook:
                self._request("DELETE", f"api/sessions/{session['id']}")

    def _request(self, method: str, path: str) -> bytes:
        with urlopen(Request(self.address.page(path), method=method)) as answer:
            return bytes(answer.read())


class AppServer(Server):
    """The explorer alone, served by voila: the command that a user types."""

    name = "alpa-explore app"
    command = (sys.executable, "-m", "alpa_explore.cli", "app", "--no-browser")

    def find_address(self) -> Address | None:
        """From the address that the command prints."""
        match = re.search(r"(http://\S+/)\?token=(\w+)", self.log.read_text())
        return None if match is None else Address(url=match[1], token=match[2])


def _read_record(path: Path) -> dict[str, Any] | None:
    try:
        return json.loads(path.read_text())
    except (FileNotFoundError, json.JSONDecodeError):
        return None  # not written yet, or in part: the caller polls
