"""Fixtures of emulated hosts, removed when the test ends, however it ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.hosts.hosts import Hosts, missing


@pytest.fixture(scope="session")
def namespaces() -> None:
    """Skips a test where this machine cannot emulate hosts, with the reason."""
    if reason := missing():
        pytest.skip(reason)


@pytest.fixture
def make_hosts(namespaces: None) -> Iterator[Callable[..., Hosts]]:
    """Makes hosts; takes the arguments of `Hosts`."""
    with ExitStack() as stack:

        def make(count: int, **options: Any) -> Hosts:
            return stack.enter_context(Hosts(count, **options))

        yield make


@pytest.fixture(scope="module")
def two_hosts(namespaces: None) -> Iterator[Hosts]:
    """Two hosts for the tests of a module: leave them as they were."""
    with Hosts(2) as hosts:
        yield hosts
