"""Software: how a framework runs a model on a device. The figures of a profile hold for every model and layout.

A profile is a JSON file in `software_profiles/`, with the source of its figures; a few of them were fitted to
measured runs (`alpa-explore validation`). "alpa" is the paper's idealised setting: nothing is fused, the host is never
the limit, nothing overlaps, and no memory is kept back.
"""

from dataclasses import dataclass
from numbers import Real

from alpa_explore.cluster.precisions import LOW_PRECISIONS, RECIPES
from alpa_explore.errors import ClusterError, nearest_names

_SHARES = ("tensor_overlap", "send_overlap", "expert_overlap", "network_share", "send_share")
_TEXTS = (
    *("name", "label", "source", "gradient_sync", "update", "states", "context_factors", "low_precision"),
    "schedules",
)
SYNCS = ("exposed", "overlapped")
UPDATES = ("plain", "foreach", "fused")
STATES = ("float32", "bfloat16", "8-bit")


@dataclass(frozen=True, slots=True, kw_only=True)
class Software:
    """A framework: what it fuses and overlaps, its host time, its precision policy, its memory reserve."""

    name: str = "alpa"
    label: str = "Alpa's idealised setting"
    """Shown to users: 'Megatron-Core', 'eager PyTorch'."""
    source: str = ""

    plain_loop: bool = False
    """Whether it is a loop in plain PyTorch, which holds what autograd saves and what the model returns; attention and
    routed experts run as PyTorch has them (`cost.plain_kernels`)."""
    fuses_pointwise: bool = False
    """Whether pointwise operators and reductions run as fused kernels: tensors inside a group are never stored."""
    traffic_factor: float = 1.0
    """Memory traffic of its pointwise kernels relative to that of the captured graph, dropout and copies included."""
    grouped_factor: float = 1.0
    """Rate of its grouped products (experts) over that of the device."""
    attention_factor: float = 1.0
    """Rate of its fused attention relative to that of the device's figures."""
    attention_keys: float = 0.0
    """Keys at which its fused attention reaches half of that rate, counted in whole blocks of queries and keys; 0: as
    the device's figures have it."""
    attention_head_exponent: float = 0.0
    """Its rate falls like (head / 128)^exponent for smaller heads; for software with `attention_keys`."""

    pace_sharpness: float = 5.0
    """Exponent of the soft maximum of host and device time: how little they wait for each other."""
    forward_launch_seconds: float = 0.0
    """Host time to launch one kernel of the forward pass: Python, dispatcher, autograd bookkeeping."""
    backward_launch_seconds: float = 0.0
    """The same in the backward pass, which the autograd engine runs without Python."""
    collective_launch_seconds: float = 0.0
    """Host time to launch one collective."""
    rank_launch_seconds: float = 0.0
    """Further host time of a tensor-parallel collective for each of its ranks, where a pipeline spans several nodes: a
    fault of one version of nanotron."""
    spread_rank_seconds: float = 0.0
    """Further host time of a tensor-parallel collective for each of its ranks, where they lie on several nodes."""
    softmax_heads: int = 0
    """The fused softmax of spelled-out attention needs a multiple of so many (sample, head) pairs; 0: any number."""
    microbatch_seconds: float = 0.0
    """Time of a microbatch that is neither of its kernels nor of their launches: schedule, data, synchronisation."""
    iteration_seconds: float = 0.0
    """The same for an iteration: gradient norm, logging, Python of the optimizer."""
    straggler_share: float = 0.0
    """Growth of the time for every doubling of the nodes: the slowest of many decides."""
    shared_node_share: float = 0.0
    """Further growth for every doubling of a stage's nodes where several tensor-parallel groups share a node."""

    network_share: float = 1.0
    """Share of a node's network that collectives reach."""
    network_decline: float = 0.0
    """Exponent by which that falls with the number of nodes beyond two."""
    send_share: float = 1.0
    """Share of a device's part of the network that a send between stages reaches."""
    send_seconds: float = 0.0
    """Start of a send between stages."""
    wait_seconds: float = 0.0
    """For every doubling of its ranks, how long a collective waits for the last of them."""
    hop_seconds: float = 0.0
    """A step of a collective from one node to the next."""

    tensor_overlap: float = 0.0
    """Share of gathers and reduce-scatters beside a matrix product that runs behind it."""
    expert_overlap: float = 0.0
    """Share of the all-to-alls of experts that runs beside other work."""
    expert_host_seconds: float = 0.0
    """Host time of a layer of experts in a pass, beside the launches of its kernels: it waits for the numbers of rows,
    and runs a loop over experts."""
    expert_rack_host_seconds: float = 0.0
    """The same where a rack is one NVLink domain: there it dispatches rows on the device and launches graphs."""
    gathers_rows: bool = False
    """Whether a row that goes to several experts of a node crosses the network once (DeepEP, HybridEP)."""
    joins_projections: bool = False
    """Whether projections of one input are one product: queries, keys and values; gate and up (Megatron-LM)."""
    low_precision: str = ""
    """In which linear layers and experts compute, of `precisions.RECIPES`; empty: in the dtype of their tensors.
    Attention, routers, norms and the embedding keep theirs."""
    lowers_head: bool = False
    """Whether the head computes in it, too."""
    gradient_sync: str = "exposed"
    """'exposed': after the last backward pass; 'overlapped': beside it, and the gathering of weights beside the first
    forward pass, as far as these are long enough."""
    sync_bytes: int = 0
    """Bytes of an element in gradient sums; 0: the dtype of the weight."""
    bucket_bytes: int = 0
    """Bytes of a device of which one collective gathers the weights, or sums the gradients, once an iteration; what is
    exchanged in every microbatch (ZeRO-2 and 3, FSDP) goes block by block. 0: each tensor has its own."""
    contention: float = 0.0
    """Seconds that the device loses for every second of communication beside computation."""
    send_overlap: float = 0.0
    """Share of the sends of an interleaved schedule that runs beside computation."""
    sequence_parallel: bool = False
    """Whether norms and residuals between tensor-parallel operators are divided along the sequence (Megatron)."""
    context_positions: int = 0
    """Length of the sequence from which on attention may be divided over it, with exchanges inside (context
    parallelism); 0: never, as in the paper."""
    context_factors: str = ""
    """How, as names of `sharding.rules.attention.CONTEXT` with spaces between; empty: in all ways."""

    schedules: str = ""
    """Schedules of a pipeline that it runs, as names of `inter_op.schedule_terms.SCHEDULES` with spaces between; empty:
    not said, and those that are compared are 1F1B alone, as in the paper."""

    recomputes_whole: bool = False
    """Whether a block that is recomputed runs again to its end; else up to the last tensor that its backward pass
    needs."""
    shards_optimizer: bool = False
    """Whether data-parallel replicas divide optimizer state and update by default (ZeRO-1)."""

    update: str = "fused"
    """How an optimizer step runs, by torch's words: 'plain' (kernels of each weight), 'foreach' (each kernel on all
    weights) or 'fused' (one kernel)."""
    states: str = "float32"
    """What an optimizer keeps: 'float32' (moments, and a master copy of weights of 16 bits), 'bfloat16' (moments in the
    dtype of the weights, no master copy, as torch's optimizers have it), '8-bit' (moments of a byte, no master copy).
    Time and memory alone depend on it, never what `launch` computes."""
    gradient_bytes: int = 0
    """Bytes of an element of an accumulated gradient beside bfloat16 weights; 0, and beside float16: those of the
    weight."""
    accumulate_bytes: float = 0.0
    """Bytes that adding a gradient to the accumulated one moves, for each parameter and microbatch."""
    accumulate_in_product: bool = False
    """Whether the product that makes a gradient adds it to the accumulated one (Megatron's fused accumulation)."""
    buffer_bytes: float = 0.0
    """Bytes for each parameter of a device beside weights, gradients and optimizer: buckets of collectives, copies."""
    sync_buffer_bytes: float = 0.0
    """The same while gradients are summed and weights updated, when no activations are held."""
    boundary_buffers: float = 0.0
    """Copies of a stage's boundary activation that a pipeline keeps for each microbatch it holds."""
    keeps_last_loss: bool = False
    """Whether what the loss of the last microbatch holds is freed only after that of the next is made."""
    reserve_bytes: int = 0
    """Memory that no plan is offered: context of the driver, communication buffers, workspaces of libraries."""
    fragmentation: float = 0.0
    """Share of the memory that the allocator loses to fragmentation, on top of the reserve."""

    def __post_init__(self) -> None:
        for name in self.__dataclass_fields__:
            value = getattr(self, name)
            if name in _TEXTS:
                continue
            if not (isinstance(value, bool | Real) and 0 <= float(value) < float("inf")):
                raise ClusterError(
                    f"{name} of a software profile must be a number of 0 or more",
                    found=f"{name}={value!r}",
                    remedy="Give seconds or bytes; an overlap is a share.",
                )
        if self.low_precision and self.low_precision not in RECIPES:
            raise ClusterError(
                "Unknown low_precision of a software profile",
                found=repr(self.low_precision),
                remedy=nearest_names(str(self.low_precision), LOW_PRECISIONS),
            )
        for name, known in (("gradient_sync", SYNCS), ("update", UPDATES), ("states", STATES)):
            if getattr(self, name) not in known:
                raise ClusterError(
                    f"Unknown {name} of a software profile",
                    found=repr(getattr(self, name)),
                    remedy=f"Give one of {', '.join(known)}.",
                )
        for name in (*_SHARES, "fragmentation"):
            if getattr(self, name) > 1:
                raise ClusterError(
                    f"{name} of a software profile must be a share between 0 and 1",
                    found=f"{name}={getattr(self, name)}",
                    remedy="Give 0 for none, up to 1 for all.",
                )

    @property
    def ideal_links(self) -> bool:
        """Whether collectives are rings at the bandwidth of their links, as in the paper."""
        return not (self.hop_seconds or self.wait_seconds or self.network_decline) and self.network_share == 1

    @property
    def ideal_sends(self) -> bool:
        """Whether it has no figures for sends between stages, as in the paper."""
        return not self.send_seconds and self.send_share == 1

    @property
    def gathered_blocks(self) -> int:
        """Blocks whose gathered weights a device holds at once, where weights are stored in shards: of one that
        computes and, where exchanges overlap, of the next. The paper counts none."""
        return 0 if self.ideal_sends else 2 if self.gradient_sync == "overlapped" else 1

    @property
    def step(self) -> str:
        """How an optimizer step runs: 'fused', 'foreach bfloat16'."""
        return self.update if self.states == "float32" else f"{self.update} {self.states}"

    def runs(self, schedule: str) -> bool:
        """Whether it runs this schedule, as far as its profile says."""
        return not self.schedules or schedule in self.schedules.split()

    def gradient_element_bytes(self, dtype: str, own_bytes: int) -> int:
        """Bytes of an element of the accumulated gradient of a weight of this dtype, itself of `own_bytes`."""
        return self.gradient_bytes if self.gradient_bytes and dtype == "bfloat16" else own_bytes

    def reserved_bytes(self, memory_bytes: float) -> float:
        """Bytes of a device with so much memory that a plan cannot use."""
        return self.reserve_bytes + self.fragmentation * memory_bytes
