"""The pipeline that the search looks for, and its calls of the pipeline DP."""

from __future__ import annotations

from dataclasses import dataclass

from alpa_explore.cluster import Cluster, Submesh, submeshes
from alpa_explore.cost.collectives import with_mirrors
from alpa_explore.inter_op.options import PipelineOptions
from alpa_explore.inter_op.result import PipelineResult
from alpa_explore.inter_op.stage_table import best_pipeline
from alpa_explore.pricing.stage_costs import RangeKey, StageCosts

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
    def submeshes(self) -> tuple[Submesh, ...]:
        """The submeshes that a stage may have."""
        return submeshes(self.cluster, self.options.submesh_space)

    def held_at(self, place: int, depth: int) -> int:
        """Microbatches that the stage at `place` from the end holds in a pipeline of `depth` stages."""
        return self.options.terms(self.num_microbatches).held(place, depth)

    def held_counts(self, layers: int) -> list[int]:
        """Every number of microbatches that a stage can hold in a pipeline of up to `layers` stages, ascending."""
        terms = self.options.terms(self.num_microbatches)
        depths = range(1, layers + 1)
        return sorted({terms.held(place, depth) for depth in depths for place in range(1, depth + 1)})

    def best(self, costs: StageCosts) -> PipelineResult:
        """The best pipeline by the costs of the candidates."""
        return best_pipeline(costs, self.cluster, self.options, self.num_microbatches)

    def best_stages(self, costs: StageCosts) -> list[HeldStage]:
        """The stages of the best pipeline by `StageCosts.bound_table`; none where no pipeline is feasible."""
        stages = best_pipeline(costs, self.cluster, self.options, self.num_microbatches, bound=True).stages
        places = range(len(stages), 0, -1)
        return [
            ((first, end - 1, submesh), self.held_at(place, len(stages)))
            for place, (first, end, submesh) in zip(places, stages, strict=True)
        ]
