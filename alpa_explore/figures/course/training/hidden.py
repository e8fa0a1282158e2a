"""What data parallelism sends, beside what it computes: blocks of Llama-3-8B, and a stream for each of both.

DDP   the gradients of a block are summed over all devices as soon as its backward pass is done
FSDP  the weights of the next block are gathered while this one computes, forward and backward; gradients are scattered
HSDP  the same inside each node; the shards of gradients are then summed over the nodes
"""

from dataclasses import dataclass

from alpa_explore import units
from alpa_explore.cluster import Cluster
from alpa_explore.cluster.group import device_group
from alpa_explore.cost.group_collectives import group_seconds
from alpa_explore.figures.course.interactive import Control, with_controls
from alpa_explore.figures.course.training.block import SUMS, block_times
from alpa_explore.figures.marks import axis, bars_across
from alpa_explore.figures.style import OKABE_ITO, Drawing
from alpa_explore.models.catalog import llama
from alpa_explore.sharding.reshard import StepKind

MODES = ("DDP", "FSDP", "HSDP")
PLACES = {"8 in a node": "1x8:h100", "64 on 8 nodes": "8x8:h100"}
"""The devices that share the samples, and their cluster."""
_LOOKS = {"forward": 0, "backward": 1, "gather": 2, "scatter": 3, "sum": 4}
"""Kind of a task -> its colour."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockSeconds:
    """Of one block, for one microbatch; a collective that a mode does not have takes none."""

    forward: float
    backward: float
    gather: float = 0.0
    """Of the weights, before each pass."""
    scatter: float = 0.0
    """Of the gradients."""
    sum: float = 0.0
    """Of gradients over replicas."""

    @property
    def computing(self) -> float:
        """Of both passes."""
        return self.forward + self.backward


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What a stream does for a block."""

    kind: str
    block: int
    start: float
    end: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlap:
    """A step of some blocks: its tasks, and its seconds."""

    tasks: tuple[Task, ...]
    seconds: float
    exposed_seconds: float
    """In which the device waits for what is sent."""


def block_seconds(mode: str, place: str, tokens: int) -> BlockSeconds:
    """By the kernels and collectives of the cost model; weights and gradients in bfloat16."""
    cluster, times = Cluster.parse(PLACES[place]), block_times(1, SUMS[0], tokens)
    attention = times.attention_seconds * 2 / 7  # two products of seven are forward
    forward = times.products_seconds / 3 + attention
    config = llama("llama-3-8b")
    weights = 2.0 * (config.with_periods(2).parameter_count - config.with_periods(1).parameter_count)
    everyone, node = (device_group(cluster, count, 1) for count in (cluster.devices, cluster.devices_per_node))
    both = {"forward": forward, "backward": times.seconds - forward}
    if mode == "DDP":
        return BlockSeconds(**both, sum=group_seconds(StepKind.ALL_REDUCE, weights, everyone))
    group = everyone if mode == "FSDP" else node
    halves = [group_seconds(kind, weights, group) for kind in (StepKind.ALL_GATHER, StepKind.REDUCE_SCATTER)]
    across = 0.0
    if mode == "HSDP" and cluster.nodes > 1:
        replicas = device_group(cluster, cluster.nodes, cluster.devices_per_node)
        across = group_seconds(StepKind.ALL_REDUCE, weights / cluster.devices_per_node, replicas)
    return BlockSeconds(**both, gather=halves[0], scatter=halves[1], sum=across)


def overlap(blocks: int, each: BlockSeconds) -> Overlap:
    """A step of equal blocks: weights are gathered one block ahead; sums over replicas have a network of their own."""
    tasks: list[Task] = []
    free = {"computing": 0.0, "sending": 0.0, "summing": 0.0}

    def run(stream: str, kind: str, block: int, earliest: float) -> Task:
        start = max(free[stream], earliest)
        free[stream] = start + getattr(each, kind)
        tasks.append(Task(kind=kind, block=block, start=start, end=free[stream]))
        return tasks[-1]

    gathered, order = run("sending", "gather", 0, 0.0), list(range(blocks))
    passes = [*(("forward", block) for block in order), *(("backward", block) for block in reversed(order))]
    for (kind, block), (_, following) in zip(passes, [*passes[1:], ("", -1)], strict=True):
        computed = run("computing", kind, block, gathered.end)
        if following >= 0 and following != block:  # the last block is still whole when its backward pass begins
            gathered = run("sending", "gather", following, computed.start)
        if kind == "backward":
            scattered = run("sending", "scatter", block, computed.end)
            run("summing", "sum", block, scattered.end)
    seconds = max(free.values())
    return Overlap(tasks=tuple(tasks), seconds=seconds, exposed_seconds=seconds - blocks * each.computing)


@with_controls(
    "What is computed and what is sent, on two rows over time",
    Control("mode", "Samples shared by", MODES, "FSDP"),
    Control("place", "Devices", tuple(PLACES), "8 in a node"),
    Control("tokens", "Tokens of a device", (512, 1024, 2048, 4096, 8192), 1024),
)
def overlap_figure(mode: str, place: str, tokens: int, *, blocks: int = 16) -> Drawing:
    """Both streams over time."""
    each = block_seconds(mode, place, tokens)
    found = overlap(blocks, each)
    rows = {kind: ("computing" if kind in ("forward", "backward") else "sending") for kind in _LOOKS}
    traces = []
    for kind, place_of in _LOOKS.items():
        tasks = [task for task in found.tasks if task.kind == kind and task.end > task.start]
        lengths, bases = [1e3 * (task.end - task.start) for task in tasks], [1e3 * task.start for task in tasks]
        hover = [f"{kind} of block {task.block}: {units.seconds(task.end - task.start)}" for task in tasks]
        looks = {"base": bases, "name": kind, "hover": hover, "width": 0.8}
        if getattr(each, kind):
            traces.append(bars_across(lengths, [rows[kind]] * len(tasks), OKABE_ITO[place_of], **looks))
    return Drawing(
        traces,
        f"{mode}, {place}, {tokens:,} tokens on each: {blocks} blocks take {units.seconds(found.seconds)}, "
        f"of which the device waits {units.percent(found.exposed_seconds / found.seconds)}",
        height=320,
        barmode="overlay",
        xaxis=axis("ms", rangemode="tozero"),
        yaxis=axis(type="category", categoryarray=["sending", "computing"], categoryorder="array"),
    )
