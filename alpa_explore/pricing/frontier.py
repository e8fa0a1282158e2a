"""The choices found for one stage on one mesh that some plan may need: for every B, and for short memory.

The seconds of a choice are microbatch + iteration / B, a line over 1/B, so the fastest choices for all B are the lower
envelope of such lines (`envelope`). Where the fastest choice overflows the device there is a frontier of (seconds,
bytes), with seconds at the requested B and bytes = weight + held × activation (`memory_frontiers`). The workspace, a
peak and not a sum, is added where a choice is tested against a device. Every choice says how it was found
(`Provenance`).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from alpa_explore.intra_op.stage.stage_problem import StageTotals
from alpa_explore.pricing.stage_costs import Provenance


@dataclass(frozen=True, slots=True)
class StageChoice:
    """A choice, its totals, and how it was found."""

    choices: tuple[int, ...]
    """Of every node of the stage; empty where `block_choices` has them."""
    totals: StageTotals
    provenance: Provenance = field(default=Provenance.UNKNOWN, compare=False)
    block_choices: tuple[tuple[int, ...], ...] = ()
    """Of a composed range (`intra_op.composition`): for each block the choices of the nodes that it owns."""


@dataclass(frozen=True, slots=True)
class Frontier:
    """The choices found for one problem, and what finding them took."""

    points: tuple[StageChoice, ...]
    solves: int
    variables: int
    constraints: int
    optimal: bool
    """False when a solve hit its time limit."""
    bound_seconds: float
    """No choice is faster than this at the requested B (0: no bound is known)."""
    proven: bool
    """True when the fastest choice at that B is among the points, or there is none."""
    least_peaks: tuple[float, ...] = ()
    """Of a memory frontier: lower bounds on the peak bytes with the fewest microbatches held, one more, …"""
    bounds_within: tuple[tuple[int, float], ...] = ()
    """(microbatches held, seconds): no choice that fits with so many held is faster at the requested B."""


def stronger(a: StageChoice, b: StageChoice) -> StageChoice:
    """Of two records of the same choice the one with the stronger provenance."""
    ranks = list(Provenance)
    return b if ranks.index(b.provenance) > ranks.index(a.provenance) else a
