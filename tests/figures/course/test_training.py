"""Figures of lessons 08 to 17, held against what they show."""

from itertools import pairwise

import numpy as np
import pytest

from alpa_explore.cluster import Cluster, Submesh, logical_mesh
from alpa_explore.cluster.group import device_group
from alpa_explore.cost.group_collectives import group_seconds
from alpa_explore.cost.resharding import reshard_table
from alpa_explore.errors import OptionError, ScheduleError
from alpa_explore.figures.course.training.activations import RECOMPUTED, kept_bytes, kept_figure
from alpa_explore.figures.course.training.attention import (
    ORDERS,
    causal_balance_figure,
    causal_shares,
    ring_figure,
    ring_times,
)
from alpa_explore.figures.course.training.block import DEGREES, SUMS, block_figure, block_times, precision_figure
from alpa_explore.figures.course.training.coverage import coverage_figure
from alpa_explore.figures.course.training.experts import busiest_over_mean, routed_tokens, routing_figure
from alpa_explore.figures.course.training.hidden import (
    MODES,
    PLACES,
    BlockSeconds,
    block_seconds,
    overlap,
    overlap_figure,
)
from alpa_explore.figures.course.training.layout_cloud import STEPS, kept, layout_cloud, layout_cloud_figure
from alpa_explore.figures.course.training.memory import MODELS, stacked_bytes_figure, zero_bytes, zero_figure
from alpa_explore.figures.course.training.resharding import resharding_figure
from alpa_explore.figures.course.training.schedules import RATIOS, schedule_facts, schedule_figure
from alpa_explore.models.catalog import entry
from alpa_explore.schedules.catalog import SCHEDULES
from alpa_explore.sharding.reshard import StepKind
from alpa_explore.sharding.splits import KindCoverage
from alpa_explore.uniform_layouts.layouts import layouts


@pytest.mark.parametrize("name", SCHEDULES)
def test_schedules_do_the_same_work_whatever_the_stages_of_a_device(name: str) -> None:
    facts = schedule_facts(name, 4, 8)
    assert facts.makespan * (1 - facts.bubble_fraction) == pytest.approx(8 * 3), "8 microbatches of 3 units"
    assert facts.held <= 8


def test_the_bars_of_a_schedule_are_its_tasks_and_its_curves_what_is_held() -> None:
    figure = schedule_figure("zb-h1", 4, 8)
    bars = [trace for trace in figure.data if trace.type == "bar"]
    assert [bar.name for bar in bars] == ["forward", "backward to the input", "backward to the weights"]
    assert [len(bar.x) for bar in bars] == [32, 32, 32]
    assert sum(sum(bar.x) for bar in bars) == pytest.approx(4 * 24)
    curves = [trace for trace in figure.data if trace.type == "scatter"]
    assert [max(curve.y) for curve in curves] == [4, 4, 4, 4]
    assert "27 units" in figure.layout.title.text


def test_what_a_schedule_cannot_do_is_said() -> None:
    with pytest.raises(ScheduleError):
        schedule_figure("dualpipe-v", 8, 8)
    with pytest.raises(OptionError, match="ratio"):
        schedule_figure("1f1b", 4, 8, "2 : 1")
    assert len(RATIOS) >= 2


@pytest.mark.parametrize("devices", [2, 4, 8])
def test_causal_shares_are_those_of_the_mask(devices: int) -> None:
    tokens = 2 * devices * 64
    seen = np.tril(np.ones((tokens, tokens))).sum(axis=1)
    runs = seen.reshape(devices, -1).sum(axis=1) / seen.sum()
    assert causal_shares(devices, ORDERS[0]) == pytest.approx(runs, rel=0.05)
    assert causal_shares(devices, ORDERS[0])[-1] * devices == pytest.approx(2 - 1 / devices)
    assert causal_shares(devices, ORDERS[1]) == pytest.approx(np.full(devices, 1 / devices))
    figure = causal_balance_figure(devices, ORDERS[0])
    assert sum(sum(trace.x) for trace in figure.data[:devices]) == pytest.approx((2 * devices) ** 2 / 2)


def test_a_ring_waits_for_the_network_on_short_sequences_only() -> None:
    cluster = Cluster.parse("8x8:h100")
    short, long = (ring_times(cluster, sequence, 8, stride=8) for sequence in (8192, 131072))
    assert short.exposed_seconds > 0 == long.exposed_seconds
    assert long.computing_seconds / short.computing_seconds > 100, "16² times the work"
    waiting = ring_figure(8192, 8, "between nodes").data
    assert [trace.name for trace in waiting] == ["compute", "receive", "wait"]
    ends = max(base + x for base, x in zip(waiting[0].base, waiting[0].x, strict=True))
    assert ends == pytest.approx(short.computing_seconds + short.exposed_seconds)
    assert "all hidden" in ring_figure(131072, 8, "between nodes").layout.title.text
    with pytest.raises(OptionError, match="multiple of 16"):
        ring_times(cluster, 1000, 8)


@pytest.mark.parametrize("stage", range(4))
def test_zero_divides_one_part_more_at_each_stage(stage: int) -> None:
    parts = zero_bytes(1000.0, 4, stage)
    divided = {"weights": stage >= 3, "gradients": stage >= 2, "optimizer state": stage >= 1}
    whole = {"weights": 2000.0, "gradients": 4000.0, "optimizer state": 12000.0}
    assert parts == {name: size / 4 if divided[name] else size for name, size in whole.items()}


def test_the_bars_of_zero_are_bytes_of_the_catalogue_model() -> None:
    for model in MODELS:
        figure = zero_figure(model, 8, "fp32")
        first = sum(trace.y[0] for trace in figure.data if trace.type == "bar") * 2**30
        assert first == pytest.approx(18 * entry(model).parameter_count)
    assert "ZeRO-1" in zero_figure("llama-3-8b", 8, "fp32").layout.title.text
    assert "do not fit" in zero_figure("llama-3-70b", 8, "fp32").layout.title.text
    bars = stacked_bytes_figure({"a": {"x": 2.0**30}, "b": {"y": 2.0**31}}, "two", limit_bytes=2.0**32)
    assert bars.layout.shapes[0].y0 == 4
    with pytest.raises(OptionError):
        zero_bytes(1.0, 4, 4)


def test_every_token_is_routed_to_k_experts_and_skew_makes_a_device_busy() -> None:
    counts = routed_tokens(4, 16, 2, 1.0, tokens=100)
    assert counts.sum(axis=1).tolist() == [200] * 4
    assert counts.max() <= 100, "a token goes to an expert once"
    even, skewed = (busiest_over_mean(routed_tokens(4, 16, 2, skew), 4) for skew in (0.0, 1.0))
    assert 1 < even < 1.1 < skewed
    figure = routing_figure(4, 2, 1.0)
    assert np.array(figure.data[0].z).sum() == 4 * 512 * 2
    assert f"{skewed:.2f} times the mean" in figure.layout.title.text
    with pytest.raises(OptionError):
        routed_tokens(3, 16, 2, 0.0)


def test_the_cells_of_the_resharding_figure_are_the_seconds_of_the_table() -> None:
    mesh = logical_mesh(Cluster.parse("1x4:v100"), Submesh(1, 4), (1, 4)).squeezed()
    table = reshard_table((64, 64), 2 * 64 * 64, mesh)
    heat = resharding_figure(table).data[0]
    assert not any("P" in name for name in heat.x), "nothing becomes a pending sum"
    row, column = list(heat.y).index("S0R"), list(heat.x).index("RR")
    expected = np.log10(table.seconds[table.index[(0,)], table.index[(-1,)]])
    assert heat.z[row][column] == pytest.approx(expected, abs=1e-3)
    assert "all-gather over axis 0" in heat.hovertext[row][column]


def test_the_coverage_figure_names_what_is_discovered() -> None:
    def kind(name: str, how: str, count: int) -> KindCoverage:
        return KindCoverage(kind=name, how=how, count=count, flops=0, flops_share=0.0, factors=("m",), reason="")

    kinds = [kind("aten.mm.default", "rule", 9), kind("aten.sort.stable", "discovered", 2)]
    figure = coverage_figure(kinds)
    assert [trace.name for trace in figure.data] == ["rule", "discovered"]
    assert figure.data[1].y == ("aten.sort.stable",)
    assert "2 have a discovered rule, none is replicated" in figure.layout.title.text


@pytest.mark.parametrize("sums", SUMS)
@pytest.mark.parametrize("degree", DEGREES)
def test_the_slices_of_a_block_are_its_weights_and_its_bars_its_time(degree: int, sums: str) -> None:
    figure, times = block_figure(degree, sums, 8192), block_times(degree, sums, 8192)
    slices = [trace for trace in figure.data if trace.yaxis != "y2"]
    assert len(slices) == degree
    areas = np.sum([np.array(trace.width) * np.array(trace.y) for trace in slices], axis=0)
    assert areas == pytest.approx([0.8] * 5), "together whole, none twice"
    bars = [trace for trace in figure.data if trace.yaxis == "y2"]
    place = DEGREES.index(degree)
    assert bars[-1].base[place] + bars[-1].y[place] == pytest.approx(1e3 * times.seconds)
    assert [trace.marker.line.width[place] for trace in bars] == [3, 3, 3]
    assert len(figure.layout.annotations) == (2 if degree > 1 else 0)


def test_fp8_halves_products_adds_casts_and_leaves_attention_and_sums_as_they_are() -> None:
    whole, low = (block_times(2, SUMS[0], 8192, precision) for precision in ("bf16", "fp8"))
    assert whole.products_seconds / low.products_seconds == pytest.approx(1979 / 989, rel=0.1)
    assert (whole.attention_seconds, whole.sums_seconds) == (low.attention_seconds, low.sums_seconds)
    assert whole.casts_seconds == 0 < low.casts_seconds
    read = 4096 + 2048 + 4096 + 7168  # by the four products on one of two devices, in numbers of a token
    made = 3072 + 4096 + 14336 + 4096  # their results, whose gradients are cast
    device = Cluster.parse("1x8:h100").device
    least = 8192 * (read + made) * (2 + 2) / device.memory_bandwidth
    assert 1 < low.casts_seconds / least < 1.5, "two bytes are read, and two of FP8 are written"


@pytest.mark.parametrize("tokens", [512, 8192])
def test_the_pairs_of_bars_are_blocks_in_both_formats(tokens: int) -> None:
    figure = precision_figure(tokens)
    tops = [base + y for base, y in zip(figure.data[-1].base, figure.data[-1].y, strict=True)]
    times = [block_times(p, SUMS[0], tokens, name).seconds for p in DEGREES[:-1] for name in ("bf16", "fp8")]
    assert tops == pytest.approx([1e3 * seconds for seconds in times])
    assert f"{times[-2] / times[-1]:.2f} on 8" in figure.layout.title.text


def test_products_of_a_block_shrink_with_its_devices_and_sums_do_not() -> None:
    alone, node, two_nodes = (block_times(degree, SUMS[0], 8192) for degree in (1, 8, 16))
    assert alone.sums_seconds == 0
    assert node.products_seconds == pytest.approx(alone.products_seconds / 8, rel=0.05)
    assert node.attention_seconds == pytest.approx(alone.attention_seconds / 8, rel=0.05)
    group = device_group(Cluster.parse("2x8:h100"), 8, 1)
    assert node.sums_seconds == pytest.approx(4 * group_seconds(StepKind.ALL_REDUCE, 2 * 8192 * 4096, group))
    assert two_nodes.sums_seconds > node.sums_seconds


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("place", PLACES)
def test_a_device_sends_and_computes_all_blocks_each_when_its_inputs_are_there(mode: str, place: str) -> None:
    each = block_seconds(mode, place, 1024)
    found = overlap(8, each)
    ends = {(task.kind, task.block): task.end for task in found.tasks}
    for block in range(8):
        times = [task for task in found.tasks if task.block == block]
        assert sum(task.end - task.start for task in times if task.kind == "forward") == pytest.approx(each.forward)
        backward = next(task for task in times if task.kind == "backward")
        assert backward.start >= max(task.end for task in times if task.kind == "gather")
        assert ends["sum", block] >= ends["scatter", block] >= backward.end
    for kinds in (("forward", "backward"), ("gather", "scatter"), ("sum",)):
        stream = sorted((task.start, task.end) for task in found.tasks if task.kind in kinds)
        assert all(end <= start + 1e-12 for (_, end), (start, _) in pairwise(stream)), "one thing at a time"
    figure = overlap_figure(mode, place, 1024, blocks=8)
    busy = sum(sum(bar.x) for bar in figure.data if bar.name in ("forward", "backward"))
    assert busy == pytest.approx(8e3 * each.computing)
    assert found.exposed_seconds == pytest.approx(found.seconds - 1e-3 * busy)


def test_what_is_shorter_than_computing_is_hidden_but_for_the_ends() -> None:
    each = BlockSeconds(forward=2, backward=4, gather=1, scatter=1)
    assert overlap(8, each).exposed_seconds == pytest.approx(2), "the first gather and the last scatter"
    slow = BlockSeconds(forward=2, backward=4, gather=3)
    assert overlap(8, slow).exposed_seconds == pytest.approx(3 + 7)
    assert overlap(8, BlockSeconds(forward=2, backward=4, sum=5)).exposed_seconds == pytest.approx(8 * 5 - 7 * 4)
    one, many = (block_seconds("FSDP", place, 4096) for place in PLACES)
    assert one.gather < many.gather
    assert one.forward == many.forward
    assert block_seconds("HSDP", "64 on 8 nodes", 4096).gather == one.gather


def test_a_block_keeps_what_the_formula_says_and_less_under_recomputation_and_division() -> None:
    tokens, hidden, keys, ffn = 8192, 4096, 1024, 14336  # of Llama-3-8B
    kept = {kind: sum(kept_bytes("llama-3-8b", tokens, kind).values()) for kind in RECOMPUTED}
    assert kept["none"] == tokens * (12 * hidden + 4 * keys + 6 * ffn)
    assert kept["none"] - kept["norms"] == tokens * (4 * hidden + 2 * ffn)
    assert kept["norms"] - kept["norms+attention"] == tokens * 2 * hidden
    assert kept["full"] == tokens * 2 * hidden
    eighth = {sums: sum(kept_bytes("llama-3-8b", tokens, "none", 8, sums).values()) for sums in SUMS}
    assert eighth[SUMS[1]] == kept["none"] / 8
    assert eighth[SUMS[0]] == kept["none"] / 8 + tokens * 8 * hidden * 7 / 8
    figure = kept_figure("llama-3-8b", tokens, 1, SUMS[0])
    tops = [base + size for base, size in zip(figure.data[-2].base, figure.data[-2].y, strict=True)]
    assert tops == pytest.approx([size / 2**20 for size in kept.values()])


@pytest.mark.slow
def test_every_layout_is_a_mark_and_each_step_leaves_fewer_with_the_best() -> None:
    asked = layouts("llama-tiny", Cluster.parse("1x4:h100"), global_batch=4)
    left = [kept(asked, step) for step in STEPS]
    assert left[0] == asked.ranked
    assert left[1] == asked.fitting
    assert all(set(after) <= set(before) for before, after in pairwise(left))
    assert all(priced.layout.recompute == "none" for priced in left[2])
    assert all(priced.seconds <= 1.1 * asked.best.seconds for priced in left[3])
    assert asked.best in left[3]
    for step, found in zip(STEPS, left, strict=True):
        figure = layout_cloud_figure(asked, step, "pipeline stages")
        marks = [trace for trace in figure.data if trace.mode == "markers"]
        assert sum(len(trace.x) for trace in marks[1:]) == len(found)
        assert sum(len(trace.x) for trace in marks) == len(asked.ranked)
    assert len(dict(layout_cloud(asked).states())) == len(STEPS) * 4
