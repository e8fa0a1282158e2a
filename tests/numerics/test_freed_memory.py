"""Memory that is freed serves the next blocks while the planner works, and goes back to the system afterwards."""

import json
import platform
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library is left as it is")
BLOCK = 48 * 2**20
"""More than glibc keeps by itself."""
MEASURE = f"""
import json, os, resource
from alpa_explore.numerics.memory import freed_memory_kept

def faults(blocks=20):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(blocks):
        assert len(b"x" * {BLOCK}) == {BLOCK}
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

seen = dict(usual=faults(), before=resident())
with freed_memory_kept():
    with freed_memory_kept():
        seen.update(inner=faults())
    seen.update(outer=faults(), kept=resident())
seen.update(after=resident(), again=faults())
try:
    with freed_memory_kept():
        faults(2)
        raise ValueError
except ValueError:
    seen.update(after_error=resident())
print(json.dumps(seen))
"""
"""For a process of its own: what other tests have freed in this one would serve the first block."""


@pytest.fixture(scope="module")
def seen() -> dict[str, int]:
    """Page faults of twenty blocks, made and freed one after the other, and the resident bytes of the process."""
    process = subprocess.run([sys.executable, "-c", MEASURE], capture_output=True, text=True, check=True)
    answer: dict[str, int] = json.loads(process.stdout)
    return answer


def test_blocks_that_are_freed_are_used_again_and_given_back_at_the_end(seen: dict[str, int]) -> None:
    assert seen["inner"] + seen["outer"] < seen["usual"] / 4
    assert seen["kept"] > seen["before"] + BLOCK // 2
    assert seen["after"] < seen["before"] + BLOCK // 2
    assert seen["again"] > seen["usual"] / 4


def test_an_error_in_the_block_gives_it_back_too(seen: dict[str, int]) -> None:
    assert seen["after_error"] < seen["before"] + BLOCK // 2
