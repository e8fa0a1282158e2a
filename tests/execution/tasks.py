"""Tasks that tests run in every place."""

import os
import signal
import sys
import time
from pathlib import Path

from alpa_explore.errors import SolverError
from alpa_explore.execution.executors import Executor


# Dask's workers get these by value: a test module is not importable there.
def _by_value():
    import cloudpickle

    cloudpickle.register_pickle_by_value(sys.modules[__name__])


_by_value()


def run_tasks(function, tasks, scheduler, workers=None, **options):
    """All results of one set of tasks, by an executor of its own."""
    with Executor(scheduler, workers=workers) as executor:
        return dict(executor.map(function, tasks, **options))


def square(value):
    return value * value


def plus(shared, value):
    return shared + value


def identity_of(shared, value):
    return os.getpid(), id(shared)


def fail_at_three(value):
    if value == 3:
        raise SolverError("The problem has no solution", found="three", remedy="Take another number.")
    return value


def slow(value):
    """A task that takes a while, of which most of many are still to be run when something happens."""
    time.sleep(0.05)
    return value * 7


def noted(value):
    """Of many tasks those behind the first hundred wait until `gate`, a pipe with a name, is open."""
    folder, gate, number = value
    Path(folder, str(number)).touch()
    if len(os.listdir(folder)) > 100:
        os.close(os.open(gate, os.O_RDONLY))
    return slow(number)  # so that most are still to be run when the workers are told to stop


def process_of(value):
    return slow(value) and os.getpid()


def die_once(value):
    """The first time that 5 comes, its worker is killed as by the system."""
    number, flag = value
    if number == 5 and not Path(flag).exists():
        Path(flag).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return number * number


def die_always(value):
    os.kill(os.getpid(), signal.SIGKILL)


def read(results, kept, after=None, then=lambda: None):
    """Keep the results, and do something `after` so many."""
    for key, value in results:
        kept[key] = value
        if len(kept) == after:
            then()


class Unpicklable(Exception):
    def __init__(self, a, b):
        super().__init__(f"{a}{b}")


def raise_unpicklable(value):
    raise Unpicklable("x", "y")
