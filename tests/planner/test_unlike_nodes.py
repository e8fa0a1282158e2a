"""Clusters of unlike nodes: which stage goes where is part of the plan, exactly."""

import itertools
import json
import math
import re
from dataclasses import replace
from pathlib import Path

import pytest

import alpa_explore as ax
from alpa_explore.cluster import Cluster, submeshes
from alpa_explore.errors import ClusterError, InfeasiblePlanError, OptionError, PlanFileError, ScheduleError
from alpa_explore.figures.decisions.cluster import cluster_figure
from alpa_explore.figures.decisions.stage_costs import stage_costs_figure
from alpa_explore.figures.page import page_html
from alpa_explore.figures.timelines.timeline import timeline_figure
from alpa_explore.planner.microbatch_graph import microbatch_graph
from alpa_explore.plans.plan import load_plan
from alpa_explore.plans.rebuild import layered_graphs
from alpa_explore.plans.report.error_bands import band_of
from alpa_explore.plans.report.summary import plan_report
from alpa_explore.plans.report.tables import stage_costs_table, stages_table
from alpa_explore.plans.schedule_stages import possible_schedules
from alpa_explore.questions.frontier import known_frontier
from alpa_explore.questions.reprice import reprice
from alpa_explore.schedules.catalog import SCHEDULES
from alpa_explore.search.pipeline_query import PipelineQuery
from alpa_explore.search.profile_stages import a_pipeline_fits

OPTIONS = {"num_microbatches": 2, "num_layers": 3, "delta": 1.0, "global_batch": 48}


@pytest.fixture(scope="module")
def plan() -> ax.Plan:
    return ax.plan("mlp-tiny", "1x2:a100+1x2:v100@alpa", **OPTIONS, pipeline=ax.PipelineOptions(paper=True))


def test_the_plan_is_the_best_of_all_assignments_of_layers_to_submeshes_of_both_kinds(plan: ax.Plan) -> None:
    b, layers = plan.options.num_microbatches, len(plan.layers)
    table, shapes = plan.costs.latency_table(b), plan.costs.submeshes
    best = math.inf
    for depth in range(1, layers + 1):
        for cuts in itertools.combinations(range(1, layers), depth - 1):
            for chosen in itertools.product(range(len(shapes)), repeat=depth):
                used = [sum(shapes[s].devices for s in chosen if shapes[s].kind == kind) for kind in (0, 1)]
                if used != [2, 2]:
                    continue
                ranges = zip((0, *cuts), (*cuts, layers), chosen, strict=True)
                times = [float(table[k, i, s, depth - 1 - n]) for n, (k, i, s) in enumerate(ranges)]
                best = min(best, sum(times) + (b - 1) * max(times))
    assert plan.predicted.iteration_seconds == pytest.approx(best, rel=1e-12)


def test_schedules_are_those_that_can_be_planned(plan: ax.Plan) -> None:
    names = possible_schedules(plan)
    assert {"1f1b", "gpipe", "zb-h1"} <= {*names}
    for name in set(SCHEDULES) - {*names}:
        with pytest.raises(OptionError, match="needs like stages"):
            ax.plan("mlp-tiny", "1x2:a100+1x2:v100", **OPTIONS, pipeline=ax.PipelineOptions(schedule=name))
        with pytest.raises(ScheduleError, match="needs like stages"):
            plan.timeline(name)
    assert set(SCHEDULES) - {*names} > {"interleaved-1f1b", "zb-v"}


def test_every_stage_lies_within_one_kind_and_has_its_price(plan: ax.Plan) -> None:
    cluster = plan.cluster
    assert sorted(d for stage in plan.stages for d in stage.devices) == [0, 1, 2, 3]
    for stage in plan.stages:
        (kind,) = {cluster.kind_of(device) for device in stage.devices}
        assert plan.candidate_of(stage).logical_mesh.kind == kind
        alone = ax.plan("mlp-tiny", f"1x2:{cluster.kinds[kind].device.name}", **OPTIONS)
        same = [m for m, s in enumerate(alone.costs.submeshes) if s.devices == len(stage.devices)]
        first, last = stage.layers
        prices = [c.microbatch_seconds for c in alone.costs.candidates.get((first, last, same[0]), ())]
        if prices:
            assert plan.candidate_of(stage).microbatch_seconds >= min(prices) * (1 - 1e-9)


def test_it_trains_as_one_process_does(plan: ax.Plan) -> None:
    assert ax.verify_interpreted(plan, steps=1).passed


def test_it_is_read_back(plan: ax.Plan, tmp_path: Path) -> None:
    path = tmp_path / "u.plan.json"
    plan.save(str(path))
    again = load_plan(path)
    assert again.cluster == plan.cluster
    assert again.costs.submeshes == plan.costs.submeshes
    assert again.costs.memory_of_kinds == plan.costs.memory_of_kinds
    assert ax.replan(again, num_microbatches=4).predicted == ax.replan(plan, num_microbatches=4).predicted


def test_what_needs_like_nodes_is_refused_with_the_reason(plan: ax.Plan) -> None:
    cluster = plan.cluster
    for schedule in ("interleaved-1f1b", "zb-v"):
        with pytest.raises(OptionError, match=f"{schedule} needs like stages.*unlike"):
            ax.replan(plan, pipeline=ax.PipelineOptions(schedule=schedule))
    with pytest.raises(OptionError, match=r"divides a model equally.*unlike.*1x2:v100"):
        ax.baseline("mlp-tiny", cluster, "data-parallel", num_microbatches=2, num_layers=2)


@pytest.mark.slow
def test_another_delta_gives_the_plan_that_planning_anew_gives() -> None:
    options = {"num_microbatches": 4, "num_layers": 4, "global_batch": 64}
    cluster = "1x1:a100+1x1:v100@alpa"
    before = ax.plan("gpt-tiny", cluster, delta=1.0, **options)
    anew, again = ax.plan("gpt-tiny", cluster, delta=0.2, **options), ax.replan(before, delta=0.2)
    assert [layer.operators for layer in before.layers] != [layer.operators for layer in anew.layers]
    assert not again.costs.complete
    assert again.predicted.iteration_seconds == pytest.approx(anew.predicted.iteration_seconds, rel=1e-5)


def test_memory_is_that_of_each_kind(plan: ax.Plan) -> None:
    """Where the second kind has a byte less than the best plan needs there, the plan is another one, which fits; that
    one fits is also found before all stages are priced."""
    (small,) = [s for s in plan.stages if s.device == "v100"]
    kind = plan.cluster.others[0]
    kind = replace(kind, device=replace(kind.device, memory_bytes=int(small.peak_bytes) - 1))
    cluster = replace(plan.cluster, others=(kind,))
    short = ax.plan("mlp-tiny", cluster, **OPTIONS, pipeline=plan.options.pipeline)
    assert all(stage.peak_bytes <= short.device_of(stage).memory_bytes for stage in short.stages)
    assert short.predicted.iteration_seconds > plan.predicted.iteration_seconds
    graph = microbatch_graph("mlp-tiny", OPTIONS["num_microbatches"], global_batch=OPTIONS["global_batch"])
    query = PipelineQuery(
        cluster=cluster, options=plan.options.pipeline, num_microbatches=plan.options.num_microbatches
    )
    assert a_pipeline_fits(layered_graphs(short, graph)[0], query) is True


def test_where_nothing_fits_the_kind_that_is_short_is_named() -> None:
    cluster = Cluster.parse("1x1:a100+1x1:v100@alpa", memory_bytes=2**20 // 8)
    kind = replace(cluster.others[0], device=replace(cluster.others[0].device, memory_bytes=2**30))
    with pytest.raises(InfeasiblePlanError, match=r"on 1×1 a100-80gb\) needs .* on each device of 128 KiB") as raised:
        ax.plan("mlp-tiny", replace(cluster, others=(kind,)), **OPTIONS)
    assert raised.value.over_bytes > 0


def test_reports_name_the_kind_of_every_stage(plan: ax.Plan) -> None:
    names = {"a100-80gb", "v100"}
    assert {stage.device for stage in plan.stages} == names
    assert {row["device"] for row in stages_table(plan)} == names
    for row, stage in zip(stages_table(plan), plan.stages, strict=True):
        memory = Cluster.parse(f"1x2:{stage.device}").device.memory_bytes
        assert row["memory_fraction"] == pytest.approx(stage.peak_bytes / memory)
        assert known_frontier(plan, stage.index).memory_bytes == memory
        assert all(point.chosen <= point.fits for point in known_frontier(plan, stage.index).points)
    costs = stage_costs_table(plan)
    assert {row["device"] for row in costs} == names
    chosen = {(row["layers"], row["submesh"], row["device"]) for row in costs if row["stage"] is not None}
    assert chosen == {(s.layers, s.submesh, s.device) for s in plan.stages}
    report = plan_report(plan)
    assert all(re.search(rf"on \d × {name}", report) for name in names)
    assert "the mean of its unlike devices" in report
    assert band_of(plan, "seconds") is None
    peaks = [kind.device.peak(plan.model.precision) for kind in plan.cluster.kinds]
    assert plan.flops_utilization == pytest.approx(plan.flops_per_second_per_device * 2 / sum(peaks))


@pytest.mark.slow
def test_figures_name_the_kind_of_nodes_and_stages(plan: ax.Plan) -> None:
    figure = cluster_figure(plan)
    assert list(figure.layout.yaxis.ticktext) == ["node 1<br>v100", "node 0<br>a100-80gb"]
    grounds = next(trace for trace in figure.data if trace.name == "stages")
    assert all(any(name in text for name in ("v100", "a100-80gb")) for text in grounds.hovertext)
    costs = stage_costs_figure(plan)
    headings = next(trace for trace in costs.data if trace.name == "submeshes").text
    assert {h.split()[1].removesuffix("</b>").rstrip(",").removesuffix("</b>") for h in headings} == {
        "v100",
        "a100-80gb",
    }
    cells = [text for trace in costs.data if trace.name == "latencies" for text in trace.hovertext.ravel() if text]
    for stage in plan.stages:
        (cell,) = [text for text in cells if f"selects stage {stage.index}" in text and "not in the plan" not in text]
        assert f"on {stage.submesh[0]}×{stage.submesh[1]} {stage.device}<" in cell
    rows = timeline_figure(plan).layout.yaxis.ticktext
    assert all(stage.device in row for stage, row in zip(plan.stages, reversed(rows), strict=True)) or all(
        stage.device in row for stage, row in zip(plan.stages, rows, strict=True)
    )
    assert "v100" in page_html(plan)


def test_a_plan_on_other_figures_keeps_its_kinds(plan: ax.Plan) -> None:
    """Twice the seconds on the second kind alone."""
    slow = reprice(plan, plan.cluster)
    assert slow.predicted.iteration_seconds == pytest.approx(plan.predicted.iteration_seconds, rel=1e-9)
    here = reprice(plan, Cluster.parse("2x2:cpu"))
    assert [s.devices for s in here.stages] == [s.devices for s in plan.stages]
    with pytest.raises(OptionError, match="kinds of nodes of the cluster are others"):
        reprice(ax.plan("mlp-tiny", "1x1:a100+2x1:v100", **OPTIONS), Cluster.parse("2x1:a100+1x1:v100"))


def test_a_file_whose_stage_is_on_two_kinds_is_refused(plan: ax.Plan, tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    plan.save(path)
    document = json.loads(path.read_text())
    wide = next(stage for stage in document["stages"] if len(stage["devices"]) > 1)
    other = next(stage for stage in document["stages"] if stage["device"] != wide["device"])
    wide["devices"][0], other["devices"][0] = other["devices"][0], wide["devices"][0]
    path.write_text(json.dumps(document))
    with pytest.raises(PlanFileError, match="more than one kind"):
        load_plan(path)


def test_parts_of_a_cluster() -> None:
    cluster = Cluster.parse("4x8:h100+2x8:a100")
    assert (cluster.nodes, cluster.devices, [k.devices for k in cluster.kinds]) == (6, 48, [32, 16])
    assert [cluster.kind_of(d) for d in (0, 31, 32, 47)] == [0, 0, 1, 1]
    assert {k.device.software.name for k in cluster.kinds} == {"megatron"}
    assert cluster.between_nodes.bandwidth == Cluster.parse("2x8:a100").between_nodes.bandwidth
    assert Cluster.parse(str(cluster)) == cluster
    assert str(Cluster.parse("1x8:h100+1x8:h100")) == "2x8:h100"
    assert {k.device.software.name for k in Cluster.parse("1x8:h100+1x8:a100@fsdp").kinds} == {"fsdp"}
    by_kind = [[s.devices for s in submeshes(cluster) if s.kind == kind] for kind in (0, 1)]
    assert by_kind == [[1, 2, 4, 8, 16, 24, 32], [1, 2, 4, 8, 16]]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("4x8:h100+", r"nothing stands beside a '\+' of '4x8:h100\+'\. Add the other kind"),
        ("+4x8:h100", "nothing stands beside"),
        ("4x8:h100+1x8:", "'1x8:' in '4x8:h100\\+1x8:'"),
        ("4x8:h100+a100", "for unlike nodes"),
        ("1x8:h100+0x8:a100", "at least one node: nodes=0 in '1x8"),
        ("1x8:h100+1x4:a100", "nodes of 4, 8 devices .* Write all as nodes of 4"),
        ("1x8:h100+1x6:a100", "Plan on nodes of one kind"),
        ("1x8:h100+1x8:a100+1x8:v100+1x8:b200", "4 kinds .* Give 3 kinds or fewer"),
        ("1x8:gb200+1x8:h100", "Write the trays as nodes, as in '2x4:gb200'"),
    ],
)
def test_impossible_mixtures_are_refused_with_what_is_wrong(text: str, says: str) -> None:
    with pytest.raises(ClusterError, match=says):
        Cluster.parse(text)


def test_parts_of_one_kind_are_a_cluster_of_like_nodes() -> None:
    assert Cluster.parse("1x72:gb200+1x72:gb200") == Cluster.parse("2x72:gb200")
    assert Cluster.parse("1x8:h100+2x8:h100@fsdp") == Cluster.parse("3x8:h100@fsdp")


def test_two_kinds_of_one_name_are_refused(tmp_path: Path) -> None:
    preset = Path("alpa_explore/cluster/presets/v100.json").read_text()
    (tmp_path / "mine.json").write_text(
        preset.replace(str(Cluster.parse("1x4:v100").device.memory_bytes), "34359738368")
    )
    with pytest.raises(ClusterError, match="two kinds named v100"):
        Cluster.parse(f"1x4:v100+1x4:{tmp_path / 'mine.json'}")


def test_too_few_layers_for_the_kinds_of_nodes_asks_for_more():
    with pytest.raises(InfeasiblePlanError, match=r"1 layer on 2 kinds of nodes.*Use at least 2 layers"):
        ax.plan("gpt-tiny", "1x2:h100+1x2:a100", num_microbatches=4, num_layers=1, cache=False, scheduler="serial")
