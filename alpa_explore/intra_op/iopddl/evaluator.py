"""What a choice costs and holds, added up from a problem file alone: shares no code with the solvers.

Whole numbers stay whole, so that sums beside forbidden entries of 1e18 are exact.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from alpa_explore.intra_op.iopddl.files import parse_problem

FORBIDDEN = 10**18


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """A choice as the file prices it."""

    cost: float
    """An int where all costs are."""
    legal: bool
    """False when a chosen entry is forbidden."""
    peak: float
    """The most that is held at any time; 0 where the file has no usages."""
    limit: float | None

    @property
    def fits(self) -> bool:
        """True when the peak is within the limit, if there is one."""
        return self.limit is None or self.peak <= self.limit


def evaluate_file(path: str | os.PathLike[str], choices: Sequence[int]) -> Evaluation:
    """Price `choices` (one strategy a node) by the file at `path`."""
    problem = parse_problem(path)
    nodes, edges = problem["nodes"], problem.get("edges", {"nodes": [], "costs": []})
    paid = [costs[k] for costs, k in zip(nodes["costs"], choices, strict=True)]
    for (a, b), costs in zip(edges["nodes"], edges["costs"], strict=True):
        paid.append(costs[choices[a] * len(nodes["costs"][b]) + choices[b]])
    change: dict[int, float] = {}
    if problem.get("usage_limit") is not None:
        for (start, end), usage, k in zip(nodes["intervals"], nodes["usages"], choices, strict=True):
            change[start] = change.get(start, 0) + usage[k]
            change[end] = change.get(end, 0) - usage[k]
    peak = held = 0.0
    for time in sorted(change):
        held += change[time]
        peak = max(peak, held)
    return Evaluation(
        cost=sum(paid), legal=all(c < FORBIDDEN for c in paid), peak=peak, limit=problem.get("usage_limit")
    )
