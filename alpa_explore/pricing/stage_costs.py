"""The costs of stages: for every (layer range, submesh) the candidates from sharding solves.

The pipeline DP reads `StageCosts`, whose tables evaluate all candidates at any B without a new solve.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from alpa_explore.cluster import LogicalMesh, Submesh
from alpa_explore.intra_op.stage.recomputation import Recomputation
from alpa_explore.intra_op.stage.stage_totals import StageTotals
from alpa_explore.numerics.arrays import Flags, Floats, Ints


class Provenance(enum.StrEnum):
    """How a choice was found, and therefore what is proven about it; the weakest proof first."""

    UNKNOWN = "unknown"
    """Read from a plan file that does not record it."""
    NEAR = "near"
    """Within tuning.TOLERANCE of the fastest at some B."""
    CONVEX = "convex"
    """On the convex part of the frontier of (seconds, bytes): near-optimal at some price of memory."""
    FITTING = "fitting"
    """Fits at some place in the pipeline, workspace included; within tuning.TOLERANCE of the fastest choice that fits
    there, or the incumbent at the time limit."""
    FASTEST = "fastest"
    """The fastest at the requested B, proven."""
    EXACT = "exact"
    """On the exact frontier of (seconds, weight + held × activation bytes) at the requested B."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageCandidate(StageTotals):
    """A choice for a (layer range, submesh) on one logical mesh, with its costs per device."""

    logical_mesh: LogicalMesh
    solution_key: str
    """Key of the solve, by which the choice of every operator can be looked up."""
    provenance: Provenance = Provenance.UNKNOWN
    version: int = 0
    """What is recomputed: an index into `StageCosts.versions`."""


class Screened(NamedTuple):
    """What bounds the choices of a problem that was not searched to the end."""

    seconds: float
    """Lower bound on a microbatch, for every B."""
    most_held: int
    """Upper bound on the microbatches that it can hold."""
    inverse_b: float = 1.0
    """1/B at which `seconds_there` is known."""
    seconds_there: float = 0.0
    """Lower bound on a microbatch with its share of what is paid once an iteration, at B = 1 / `inverse_b`."""

    def at(self, inverse_b: float) -> float:
        """Lower bound on the seconds at another 1/B: the least seconds of a problem are concave and rise with 1/B."""
        there = max(self.seconds, self.seconds_there)
        return self.seconds + (there - self.seconds) * min(inverse_b / self.inverse_b, 1.0)

    def below(self, other: Screened) -> bool:
        """Whether a choice that is possible by `other` is possible by this, at every B."""
        lower = all(self.at(b) <= other.at(b) for b in (0.0, self.inverse_b, other.inverse_b, 1.0))
        return lower and self.most_held >= other.most_held


def undominated(bounds: Sequence[Screened]) -> tuple[Screened, ...]:
    """The bounds that are not above another one, once each."""
    kept: list[Screened] = []
    for bound in bounds:
        if not any(other.below(bound) for other in kept):
            kept = [other for other in kept if not bound.below(other)] + [bound]
    return tuple(kept)


RangeKey = tuple[int, int, int]
"""(first layer, last layer inclusive, index into `StageCosts.submeshes`)."""


@dataclass(frozen=True, kw_only=True)
class StageCosts:
    """All candidates. Evaluating them at another number of microbatches needs no new solve."""

    num_layers: int
    submeshes: tuple[Submesh, ...]
    device_memory_bytes: int
    num_microbatches: int = 0
    """B for which the stages were priced; 0 where it is not known."""
    candidates: Mapping[RangeKey, tuple[StageCandidate, ...]] = field(hash=False)
    bounds: Mapping[RangeKey, Mapping[int, float]] = field(default_factory=dict, hash=False)
    """For stages whose fastest candidate that fits is not proven optimal: microbatches held -> lower bound on the
    seconds of every choice that fits, at the requested B."""
    layer_flops: tuple[int, ...] = ()
    """Forward FLOPs of each layer."""
    received_bytes: Mapping[tuple[int, int], float] = field(default_factory=dict, hash=False)
    """(first, last layer) -> bytes that such a stage receives from other stages for a microbatch: activations from
    earlier ones, gradients from later ones. Empty where not known."""
    versions: tuple[Recomputation, ...] = (Recomputation(),)
    """For each version of the stages what is recomputed."""
    tied_weights: tuple[tuple[tuple[int, ...], float], ...] = ()
    """(layers that read it, bytes of its gradient) of every weight that several layers read."""
    memory_of_kinds: tuple[int, ...] = ()
    """Of a cluster of unlike nodes: the bytes of one device of each kind, the first of them `device_memory_bytes`."""
    copies: int = 1
    """Copies of the model of which a device runs a stage: the bytes of weights, and the seconds paid once an iteration,
    are those of all copies."""
    complete: bool = True
    """False where only the stages that the best pipeline at one B needs have candidates (`search.profile_wanted`)."""
    turns: Mapping[tuple[int, int], tuple[tuple[int, int], ...]] = field(default_factory=dict, hash=False)
    """Of a pipeline whose stages are given and run interleaved: the layers of each stage, in order -> those of each of
    its turns."""
    screened: Mapping[RangeKey, tuple[Screened, ...]] = field(default_factory=dict, hash=False)
    """What bounds the choices of stages that were not searched to the end, on some logical mesh or in some version,
    because lower bounds exclude them from the best pipeline at the requested B. The candidates of such a stage are
    none, or lack choices that use less memory."""

    def of_depth(self, *, alone: bool) -> StageCosts:
        """The costs of pipelines of one stage (`alone`), or of several."""
        whole = 0, self.num_layers - 1
        candidates = {cell: of_cell for cell, of_cell in self.candidates.items() if (cell[:2] == whole) == alone}
        bounds = {cell: of_cell for cell, of_cell in self.bounds.items() if (cell[:2] == whole) == alone}
        return replace(self, candidates=candidates, bounds=bounds)

    @property
    def recomputes(self) -> bool:
        """Whether some version recomputes."""
        return any(version.recomputes for version in self.versions)

    def memory_of(self, mesh: Submesh | LogicalMesh) -> int:
        """Memory of one device of a mesh, in bytes: of unlike nodes, of one of its kind."""
        return self.memory_of_kinds[mesh.kind] if self.memory_of_kinds else self.device_memory_bytes

    def held_beside(self, place: int, in_turns: Sequence[float]) -> float:
        """The microbatches of a stage, at a place from the end of the pipeline of `turns`, that have the bytes which
        its turns hold with so many each."""
        stage, parts = list(self.turns.items())[-place]
        whole, *own = (self.candidates[*layers, 0][0].activation_bytes for layers in (stage, *parts))
        return sum(count * held for count, held in zip(in_turns, own, strict=True)) / whole

    def choose(self, key: RangeKey, held: float, num_microbatches: int) -> StageCandidate | None:
        """The fastest candidate that fits with `held` microbatches held; None when none fits."""
        fitting = [c for c in self.candidates.get(key, ()) if c.peak_bytes(held) <= self.memory_of(c.logical_mesh)]
        return min(fitting, key=lambda c: c.latency_seconds(num_microbatches), default=None)

    def latency_table(self, num_microbatches: int, held: Sequence[float] | None = None) -> Floats:
        """Seconds, shape [L, L + 1, submeshes, L]: layers k..i-1, submesh, place from the end minus 1; inf where no
        candidate fits.

        `held` are the microbatches that each place holds, the last stage first; the default is min(place, B). This is
        t_intra(range, submesh, s) of the paper with its Eq. 5 applied (Alpa, arXiv 2201.12023, §5.2).
        """
        size = self.num_layers
        table = np.full((size, size + 1, len(self.submeshes), size), np.inf)
        places = np.minimum(np.arange(1, size + 1), num_microbatches) if held is None else np.array(held)
        cells, begins, (microbatch, iteration, *_) = self._columns
        if not len(cells):
            return table
        seconds = microbatch + iteration / num_microbatches
        by_count = {
            count: np.minimum.reduceat(np.where(self._fits(count), seconds, np.inf), begins)
            for count in set(places.tolist())
        }
        first, last, submesh = cells.T
        table[first, last + 1, submesh] = np.stack([by_count[count] for count in places.tolist()], axis=1)
        return table

    def _fits(self, held: float) -> Flags:
        """For each candidate whether it fits with so many microbatches held; cached, as it is the same at every B."""
        if held not in self._fitting:
            _, _, (_, _, weight, activation, workspace) = self._columns
            self._fitting[held] = weight + held * activation + workspace <= self._memory
        return self._fitting[held]

    @cached_property
    def _memory(self) -> int | Ints:
        """Of each candidate's device, where they differ."""
        if not self.memory_of_kinds:
            return self.device_memory_bytes
        return np.array([self.memory_of(c.logical_mesh) for of_cell in self.candidates.values() for c in of_cell])

    @cached_property
    def _fitting(self) -> dict[float, Flags]:
        return {}

    @cached_property
    def _columns(self) -> tuple[Ints, Ints, Floats]:
        """Keys of the cells that have candidates [cells, 3], the index of the first candidate of each, and the figures
        of all candidates [5, candidates]; the same at every B."""
        keys = [key for key, candidates in self.candidates.items() if candidates]
        counts = [len(self.candidates[key]) for key in keys]
        figures = [
            (c.paced_seconds, c.iteration_seconds, c.weight_bytes, c.activation_bytes, c.workspace_bytes)
            for key in keys
            for c in self.candidates[key]
        ]
        return (
            np.array(keys, dtype=np.int64).reshape(-1, 3),
            np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)[:-1],
            np.array(figures, dtype=np.float64).reshape(-1, 5).T,
        )

    @cached_property
    def _bound_columns(self) -> tuple[Ints, dict[int, int], Floats]:
        """Keys of the cells that have bounds [3, cells], microbatches held -> column, and the bounds [cells, columns],
        the last of them inf."""
        counts = sorted({held for bound in self.bounds.values() for held in bound})
        rows = [[*map(bound.get, counts, [math.inf] * len(counts)), math.inf] for bound in self.bounds.values()]
        return np.array(list(self.bounds)).T, {held: n for n, held in enumerate(counts)}, np.array(rows)

    def bound_table(self, num_microbatches: int, held: Sequence[float] | None = None) -> Floats:
        """`latency_table` with lower bounds where the candidate is not proven optimal: at the requested B no pipeline
        is faster than the best one by this table. Where a part of a microbatch is held, the bound is that with the
        whole of it: what fits is sought beside whole ones."""
        table = self.latency_table(num_microbatches, held)
        places = [min(s, num_microbatches) for s in range(1, self.num_layers + 1)] if held is None else held
        if self.bounds:
            (first, last, submesh), column, seconds = self._bound_columns
            bounds = seconds[:, [column.get(math.ceil(held), -1) for held in places]]
            table[first, last + 1, submesh] = np.minimum(table[first, last + 1, submesh], bounds)
        if self.screened:
            rows = [(*cell, bound) for cell, of_cell in self.screened.items() for bound in of_cell]
            first, last, submesh = np.array([row[:3] for row in rows]).T
            seconds = np.array([bound.at(1.0 / num_microbatches) for *_, bound in rows])
            most = np.array([bound.most_held for *_, bound in rows])
            bounds = np.where(np.floor(places) <= most[:, None], seconds[:, None], np.inf)
            np.minimum.at(table, (first, last + 1, submesh), bounds)
        return table
