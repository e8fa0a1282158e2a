"""Compiled functions work where nothing can be kept on disk, and equal their Python selves."""

import subprocess
import sys

SCRIPT = """
from alpa_explore.numerics.compiled import compiled
assert compiled()(exec("def twice(x):\\n    return 2 * x") or twice)(21) == 42
print("done")
"""


def test_without_a_file_to_cache_beside_it_still_compiles():
    # Code that was not read from a file has no place for a cache: numba refuses, as in a folder that cannot be written.
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True)
    assert done.stdout.strip() == "done", done.stderr
