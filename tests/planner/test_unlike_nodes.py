"""Clusters of unlike nodes: which stage goes where is part of the plan, exactly."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import pytest

import alpa_explore as ax
from alpa_explore.cluster import Cluster, submeshes
from alpa_explore.errors import ClusterError, OptionError
from alpa_explore.plans.plan import load_plan

OPTIONS = {"num_microbatches": 2, "num_layers": 3, "delta": 1.0, "global_batch": 48}


@pytest.fixture(scope="module")
def plan() -> ax.Plan:
    return ax.plan("mlp-tiny", "1x2:a100+1x2:v100", **OPTIONS)


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
    with pytest.raises(OptionError, match=r"divides a model equally.*unlike"):
        ax.baseline("mlp-tiny", cluster, "data-parallel", num_microbatches=2, num_layers=2)
    with pytest.raises(OptionError, match=r"Another delta.*unlike"):
        ax.replan(plan, delta=0.5)


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
