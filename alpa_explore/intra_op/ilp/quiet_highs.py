"""HiGHS that prints nothing, for itself and for PuLP, so that commands can print JSON.

Since 1.16 HiGHS prints its name and licence when callbacks are enabled, in the constructor of `highspy.Highs`: before
PuLP can forbid it.
"""

from __future__ import annotations

import highspy
import pulp


class _QuietHighs(highspy.Highs):
    """HiGHS whose output is off before callbacks are enabled."""

    def enableCallbacks(self) -> None:
        self.setOptionValue("output_flag", False)
        super().enableCallbacks()  # type: ignore[no-untyped-call]  # highspy has no annotations


def quiet_highs() -> highspy.Highs:
    """A new solver."""
    return _QuietHighs()  # type: ignore[no-untyped-call]  # highspy has no annotations


class PulpHighs(pulp.HiGHS):  # type: ignore[misc]  # PuLP has no annotations
    """PuLP's interface to it, with relative and absolute gaps and a time limit in seconds (None: no limit)."""

    def createAndConfigureSolver(self, lp: pulp.LpProblem) -> None:
        """In place of PuLP's, which makes a solver that prints."""
        lp.solverModel = quiet_highs()
        lp.solverModel.setOptionValue("mip_rel_gap", self.gapRel)
        lp.solverModel.setOptionValue("mip_abs_gap", self.gapAbs)
        if self.timeLimit is not None:
            lp.solverModel.setOptionValue("time_limit", float(self.timeLimit))
