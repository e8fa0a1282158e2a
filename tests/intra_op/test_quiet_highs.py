"""HiGHS prints nothing, so that commands can print JSON."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import pulp
from alpa_explore.intra_op.ilp.quiet_highs import PulpHighs
for seconds in (None, 10.0):
    model = pulp.LpProblem("small", pulp.LpMinimize)
    x = model.add_variable("x", lowBound=0, upBound=3, cat="Integer")
    model += x
    model += x >= 1.5
    model.solve(PulpHighs(msg=False, gapRel=0.0, gapAbs=0.0, timeLimit=seconds))
    print(int(x.varValue))
"""


def test_only_the_answer_is_printed() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    assert done.stdout == "2\n2\n"
