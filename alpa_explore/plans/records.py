"""The parts of a plan as records: options, model, layers, stages, operators, predicted figures."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from alpa_explore.cost.stage import StageBytes
from alpa_explore.inter_op.options import AUTO, PipelineOptions
from alpa_explore.inter_op.schedule_terms import SCHEDULES
from alpa_explore.sharding.spec_constraint import SpecConstraint


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOptions:
    """The settings that a plan was made with."""

    num_microbatches: int
    delta: float
    num_layers: int
    solver: str
    boundaries: tuple[str, ...] = ()
    """Layer boundaries set by hand; empty when clustered."""
    pipeline: PipelineOptions = field(default_factory=PipelineOptions)
    rematerialization: str = ""
    """What is recomputed, by name; 'auto' where every stage chose; empty where the model decides for all."""
    spec_constraints: tuple[SpecConstraint, ...] = ()
    """Specs that operators or stored weights were pinned to, or forbidden to have."""
    baseline: str = ""
    """Name of the baseline that the plan is, as "megatron (tp 4, dp 2, pp 2)"; empty for a plan of the planner."""

    def __post_init__(self) -> None:
        """A plan has one schedule: 1F1B where none was named, or chosen."""
        if self.pipeline.schedule == AUTO:
            object.__setattr__(self, "pipeline", replace(self.pipeline, schedule=SCHEDULES[0]))


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSummary:
    """What a plan keeps of its model, so that it needs no graph."""

    name: str
    recipe: str | None
    parameters: int
    model_flops: int
    """Forward and backward of one microbatch, recomputation not counted."""
    samples: int
    """In one microbatch."""
    tokens: int
    """In one microbatch."""
    precision: str
    optimizer: str
    rematerialization: bool
    content_key: str
    warnings: tuple[str, ...]
    zigzag: int = 1
    """Devices for which its sequences are in zig-zag order; 1 in a file of version 0.1.0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanLayer:
    """A run of forward operators (see layering)."""

    index: int
    operators: tuple[str, ...]
    """Names of its forward operators, in order."""
    operator_flops: tuple[int, ...]
    operator_cut_bytes: tuple[int, ...]
    """For each of them, the bytes that would cross a cut directly after it."""
    flops: int
    cut_bytes: int
    """C of Eq. 6: bytes produced in this layer and read by forward operators outside it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOperator:
    """An operator with the strategy that was chosen for it."""

    name: str
    op: str
    phase: str
    module: str
    layer: int
    strategy: str
    """Factor that each mesh axis divides; '-' for none."""
    inputs: tuple[str, ...]
    """Spec of each input as this operator reads it."""
    output: str
    """Spec of its (first) output."""
    outputs: tuple[str, ...]
    compute_seconds: float
    """For one microbatch (update operators: one iteration), with the collectives inside the operator (all-to-alls of
    experts, rings of attention) and without resharding."""
    communication_seconds: float
    """Resharding of its inputs."""
    communication: tuple[str, ...]
    """One line for each input that is resharded: 'input 0: RS0 → RR, all-gather axis 0, 8.39 MB'."""
    flops: int
    output_shape: tuple[int, ...]
    measured_seconds: float = 0.0
    """The part of `compute_seconds` that was timed on the device (`Device.measured`)."""
    weight_half: bool = False
    """Whether it is a backward operator that only gradients of weights depend on: no other layer waits for it."""
    recomputed: str = ""
    """The half of the backward pass, 'input' or 'weight', that runs a forward operator again; empty where none does."""
    gradient_bytes: float = 0.0
    """Bytes of the gradient that an update operator reads, on one device."""
    optimizer_bytes: float = 0.0
    """Bytes of the optimizer state of an update operator, on one device."""
    axis_seconds: tuple[float, ...] = ()
    """Seconds of collectives in each microbatch, by mesh axis with more than one device: those inside it and those of
    resharding its inputs (both twice where it is rematerialised), and completing outputs that leave the stage; for an
    update, summing its gradient."""
    stored_seconds: tuple[float, ...] = ()
    """Of gathering stored weights, and of an update of scattering gradients, each time it runs in a microbatch:
    (exposed, hidden behind computing); empty where it does neither, and in a file of version 0.1.0."""
    hidden_seconds: tuple[float, ...] = ()
    """As `axis_seconds`: the seconds of collectives in each microbatch that run behind computing, and of which
    `axis_seconds` has nothing."""
    hidden_once_seconds: float = 0.0
    """Of an update: seconds of its collectives once an iteration that run behind the backward pass."""
    input_names: tuple[str, ...] = ()
    """Names of the tensors it reads, as `inputs`; empty in a file of version 0.1.0, like `input_shapes`."""
    input_shapes: tuple[tuple[int, ...], ...] = ()
    collective_tensors: tuple[str, ...] = ()
    """For each line of `communication` the tensor that moves; empty in a file of 0.1.0, like the next two."""
    collective_kinds: tuple[str, ...] = ()
    """For each line the collectives, as 'all-gather' or 'reduce-scatter, all-gather'."""
    collective_seconds: tuple[float, ...] = ()
    """For each line the seconds that are not hidden behind computing; they add up to `communication_seconds`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanTensor:
    """A tensor that no operator of the stage produces, or that outlives a microbatch, and the spec chosen for it.

    Together with the operators' strategies these are all choices of a stage.
    """

    name: str
    role: str
    """'source': it enters the stage; 'weight': a stored weight; 'accumulator': the sum of a weight's gradients."""
    spec: str
    bytes: int = 0
    """Of the whole tensor; 0 in a file of version 0.1.0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanStage:
    """A run of layers on one submesh."""

    index: int
    layers: tuple[int, int]
    """First and last, inclusive."""
    submesh: tuple[int, int]
    logical_mesh: tuple[int, ...]
    devices: tuple[int, ...]
    """Device d is number d % M of node d // M."""
    latency_seconds: float
    """microbatch_seconds + iteration_seconds / B + receive_seconds."""
    microbatch_seconds: float
    iteration_seconds: float
    weight_bytes: float
    activation_bytes: float
    workspace_bytes: float
    microbatches_held: float
    """The most microbatches whose activations it holds: min(place from the end, B) under 1F1B; interleaved, as many
    whole ones as have the bytes that its turns hold."""
    solution_key: str
    """`StageCandidate.solution_key` of the candidate that was chosen."""
    operators: Sequence[PlanOperator]
    """In execution order: forward, backward, update. Empty after `replan` of a plan that was read from a file, for a
    stage whose strategies the file does not have."""
    rematerialized: tuple[int, ...] = ()
    """Its layers that keep only their inputs and run their forward operators again in the backward pass."""
    recomputation: str = ""
    """The name of what its blocks recompute (`intra_op.stage.recomputation`); empty where layers do, or nothing."""
    receive_seconds: float = 0.0
    """What the objective counts for a microbatch's inputs from other stages; 0 where sends are not counted."""
    tensors: Sequence[PlanTensor] = ()
    """Sources, weights and accumulators."""
    tied_seconds: float = 0.0
    """Once an iteration: summing the gradients of weights that earlier stages read too; 0 unless that is counted."""
    device: str = ""
    """In a cluster of unlike nodes the name of its devices, which are of one kind; '' where all nodes are alike."""

    @property
    def bytes(self) -> StageBytes:
        """What one of its devices holds."""
        return StageBytes(self.weight_bytes, self.microbatches_held * self.activation_bytes, self.workspace_bytes)

    @property
    def activations_held_bytes(self) -> float:
        """Activations of all the microbatches that it holds."""
        return self.bytes.kept

    @property
    def peak_bytes(self) -> float:
        """Memory of one of its devices."""
        return sum(self.bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Predicted:
    """The figures at the top of the screen."""

    iteration_seconds: float
    """T: what an iteration takes (`plans.iteration_time`); Eq. 2 in the paper's mode."""
    t_max_seconds: float
    sum_latency_seconds: float
    bubble_fraction: float
    """Share of the simulated iteration in which the average submesh runs no task; in the paper's mode of that of Eq. 2,
    1 − Σ_i B·t_i / (S·T)."""
    peak_bytes_per_device: float
    """Of the device whose memory is fullest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistics:
    """The effort of planning."""

    solves: int
    distinct_solves: int
    cached_solves: int
    variables: int
    """ILP variables of all distinct problems before simplification."""
    constraints: int
    seconds: tuple[tuple[str, float], ...]
    """(pass, seconds), in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TriedSchedule:
    """The best plan under one of the schedules that were compared. Figures are None where no plan fits in memory."""

    schedule: str
    stages_per_submesh: int
    """Of interleaved-1f1b."""
    iteration_seconds: float | None
    stages: int | None = None
    """Submeshes that take turns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TriedMicrobatches:
    """The best plan at one of the numbers of microbatches tried: with the same global batch, at a B that is not the
    best, that of the stages which a pipeline wants. Figures are None where no plan fits in memory, and where a bound
    shows that no plan is faster than that of another B."""

    num_microbatches: int
    samples: int
    """In one microbatch."""
    iteration_seconds: float | None
    stages: int | None = None
    fullest_stage: int | None = None
    """The stage that has most of its devices' memory in use; the bytes are those of one of its devices."""
    memory_bytes: float | None = None
    """Of such a device; None where no plan fits, and in older files."""
    weight_bytes: float | None = None
    held_bytes: float | None = None
    """Activations of all the microbatches that it holds."""
    workspace_bytes: float | None = None
    over_bytes: float | None = None
    """Where no plan fits: by how much the one that comes closest exceeds a device's memory; by at least so much where
    a bound says so."""
    least_seconds: float | None = None
    """Where no plan was made, because none is faster than that of another B: a lower bound on T, which may be higher
    where the cache has more of the stages."""

    @property
    def samples_per_second(self) -> float:
        """0 where no plan fits."""
        return self.num_microbatches * self.samples / self.iteration_seconds if self.iteration_seconds else 0.0

    @property
    def peak_bytes(self) -> float | None:
        """Memory of the fullest device; None where no plan fits."""
        if self.weight_bytes is None or self.held_bytes is None or self.workspace_bytes is None:
            return None
        return self.weight_bytes + self.held_bytes + self.workspace_bytes
