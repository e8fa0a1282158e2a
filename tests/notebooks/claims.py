"""What lessons say in prose: each sentence with what it is computed from. `test_claims` holds them against the lessons,
and `claims_page` shows them to lecturers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from statistics import fmean, median

import numpy as np
import torch

from alpa_explore.accuracy.tuning import LEAST_RUNS
from alpa_explore.cost.collectives import collective_seconds
from alpa_explore.figures.course.training.block import SUMS, block_times
from alpa_explore.figures.course.training.experts import routed_tokens
from alpa_explore.figures.course.training.memory import zero_bytes
from alpa_explore.figures.course.training.schedules import schedule_facts
from alpa_explore.models.catalog import entry
from alpa_explore.sharding.reshard import StepKind
from alpa_explore.sharding.spec import REPLICATE
from alpa_explore.tracing.optimizers import OPTIMIZERS
from tests.notebooks.sources import (
    A100,
    BLOCK,
    BLOCKS,
    CARD,
    CROSSING,
    DISPATCH,
    EXPERT,
    FFN,
    GATHER,
    GIB,
    H100,
    H100_BYTES,
    KEPT,
    KEYS,
    LLAMA,
    MIXTRAL,
    OSS,
    STEP,
    TOKENS,
    V100,
    WIDTH,
    P,
    attention_share,
    block_weights,
    chain,
    cuts,
    eliminated,
    equal_length,
    held_by_a_device,
    largest,
    makespan,
    one_f_one_b,
    remedy,
    repeated,
    ring,
    ring_length,
    step_flops,
    sums_over_products,
    two_layers,
)

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
        "{:,.0f} buckets of {:.1f} µs are {:.0f} ms",
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
        lambda: [{4: "four"}[LLAMA.config.heads // 8], {1: "one"}[LLAMA.config.kv_heads // 8]],
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
    # worked examples
    ("00", "is 1 + 1/{:.0f} = {:.4f}", lambda: [1 / (e := torch.finfo(torch.bfloat16).eps), 1 + e]),
    ("00", "1 + 0.001 is rounded to {:.0f} again", lambda: [float(torch.tensor(1.001, dtype=torch.bfloat16))]),
    ("00", "the next number after 1 is {:.8f}", lambda: [1 + torch.finfo(torch.float32).eps]),
    ("00", "T = 4 · 30 + 7 · 30 = {:.0f} ms", lambda: makespan("1f1b")[:1]),
    ("00", "With B = 64 the two are {:,.0f} and {:,} ms", lambda: [makespan("1f1b", 64)[0], 64 * 30]),
    ("01", "For Llama-3-8B that is {:,.0f} tokens", lambda: [round(equal_length("llama-3-8b"), -3)]),
    ("01", "which is twice as wide, {:,.0f}. So", lambda: [round(equal_length("llama-3-70b"), -3)]),
    ("01", "products have {} times the FLOPs", lambda: [{6: "six"}[round(1 / attention_share(TOKENS) - 1)]]),
    ("01", "And the {} operations of Adam", lambda: [OPTIMIZERS["adam"].flops_per_element]),
    ("03", "8 kB among eight A100 take 14 · 2 µs = {:.0f} µs", lambda: [ring(8e3, 8) * 1e6]),
    ("03", "2,046 steps, which are {:.1f} ms", lambda: [ring(0.0, 1024) * 1e3]),
    (
        "03",
        "up and down in {} steps: {:.0f} µs",
        lambda: [n := 2 * int(math.log2(1024)), n * A100.latency_seconds * 1e6],
    ),
    ("04", "So G(4, 2) = {}, with the cut behind the second", lambda: [cuts()[1]]),
    (
        "04",
        "there are {:.0f} billion ways to cut, and the table needs {} million",
        lambda: [math.comb(999, 4) / 1e9, 5 * 1000**2 / 2 / 1e6],
    ),
    *(
        ("05", f"| `{name}` | {{:,}} × {{:,}} | {{:.1f}} MB | {{}} |", partial(held_by_a_device, spec))
        for name, spec in {
            "RR": (REPLICATE, REPLICATE),
            "S0R": (0, REPLICATE),
            "S1R": (REPLICATE, 0),
            "S01R": (0, 0),
            "S0S1": (0, 1),
        }.items()
    ),
    ("06", "The gap is (103 − 100) / 103 = {:.1f} %", lambda: [100 * 3 / 103]),
    ("07", "T = 90 + 7 · 50 = {:.0f} ms", lambda: [two_layers(8)[50]]),
    (
        "07",
        "T = 60 + 7 · 60 = {:.0f} ms. So two stages, in {:.0f} ms",
        lambda: [two_layers(8)[60], min(two_layers(8).values())],
    ),
    ("07", "the last two lines give {:.0f} and {:.0f} ms", lambda: [two_layers(2)[50], two_layers(2)[60]]),
    ("07", "at B = 4 both take {:.0f} ms", lambda: list({two_layers(4)[50], two_layers(4)[60]})),
    ("08", "device 0: {} device 1: {} ```", lambda: one_f_one_b(2, 4)),
    *(
        ("09", f"| {name} | {{:.1f}} GB | {{:.1f}} GB | {{:.1f}} GB |", partial(remedy, *asked))
        for name, asked in {
            "ZeRO-1": (1, 1, False),
            "ZeRO-2": (2, 1, False),
            "ZeRO-3": (3, 1, False),
            "ZeRO-1, full recomputation": (1, 1, True),
            "ZeRO-1, TP 2 with sequence parallelism": (1, 2, False),
        }.items()
    ),
    (
        "09",
        "Four of five fit, with {:.0f} to {:.0f} GB to spare",
        lambda: [H100_BYTES / 1e9 - remedy(2, 1, False)[2], H100_BYTES / 1e9 - remedy(1, 2, False)[2]],
    ),
    (
        "10",
        "{:.0f} GB in 32 blocks, and {:.0f} GB of logits",
        lambda: [BLOCKS * KEPT * 131072 / 1e9, 4 * 131072 * LLAMA.config.vocabulary / 1e9],
    ),
    ("10", "Full recomputation leaves {:.0f} GB", lambda: [2 * 131072 * WIDTH * BLOCKS / 1e9]),
    (
        "10",
        "{:.1f} + {:.1f} = {:.1f} GB with full recomputation",
        lambda: [a := 2 * 16384 * WIDTH * BLOCKS / 1e9, b := 4 * 16384 * LLAMA.config.vocabulary / 1e9, a + b],
    ),
    (
        "11",
        "= {:.0f} million weights. The 8 experts of 32 blocks have {:.1f} billion, and the 2 that a token meets {:.1f}",
        lambda: [EXPERT / 1e6, 8 * 32 * EXPERT / 1e9, 2 * 32 * EXPERT / 1e9],
    ),
    (
        "11",
        "have the other {:.1f} billion, so a token meets {:.1f} billion",
        lambda: [(rest := MIXTRAL.parameter_count - 256 * EXPERT) / 1e9, (rest + 64 * EXPERT) / 1e9],
    ),
    (
        "11",
        "it takes {:.0f} at most, and with a skew of 0.5 the rows above that are {:.1f} % of all",
        lambda: [
            1.25 * 256,
            100 * np.clip((rows := routed_tokens(4, 16, 2, 0.5).sum(axis=0)) - 320, 0, None).sum() / rows.sum(),
        ],
    ),
    (
        "12",
        "(100,000,000 + 1) − 100,000,000 is {:.0f}, and (100,000,000 − 100,000,000) + 1 is {:.0f}",
        lambda: [((n := np.float32(1e8)) + np.float32(1)) - n, (n - n) + np.float32(1)],
    ),
    (
        "12",
        "(3 · 2 + 1 · 6) / 4 = {:.0f}, the mean of both means is {:.0f}",
        lambda: [(3 * 2 + 1 * 6) / 4, fmean([2, 6])],
    ),
    (
        "13",
        "{:.2f} million tokens, and 6 · 8.03 billion FLOPs for each of them: {:.1f} PFLOP",
        lambda: [128 * TOKENS / 1e6, STEP / 1e15],
    ),
    (
        "13",
        "would need {:.1f} s. Nobody reaches the peak; at 45 % of it they need {:.1f} s",
        lambda: [t := STEP / 8 / 989e12, t / 0.45],
    ),
    ("13", "which is {:.0f} % of the work at this length", lambda: [100 * attention_share(TOKENS)]),
    ("14", "0.05 + 0.95 / 8 = {:.3f} of the time: they are {:.1f} times", lambda: [t := 0.05 + 0.95 / 8, 1 / t]),
    ("14", "64 devices need {:.3f}, and are {:.0f} times", lambda: [t := 0.05 + 0.95 / 64, 1 / t]),
    (
        "15",
        "| 4,096 × 4,096 | 4,096 × {} | columns: four heads of {}",
        lambda: [WIDTH // 8, WIDTH // LLAMA.config.heads],
    ),
    ("15", "| 4,096 × 1,024 | 4,096 × {} | columns: one head", lambda: [KEYS // 8]),
    ("15", "| 4,096 × 14,336 | 4,096 × {:,} | columns |", lambda: [FFN // 8]),
    ("15", "Together {:.1f} million weights, an eighth of {:.0f} million", lambda: [BLOCK / 8e6, BLOCK / 1e6]),
    ("15", "they have {:,} weights. What a device", lambda: [2 * WIDTH]),
    (
        "16",
        "{:.0f} MB in bfloat16. In a node seven eighths of them arrive at 397 GB/s, in {:.2f} ms",
        lambda: [2 * BLOCK / 1e6, GATHER * 1e3],
    ),
    ("16", "2,048 / 650 TFLOP/s = {:.2f} ms in the forward pass", lambda: [2 * BLOCK * 2048 / 650e12 * 1e3]),
    (
        "16",
        "they take {:.2f} ms, and the device waits {:.2f} ms in each of 32 blocks: {:.0f} ms",
        lambda: [(t := 2 * BLOCK * 512 / 650e12) * 1e3, (wait := GATHER - t) * 1e3, 32e3 * wait],
    ),
    ("17", "15.6 trillion = {:.1f} · 10²⁵ FLOPs", lambda: [6 * 405e9 * 15.6e12 / 1e25]),
    ("17", "(the report names 380 to 430) need {:.0f} days", lambda: [6 * 405e9 * 15.6e12 / (16384 * 400e12) / 86400]),
    ("00", "The difference is {:.0f} %, which", lambda: [100 * (GIB / 1e9 - 1)]),
    ("00", "it would be 8 · 30 = {:.0f} ms", lambda: [8 * 30]),
    ("00", "The same {:.0f} ms are lost", lambda: [makespan("1f1b")[0] - 8 * 30]),
    ("01", "the products, though {:.0f} times as many", lambda: [131072 / TOKENS]),
    ("01", "2 · 3.57 + 2.5 · 0.55 = {:.1f} TFLOP", lambda: [(4 * BLOCK * TOKENS + 5 * TOKENS**2 * WIDTH) / 1e12]),
    ("01", "needs {:.1f} s for the sample", lambda: [step_flops() / 400e12]),
    ("01", "a laptop with 1 TFLOP/s needs {} minutes", lambda: [{7: "seven"}[round(step_flops() / 1e12 / 60)]]),
    ("02", "25 MB, at 781 MB/s: {:.0f} ms", lambda: [25e6 / CROSSING * 1e3]),
    ("03", "a chunk is 25 / 8 = {:.1f} MB", lambda: [25 / 8]),
    ("03", "a step takes {:.1f} µs, and 14 steps", lambda: [(A100.latency_seconds + 25e6 / 8 / A100.bandwidth) * 1e6]),
    ("03", "would have a chunk of {:.1f} µs", lambda: [1e6 / 8 / A100.bandwidth * 1e6]),
    (
        "06",
        "5 + 1 + 0 = {} and the second 0 + 2 + 2 = {}, so M[0, 0] = {}",
        lambda: [*eliminated(0, 0), min(eliminated(0, 0))],
    ),
    (
        "06",
        "M[0, 1] = {}, M[1, 0] = {} and M[1, 1] = {}",
        lambda: [min(eliminated(*ends)) for ends in ((0, 1), (1, 0), (1, 1))],
    ),
    (
        "07",
        "The output layer of GPT-350M has the work of {:.1f} blocks",
        lambda: [(c := entry("gpt-350m").config).vocabulary / (12 * c.hidden + 2 * c.sequence)],
    ),
    ("07", "1 / (7 + 1) = {:.1f} %", lambda: [100 / 8]),
    ("07", "by {:.0f} ms more with each that follows", lambda: [300 - 260]),
    ("09", "So **one** sample needs {:.0f} GB", lambda: [remedy(1, 1, False)[1]]),
    ("13", "The errors are +{:.0f} %, −{:.1f} % and", lambda: [100 * (10.4 / 10 - 1), 100 * (1 - 10.3 / 11)]),
    ("13", "the one that takes 11 s: a regret of {:.0f} %", lambda: [100 * (11 / 10 - 1)]),
    ("15", "h = 8,192, P = {:.0f} million", lambda: [block_weights("llama-3-70b") / 1e6]),
    (
        "15",
        "the peak grew {:.1f} times, and the bandwidth in a node {:.1f} times",
        lambda: [989 / 312, H100.inside_node.bandwidth / A100.bandwidth],
    ),
)
