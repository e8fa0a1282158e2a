"""A Dask cluster on this machine: the scheduler in this process, one worker process per core, all on 127.0.0.1.

Dask's LocalCluster is not used because it starts workers with multiprocessing, which imports the user's main script
again in each of them (a script without `if __name__ == "__main__"` fails, and so does one from stdin), and because it
sets OMP_NUM_THREADS in the user's process. Here a worker is a plain subprocess with its own environment, which
`WorkerProcess` restarts when it dies, as dask's nanny would. This module imports dask; `dask_pool` imports it when
worker processes are needed.

Whoever may talk to a Dask scheduler or worker may run code as its user, and every user of a machine may connect to
127.0.0.1. So all of them speak TLS with one key, which is made for this cluster: the scheduler has it in memory, a
worker gets it in its environment, which only its user can read. Their HTTP servers answer nothing, and what workers
store is in a folder that only the user may enter: dask adds that folder to the module path.
"""

# Dask has few annotations.
# mypy: disable-error-code="no-untyped-call"
import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from typing import Any

from distributed import Scheduler
from distributed.deploy.spec import ProcessInterface, SpecCluster
from distributed.security import Security

from alpa_explore.execution import tuning
from alpa_explore.execution.client import quiet_cluster

HOST = "127.0.0.1"
PROTOCOL = "tls"


class LocalCluster(SpecCluster):
    """Single-threaded worker processes; close() ends them all."""

    def __init__(self, workers: int) -> None:
        self._scratch = tempfile.mkdtemp(prefix="alpa-explore-")  # mode 0700
        security = Security.temporary()
        of_worker = {"environment": _environment(security), "folder": self._scratch}
        self._quiet = ExitStack()
        self._quiet.enter_context(quiet_cluster())
        try:
            super().__init__(
                scheduler={
                    "cls": _Scheduler,
                    "options": {
                        "host": HOST,
                        "port": 0,
                        "protocol": PROTOCOL,
                        "security": security,
                        "dashboard": False,
                        "dashboard_address": f"{HOST}:0",
                    },
                },
                workers={number: {"cls": WorkerProcess, "options": of_worker} for number in range(workers)},
                security=security,
                name="alpa-explore",
            )
        except BaseException:
            shutil.rmtree(self._scratch, ignore_errors=True)
            self._quiet.close()
            raise

    async def _close(self) -> None:
        await super()._close()
        shutil.rmtree(self._scratch, ignore_errors=True)
        self._quiet.close()


class _Scheduler(Scheduler):
    """A scheduler whose HTTP server has no pages: they are for everybody on the machine, without a key."""

    def start_http_server(self, routes: Any, *arguments: Any, **options: Any) -> None:
        super().start_http_server([], *arguments, **options)


class WorkerProcess(ProcessInterface):
    """One worker in a subprocess, which is restarted when it dies. A worker ends itself when the scheduler is gone."""

    def __init__(self, scheduler: str, *, environment: dict[str, str], folder: str, name: Any = None) -> None:
        self._environment = environment
        self._command = [
            # -P: files in the current folder cannot shadow modules.
            *(sys.executable, "-P", "-m", "distributed.cli.dask_spec", scheduler, "--spec"),
            json.dumps({"cls": "distributed.Worker", "opts": _worker_options(name, folder)}),
        ]
        self._process: subprocess.Popen[bytes] | None = None
        self._watch: asyncio.Task[None] | None = None
        super().__init__(scheduler=scheduler, name=name)

    async def start(self) -> None:
        """Launch the process and watch it."""
        self._launch()
        self._watch = asyncio.ensure_future(self._keep_alive())
        await super().start()

    async def close(self) -> None:
        """End the process; the scheduler has already requested its end."""
        if self._watch is not None:
            self._watch.cancel()
        if self._process is not None:
            await _end(self._process)
        await super().close()

    def _launch(self) -> None:
        # A session of its own: an interrupt of the user's program or notebook must not reach the workers.
        self._process = subprocess.Popen(
            self._command,
            env=self._environment,
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )

    async def _keep_alive(self) -> None:
        for _ in range(tuning.MAX_RESTARTS):
            while self._process is not None and self._process.poll() is None:
                await asyncio.sleep(tuning.POLL_SECONDS)
            self._launch()


async def _end(process: subprocess.Popen[bytes]) -> None:
    """Terminate the process, then kill it. It has nothing to save."""
    for stop in (process.terminate, process.kill):
        stop()
        for _ in range(round(tuning.STOP_SECONDS / tuning.POLL_SECONDS)):
            if process.poll() is not None:
                return
            await asyncio.sleep(tuning.POLL_SECONDS)


def _worker_options(name: Any, folder: str) -> dict[str, object]:
    return {
        "name": name,
        "nthreads": 1,
        "host": HOST,
        "protocol": PROTOCOL,
        # 0: no spilling to disk and no pausing; the data of a solve is small and the disk may be full.
        "memory_limit": 0,
        "local_directory": folder,
        "dashboard": False,
        "dashboard_address": f"{HOST}:0",
        "death_timeout": 60,
    }


def _environment(security: Security) -> dict[str, str]:
    """The environment of a worker: the module path of this process, one thread for numerical libraries, and the key."""
    one_thread = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    quiet = {"DASK_LOGGING__DISTRIBUTED": "critical"}
    own = security.get_tls_config_for_role("worker")
    tls = {"CA_FILE": own["ca_file"], "WORKER__KEY": own["key"], "WORKER__CERT": own["cert"]}
    closed = {
        **{f"DASK_DISTRIBUTED__COMM__TLS__{name}": value for name, value in tls.items()},
        "DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION": "True",
        "DASK_DISTRIBUTED__WORKER__HTTP__ROUTES": "[]",
    }
    path = {"PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)}
    return {**os.environ, **one_thread, **quiet, **closed, **path}
