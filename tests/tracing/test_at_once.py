"""Captures in several threads at once: an explorer captures in the background while a notebook goes on."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from alpa_explore.models.catalog import entry
from alpa_explore.tracing.catalogue import catalogue_graph


@pytest.mark.slow
def test_captures_at_once_give_the_same_graph() -> None:
    together = Barrier(2)

    def captured(name: str) -> object:
        together.wait()
        return catalogue_graph(entry(name), 4)

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(captured, ["gpt-tiny", "gpt-tiny"])
    assert first == second
