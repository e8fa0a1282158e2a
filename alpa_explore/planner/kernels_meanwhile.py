"""`kernels_meanwhile`: the kernels of the solvers are compiled in a process of its own while a model is captured.

Tracing a model and compiling a kernel are both Python that holds the interpreter lock, so a thread would gain little.
What a process has compiled lies in numba's cache on disk, from which this process loads it in milliseconds.
"""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from alpa_explore.execution import tuning
from alpa_explore.execution.executors import available_cores
from alpa_explore.pricing.warm_up import COMPOSITION_KERNELS, warm_up, warm_up_others

_COMPILE = "from alpa_explore.pricing.warm_up import warm_up_contraction; warm_up_contraction()"


@contextmanager
def kernels_meanwhile(cancel: threading.Event | None = None) -> Iterator[None]:
    """If the block takes long, compile the kernels of composition beside it: a model that is captured has problems to
    be solved. On leaving the block they are on disk, unless `cancel` is set, or the process failed: then they are
    compiled when they are first called, as without this."""
    work = _Compiling()
    timer = threading.Timer(tuning.KERNELS_SECONDS, work.start)
    timer.daemon = True
    timer.start()
    try:
        yield
    except BaseException:
        work.stop()
        raise
    finally:
        timer.cancel()
    work.wait(cancel)


class _Compiling:
    """At most one process that compiles."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._stopped = False
        self._lock = threading.Lock()

    def start(self) -> None:
        """Start the process, where kernels are missing on disk and there is a second core."""
        if available_cores() < 2 or all(kernel.on_disk for kernel in COMPOSITION_KERNELS):
            warm_up()
            return
        if any(kernel.dispatcher.stats.cache_path is None for kernel in COMPOSITION_KERNELS):
            return  # nowhere to keep machine code: every process compiles its own
        with self._lock:
            if not self._stopped:
                self._process = subprocess.Popen(
                    # -P: files in the current folder cannot shadow modules.
                    [sys.executable, "-P", "-c", _COMPILE],
                    env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                    start_new_session=True,  # an interrupt of the terminal must not print its traceback
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                )

    def wait(self, cancel: threading.Event | None) -> None:
        """Compile the other kernels here, and wait until the process ends; end it once `cancel` is set or it takes too
        long."""
        if self._process is not None and not (cancel is not None and cancel.is_set()):
            warm_up_others()
        end = time.monotonic() + tuning.COMPILING_SECONDS
        while self._process is not None and self._process.poll() is None:
            if time.monotonic() > end or (cancel is not None and cancel.is_set()):
                break
            time.sleep(tuning.KERNEL_POLL_SECONDS)
        self.stop()

    def stop(self) -> None:
        """End the process, and start none any more."""
        with self._lock:
            self._stopped = True
            if self._process is not None and self._process.poll() is None:
                self._process.kill()
                self._process.wait()
