"""What the claims of lessons are computed from: sizes of models, presets of devices, and what a reader does by hand."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from itertools import product

import numpy as np

import alpa_explore as ax
from alpa_explore.accuracy.record import stored_record
from alpa_explore.cost.collectives import collective_seconds
from alpa_explore.figures.course.training.block import SUMS, BlockTimes, block_times
from alpa_explore.figures.course.training.memory import zero_bytes
from alpa_explore.figures.course.training.schedules import schedule_facts
from alpa_explore.models.catalog import entry
from alpa_explore.schedules.task import Action
from alpa_explore.sharding.reshard import StepKind
from alpa_explore.sharding.spec import local_shape
from alpa_explore.tracing.optimizers import OPTIMIZERS

Claim = tuple[str, str, Callable[[], Sequence[object]]]
"""Lesson, sentence with the places of its numbers, and their source."""
GIB = 2**30
FP8 = "float8_e4m3fn"
LLAMA = entry("llama-3-8b")
P, WIDTH, FFN, BLOCKS = LLAMA.parameter_count, LLAMA.config.hidden, LLAMA.config.ffn, LLAMA.config.layers
KEYS = LLAMA.config.kv_heads * WIDTH // LLAMA.config.heads
"""Width of keys."""
TOKENS = 8192
BLOCK = 2 * WIDTH**2 + 2 * WIDTH * KEYS + 3 * WIDTH * FFN
"""Weights of a block."""
H100_BYTES = 80 * GIB
A100 = ax.Cluster.parse("2x8:a100@alpa").inside_node
V100 = ax.Cluster.parse("2x4:v100")
H100 = ax.Cluster.parse("8x8:h100")
CROSSING = V100.between_nodes.bandwidth / 4
"""Of one of four pairs that cross the network at once."""
CARD = H100.between_nodes.bandwidth / 8
"""Bytes per second of one network card."""
OSS = entry("gpt-oss-20b").config
MIXTRAL = entry("mixtral-8x7b")
EXPERT = 3 * MIXTRAL.config.hidden * MIXTRAL.config.experts.ffn
"""Weights of an expert."""
KEPT = 12 * WIDTH + 4 * KEYS + 6 * FFN
"""Bytes that a block keeps of a token."""
GATHER = 2 * BLOCK * 7 / 8 / H100.inside_node.bandwidth
"""Seconds, of a block's weights inside a node."""
STEP = 6 * P * 128 * TOKENS
"""FLOPs of 128 samples, by the rule of 6."""
DISPATCH = 2 * 4096 * OSS.experts.chosen * OSS.hidden * 7 / 8


def ring(size: float, p: int, latency: float = A100.latency_seconds) -> float:
    return collective_seconds(StepKind.ALL_REDUCE, size, p, A100.bandwidth, latency)


def peak(dtype: str) -> float:
    """FLOP/s of an H100 in products."""
    return dict(H100.device.peak_flops)[dtype]


def lowered(precision: str) -> BlockTimes:
    """A block of Llama-3-8B on one H100, 8,192 tokens, with its products in this precision."""
    return block_times(1, SUMS[0], TOKENS, precision)


def attention_share(tokens: int) -> float:
    """Of the FLOPs of a step, forward and backward."""
    attention = 7 * tokens**2 * WIDTH * BLOCKS
    return attention / (attention + 6 * (P - LLAMA.config.vocabulary * WIDTH) * tokens)


def product_bytes(rows: int) -> int:
    """Of the three matrices of a product of so many rows with the weight of an MLP, in bfloat16."""
    return 2 * (rows * WIDTH + WIDTH * FFN + rows * FFN)


def intensity(rows: int) -> float:
    """FLOPs of this product for each of its bytes."""
    return 2 * rows * WIDTH * FFN / product_bytes(rows)


def largest(devices: int, stage: int) -> float:
    """Billions of parameters that fit with nothing else."""
    return H100_BYTES / sum(zero_bytes(1, devices, stage).values()) / 1e9


def cuts() -> list[int]:
    """Bytes of the least cut of lesson 04's chain, for each δ, by trying all."""
    flops, sent = (4, 1, 1, 2), (8, 6, 2)
    return [
        min(sent[k - 1] for k in (1, 2, 3) if max(sum(flops[:k]), sum(flops[k:])) <= (1 + d) * 4)
        for d in (0, 0.25, 0.5)
    ]


def eliminated(i: int, j: int) -> list[int]:
    """What each strategy of lesson 06's middle node costs between strategy i of a and j of b."""
    v, av, vb = (1, 2), ((5, 0), (0, 1)), ((0, 4), (2, 0))
    return [av[i][k] + v[k] + vb[k][j] for k in range(2)]


def chain() -> tuple[float, tuple[int, ...]]:
    """The optimum of lesson 06's three nodes, by trying all."""
    a, v, b = (0, 3), (1, 2), (0, 1)
    av, vb = np.array([[5, 0], [0, 1]]), np.array([[0, 4], [2, 0]])
    return min(
        (a[i] + v[k] + b[j] + int(av[i, k]) + int(vb[k, j]), (i, k, j)) for i, k, j in product(range(2), repeat=3)
    )


def ring_length(key_width: int) -> float:
    """Positions from which on the ring of lesson 10 is hidden: 7/8 · 2 S² h / 8 / F = 7/8 · 2 · 2 · S · keys / W."""
    return (7 / 8 * 2 * 2 * key_width / 50e9) / (7 / 8 * 2 * WIDTH / 8 / 300e12)


def block_weights(model: str) -> int:
    own = entry(model).config
    keys = own.kv_heads * own.hidden // own.heads
    return int(2 * own.hidden**2 + 2 * own.hidden * keys + 3 * own.hidden * own.ffn)


def sums_over_products(model: str, bandwidth: float) -> float:
    return 16 * entry(model).config.hidden * 8 * 750e12 / (6 * block_weights(model) * bandwidth)


def step_flops() -> float:
    """Of a sample of 8,192 tokens: products, attention and Adam."""
    products = 6 * (P - LLAMA.config.vocabulary * WIDTH) * TOKENS
    return products + 7 * TOKENS**2 * WIDTH * BLOCKS + OPTIMIZERS["adam"].flops_per_element * P


@cache
def repeated() -> list[float]:
    """How far apart the times of one configuration are that was run twice, in the source with most of them."""
    times: dict[tuple[object, ...], list[float]] = {}
    for run in stored_record().of("nanotron_playbook_h100"):
        if run.measured_seconds:
            key = (run.sizes, run.gpus, run.global_batch, run.sequence, run.layout, run.zero_stage)
            times.setdefault(key, []).append(run.measured_seconds)
    return [max(own) / min(own) - 1 for own in times.values() if len(own) > 1]


def makespan(name: str, microbatches: int = 8) -> tuple[float, float]:
    fact = schedule_facts(name, 4, microbatches)
    return 10 * fact.makespan, fact.bubble_fraction


def equal_length(model: str) -> float:
    """Tokens at which attention has as many FLOPs as products."""
    own = entry(model)
    return (
        6
        * (own.parameter_count - own.config.vocabulary * own.config.hidden)
        / (7 * own.config.hidden * own.config.layers)
    )


def held_by_a_device(spec: tuple[int, int]) -> list[float]:
    """Shape, megabytes, and the devices with the same: of lesson 05's activation on a mesh of 2 × 4."""
    rows, columns = local_shape(spec, (TOKENS, WIDTH), (2, 4))
    return [rows, columns, 2 * rows * columns / 1e6, 8 * rows * columns // (TOKENS * WIDTH)]


def two_layers(microbatches: int) -> dict[int, float]:
    """T of lesson 07's two layers for each t_max, by trying both pipelines."""
    pipelines = ((40, 50), (60,))
    sums = {t: min((sum(p) for p in pipelines if max(p) <= t), default=math.inf) for t in (40, 50, 60)}
    return {t: least + (microbatches - 1) * t for t, least in sums.items()}


def one_f_one_b(stages: int, microbatches: int) -> list[str]:
    """The order of each device, as lesson 08 writes it."""
    schedule = schedule_facts("1f1b", stages, microbatches).timeline.schedule
    letters = {Action.FORWARD: "F", Action.BACKWARD: "B"}
    tasks = [
        (place, f"{letters[Action(action)]}{microbatch}")
        for place, (action, microbatch) in enumerate(zip(schedule.actions, schedule.microbatches, strict=True))
        if Action(action) in letters
    ]
    return [
        " ".join(text for place, text in tasks if first <= place < last)
        for first, last in zip(schedule.starts, schedule.starts[1:], strict=False)
    ]


def remedy(zero: int, tensor: int, recompute: bool) -> list[float]:
    """Gigabytes of state, of activations, and of both: Llama-3-8B on eight devices, a sample on each."""
    state = sum(zero_bytes(P, 8, zero).values()) if tensor == 1 else (6 / tensor + 12 / 8) * P
    kept = BLOCKS * TOKENS * (2 * WIDTH if recompute else KEPT) + 4 * TOKENS * LLAMA.config.vocabulary
    return [state / 1e9, kept / tensor / 1e9, state / 1e9 + kept / tensor / 1e9]
