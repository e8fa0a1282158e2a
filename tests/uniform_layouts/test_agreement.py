"""A layout is a plan: `layouts` and the plan of each of its rows have the same seconds and bytes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import alpa_explore as ax
from alpa_explore.baselines.layout import BASELINE
from alpa_explore.calibration.profiling.wanted import WantedKernel, wanted_kernels
from alpa_explore.cluster import Cluster
from alpa_explore.cluster.kernel_store import KernelStore, MeasuredKernel
from alpa_explore.cost.measured import measured_kernel
from alpa_explore.planner.microbatch_graph import microbatch_graph
from alpa_explore.uniform_layouts.ranking import Layouts, PricedLayout

SECONDS, BYTES = 0.002, 0.006
"""Largest difference; of models of a usual size half of it. Of seconds twice as much with ZeRO-3 and context
parallelism: a plan gathers weights along one axis of its mesh after the other, and a layout among all at once."""
SMALL = 1e-5
"""Seconds of a microbatch: a kernel or two of the smallest size. All blocks of a layout are like a later one, which
adds up the gradients of its input; the first of a plan does not. Twice as much where blocks are computed again."""


WINDOW, FULL = "sliding_attention", "full_attention"


def of_each_kind(layouts: Layouts, most: int) -> list[PricedLayout]:
    """The fastest layout of every combination of what is used at all, evenly thinned out to `most`."""
    kinds: dict[tuple[object, ...], PricedLayout] = {}
    for one in layouts.ranked:
        used = one.layout
        degrees = (used.tensor, used.pipeline, used.context, used.expert, used.chunks)
        kinds.setdefault((*(n > 1 for n in degrees), used.zero_stage, used.recompute), one)
    rows = list(kinds.values())
    return [rows[i * len(rows) // most] for i in range(most)] if len(rows) > most else rows


def config_file(folder: Path, kind: str = "llama", **changed: Any) -> str:
    """Of a small model of transformers."""
    sizes = {"hidden_size": 256, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 512}
    sizes |= {"vocab_size": 512, "num_hidden_layers": 8, "max_position_embeddings": 128}
    path = folder / "config.json"
    path.write_text(json.dumps({"model_type": kind, **sizes, **changed}))
    return str(path)


def the_plan(model: str, cluster: Cluster, layouts: Layouts, row: PricedLayout) -> ax.Plan:
    b = row.layout.microbatches
    return ax.baseline(
        microbatch_graph(model, b, global_batch=layouts.global_batch, precision="bf16"),
        cluster,
        BASELINE,
        num_microbatches=b,
        rematerialization=row.layout.rematerialization,
        **row.layout.degrees(row.blocks),
    )


@pytest.mark.slow
@pytest.mark.sweep(kept=2, in_turn=True)
@pytest.mark.parametrize("software", ["megatron", "torchtitan", "compiled", "megatron-2025"])
@pytest.mark.parametrize(
    ("model", "cluster"),
    [("llama-tiny", "1x4:h100"), ("mixtral-tiny", "1x4:h100"), ("qwen3-tiny", "2x4:h100"), ("gpt-tiny", "2x2:a100")],
)
def test_layouts_and_plans_have_one_price(model: str, cluster: str, software: str) -> None:
    machines = Cluster.parse(cluster, software=software)
    layouts = ax.layouts(model, machines, global_batch=16, scheduler="serial", cache=False)
    for row in of_each_kind(layouts, 6):
        if row.layout.chunks > 1:
            continue  # `test_interleaved_layouts_are_plans_too`
        plan = the_plan(model, machines, layouts, row)
        within = SECONDS * (2 if row.layout.zero_stage == 3 and row.layout.context > 1 else 1)
        few = row.layout.microbatches * SMALL * (2 if row.layout.recompute == "full" else 1)
        assert abs(plan.predicted.iteration_seconds - row.seconds) <= within * row.seconds + few, row.words
        assert plan.predicted.peak_bytes_per_device == pytest.approx(row.bytes, rel=BYTES), row.words


@pytest.mark.slow
def test_sums_of_the_gradients_of_norms_are_not_launched_one_by_one() -> None:
    """With one microbatch a plan sums them where they are made; nanotron's collectives take the host longest."""
    machines = Cluster.parse("2x2:a100@nanotron")
    layouts = ax.layouts("gpt-tiny", machines, global_batch=64, scheduler="serial", cache=False)
    row = next(r for r in layouts.ranked if r.layout.tensor == 2 and r.layout.microbatches == 1)
    seconds = the_plan("gpt-tiny", machines, layouts, row).predicted.iteration_seconds
    assert seconds == pytest.approx(row.seconds, rel=0.04)


@pytest.mark.slow
def test_layouts_and_plans_price_kernels_alike_that_were_timed() -> None:
    machines = Cluster.parse("1x2:h100@eager")
    before = ax.layouts("llama-tiny", machines, global_batch=8, scheduler="serial", cache=False)
    row = before.ranked[0]
    wanted = wanted_kernels(the_plan("llama-tiny", machines, before, row))
    kernels = {each.name: as_if_timed(each, 30 * each.seconds) for each in wanted}
    store = KernelStore(device="x", driver="", software="torch", date="2026-11-29", kernels=kernels)
    timed = replace(machines, device=replace(machines.device, measured=store))
    after = ax.layouts("llama-tiny", timed, global_batch=8, scheduler="serial", cache=False)
    again = next(r for r in after.ranked if r.layout == row.layout)
    plan = the_plan("llama-tiny", timed, after, again)
    assert any(o.measured_seconds for stage in plan.stages for o in stage.operators)
    assert again.seconds > 1.0001 * row.seconds
    few = again.layout.microbatches * SMALL
    assert abs(plan.predicted.iteration_seconds - again.seconds) <= SECONDS * again.seconds + few


def as_if_timed(wanted: WantedKernel, seconds: float) -> MeasuredKernel:
    assert wanted.kernel.name is not None
    return measured_kernel(wanted.kernel, wanted.kernel.name, seconds=seconds, host_seconds=0.0, spread=0.0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "sizes"),
    [
        ("gemma3_text", {"head_dim": 64, "sliding_window": 32, "layer_types": [WINDOW, WINDOW, FULL, WINDOW]}),
        ("lfm2", {"layer_types": ["conv", FULL, "conv", "conv"]}),
        (
            "hy_v3",
            {
                **{"head_dim": 64, "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 128},
                "mlp_layer_types": ["dense"] + ["sparse"] * 3,
            },
        ),
    ],
)
def test_unlike_blocks_are_priced_as_they_are(kind: str, sizes: dict[str, Any], tmp_path: Path) -> None:
    """Each stage of a pipeline with those that it has, in a layout as in its plan. Of two samples in a microbatch, so
    that all plans are of one graph."""
    model = config_file(tmp_path, kind, **{"num_hidden_layers": 4, **sizes})
    machines = Cluster.parse("1x4:h100")
    layouts = ax.layouts(model, machines, global_batch=8, scheduler="serial", cache=False)
    rows = {
        r.layout.pipeline: r for r in reversed(layouts.ranked) if (r.layout.chunks, r.layout.microbatches) == (1, 4)
    }
    assert sorted(rows) == [1, 2, 4]
    for row in rows.values():
        plan = the_plan(model, machines, layouts, row)
        assert plan.predicted.iteration_seconds == pytest.approx(row.seconds, rel=0.01), row.words
        assert plan.predicted.peak_bytes_per_device == pytest.approx(row.bytes, rel=BYTES), row.words


@pytest.mark.slow
def test_what_only_nanotron_pays_is_paid_by_plans_too() -> None:
    """Sums of gradients in float32, buffers of gradients, the loss of the last microbatch; its own division of blocks.

    Its host launches collectives slowly, and a plan has those that sum the loss; for a pipeline a layout also has the
    buffers of what stages send."""
    machines = Cluster.parse("1x4:h100@nanotron")
    layouts = ax.layouts("llama-tiny", machines, global_batch=16, scheduler="serial", cache=False)
    data, pipeline = (next(r for r in layouts.ranked if r.layout.pipeline == pp and r.layout.data > 1) for pp in (1, 2))
    plan = the_plan("llama-tiny", machines, layouts, data)
    assert plan.predicted.iteration_seconds == pytest.approx(data.seconds, rel=0.04)
    assert plan.predicted.peak_bytes_per_device == pytest.approx(data.bytes, rel=BYTES)
    plan = the_plan("llama-tiny", machines, layouts, pipeline)
    assert tuple(last - first + 1 for first, last in (stage.layers for stage in plan.stages)) == pipeline.blocks
    assert plan.predicted.iteration_seconds == pytest.approx(pipeline.seconds, rel=0.04)


@pytest.mark.slow
def test_rotary_tables_in_zigzag_order_are_held_once(tmp_path: Path) -> None:
    """Of all blocks, where each is computed again from its input and they."""
    model = config_file(tmp_path, max_position_embeddings=4096)
    machines = Cluster.parse("1x2:h100")
    layouts = ax.layouts(model, machines, global_batch=2, scheduler="serial", cache=False)
    row = next(r for r in layouts.ranked if (r.layout.context, r.layout.recompute) == (2, "full"))
    plan = the_plan(model, machines, layouts, row)
    reserve = machines.device.reserved_bytes
    assert plan.predicted.peak_bytes_per_device - reserve == pytest.approx(row.bytes - reserve, rel=0.005), row.words


@pytest.mark.slow
def test_what_is_freed_before_a_table_has_its_gradient_is_not_counted_beside_it(tmp_path: Path) -> None:
    """The gradient of the embedding is larger than all that the head needs, but then no activations are held."""
    model = config_file(tmp_path, vocab_size=32_768, max_position_embeddings=64)
    machines = Cluster.parse("1x4:h100")
    layouts = ax.layouts(model, machines, global_batch=16, scheduler="serial", cache=False)
    row = next(r for r in layouts.ranked if (r.layout.data, r.layout.microbatch, r.layout.recompute) == (4, 2, "none"))
    plan = the_plan(model, machines, layouts, row)
    reserve = machines.device.reserved_bytes
    assert plan.predicted.peak_bytes_per_device - reserve == pytest.approx(row.bytes - reserve, rel=0.005), row.words


@pytest.mark.slow
@pytest.mark.parametrize(("tied", "blocks"), [(False, 8), (True, 10)])
def test_interleaved_layouts_are_plans_too(tied: bool, blocks: int, tmp_path: Path) -> None:
    """Of the head, whose logits are most of what a small model holds, there is one microbatch; ten blocks make three
    parts for each of two stages, the first and the last of them shorter."""
    changed = {"vocab_size": 32_768, "num_hidden_layers": blocks, "max_position_embeddings": 1024}
    model = config_file(tmp_path, tie_word_embeddings=tied, **changed)
    machines = Cluster.parse("1x4:h100")
    layouts = ax.layouts(model, machines, global_batch=16, scheduler="serial", cache=False)
    for chunks, recompute in ((3, "none"), (3, "full")) if blocks == 10 else ((2, "none"), (4, "full")):
        row = next(r for r in layouts.ranked if (r.layout.chunks, r.layout.recompute) == (chunks, recompute))
        plan = the_plan(model, machines, layouts, row)
        assert plan.options.pipeline.schedule == "interleaved-1f1b"
        of_parts = tuple(last - first + 1 for first, last in (stage.layers for stage in plan.interleaved))
        assert of_parts == row.blocks
        assert plan.predicted.iteration_seconds == pytest.approx(row.seconds, rel=SECONDS), row.words
        reserve = machines.device.reserved_bytes
        assert plan.predicted.peak_bytes_per_device - reserve == pytest.approx(row.bytes - reserve, rel=0.005), (
            row.words
        )
