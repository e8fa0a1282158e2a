"""What holds for every test: no network, one thread for numerical libraries, an empty cache, and --no-skips for CI."""

import gc
import ipaddress
import os
import signal
import socket
import sys
from collections.abc import Iterator
from functools import wraps
from hashlib import sha256
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from tests.daily import today

# Before torch or numpy is imported: pytest's workers share the cores, and one thread in each is fastest.
for _threads in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_threads, "1")
# jsonschema, below nbformat, builds 38 parsers of IRIs as it is imported, in 1.5 s of each worker; it can do without.
sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]  # None: an import of it fails
# transformers asks its hub before it looks at what is installed.
os.environ["HF_HUB_OFFLINE"] = "1"

# Programs that a shell starts in the background ignore Ctrl-C, and pass that on to the programs that tests interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A deadline, and how long inputs take, measure the machine, not the code: shared cores miss them now and then.
_SLOW = [hypothesis.HealthCheck.too_slow]
hypothesis.settings.register_profile("house", deadline=None, print_blob=True, suppress_health_check=_SLOW)
hypothesis.settings.load_profile("house")

TIERS = ("slow", "distributed", "hosts", "browser", "sweep")
"""The markers of tests/tiers.py."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """--no-skips: what CI asks for. --marked: what tiers.py asks for."""
    parser.addoption("--no-skips", action="store_true", help="a skipped test is a failed test")
    parser.addoption("--marked", metavar="TIER", help="read only the files that mark a test for this tier")


def _marks(file: Path, tier: str) -> bool:
    return f"pytest.mark.{tier}" in file.read_text()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """With --marked a file in which no test can be of the tier is not read: that takes most of a small tier's start."""
    tier = config.getoption("--marked")
    is_test = collection_path.name.startswith("test_") and collection_path.suffix == ".py"
    return True if tier and is_test and not _marks(collection_path, tier) else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test whose file does not say its tier would be run in no tier. All read the file, so none goes on."""
    hidden = {
        f"{item.path.name}: {tier}"
        for item in items
        for tier in TIERS
        if item.get_closest_marker(tier) and not _marks(item.path, tier)
    }
    if hidden:
        raise pytest.UsageError(f"write pytest.mark.… in the file of the tests itself: {', '.join(sorted(hidden))}")
    _keep_some(items)


def _keep_some(items: list[pytest.Item]) -> None:
    """`@pytest.mark.sweep(kept=3)`: of a test's parameters, three that are spread evenly run in its own tier, and the
    others in the tier `sweep` only, which is run by name. With `in_turn=True` it is the next three each day, so that
    all have run after some days: for parameters of which none sees what the others do not."""
    cases: dict[tuple[Path, str], list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("sweep"):
            cases.setdefault((item.path, item.nodeid.partition("[")[0]), []).append(item)
    for same in cases.values():
        asked = same[0].get_closest_marker("sweep").kwargs
        kept, first = min(asked["kept"], len(same)), today().toordinal() * asked["kept"]
        spread = [place * (len(same) - 1) // max(kept - 1, 1) for place in range(kept)]
        in_turn = [(first + place) % len(same) for place in range(kept)]
        for item in (same[place] for place in (in_turn if asked.get("in_turn") else spread)):
            item.own_markers[:] = [mark for mark in item.own_markers if mark.name != "sweep"]


def _processor_seconds() -> float:
    """Of this process and of those that it has started and waited for."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


_BEGAN = pytest.StashKey[float]()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> None:
    """When a test begins, its fixtures included."""
    item.stash[_BEGAN] = _processor_seconds()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    """Report the processor seconds of a test (tiers.py); turn a skip into a failure where none is allowed, keeping its
    reason as the message."""
    if call.when == "teardown":
        item.user_properties.append(("processor_seconds", f"{_processor_seconds() - item.stash[_BEGAN]:.2f}"))
    report: pytest.TestReport = yield
    if item.config.getoption("--no-skips") and report.skipped and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"skipped, which --no-skips does not allow: {call.excinfo.value if call.excinfo else '?'}"
    return report


def pytest_collection_finish() -> None:
    """What is imported stays to the end, so the garbage collector need not look at it again and again."""
    gc.freeze()


def pytest_sessionfinish() -> None:
    """pytest collects garbage five times at its end, over all that the tests left in memory. Where that takes a worker
    more than 5 s, execnet sends it a SIGINT, which turns up as a KeyboardInterrupt inside a callback."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True, scope="session")
def _private_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The user's own folders are not touched; the tiers of one run share what they solve (tiers.py)."""
    with pytest.MonkeyPatch.context() as patch:
        folder = os.environ.get("ALPA_EXPLORE_TEST_CACHE") or str(tmp_path_factory.mktemp("cache"))
        patch.setenv("ALPA_EXPLORE_CACHE", folder)
        patch.setenv("ALPA_EXPLORE_CALIBRATIONS", str(tmp_path_factory.mktemp("calibrations")))
        patch.setenv("ALPA_EXPLORE_COURSE", str(tmp_path_factory.mktemp("course")))
        yield


@pytest.fixture(autouse=True, scope="session")
def _captured_once(_private_cache: None) -> Iterator[None]:
    """A catalogue model, and a model of layouts, is captured once in a run, and read from there by other tests, those
    with a cache of their own or without one too: capture would take half of the time of those of plans, planner,
    baselines and layouts. Tests of capture itself, in tests/tracing, capture every time."""
    from alpa_explore.graph.document import dump_graph, load_graph
    from alpa_explore.store.cache import SolveCache
    from alpa_explore.store.records import plain, record
    from alpa_explore.tracing import catalogue
    from alpa_explore.uniform_layouts import works
    from alpa_explore.uniform_layouts.structure import Structure
    from alpa_explore.validation import run_price

    store = SolveCache(Path(os.environ["ALPA_EXPLORE_CACHE"]) / "captured")

    def kept(capture: Any) -> Any:
        return wraps(capture)(lambda *request, **options: capture(*request, **{**options, "store": store}))

    of_layouts = run_price.captured_graph

    def graph_kept(*request: Any) -> Any:
        name = f"graph-{sha256(repr(request).encode()).hexdigest()}"
        if (stored := store.get(name)) is not None:
            return load_graph(stored)
        graph = of_layouts(*request)
        store.put(name, dump_graph(graph))
        return graph

    of_model = works.captured_model

    def model_kept(key: Any) -> Any:
        name = f"model-{sha256(repr(key).encode()).hexdigest()}"
        if (stored := store.get(name)) is None:
            graph, structure = of_model(key)
            stored = {"graph": dump_graph(graph), "structure": plain(structure)}
            store.put(name, stored)
        return load_graph(stored["graph"]), record(Structure, stored["structure"], checked=False)

    with pytest.MonkeyPatch.context() as patch:
        for user in ("course.examples", "planner.microbatch_graph", "plans.rebuild"):
            patch.setattr(f"alpa_explore.{user}.catalogue_graph", kept(catalogue.catalogue_graph))
        patch.setattr("alpa_explore.planner.microbatches.catalogue_batches", kept(catalogue.catalogue_batches))
        patch.setattr(run_price, "captured_graph", graph_kept)
        patch.setattr(works, "captured_model", model_kept)
        yield


@pytest.fixture(autouse=True, scope="session")
def _no_network() -> Iterator[None]:
    """A connection to another machine fails, in this process; loopback, unix sockets and emulated hosts work."""
    connect = socket.socket.connect

    def guarded(self: socket.socket, address: Any) -> None:
        if self.family in (socket.AF_INET, socket.AF_INET6) and not _is_here(str(address[0])):
            raise AssertionError(f"a test tried to reach {address[0]}:{address[1]}; tests stay on this machine")
        connect(self, address)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket.socket, "connect", guarded)
        yield


def _is_here(host: str) -> bool:
    """The loopback, or a network that is reserved for tests, where the emulated hosts are (hosts/hosts.py)."""
    if host in ("localhost", ""):
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    return address.is_loopback or any(address in ipaddress.ip_network(n) for n in ("198.18.0.0/15", "2001:2::/48"))
