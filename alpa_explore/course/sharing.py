"""Plans and graphs that exercises and lessons share, made once per process."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from alpa_explore.graph import TrainingGraph
from alpa_explore.planner.interface import plan as plan_anew
from alpa_explore.planner.microbatch_graph import microbatch_graph
from alpa_explore.plans.plan import Plan


@lru_cache(maxsize=64)
def planned(model: str, cluster: str, **options: Any) -> Plan:
    """`ax.plan` of a catalogue model, once per process for equal options, which must be hashable."""
    return plan_anew(model, cluster, **options)


@lru_cache(maxsize=16)
def graph_of(model: str, num_microbatches: int) -> TrainingGraph:
    """The captured graph of one microbatch of a catalogue model, once per process."""
    return microbatch_graph(model, num_microbatches)
