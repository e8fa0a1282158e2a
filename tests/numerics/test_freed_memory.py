"""Memory that is freed serves the next blocks while the planner works, and goes back to the system afterwards."""

from __future__ import annotations

import os
import platform
import resource
from pathlib import Path

import pytest

from alpa_explore.numerics.freed_memory import freed_memory_kept

BLOCK = 48 * 2**20
"""More than glibc keeps by itself."""
pytestmark = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library is left as it is")


def page_faults(blocks: int = 20) -> int:
    """Of making and freeing so many blocks, one after the other."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(blocks):
        assert len(b"x" * BLOCK) == BLOCK
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_blocks_that_are_freed_are_used_again_and_given_back_at_the_end() -> None:
    usual, before = page_faults(), resident_bytes()
    with freed_memory_kept():
        with freed_memory_kept():
            inner = page_faults()
        outer, kept = page_faults(), resident_bytes()
    assert inner + outer < usual / 4
    assert kept > before + BLOCK // 2
    assert resident_bytes() < before + BLOCK // 2
    assert page_faults() > usual / 4


def test_an_error_in_the_block_gives_it_back_too() -> None:
    before = resident_bytes()

    def planner() -> None:
        with freed_memory_kept():
            page_faults(2)
            raise ValueError("of the planner")

    with pytest.raises(ValueError, match="of the planner"):
        planner()
    assert resident_bytes() < before + BLOCK // 2
