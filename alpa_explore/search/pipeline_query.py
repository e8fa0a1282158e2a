"""The pipeline that the search looks for, and its calls of the pipeline DP."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from alpa_explore.cluster import Cluster, Submesh, submeshes
from alpa_explore.cost.collectives import with_mirrors
from alpa_explore.inter_op.options import PipelineOptions, compared
from alpa_explore.inter_op.result import PipelineResult, Stage
from alpa_explore.inter_op.schedule_terms import SIMULATED_AS
from alpa_explore.inter_op.stage_table import best_pipeline
from alpa_explore.pricing.stage_costs import RangeKey, StageCosts
from alpa_explore.schedules.catalog import layers_in_turns, submeshes_in_turn
from alpa_explore.search.tuning import BELOW_THE_OBJECTIVE

HeldStage = tuple[RangeKey, int]
"""((first layer, last layer, submesh), microbatches that the stage holds)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineQuery:
    """What the best pipeline is sought for: a cluster, pipeline options, a number of microbatches B."""

    cluster: Cluster
    """With mirrored devices where the schedule runs two copies of the model."""
    options: PipelineOptions
    num_microbatches: int

    def __post_init__(self) -> None:
        if self.copies > 1 and self.cluster.device.mirror is None:
            object.__setattr__(self, "cluster", with_mirrors(self.cluster))

    @property
    def copies(self) -> int:
        """Copies of the model that the schedule runs."""
        return self.options.terms(self.num_microbatches).copies

    @property
    def least_share(self) -> float:
        """What share of what is minimised an iteration takes at least."""
        in_turns = self.options.terms(1).turns > 1 and not self.options.paper
        return 1.0 - BELOW_THE_OBJECTIVE if in_turns else 1.0

    @property
    def submeshes(self) -> tuple[Submesh, ...]:
        """The submeshes that a stage may have."""
        return submeshes(self.cluster, self.options.submesh_space)

    @property
    def without_constraints(self) -> PipelineQuery:
        """The query without what constrains the stages."""
        free = replace(self.options, cuts=(), num_stages=None, stage_submeshes=(), imbalance_tolerance=None)
        return replace(self, options=free)

    def held_at(self, place: int, depth: int) -> int:
        """Microbatches that the stage at `place` from the end holds in a pipeline of `depth` stages, rounded up: what
        fits is sought beside whole ones."""
        return math.ceil(self.options.terms(self.num_microbatches).held(place, depth))

    def each(self, layers: int) -> tuple[PipelineQuery, ...]:
        """The query under each schedule that is compared, 1F1B first."""
        asked = compared(self.options, self.cluster, layers, self.num_microbatches)
        return tuple(replace(self, options=options) for options in asked)

    def held_counts(self, layers: int) -> list[int]:
        """Every number of microbatches that a stage can hold in a pipeline of so many layers, rounded up, ascending."""
        return sorted(set(map(math.ceil, self._held(layers))))

    def holds_parts(self, layers: int) -> bool:
        """Whether a stage can hold a part of a microbatch."""
        return any(held % 1 for held in self._held(layers))

    def _held(self, layers: int) -> set[float]:
        held = set[float]()
        for query in self.each(layers):
            terms, most = query.options.terms(query.num_microbatches), layers // query.options.terms(1).turns
            held |= {terms.held(place, depth) for depth in range(1, most + 1) for place in range(1, depth + 1)}
        return held

    def most_held(self, first: int, last: int, layers: int) -> int:
        """The most microbatches that layers first..last of so many can hold as a stage."""
        most = 0
        for query in self.each(layers):
            turns = query.options.terms(1).turns  # the layers that every other stage has at least
            before, after = first // turns, (layers - 1 - last) // turns
            most = max(most, query.held_at(after + 1, before + 1 + after))
        return most

    def in_turns(self, stages: Sequence[Stage]) -> list[RangeKey]:
        """The layers that each submesh of a pipeline runs in each of its turns; none where it is one stage."""
        schedule, turns = self.options.schedule, self.options.terms(1).turns
        if len(stages) == 1:
            return []
        order = submeshes_in_turn(SIMULATED_AS.get(schedule, schedule), len(stages), turns)
        layers = layers_in_turns([end - first for first, end, _ in stages], order)
        ends = list(accumulate(layers))
        return [(end - n, end - 1, stages[p][2]) for end, n, p in zip(ends, layers, order, strict=True)]

    def best(self, costs: StageCosts) -> PipelineResult:
        """The best pipeline by the costs of the candidates."""
        return best_pipeline(costs, self.cluster, self.options, self.num_microbatches)

    def best_of_each(self, costs: StageCosts) -> list[tuple[PipelineOptions, PipelineResult | None]]:
        """For each schedule that is compared the best pipeline; None where none fits."""
        found = [(query.options, query.best(costs)) for query in self.each(costs.num_layers)]
        return [(options, pipeline if pipeline.feasible else None) for options, pipeline in found]

    def bound(self, costs: StageCosts) -> float:
        """Seconds that every pipeline takes: those of the best one by `StageCosts.bound_table`, with sends that hide
        entirely."""
        free = self.options if self.options.paper else replace(self.options, communication=False)
        return best_pipeline(costs, self.cluster, free, self.num_microbatches, bound=True).total_seconds

    def of_depths(self, layers: int) -> list[tuple[PipelineQuery, bool]]:
        """(query, whether a pipeline is one stage) of all pipelines under the schedules that are compared. One stage is
        the same under every schedule, and 1F1B holds least."""
        each = self.each(layers)
        return [(each[0], True), *((query, False) for query in each)]

    def least_seconds(self, costs: StageCosts, *, alone: bool) -> float:
        """T of every pipeline of one stage (`alone`), or of several, at least. That of one stage is Eq. 2. Of several
        that are unlike T may be less: the slowest one runs forward passes while it waits for the first gradients. It
        has to run for all B microbatches, so with P stages T is no less than B / (B + P − 1) of Eq. 2; where that says
        less, the share is taken to be that of `BELOW_THE_OBJECTIVE`."""
        most, b = min(costs.num_layers, self.cluster.devices), self.num_microbatches
        share = max(1.0 - BELOW_THE_OBJECTIVE, b / (b + most - 1))
        exact = alone or self.options.paper
        return (1.0 if exact else min(share, self.least_share)) * self.bound(costs.of_depth(alone=alone))

    def gap(self, costs: StageCosts) -> float:
        """By what share, at most, the best pipeline that is known is slower than the best one, under whichever of the
        schedules that are compared; inf where none is known though one may fit, 0 where none fits by the bounds."""
        known = least = math.inf
        for query in self.each(costs.num_layers):
            known = min(known, query.best(costs).total_seconds)
            asked = costs, self.cluster, query.options, self.num_microbatches
            least = min(least, best_pipeline(*asked, bound=True).total_seconds)
        return known / least - 1.0 if least < math.inf else 0.0

    def best_stages(self, costs: StageCosts) -> list[HeldStage]:
        """The stages of the best pipeline by `StageCosts.bound_table`; none where no pipeline is feasible."""
        return [(cell, math.ceil(held)) for cell, held in self._best_by_bounds(costs)]

    def open_stages(self, costs: StageCosts) -> list[HeldStage]:
        """Those of `best_stages` that may have a choice that is faster than their candidates."""
        b = self.num_microbatches
        found = []
        for cell, held in self._best_by_bounds(costs):
            bound = costs.bounds.get(cell, {}).get(math.ceil(held), math.inf)
            known = costs.choose(cell, held, b)
            if bound < (math.inf if known is None else known.latency_seconds(b)):
                found.append((cell, math.ceil(held)))
        return found

    def _best_by_bounds(self, costs: StageCosts) -> list[tuple[RangeKey, float]]:
        """The stages of the best pipeline by `StageCosts.bound_table`, and what each holds."""
        stages = best_pipeline(costs, self.cluster, self.options, self.num_microbatches, bound=True).stages
        terms = self.options.terms(self.num_microbatches)
        places = range(len(stages), 0, -1)
        return [
            ((first, end - 1, submesh), terms.held(place, len(stages)))
            for place, (first, end, submesh) in zip(places, stages, strict=True)
        ]
