"""A plan as a frozen value: its choices, its predicted costs, and the figures that follow from both."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Self, TypeVar

from alpa_explore.cluster import Cluster, Device, Submesh
from alpa_explore.errors import PlanFileError
from alpa_explore.inter_op.result import SweepPoint
from alpa_explore.inter_op.schedule_terms import ScheduleTerms
from alpa_explore.plans.records import (
    ModelSummary,
    PlanLayer,
    PlanOptions,
    PlanStage,
    Predicted,
    Statistics,
    TriedMicrobatches,
    TriedSchedule,
)
from alpa_explore.plans.stage_details import StageDetails
from alpa_explore.pricing.stage_costs import RangeKey, StageCandidate, StageCosts

_T = TypeVar("_T")


@dataclass(frozen=True, kw_only=True)
class PlanValue:
    """A complete plan. It keeps the stage costs, so that another B takes only an evaluation and a rerun of the DP."""

    model: ModelSummary
    cluster: Cluster
    options: PlanOptions
    layers: tuple[PlanLayer, ...]
    stages: tuple[PlanStage, ...]
    predicted: Predicted
    t_max_sweep: tuple[SweepPoint, ...]
    statistics: Statistics
    costs: StageCosts = field(repr=False)
    warnings: tuple[str, ...] = ()
    interleaved: tuple[PlanStage, ...] = ()
    """For a plan of an interleaved schedule: the stages that the schedule runs, several on each submesh in turn.
    `stages` then has one entry per submesh with all layers that it runs, as the pipeline DP chose them."""
    microbatches: tuple[TriedMicrobatches, ...] = ()
    """The numbers of microbatches that were tried, where the planner chose the best; this plan has one of them."""
    schedules: tuple[TriedSchedule, ...] = ()
    """The schedules that were compared, where the planner chose the fastest; this plan has one of them."""
    details: StageDetails | None = field(default=None, repr=False, compare=False)
    """The sharding problems and choices behind the stages; None for a plan that was read from a file."""
    basis: Self | None = field(default=None, repr=False, compare=False)
    """Where `costs` is not complete: the plan that was replanned, which has the costs of all stages."""
    memo: dict[object, Any] = field(default_factory=dict, init=False, repr=False, compare=False)
    """What was computed from the other fields and is needed again; a changed plan begins with an empty one."""

    def remembered(self, key: object, make: Callable[[], _T]) -> _T:
        """What `make` gives, computed once for this value."""
        if key not in self.memo:
            self.memo[key] = make()
        found: _T = self.memo[key]
        return found

    def with_memo(self, **changes: Any) -> Self:
        """A plan with changed fields on which nothing of what is remembered depends."""
        changed = replace(self, **changes)
        changed.memo.update(self.memo)
        return changed

    @property
    def terms(self) -> ScheduleTerms:
        """The bubble and the microbatches held under the schedule that the plan was made for."""
        terms = self.options.pipeline.terms(self.options.num_microbatches, recomputes=self.costs.recomputes)
        return replace(terms, num_stages=max(len(self.stages), 1))

    @property
    def tied_seconds(self) -> float:
        """Seconds of an iteration for summing gradients of tied weights between stages."""
        return sum(s.tied_seconds for s in self.stages)

    @property
    def overhead_seconds(self) -> float:
        """Seconds that the software adds to every iteration: gradient norm, logging, Python of the optimizer."""
        return self.cluster.software.iteration_seconds

    @property
    def once_seconds(self) -> float:
        """Seconds of Eq. 2 beside the latencies of the stages."""
        return self.tied_seconds + self.overhead_seconds

    @property
    def samples_per_second(self) -> float:
        """Training samples (sequences, images) per second."""
        return self.model.samples * self.options.num_microbatches / self.predicted.iteration_seconds

    @property
    def tokens_per_second(self) -> float:
        """Tokens per second (equals samples for models without tokens)."""
        return self.model.tokens * self.options.num_microbatches / self.predicted.iteration_seconds

    @property
    def flops_per_second_per_device(self) -> float:
        """Model FLOP/s per device; recomputation is not counted."""
        total = self.model.model_flops * self.options.num_microbatches
        return total / self.predicted.iteration_seconds / self.cluster.devices

    @property
    def peak_flops_per_second(self) -> float:
        """Peak of a device in the model's precision; of unlike devices the mean."""
        peaks = [kind.devices * kind.device.peak(self.model.precision) for kind in self.cluster.kinds]
        return sum(peaks) / self.cluster.devices

    @property
    def flops_utilization(self) -> float:
        """MFU: the share of the peak of a device, of unlike devices of their mean peak."""
        return self.flops_per_second_per_device / self.peak_flops_per_second

    @property
    def global_batch(self) -> int:
        """Samples of one iteration."""
        return self.model.samples * self.options.num_microbatches

    def device_of(self, stage: PlanStage) -> Device:
        """A device of a stage: in a cluster of unlike nodes, of the kind on which the stage runs."""
        return self.cluster.part_of(stage.devices[0]).device

    def representatives(self) -> list[PlanStage]:
        """For each stage the one whose operators stand for its own: the first that is `alike`. To describe a stage for
        the first time takes some 70 ms."""
        first: dict[object, PlanStage] = {}
        return [first.setdefault(self.alike(stage), stage) for stage in self.stages]

    def alike(self, stage: PlanStage) -> object:
        """The same for stages with the same choice in the same problem, and layers alike: what their operators cost is
        the same."""
        layers = self.layers[stage.layers[0] : stage.layers[1] + 1]
        sizes = tuple((len(layer.operators), layer.flops) for layer in layers)
        return stage.solution_key or stage.layers, stage.logical_mesh, sizes

    def submesh_of(self, stage: PlanStage) -> Submesh:
        """The submesh of a stage, with the kind of its nodes."""
        return Submesh(*stage.submesh, self.cluster.kind_of(stage.devices[0]))

    def key_of(self, stage: PlanStage) -> RangeKey:
        """Where `costs` has the candidates of a stage. ValueError where no stage can have its submesh."""
        return (*stage.layers, self.costs.submeshes.index(self.submesh_of(stage)))

    def candidate_of(self, stage: PlanStage) -> StageCandidate:
        """The candidate that was chosen for a stage. PlanFileError where `costs` does not hold it."""
        wanted = (stage.solution_key, stage.logical_mesh, self.cluster.kind_of(stage.devices[0]))
        for candidates in self.costs.candidates.values():
            for candidate in candidates:
                mesh = candidate.logical_mesh
                if (candidate.solution_key, mesh.shape, mesh.kind) == wanted:
                    return candidate
        raise PlanFileError(
            "The choice of a stage is not among the costs of its plan",
            found=f"solution {stage.solution_key}",
            remedy="The file was changed: plan again.",
        )
