"""`Plan`, the value that users hold: a `PlanValue` that can be saved, loaded and simulated.

The methods only forward to functions of the modules below, which take any `PlanValue`.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from alpa_explore.arguments import checked
from alpa_explore.plans.file.document import save_plan
from alpa_explore.plans.file.read import read_plan
from alpa_explore.plans.report.text import sentence
from alpa_explore.plans.value import PlanValue

if TYPE_CHECKING:
    from alpa_explore.schedules.simulator.timeline import Timeline
    from alpa_explore.schedules.task import Schedule


@dataclass(frozen=True, kw_only=True)
class Plan(PlanValue):
    """A complete plan; its fields are those of `PlanValue`."""

    def __repr__(self) -> str:
        # The generated repr of all candidates would fill a notebook.
        return f"Plan of {self.model.name!r} on {self.cluster}: {sentence(self)}"

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a plan file, whole or not at all; `load_plan` reads it. PlanFileError when it cannot be written."""
        save_plan(self, path)

    def timeline(self, schedule: str | Schedule | None = None, *, stages_per_submesh: int | None = None) -> Timeline:
        """One iteration, simulated task by task, under the plan's own schedule or another one.

        Raises as `plans.timeline.plan_timeline` does.
        """
        from alpa_explore.plans.timeline import plan_timeline  # late: the simulator loads more slowly than a plan

        return plan_timeline(self, schedule, stages_per_submesh=stages_per_submesh)


@checked("path")
def load_plan(path: str | os.PathLike[str]) -> Plan:
    """Read a plan file; nothing in it is executed or imported.

    PlanFileError, with one line that says what to do, when the file is missing, truncated, damaged, too large, from a
    newer version, or not a plan.
    """
    return read_plan(path, Plan)
