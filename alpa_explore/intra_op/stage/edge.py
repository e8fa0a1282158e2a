"""Edges of a stage problem: seconds to reshard a tensor, for each pair of strategies of the operators at its ends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from alpa_explore.numerics.arrays import Floats, Ints


@dataclass(frozen=True, slots=True, eq=False)
class EdgeMatrix:
    """A figure of each pair of strategies. One of very many pairs is computed for those that are asked for, and not
    kept."""

    shape: tuple[int, int]
    kept: Floats | None
    computed: Callable[[Ints, Ints], Floats] | None = None
    """(strategies of a, strategies of b) -> the figures between them."""

    @classmethod
    def of(cls, matrix: Floats) -> EdgeMatrix:
        """The figures of a matrix."""
        return cls((matrix.shape[0], matrix.shape[1]), matrix)

    @property
    def whole(self) -> Floats:
        """Of all pairs."""
        if self.kept is not None:
            return self.kept
        return self.between(np.arange(self.shape[0]), np.arange(self.shape[1]))

    def between(self, rows: Ints, columns: Ints) -> Floats:
        """Of some strategies of a and some of b."""
        if self.kept is not None:
            return self.kept[rows[:, None], columns[None, :]]
        assert self.computed is not None, "figures are kept or computed"
        return self.computed(rows, columns)

    @property
    def is_zero(self) -> bool:
        """Whether all kept figures are zero."""
        return self.kept is not None and not self.kept.any()

    def pairs(self, rows: Ints, columns: Ints) -> Floats:
        """Of each of some pairs."""
        if self.kept is not None:
            return self.kept[rows, columns]
        return np.array([self.at(int(row), int(column)) for row, column in zip(rows, columns, strict=True)])

    def at(self, row: int, column: int) -> float:
        """Of one pair."""
        if self.kept is not None:
            return float(self.kept[row, column])
        return float(self.between(np.array([row]), np.array([column]))[0, 0])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Edge:
    """Resharding of `tensor` from node a to node b."""

    a: int
    b: int
    tensor: int
    exposed: EdgeMatrix
    """Exposed seconds, of [strategies of a, strategies of b]."""
    source_specs: Ints
    """For each strategy of a the spec that it produces, as a position in the ReshardTable of the tensor."""
    target_specs: Ints
    """For each strategy of b the spec that it reads."""
    times: int
    """How often per microbatch (2 where recomputation reads it again) or per iteration (1)."""
    each_iteration: bool
    stored: bool
    """Whether it is a stored weight, its gradient or its update, which buckets gather and sum."""
    together: float = 0.0
    """Elements that are exchanged at once where it is stored and exchanged in every microbatch: those of a block; 0
    for buckets."""
    launches: EdgeMatrix | None = None
    """Host seconds to launch its collectives in a microbatch, as `exposed`; None where launches take none."""
    whole: EdgeMatrix | None = None
    """Seconds with nothing hidden; None where `exposed` is that."""

    def between(self, a: int, b: int) -> Edge:
        """The edge between nodes of other numbers. Written out: `dataclasses.replace` takes four times as long, and
        composition makes hundreds of thousands of edges."""
        return Edge(
            a=a,
            b=b,
            tensor=self.tensor,
            exposed=self.exposed,
            source_specs=self.source_specs,
            target_specs=self.target_specs,
            times=self.times,
            each_iteration=self.each_iteration,
            stored=self.stored,
            together=self.together,
            launches=self.launches,
            whole=self.whole,
        )

    @property
    def unhidden(self) -> EdgeMatrix:
        """Seconds with nothing hidden."""
        return self.exposed if self.whole is None else self.whole

    @property
    def seconds(self) -> Floats:
        """Exposed seconds, shape [strategies of a, strategies of b]."""
        return self.exposed.whole
