"""Exercises of lessons 15 to 18: a transformer block on eight devices, what is hidden, which layout, FP8."""

from __future__ import annotations

from math import isclose
from random import Random
from typing import NamedTuple

from alpa_explore.cluster import Cluster, Submesh, logical_mesh
from alpa_explore.cluster.precisions import RECIPES
from alpa_explore.cost.collectives import collective_seconds
from alpa_explore.cost.resharding import reshard_table
from alpa_explore.figures.course.training.hidden import BlockSeconds, Overlap, overlap
from alpa_explore.figures.course.training.memory import zero_bytes
from alpa_explore.figures.course.training.schedules import schedule_facts
from alpa_explore.models.catalog import entry, llama
from alpa_explore.models.configs import DecoderConfig
from alpa_explore.sharding.reshard import StepKind
from alpa_explore.sharding.spec import PARTIAL, REPLICATE, Spec


class Heads(NamedTuple):
    """The attention of a model under tensor parallelism."""

    model: str
    degree: int

    @property
    def config(self) -> DecoderConfig:
        """Its sizes."""
        return llama(self.model)

    @property
    def head(self) -> int:
        """Width of a head."""
        return self.config.hidden // self.config.heads

    @property
    def keys(self) -> int:
        """Heads of keys, and as many of values, on a device."""
        return max(self.config.kv_heads // self.degree, 1)


class Sums(NamedTuple):
    """The sums of a block."""

    tokens: int
    hidden: int
    degree: int
    gigabytes_per_second: int
    blocks: int

    @property
    def bytes(self) -> int:
        """Of the activations of a microbatch between the pairs, in bfloat16."""
        return 2 * self.tokens * self.hidden

    @property
    def seconds(self) -> float:
        """Of one all-reduce."""
        return collective_seconds(
            StepKind.ALL_REDUCE, self.bytes, self.degree, 1e9 * self.gigabytes_per_second, _WAIT_SECONDS
        )


class Chain(NamedTuple):
    """Products in a row, and how each is divided."""

    loops: tuple[str, ...]

    @property
    def collectives(self) -> list[str]:
        """What is sent in the forward pass, in order, if both ends are whole on every device."""
        mesh = logical_mesh(Cluster.parse("1x4:h100"), Submesh(1, 4), (1, 4)).squeezed()
        table, spec, sent = reshard_table((4096, 4096), 2 * 4096 * 4096, mesh), _WHOLE, list[str]()
        for reads, writes in [*(_LOOPS[loop] for loop in self.loops), (_WHOLE, _WHOLE)]:
            sent += [step.kind.value for step, _ in table.path(spec, reads) if step.kind is not StepKind.SLICE]
            spec = writes
        return sent


_WAIT_SECONDS = 5e-6
_WHOLE: Spec = (REPLICATE,)
_LOOPS: dict[str, tuple[Spec, Spec]] = {"columns": (_WHOLE, (1,)), "inner": ((1,), (PARTIAL,))}
_MODELS = ("llama-3-8b", "llama-3-70b", "llama-3.2-1b", "llama-3.2-3b", "llama-3.1-405b")


class Machine(NamedTuple):
    """What a device computes and sends in a second."""

    teraflops: int
    percent: int
    """Of the peak that products reach."""
    gigabytes: int

    @property
    def tokens(self) -> float:
        """From which gathering the weights is hidden behind the forward pass."""
        return 1e12 * self.teraflops * self.percent / 100 / (1e9 * self.gigabytes)


class Blocks(NamedTuple):
    """Blocks whose weights are gathered one ahead, in milliseconds."""

    blocks: int
    forward: int
    gather: int

    @property
    def waits(self) -> float:
        """Seconds of the forward pass in which nothing is computed."""
        each = BlockSeconds(forward=1e-3 * self.forward, backward=0.0, gather=1e-3 * self.gather)
        ends = [task.end for task in overlap(self.blocks, each).tasks if task.kind == "forward"]
        return max(ends) - 1e-3 * self.blocks * self.forward


class Accumulated(NamedTuple):
    """Data parallelism with gradients that are summed once in several microbatches, in milliseconds."""

    blocks: int
    microbatches: int
    forward: int
    sum: int

    @property
    def last(self) -> Overlap:
        """The last microbatch: a backward pass takes twice as long as a forward pass."""
        each = BlockSeconds(forward=1e-3 * self.forward, backward=2e-3 * self.forward, sum=1e-3 * self.sum)
        return overlap(self.blocks, each)

    @property
    def busy(self) -> float:
        """Seconds of computing of all microbatches."""
        return 3e-3 * self.forward * self.blocks * self.microbatches

    @property
    def share(self) -> float:
        """Of the time of all microbatches in which the device waits."""
        return self.last.exposed_seconds / (self.busy + self.last.exposed_seconds)

    @property
    def of_last(self) -> float:
        """The same of the last microbatch alone."""
        return self.last.exposed_seconds / self.last.seconds

    @property
    def unhidden(self) -> float:
        """The same if sums hid behind nothing."""
        sums = 1e-3 * self.blocks * self.sum
        return sums / (self.busy + sums)


class Run(NamedTuple):
    """A run with full recomputation."""

    billions: int
    tokens: int
    """Of a device in a second."""
    teraflops: int

    @property
    def mfu(self) -> float:
        """By products alone."""
        return 6e9 * self.billions * self.tokens / (1e12 * self.teraflops)


class Lowered(NamedTuple):
    """A block whose products run in FP8 beside a gather, in milliseconds of the forward pass."""

    products: int
    others: int
    casts: int
    gather: int

    @property
    def computing(self) -> int:
        """In bfloat16."""
        return self.products + self.others

    @property
    def lowered(self) -> float:
        """Computing in FP8, where products take half as long."""
        return self.products / 2 + self.others + self.casts

    @property
    def gain(self) -> float:
        """How many times as fast a block is whose gather hides behind computing, or does not."""
        return max(self.computing, self.gather) / max(self.lowered, self.gather)


class Quantised(NamedTuple):
    """A tensor in a format with a scaling factor of one byte for each block of numbers."""

    recipe: str
    rows: int
    columns: int

    @property
    def block(self) -> int:
        """Numbers with one factor."""
        return {"mxfp8": 32, "nvfp4": 16}[self.recipe]

    @property
    def bits(self) -> int:
        """Of a number."""
        return {"mxfp8": 8, "nvfp4": 4}[self.recipe]

    @property
    def bytes(self) -> float:
        """Of one copy, with its factors, as the cost model counts them."""
        return self.rows * self.columns * RECIPES[self.recipe].written_bytes / 2


def _lowered(random: Random) -> Lowered:
    products, others, casts = 2 * random.randint(6, 15), random.randint(3, 9), random.randint(1, 2)
    least, most = products // 2 + others + casts, products + others
    return Lowered(products, others, casts, random.randint(least + 1, most - 1))


def _accumulated(random: Random) -> Accumulated:
    forward = random.randint(2, 6)
    return Accumulated(
        random.choice((8, 16, 32)), random.choice((1, 2, 4, 8)), forward, 2 * forward + random.randint(1, 9)
    )


def _blocks(random: Random) -> Blocks:
    forward = random.randint(2, 9)
    return Blocks(random.choice((16, 24, 32, 40)), forward, forward + random.randint(1, 6))


def _is_hidden(machine: Machine, times: float) -> bool:
    """Whether the simulator hides all but the first gather, with `times` the tokens that are needed."""
    weights, tokens = 1e9, machine.tokens * times
    forward = 2 * weights * tokens / (1e12 * machine.teraflops * machine.percent / 100)
    each = BlockSeconds(forward=forward, backward=0.0, gather=2 * weights / (1e9 * machine.gigabytes))
    ends = [task.end for task in overlap(8, each).tasks if task.kind == "forward"]
    return isclose(max(ends), each.gather + 8 * forward)


class Fit(NamedTuple):
    """A model on some devices with ZeRO-1, and the room for weights, gradients and optimizer state."""

    model: str
    devices: int
    gibibytes: int

    @property
    def parameters(self) -> int:
        """Of the model."""
        return entry(self.model).parameter_count

    @property
    def room(self) -> int:
        """Bytes of it."""
        return self.gibibytes * 2**30

    def held(self, divided: int) -> float:
        """Bytes on a device, where tensor parallelism and the pipeline divide the weights by `divided`."""
        return sum(zero_bytes(self.parameters / divided, self.devices // divided, 1).values())

    @property
    def least(self) -> int:
        """The least power of two that fits."""
        return next(1 << k for k in range(self.devices.bit_length()) if self.held(1 << k) <= self.room)


class Bubble(NamedTuple):
    """A layout with 1F1B."""

    devices: int
    tensor: int
    pipeline: int
    microbatch: int
    batch: int

    @property
    def data(self) -> int:
        """Replicas."""
        return self.devices // (self.tensor * self.pipeline)

    @property
    def microbatches(self) -> int:
        """Of a replica."""
        return self.batch // (self.data * self.microbatch)

    @property
    def share(self) -> float:
        """Idle time of a device, by the simulator."""
        return schedule_facts("1f1b", self.pipeline, self.microbatches).bubble_fraction


class Training(NamedTuple):
    """A training run."""

    billions: int
    trillions: int
    devices: int
    percent: int
    """MFU."""
    teraflops: int

    @property
    def days(self) -> float:
        """By products alone."""
        flops = 6e21 * self.billions * self.trillions
        return flops / (1e12 * self.teraflops * self.devices * self.percent / 100) / 86400
