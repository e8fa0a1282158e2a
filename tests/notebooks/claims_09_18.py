"""What lessons 09 to 18 say in prose: each sentence, with the places of its numbers, and what it is computed from."""

from __future__ import annotations

from functools import partial
from statistics import fmean, median

import numpy as np
import torch

from alpa_explore.accuracy.tuning import LEAST_RUNS
from alpa_explore.cluster.precisions import RECIPES
from alpa_explore.figures.course.training.attention import ORDERS, causal_shares
from alpa_explore.figures.course.training.block import SUMS, block_times
from alpa_explore.figures.course.training.experts import routed_tokens
from alpa_explore.figures.course.training.schedules import schedule_facts
from alpa_explore.models.catalog import entry
from tests.notebooks.sources import (
    A100,
    BLOCK,
    BLOCKS,
    CARD,
    DISPATCH,
    EXPERT,
    FFN,
    FP8,
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
    Claim,
    P,
    attention_share,
    block_weights,
    largest,
    lowered,
    peak,
    remedy,
    repeated,
    ring_length,
    sums_over_products,
)

CLAIMS: tuple[Claim, ...] = (
    # lesson, sentence with the places of its numbers, their source
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
    ("09", "So **one** sample needs {:.0f} GB", lambda: [remedy(1, 1, False)[1]]),
    ("13", "The errors are +{:.0f} %, −{:.1f} % and", lambda: [100 * (10.4 / 10 - 1), 100 * (1 - 10.3 / 11)]),
    ("13", "the one that takes 11 s: a regret of {:.0f} %", lambda: [100 * (11 / 10 - 1)]),
    ("15", "h = 8,192, P = {:.0f} million", lambda: [block_weights("llama-3-70b") / 1e6]),
    (
        "15",
        "the peak grew {:.1f} times, and the bandwidth in a node {:.1f} times",
        lambda: [989 / 312, H100.inside_node.bandwidth / A100.bandwidth],
    ),
    ("09", "In bfloat16 that is {:.0f} GB", lambda: [2 * P / 1e9]),
    ("09", "An H100 has {} GiB ({:.0f} GB)", lambda: [H100.device.memory_bytes // GIB, H100_BYTES / 1e9]),
    ("09", "are only a {} of the truth", lambda: [{9: "ninth"}[18 // 2]]),
    ("10", "({:.2f} and {:.2f} of the mean)", lambda: [(w := 4 * causal_shares(4, ORDERS[0]))[3], w[0]]),
    ("10", "the last device has {} times the work", lambda: [{7: "seven"}[round(1.75 / 0.25)]]),
    ("10", "seven such blocks arrive: {:,.0f} · S bytes", lambda: [7 / 8 * 2 * 2 * KEYS]),
    ("11", "GPT-OSS-20B is {:,} wide", lambda: [OSS.hidden]),
    ("11", "each token to {} of {} experts", lambda: [OSS.experts.chosen, OSS.experts.count]),
    ("12", "of the whole arrive at each device: {:.0f} MB", lambda: [1.5 * 16384**2 / 1e6]),
    ("13", "Its error is {} times as large", lambda: [{3: "three"}[round(10 / 3.5)]]),
    ("14", "has 3² = {} strategies", lambda: [3**2]),
    (
        "14",
        "{} of them were bought for nothing",
        lambda: [{0.75: "three quarters"}[round(4 * (1 - 1 / (0.05 + 0.95 / 64) / 64)) / 4]],
    ),
    ("15", "{} heads of queries, and {} heads of keys", lambda: [LLAMA.config.heads, LLAMA.config.kv_heads]),
    ("16", "nearly {} as long as it computes", lambda: [{2: "twice"}[round(GATHER / (2 * BLOCK * 512 / 650e12) - 1)]]),
    ("17", "of a month, a layout that is a tenth slower costs {} days", lambda: [{3: "three"}[round(30 * 0.1)]]),
    (
        "17",
        "{} times the parameters, so TP 8",
        lambda: [{6: "six"}[round(entry("llama-3.1-405b").parameter_count / 70.6e9)]],
    ),
    (
        "14",
        "two bytes, {:.0f} MB. A gather takes 7/8 · 67 MB / 260 GB/s = {:.2f} ms",
        lambda: [(n := 2 * 16 * 2048 * 1024) / 1e6, 7 / 8 * n / A100.bandwidth * 1e3],
    ),
    ("14", "eight devices would still be {:.1f} times as fast", lambda: [1 / (0.041 + 0.959 / 8)]),
    ("18", "a peak of {:.0f} TFLOP/s for products in bfloat16", lambda: [peak("bfloat16") / 1e12]),
    ("18", "with one byte, its peak is {:,.0f}", lambda: [peak(FP8) / 1e12]),
    (
        "18",
        "reaches from {:.3f} to {:.0f}, and E5M2 to {:,.0f}",
        lambda: [2.0**-9, torch.finfo(torch.float8_e4m3fn).max, torch.finfo(torch.float8_e5m2).max],
    ),
    ("18", "| MXFP8 (B200 and later) | 32 | 448 | {:.2f} |", lambda: [RECIPES["mxfp8"].written_bytes / 2]),
    ("18", "| NVFP4 (B200 and later) | 16 | 6 | {:.2f} |", lambda: [RECIPES["nvfp4"].written_bytes / 2]),
    (
        "18",
        "At the peak it is {:,} tokens in a node of H100, and {:,} for a card",
        lambda: [round(peak(FP8) / H100.inside_node.bandwidth), round(peak(FP8) / CARD)],
    ),
    (
        "18",
        "take {:.1f} ms on one device, and those of 32 blocks {:.0f} ms: f = {:.2f}",
        lambda: [1e3 * (t := lowered("bf16").products_seconds), 32e3 * t, 32e3 * t / 921],
    ),
    (
        "18",
        "In FP8 they take {:.1f} ms a block, so r = {:.1f}",
        lambda: [1e3 * (t := lowered("fp8").products_seconds), lowered("bf16").products_seconds / t],
    ),
    (
        "18",
        "Casts take {:.1f} ms a block, {:.0f} ms in all: c = {:.2f}",
        lambda: [1e3 * (t := lowered("fp8").casts_seconds), 32e3 * t, 32e3 * t / 921],
    ),
    (
        "18",
        "attention is a {} of it",
        lambda: [{4: "quarter"}[round(921 / (32e3 * lowered("bf16").attention_seconds))]],
    ),
)
