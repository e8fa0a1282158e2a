"""Kernels that have imported what lessons import: forks of one process, which imports it once.

    python -m tests.notebooks.kernels SOCKET

Jupyter starts `kernel.py` beside this file, as it starts any kernel. That asks at SOCKET for a fork, the real kernel.
"""

import contextlib
import ctypes
import gc
import importlib
import json
import os
import pkgutil
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

NAME = "forked"
_IMPORT = re.compile(r"^(?:import|from)\s+([\w.]+)", re.MULTILINE)


@contextlib.contextmanager
def forked_kernels(folder: Path, root: Path) -> Iterator[None]:
    """While they are there, Jupyter finds a kernel named NAME, where JUPYTER_DATA_DIR is below `folder`."""
    place, home = folder / "kernels.socket", Path(os.environ["JUPYTER_DATA_DIR"]) / "kernels" / NAME
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(place))
        server.listen()
        command = [sys.executable, "-m", "tests.notebooks.kernels", str(server.fileno())]
        # In a kernel of its own, a lesson has the threads that its user has not taken away.
        with subprocess.Popen(command, cwd=root, pass_fds=[server.fileno()]) as forking:
            home.mkdir(parents=True)
            argv = [sys.executable, "-I", "-S", str(Path(__file__).with_name("kernel.py")), str(place)]
            spec = {"argv": [*argv, "{connection_file}"], "display_name": NAME, "language": "python"}
            (home / "kernel.json").write_text(json.dumps(spec))
            yield
            forking.terminate()


def import_all() -> None:
    """Import what the lessons name, and every module of this project that can be had here."""
    import alpa_explore_widgets

    import alpa_explore
    from alpa_explore.course.lessons.notebook import course_folder, read_lessons

    for name in ("ipykernel.kernelapp", "ipykernel.zmqshell", "IPython.core.completer"):
        importlib.import_module(name)
    code = "\n".join(c.source for lesson in read_lessons(course_folder()) for c in lesson.cells if c.kind == "code")
    for name in sorted(set(_IMPORT.findall(code))):
        importlib.import_module(name)
    for package in (alpa_explore, alpa_explore_widgets):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if module.name.rpartition(".")[2] not in ("__main__", "jupyter_config"):
                importlib.import_module(module.name)


def main() -> None:
    """Fork a kernel for each connection, which gives its connection file, folder and environment; until terminated."""
    _end_with_parent()
    signal.signal(signal.SIGCHLD, _reap)
    import_all()
    gc.freeze()
    server = socket.socket(fileno=int(sys.argv[1]))
    while True:
        asked, _ = server.accept()
        if os.fork() == 0:
            _be_kernel(asked)
        asked.close()


def _end_with_parent() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def _reap(*_: object) -> None:
    """Forget the kernels that have ended, and count their processor seconds as this process's."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _be_kernel(asked: socket.socket) -> None:
    code = 1
    try:
        _end_with_parent()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        with asked.makefile() as stream:
            request = json.loads(stream.readline())
        os.environ.clear()
        os.environ.update(request["environment"])
        os.chdir(request["folder"])
        from ipykernel.kernelapp import IPKernelApp

        IPKernelApp.launch_instance(["-f", request["file"]])
        code = 0
    finally:
        os._exit(code)


if __name__ == "__main__":
    main()
