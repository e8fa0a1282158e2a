"""Cost and memory of a choice, computed from a problem file alone: a check that shares no code with the solvers.

Integers stay integers, so that sums that include forbidden entries of 1e18 are exact.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from alpa_explore.iopddl.files import parse_problem

FORBIDDEN = 10**18


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """Cost and memory of a choice."""

    cost: float
    """An int where all costs in the file are."""
    legal: bool
    """False when a chosen entry is forbidden."""
    peak: float
    """The most bytes held at any time; 0 where the file has no usages."""
    limit: float | None

    @property
    def fits(self) -> bool:
        """True when the peak is within the limit, if there is one."""
        return self.limit is None or self.peak <= self.limit


def evaluate_file(
    path: str | os.PathLike[str], choices: Sequence[int], data: dict[str, Any] | None = None
) -> Evaluation:
    """Cost and peak of `choices` (one strategy per node) for the problem in the file at `path`.

    `data` is the document of `read_document`, where it was already read.
    """
    problem = parse_problem(path, data)
    nodes, edges = problem["nodes"], problem.get("edges", {"nodes": [], "costs": []})
    chosen_costs = [costs[k] for costs, k in zip(nodes["costs"], choices, strict=True)]
    for (a, b), costs in zip(edges["nodes"], edges["costs"], strict=True):
        chosen_costs.append(costs[choices[a] * len(nodes["costs"][b]) + choices[b]])
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
        cost=sum(chosen_costs),
        legal=all(c < FORBIDDEN for c in chosen_costs),
        peak=peak,
        limit=problem.get("usage_limit"),
    )
