"""The choices of one stage on one mesh that some plan may need: the fastest at every B, and leaner ones.

The seconds of a choice are microbatch + iteration / B, a line over 1/B, so the fastest choices for all B are the lower
envelope of such lines (`envelope`). Where the fastest choice overflows the device there is a frontier of (seconds,
bytes), with seconds at the requested B and bytes = weight + held × activation (`memory_frontiers`). The workspace, a
peak and not a sum, is added where a choice is tested against a device. Every choice says how it was found
(`Provenance`).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from alpa_explore.intra_op.stage.stage_totals import StageTotals
from alpa_explore.pricing.stage_costs import Provenance


@dataclass(frozen=True, slots=True)
class StageChoice:
    """A choice, its totals, and how it was found."""

    choices: tuple[int, ...]
    """The strategy of every node of the stage; empty where `block_choices` has them."""
    totals: StageTotals
    provenance: Provenance = field(default=Provenance.UNKNOWN, compare=False)
    block_choices: tuple[tuple[int, ...], ...] = ()
    """For a composed range (`intra_op.composition`): the strategies of the nodes that each block owns."""


@dataclass(frozen=True, slots=True)
class Frontier:
    """The choices found for one problem, what is proven about them, and statistics of the solves."""

    points: tuple[StageChoice, ...]
    solves: int
    variables: int
    constraints: int
    optimal: bool
    """False when a solve hit its time limit."""
    bound_seconds: float
    """Lower bound on the seconds of every choice at the requested B; 0 where none is known."""
    proven: bool
    """True when the fastest choice at that B is among the points, or there is none."""
    least_peaks: tuple[float, ...] = ()
    """For a memory frontier: lower bounds on the peak bytes with the fewest microbatches held, with one more, …"""
    optima: tuple[tuple[float, float], ...] = ()
    """For a composed range: (1/B, the least seconds on a device at it), by rising 1/B; empty where no choice is
    legal."""
    bounds_within: tuple[tuple[int, float], ...] = ()
    """(microbatches held, lower bound on the seconds of every choice that fits with so many held, at the requested
    B)."""


def added(known: Frontier, fastest: Frontier) -> Frontier:
    """What is known of a composed range from another B (`search.eager.known_meshes`), with its fastest choices at the
    requested one."""
    points = {point: point for point in known.points} | {point: point for point in fastest.points}
    return replace(
        fastest,
        points=tuple(points.values()),
        solves=known.solves + fastest.solves,
        least_peaks=fastest.least_peaks or known.least_peaks,
        optima=tuple(sorted((dict(known.optima) | dict(fastest.optima)).items())),
    )


def stronger(a: StageChoice, b: StageChoice) -> StageChoice:
    """The one of two records of the same choice that has the stronger provenance."""
    ranks = list(Provenance)
    return b if ranks.index(b.provenance) > ranks.index(a.provenance) else a
