"""The plans that explorers in this process made last: a cell that is run again shows its plan at once.

The cache on disk has the solves of a known plan, from which the planner needs most of a second to put it together.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from alpa_explore.cluster import Cluster
    from alpa_explore.graph import TrainingGraph
    from alpa_explore.plans.plan import Plan


class KnownPlans:
    """Keeps the last few plans, by all that they depend on."""

    def __init__(self, most: int) -> None:
        """`most` plans are kept, the ones that were used last."""
        self._most = most
        self._plans: dict[tuple[object, ...], Plan] = {}
        self._lock = threading.Lock()

    def plan(
        self,
        make: Callable[..., Plan],
        graph: TrainingGraph,
        cluster: Cluster,
        *,
        reports: Mapping[str, Any],
        **options: Any,
    ) -> Plan:
        """The plan that `make(graph, cluster, **options, **reports)` makes, or made before: `reports`, the arguments
        for progress and cancellation, change no plan. Raises what `make` raises."""
        key = (graph.content_key, graph.name, cluster, repr(sorted(options.items())))
        with self._lock:
            known = self._plans.pop(key, None)
        plan = make(graph, cluster, **options, **reports) if known is None else _known(known)
        with self._lock:
            self._plans[key] = plan
            for oldest in list(self._plans)[: -self._most]:
                del self._plans[oldest]
        return plan


def _known(plan: Plan) -> Plan:
    """The plan with statistics that say that nothing was solved for it."""
    return replace(plan, statistics=replace(plan.statistics, cached_solves=plan.statistics.distinct_solves))
