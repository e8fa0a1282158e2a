"""A draft: what a random plan consists of, without its graph or figures. Two equal drafts make equal plans."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import TypeAlias

from alpa_explore.inter_op.schedule_terms import ScheduleTerms
from alpa_explore.intra_op.stage.recomputation import Recomputation
from alpa_explore.intra_op.stage.stage_problem import NodeKind
from alpa_explore.schedules.catalog import V_SHAPES, layers_in_turns, submeshes_in_turn
from alpa_explore.sharding.spec import Spec

MeshShape: TypeAlias = tuple[int, ...]
"""A logical mesh without axes of size 1; () for one device."""
Subject: TypeAlias = tuple[NodeKind, int]
"""A node of a sharding problem, whatever the stage is that it falls to: its kind, and its `Node.subject`."""
Picks: TypeAlias = Mapping[Subject, "Pick"]
"""The choices that are not the plainest (`choose.plainness`)."""


@dataclass(frozen=True, slots=True)
class Pick:
    """One choice for a node."""

    specs: tuple[Spec, ...]
    """Those that it reads and writes; of a tensor node, its one spec."""
    factors: tuple[str, ...] = ()
    """What each mesh axis divides, of an operator: a ring and gathered keys have the same specs."""

    def without(self, axis: int) -> Pick:
        """The same on a mesh without this axis."""
        return Pick(
            tuple((*spec[:axis], *spec[axis + 1 :]) for spec in self.specs),
            (*self.factors[:axis], *self.factors[axis + 1 :]),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftSubmesh:
    """A submesh, and the stages that it runs in turn."""

    layers: int
    """How many layers all of its stages have together."""
    meshes: tuple[MeshShape, ...]
    """For each of its stages the logical mesh, of equally many devices; one stage unless interleaved."""

    @property
    def devices(self) -> int:
        """Number of devices."""
        return math.prod(self.meshes[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftStage:
    """One stage that the schedule runs."""

    first: int
    last: int
    """Inclusive."""
    submesh: int
    mesh: MeshShape


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """One random plan."""

    family: str
    cuts: tuple[int, ...]
    """Positions in `graph.forward_operators` at which layers 1, 2, … begin."""
    recomputation: Recomputation
    """What the backward pass computes again."""
    schedule: str
    """One of `inter_op.schedule_terms.SCHEDULES`."""
    num_microbatches: int
    submeshes: tuple[DraftSubmesh, ...]
    unlike: bool = False
    """Whether every second submesh is on nodes of another kind; only where each runs one stage."""
    picks: tuple[Picks, ...] = field(default=(), hash=False)
    """For each stage, in the order of `stages`; () before they are chosen."""

    @property
    def turns(self) -> int:
        """Stages of each submesh."""
        return len(self.submeshes[0].meshes)

    def kind(self, submesh: int) -> int:
        """The kind of nodes of a submesh: 0 or 1."""
        return submesh % 2 if self.unlike else 0

    @property
    def devices(self) -> int:
        """Number of devices."""
        return sum(submesh.devices for submesh in self.submeshes)

    @property
    def stages(self) -> tuple[DraftStage, ...]:
        """The stages, by layers; their cuts are those of `plans.schedule_stages.interleaved_stages`."""
        order = submeshes_in_turn(self.schedule, len(self.submeshes), self.turns)
        counts = layers_in_turns([submesh.layers for submesh in self.submeshes], order)
        places = [(place, self.submeshes[place].meshes[k // len(self.submeshes)]) for k, place in enumerate(order)]
        ends = pairwise([0, *accumulate(counts)])
        return tuple(
            DraftStage(first=first, last=end - 1, submesh=place, mesh=mesh)
            for (first, end), (place, mesh) in zip(ends, places, strict=True)
        )

    @property
    def possible(self) -> bool:
        """Whether the schedule exists for so many submeshes and microbatches, and every stage has a layer."""
        count, b = len(self.submeshes), self.num_microbatches
        exists = {
            "interleaved-1f1b": count > 1 and b % count == 0 and self.turns > 1,
            "zb-h1": count <= b,
            **dict.fromkeys(V_SHAPES, count > 1 and self.turns == 2 and count in self.terms.depths(count)),
        }
        return (
            exists.get(self.schedule, self.turns == 1)
            and (not self.unlike or (self.turns == 1 and count > 1))
            and all(stage.first <= stage.last for stage in self.stages)
            and sum(submesh.layers for submesh in self.submeshes) == len(self.cuts) + 1
        )

    @property
    def terms(self) -> ScheduleTerms:
        """The bubble of the schedule."""
        return ScheduleTerms(
            schedule=self.schedule,
            num_microbatches=self.num_microbatches,
            stages_per_submesh=max(self.turns, 2),
            recomputes=self.recomputation.recomputes,
        )

    @property
    def size(self) -> tuple[int, ...]:
        """What shrinking makes smaller: stages, devices, microbatches, kinds of features, picks, layers."""
        extras = (self.turns > 1) + (self.schedule != "1f1b") + self.recomputation.recomputes + self.unlike
        axes = sum(len(stage.mesh) for stage in self.stages)
        picks = sum(map(len, self.picks))
        return len(self.stages), self.devices, axes, self.num_microbatches, extras, picks, len(self.cuts)

    def __str__(self) -> str:
        stages = " + ".join(
            f"{'x'.join(map(str, s.mesh)) or '1'}[{s.first}–{s.last}]" + (f"@{s.submesh}" if self.turns > 1 else "")
            for s in self.stages
        )
        kinds = ", nodes of two kinds" if self.unlike else ""
        again = f", {self.recomputation.words} recomputed" if self.recomputation.recomputes else ""
        return (
            f"{self.family} on {stages}, {self.schedule}, B = {self.num_microbatches}{kinds}{again},"
            f" {sum(map(len, self.picks))} sharded choices"
        )
