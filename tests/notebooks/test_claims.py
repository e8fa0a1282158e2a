"""What lessons say in prose, computed again: each sentence is made from its source, and must stand in its lesson.

A claim is (lesson, sentence, source). The source computes the numbers of the sentence from the catalogue, the presets
of devices, the cost model's functions, the simulator or the record of measured runs; a number that moves there makes
this test fail, and the sentence is then to be written again. Numbers that a lesson's own code asserts are not repeated.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from functools import cache
from itertools import product
from statistics import fmean, median

import numpy as np
import pytest
import torch

import alpa_explore as ax
from alpa_explore.accuracy.record import stored_record
from alpa_explore.accuracy.tuning import LEAST_RUNS
from alpa_explore.cost.collectives import collective_seconds
from alpa_explore.course.lessons.notebook import course_folder, read_lessons
from alpa_explore.figures.course.training.block import SUMS, block_times
from alpa_explore.figures.course.training.experts import routed_tokens
from alpa_explore.figures.course.training.memory import zero_bytes
from alpa_explore.figures.course.training.schedules import schedule_facts
from alpa_explore.graph import Tensor, TensorKind
from alpa_explore.models.catalog import entry
from alpa_explore.sharding.reshard import StepKind
from alpa_explore.sharding.rules.factors import from_factors
from alpa_explore.sharding.spec import PARTIAL, REPLICATE

GIB = 2**30
LLAMA = entry("llama-3-8b")
P, WIDTH, FFN, BLOCKS = LLAMA.parameter_count, LLAMA.config.hidden, LLAMA.config.ffn, LLAMA.config.layers
KEYS = LLAMA.config.key_heads * WIDTH // LLAMA.config.heads
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
DISPATCH = 2 * 4096 * OSS.experts.chosen * OSS.hidden * 7 / 8


def ring(size: float, p: int, latency: float = A100.latency_seconds) -> float:
    return collective_seconds(StepKind.ALL_REDUCE, size, p, A100.bandwidth, latency)


def attention_share(tokens: int) -> float:
    """Of the FLOPs of a step, forward and backward."""
    attention = 7 * tokens**2 * WIDTH * BLOCKS
    return attention / (attention + 6 * (P - LLAMA.config.vocabulary * WIDTH) * tokens)


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


def sums_over_products(model: str, bandwidth: float) -> float:
    own = entry(model).config
    keys = own.kv_heads * own.hidden // own.heads
    block = 2 * own.hidden**2 + 2 * own.hidden * keys + 3 * own.hidden * own.ffn
    return 16 * own.hidden * 8 * 750e12 / (6 * block * bandwidth)


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


Claim = tuple[str, str, Callable[[], Sequence[object]]]
CLAIMS: tuple[Claim, ...] = (
    # lesson, sentence with the places of its numbers, their source
    ("00", "2 + 4 + 4 + 4 + 4 = {} bytes", lambda: [round(sum(zero_bytes(1, 1, 0).values()))]),
    ("00", "{:.0f} GB are more than {:.0f} GB (80 GiB)", lambda: [18 * P / 1e9, H100_BYTES / 1e9]),
    ("00", "| weights, bfloat16 | 2 | tp = 2 | {:.1f} GB |", lambda: [2 * P / 2 / 1e9]),
    ("00", "| gradients, fp32 | 4 | tp = 2 | {:.1f} GB |", lambda: [4 * P / 2 / 1e9]),
    ("00", "| optimizer, fp32 | 12 | tp · dp = 8 | {:.1f} GB |", lambda: [12 * P / 8 / 1e9]),
    ("00", "{:.1f} GB = {:.1f} GiB |", lambda: [4.5 * P / 1e9, 4.5 * P / GIB]),
    ("00", "so some {:.0f} GiB are left", lambda: [80 - 4.5 * P / GIB]),
    ("00", "a device holds {:.0f} GB and not 145 / 2 = {:.0f}", lambda: [4.5 * P / 1e9, 9 * P / 1e9]),
    ("01", "N is 8.03 − {:.2f} = {:.1f} billion", lambda: [v := LLAMA.config.vocabulary * WIDTH / 1e9, P / 1e9 - v]),
    ("01", "= {:.0f} \\text{{ million weights.}}", lambda: [BLOCK / 1e6]),
    ("01", "8,192 tokens = {:.2f} TFLOP", lambda: [2 * BLOCK * TOKENS / 1e12]),
    (
        "01",
        "4,096 = {:.2f} TFLOP, which is {:.0f} % of the block",
        lambda: [attention := 2 * TOKENS**2 * WIDTH / 1e12, 100 * attention / (attention + 2 * BLOCK * TOKENS / 1e12)],
    ),
    (
        "01",
        "A block needs {:.1f} TFLOP for a sample, and 32 blocks {:.0f} TFLOP.",
        lambda: [one := (6 * BLOCK * TOKENS + 7 * TOKENS**2 * WIDTH) / 1e12, BLOCKS * one],
    ),
    ("01", "8.03 billion parameters are {:.1f} TFLOP", lambda: [13 * P / 1e12]),
    (
        "01",
        "attention has {:.0f} % of the work; at 131,072 tokens it has {:.0f} %",
        lambda: [100 * attention_share(TOKENS), 100 * attention_share(131072)],
    ),
    (
        "02",
        "get {:.0f} MB/s each: {:.0f} times less",
        lambda: [CROSSING / 1e6, round(V100.inside_node.bandwidth / CROSSING, -1)],
    ),
    (
        "02",
        "2 · 7/8 · 100 = {:.0f} MB, at the pace of the network",
        lambda: [ring(100e6, 8, 0.0) * A100.bandwidth / 1e6],
    ),
    ("02", "175 MB / 3.125 GB/s = **{:.0f} ms**", lambda: [175e6 / V100.between_nodes.bandwidth * 1e3]),
    ("02", "100 MB / 120 GB/s = {:.1f} ms", lambda: [0.75e8 / V100.inside_node.bandwidth * 1e3]),
    ("02", "Together **{:.0f} ms**", lambda: [1e3 * (1.5e8 / V100.inside_node.bandwidth + 0.25e8 / CROSSING)]),
    ("03", "16.1 / 260 = {:.0f} ms", lambda: [2 * P / A100.bandwidth * 1e3]),
    ("03", "Eight devices need 1.75 · n · β = {:.0f} ms", lambda: [1.75 * 2 * P / A100.bandwidth * 1e3]),
    ("03", "The gradient of 16.1 GB makes {:.0f} buckets", lambda: [2 * P / 25e6]),
    ("03", "which takes {:.1f} µs at 260 GB/s", lambda: [25e6 / 8 / A100.bandwidth * 1e6]),
    ("03", "and 14 steps {:.0f} µs", lambda: [ring(25e6, 8) * 1e6]),
    (
        "03",
        "642 · 196 µs = {:.0f} ms, where a single message takes {:.0f} ms",
        lambda: [642 * ring(25e6, 8) * 1e3, ring(2 * P, 8) * 1e3],
    ),
    ("03", "The buckets cost {:.0f} % more", lambda: [100 * (642 * ring(25e6, 8) / ring(2 * P, 8) - 1)]),
    (
        "03",
        "{:,.0f} buckets of {:.0f} µs are {:.0f} ms",
        lambda: [2 * P / 1e6, ring(1e6, 8) * 1e6, 2 * P / 1e6 * ring(1e6, 8) * 1e3],
    ),
    ("04", "With δ = 0 the answer is {} bytes, with 0.25 it is {}, with 0.5 it is {}", cuts),
    ("04", "8 + 7 · 4 = {} units of computing", lambda: [8 + 7 * 4]),
    ("04", "uneven ones 8 + 7 · 6 = {}", lambda: [8 + 7 * 6]),
    (
        "05",
        "An all-reduce of {:.0f} MB (the output, or the gradient of the input) takes {:.0f} µs.",
        lambda: [n := 2 * TOKENS * WIDTH / 1e6, ring(n * 1e6, 4) * 1e6],
    ),
    (
        "05",
        "67 MB / 260 GB/s = {:.0f} µs, once in each pass: **{:.0f} µs**",
        lambda: [
            one := 1e6 * collective_seconds(StepKind.ALL_GATHER, 2 * TOKENS * WIDTH, 4, 260e9, A100.latency_seconds),
            2 * one,
        ],
    ),
    (
        "05",
        "117 MB / 260 GB/s = {:.0f} µs. There are two, once an iteration of 16 microbatches: "
        "2 · 690 / 16 = **{:.0f} µs**",
        lambda: [one := 1e6 * ring(2 * WIDTH * FFN, 4), 2 * one / 16],
    ),
    (
        "05",
        "as soon as {:,.0f} / B < 399, which is from **B = {}** on",
        lambda: [both := 2e6 * ring(2 * WIDTH * FFN, 4), math.ceil(both / 399)],
    ),
    ("05", "greed takes {:.1f} times the least", lambda: [1809 / 485]),
    (
        "06",
        "The optimum is {}, with a = {} and b = {}; going back, v = {}",
        lambda: [(c := chain())[0], c[1][0], c[1][2], c[1][1]],
    ),
    ("07", "B > 1 + \\frac{{520 - 300}}{{300 - 260}} = {:.1f}", lambda: [1 + (520 - 300) / (300 - 260)]),
    (
        "07",
        "one stage takes 6 · 300 = {:,} ms and two take 520 + 5 · 260 = {:,} ms. With B = 7 they take {:,} and {:,} ms",
        lambda: [6 * 300, 520 + 5 * 260, 7 * 300, 520 + 6 * 260],
    ),
    ("08", "(8 + 3) · 30 = {:.0f} ms | {:.1%} |", lambda: makespan("1f1b")),
    ("08", "240 + 3 · 30 / 2 = {:.0f} ms | {:.1%} |", lambda: makespan("interleaved-1f1b")),
    ("08", "240 + 3 · (10 + 10 − 10) = {:.0f} ms | {:.1%} |", lambda: makespan("zb-h1")),
    ("08", "(32 + 3) · 30 = {:,.0f} ms | {:.1%} |", lambda: makespan("1f1b", 32)),
    ("09", "| one device, or any number without ZeRO | 18 | {:.1f} |", lambda: [largest(8, 0)]),
    ("09", "| ZeRO-1 on 8 | 6 + 12/8 = {:.1f} | {:.1f} |", lambda: [6 + 12 / 8, largest(8, 1)]),
    ("09", "| ZeRO-2 on 8 | 2 + 16/8 = {:.0f} | {:.1f} |", lambda: [2 + 16 / 8, largest(8, 2)]),
    ("09", "| ZeRO-3 on 8 | 18/8 = {:.2f} | {:.1f} |", lambda: [18 / 8, largest(8, 3)]),
    ("09", "| ZeRO-3 on 64 | 18/64 = {:.2f} | {:.0f} |", lambda: [18 / 64, largest(64, 3)]),
    ("09", "from which more replicas do not help: {:.1f} billion", lambda: [H100_BYTES / 6 / 1e9]),
    (
        "09",
        "= {:,} bytes in a block, a sample {:.2f} GB, and 32 blocks {:.1f} GB",
        lambda: [token := 12 * WIDTH + 4 * KEYS + 6 * FFN, token * TOKENS / 1e9, BLOCKS * token * TOKENS / 1e9],
    ),
    ("09", "logits are 4 · 8,192 · 128,256 = {:.1f} GB", lambda: [4 * TOKENS * LLAMA.config.vocabulary / 1e9]),
    ("09", "2 · 8,192 · 4,096 · 32 = {:.1f} GB", lambda: [2 * TOKENS * WIDTH * BLOCKS / 1e9]),
    ("10", "these are {:.0f} MB, which take {:.1f} ms", lambda: [(n := 3584 * 131072) / 1e6, n / 50e9 * 1e3]),
    (
        "10",
        "these are {:.1f} TFLOP, which take {:.0f} ms",
        lambda: [(work := 2 * 131072**2 * WIDTH / 8) / 1e12, work / 300e12 * 1e3],
    ),
    ("10", "gives S = {:,.0f}", lambda: [round(ring_length(KEYS), -3)]),
    ("10", "and the length would be {:,.0f}", lambda: [round(ring_length(WIDTH), -3)]),
    (
        "11",
        "the first device computes {:,} of {:,} rows where the mean is {:,.0f}",
        lambda: [
            (rows := routed_tokens(4, 16, 2, 0.5).sum(axis=0).reshape(4, 4).sum(axis=1))[0],
            sum(rows),
            rows.mean(),
        ],
    ),
    ("11", "· 7/8 = {:.1f} MB from each device", lambda: [DISPATCH / 1e6]),
    (
        "11",
        "that takes {:.2f} ms. Four of them in each of {} blocks: {:.0f} ms",
        lambda: [1e3 * (t := DISPATCH / H100.inside_node.bandwidth), OSS.layers, 4e3 * OSS.layers * t],
    ),
    ("11", "it takes {:.2f} ms, and 96 of them {:.0f} ms", lambda: [1e3 * (t := DISPATCH / CARD), 96e3 * t]),
    (
        "11",
        "In a block that is {:.1f} ms of sending; the experts multiply for {:.1f} ms",
        lambda: [4e3 * DISPATCH / CARD, 1e3 * 4096 * OSS.experts.chosen * 18 * OSS.hidden * OSS.experts.ffn / 500e12],
    ),
    ("12", "two bytes: {:.0f} MB. Each device has a quarter, {:.0f} MB", lambda: [(n := 2 * 16384**2) / 1e6, n / 4e6]),
    ("12", "{:.0f} MB / 120 GB/s = {:.2f} ms. Cutting", lambda: [(n := 1.5 * 16384**2) / 1e6, n / 120e6]),
    ("12", "{:.0f} MB / 120 GB/s = {:.2f} ms. It never", lambda: [(n := 0.375 * 16384**2) / 1e6, n / 120e6]),
    (
        "13",
        "a mean error of {:.1f} %, and a bias of −{:.1f} %",
        lambda: [
            fmean(100 * abs(e) for e in (0.04, 10.3 / 11 - 1, 0)),
            -fmean(100 * e for e in (0.04, 10.3 / 11 - 1, 0)),
        ],
    ),
    (
        "13",
        "Where fewer than {} runs are like it",
        lambda: [("zero", "one", "two", "three", "four", "five")[LEAST_RUNS]],
    ),
    ("13", "differs: by {:.0f} % in the median in one of the sources", lambda: [100 * median(repeated())]),
    ("15", "{:.2f}. Sums take three quarters", lambda: [sums_over_products("llama-3-8b", H100.inside_node.bandwidth)]),
    ("15", "{:.2f}. Twice the width", lambda: [sums_over_products("llama-3-70b", H100.inside_node.bandwidth)]),
    (
        "15",
        "The figure has {:.2f} ms over {:.2f} ms, {:.2f}",
        lambda: [
            1e3 * (t := block_times(8, SUMS[0], TOKENS)).sums_seconds,
            1e3 * t.products_seconds,
            t.sums_seconds / t.products_seconds,
        ],
    ),
    ("15", "{:.1f}. Six times as long", lambda: [sums_over_products("llama-3-8b", CARD)]),
    (
        "15",
        "with p = 8 a device has {} heads of queries and {} of keys",
        lambda: [{4: "four"}[LLAMA.config.heads // 8], {1: "one"}[LLAMA.config.key_heads // 8]],
    ),
    ("16", "| 312 TFLOP/s | 260 GB/s | {:,} |", lambda: [round(312e12 / A100.bandwidth)]),
    ("16", "| 312 TFLOP/s | 25 GB/s | {:,} |", lambda: [round(312e12 / 25e9)]),
    ("16", "| 989 TFLOP/s | 397 GB/s | {:,} |", lambda: [round(989e12 / H100.inside_node.bandwidth)]),
    ("16", "| 989 TFLOP/s | 50 GB/s | {:,} |", lambda: [round(989e12 / CARD)]),
    ("16", "| 125 TFLOP/s | 120 GB/s | {:,} |", lambda: [round(125e12 / V100.inside_node.bandwidth)]),
    (
        "17",
        "6 · 70.6 / 16 = {:.1f} GB. Optimizer: 12 · 70.6 / 64 = {:.1f} GB. Together {:.1f} GB, or {:.0f} GiB",
        lambda: [
            6 * (n := entry("llama-3-70b").parameter_count / 1e9) / 16,
            12 * n / 64,
            (6 / 16 + 12 / 64) * n,
            (6 / 16 + 12 / 64) * n * 1e9 / GIB,
        ],
    ),
    ("17", "four stages is 3 / 67 = {:.1f} %", lambda: [100 * schedule_facts("1f1b", 4, 64).bubble_fraction]),
    ("17", "6 N / 64 = {:.0f} GB", lambda: [6 * entry("llama-3.1-405b").parameter_count / 64e9]),
    (
        "17",
        "{:.0f} billion parameters, {:.0f} of them in eight wide experts",
        lambda: [
            MIXTRAL.parameter_count / 1e9,
            MIXTRAL.config.layers * 8 * 3 * MIXTRAL.config.hidden * MIXTRAL.config.experts.ffn / 1e9,
        ],
    ),
)


@cache
def prose() -> dict[str, str]:
    """The text of each lesson, on one line."""
    lessons = read_lessons(course_folder())
    texts = {x.number: " ".join(c.source for c in x.cells if c.kind == "markdown") for x in lessons}
    return {number: re.sub(r"\s+", " ", text) for number, text in texts.items()}


@pytest.mark.parametrize(("lesson", "sentence", "source"), CLAIMS, ids=[f"{c[0]}-{c[1][:40]}" for c in CLAIMS])
def test_a_sentence_says_what_its_source_computes(
    lesson: str, sentence: str, source: Callable[[], Sequence[object]]
) -> None:
    said = sentence.format(*source()).replace("%}", " %")
    said = re.sub(r"(\d)%", r"\1 %", said)
    assert said in prose()[lesson], said


def test_sixty_sentences_are_computed_again() -> None:
    assert len(CLAIMS) >= 60
    assert {lesson for lesson, _, _ in CLAIMS} >= {f"{n:02}" for n in range(14)} | {"15", "16", "17"}


def test_the_sizes_of_models_are_those_of_their_published_configs() -> None:
    """config.json of mistralai/Mixtral-8x7B-v0.1 and openai/gpt-oss-20b, as copies on huggingface.co have them."""
    published = {
        "mixtral-8x7b": (32, 4096, 32, 8, 14336, 8, 2, 32_000),
        "gpt-oss-20b": (24, 2880, 64, 8, 2880, 32, 4, 201_088),
    }
    for name, expected in published.items():
        own = entry(name).config
        sizes = (
            own.layers,
            own.hidden,
            own.heads,
            own.kv_heads,
            own.experts.ffn,
            own.experts.count,
            own.experts.chosen,
        )
        assert (*sizes, own.vocabulary) == expected, name


def test_the_rules_that_lesson_14_reads_have_the_factors_that_it_names() -> None:
    def tensor(*shape: int) -> Tensor:
        return Tensor(index=0, name="t", shape=shape, dtype="float32", kind=TensorKind.VALUE, producer=None)

    m, n, k = 4, 8, 6
    rules = {
        "mk,kn->mn": ([tensor(m, k), tensor(k, n)], tensor(m, n), {"m": False, "k": True, "n": False}),
        "mn,n->mn": ([tensor(m, n), tensor(n)], tensor(m, n), {"m": False, "n": False}),
        "mn->n": ([tensor(m, n)], tensor(n), {"m": True, "n": False}),
        "mn->nm": ([tensor(m, n)], tensor(n, m), {"m": False, "n": False}),
        "bs.->bs.": ([tensor(2, m, n)], tensor(2, m, n), {"b": False, "s": False}),
    }
    for rule, (inputs, output, pending) in rules.items():
        assert f"`{rule}`" in prose()["14"]
        splits = from_factors(rule, inputs, [output])
        assert {split.factor: split.outputs == (PARTIAL,) for split in splits} == pending, rule
    rows, _ = from_factors("mn,n->mn", rules["mn,n->mn"][0], [tensor(m, n)])
    assert rows.inputs[1] == REPLICATE, "the bias stays whole"


def test_common_operators_are_divided_along_the_dims_that_lesson_14_names() -> None:
    torch.manual_seed(0)
    x = torch.randn(4, 6, 8, dtype=torch.float64)

    def free(f: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor) -> list[int]:
        return [d for d in range(x.dim()) if torch.allclose(torch.cat([f(h) for h in x.chunk(2, d)], d), f(x))]

    assert free(lambda t: torch.softmax(t, 1), x) == [0, 2]
    assert free(lambda t: t.cumsum(1), x) == [0, 2]
    assert free(lambda t: (t - t.mean(2, keepdim=True)) / t.std(2, keepdim=True), x) == [0, 1]
    kernel = torch.randn(4, 4, 3, 3, dtype=torch.float64)
    image = torch.randn(2, 4, 8, 8, dtype=torch.float64)

    def conv(t: torch.Tensor) -> torch.Tensor:
        return torch.conv2d(t, kernel, padding=1)

    assert torch.allclose(torch.cat([conv(h) for h in image.chunk(2, 0)], 0), conv(image))
    assert not torch.allclose(torch.cat([conv(h) for h in image.chunk(2, 2)], 2), conv(image))
    halves = sum(torch.conv2d(i, k, padding=1) for i, k in zip(image.chunk(2, 1), kernel.chunk(2, 1), strict=True))
    assert torch.allclose(halves, conv(image)), "input channels leave a sum"
