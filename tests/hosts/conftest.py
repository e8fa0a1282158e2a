"""Fixtures of emulated hosts, removed when the tests end, however they end."""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.hosts.forked_python import ForkedPython
from tests.hosts.hosts import Hosts, missing

_FAILED = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Any:
    """Note that a test failed: who knows what its hosts do then."""
    report: pytest.TestReport = yield
    item.stash[_FAILED] = report.failed or item.stash.get(_FAILED, False)
    return report


@pytest.fixture(scope="session")
def namespaces() -> None:
    """Skips a test where this machine cannot emulate hosts, with the reason."""
    if reason := missing():
        pytest.skip(reason)


@pytest.fixture
def make_hosts(namespaces: None) -> Iterator[Callable[..., Hosts]]:
    """Makes hosts for a test that wants other ones than `pair` or `four`; takes the arguments of `Hosts`."""
    with ExitStack() as stack:

        def make(count: int, **options: Any) -> Hosts:
            return stack.enter_context(Hosts(count, **options))

        yield make


@pytest.fixture(scope="session")
def launcher(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that only the launcher sees: it is hidden from the workers of `pair` and `four`."""
    return tmp_path_factory.mktemp("launcher")


@pytest.fixture
def run_folder(launcher: Path) -> Path:
    """A folder for a run, which no host sees."""
    return Path(tempfile.mkdtemp(dir=launcher)) / "run"


@pytest.fixture(scope="session")
def agents(namespaces: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The program that starts agents which have imported torch."""
    with ForkedPython(tmp_path_factory.mktemp("agents")) as python:
        yield python.program


@pytest.fixture(scope="session")
def _living(launcher: Path, agents: Path) -> Iterator[dict[int, Hosts]]:
    """The hosts that tests share, by their number; each is made when a test first asks for it."""
    living: dict[int, Hosts] = {}
    yield living
    for hosts in living.values():
        hosts.down()


def _lent(count: int, living: dict[int, Hosts], options: dict[str, Any], request: Any) -> Iterator[Hosts]:
    """Hosts as `dask` leaves them, whatever the test before has done to them. Those that saw a failure are thrown
    away."""
    if count in living:
        living[count].reset()
    else:
        hosts = Hosts(count)
        hosts.up()
        living[count] = hosts
        hosts.dask(**options)
    yield living[count]
    if request.node.stash[_FAILED]:
        living.pop(count).down()


@pytest.fixture
def pair(_living: dict[int, Hosts], launcher: Path, agents: Path, request: pytest.FixtureRequest) -> Iterator[Hosts]:
    """Two hosts with a scheduler on the first and a worker on each."""
    yield from _lent(2, _living, {"hide": [launcher], "agents": agents}, request)


@pytest.fixture
def four(_living: dict[int, Hosts], launcher: Path, agents: Path, request: pytest.FixtureRequest) -> Iterator[Hosts]:
    """Four hosts with a scheduler on the first and a worker on each."""
    yield from _lent(4, _living, {"hide": [launcher], "agents": agents}, request)
