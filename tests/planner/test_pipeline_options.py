"""The pipeline options from the planner to the plan file: they are kept, replanned in place, and priced."""

import itertools
import json

import pytest

import alpa_explore as ax
from alpa_explore.cli import main
from alpa_explore.errors import InfeasiblePlanError, OptionError
from alpa_explore.graph import Phase
from alpa_explore.inter_op.options import IDEAL
from alpa_explore.intra_op.stage.layered_graph import assign_layers
from alpa_explore.intra_op.stage.stage_graph import received_bytes
from alpa_explore.layering import cluster_operators
from alpa_explore.planner.request import PlanRequest
from alpa_explore.plans.iteration_time import objective_seconds
from alpa_explore.plans.report.summary import plan_report


def tiny(cluster="2x2:v100", b=8, **options):
    return ax.plan(
        "gpt-tiny",
        cluster,
        num_microbatches=b,
        num_layers=4,
        scheduler="serial",
        pipeline=ax.PipelineOptions(**options),
    )


@pytest.fixture(scope="module")
def plan():
    return tiny()


@pytest.mark.sweep(kept=3, in_turn=True)
@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {"num_stages": 2},
        {"cuts": (1,), "num_stages": 2},
        {"num_stages": 2, "stage_submeshes": ((-1, 1, 1),)},
        {"communication": True},
        {"schedule": "gpipe", "num_stages": 3},
        {"imbalance_tolerance": 1.0},
        {"schedule": "interleaved-1f1b", "num_stages": 2},
        {"schedule": "zb-h1"},
        {"tied_weights": True, "num_stages": 3},
    ],
)
def test_planning_and_replanning_with_an_option_agree_and_the_file_keeps_it(plan, options, tmp_path):
    if options.get("stage_submeshes"):
        with pytest.raises(InfeasiblePlanError):
            ax.replan(plan, pipeline=ax.PipelineOptions(**options))  # 1 + 3 devices: no submesh has 3
        return
    asked = ax.PipelineOptions(**options)
    again, fresh = ax.replan(plan, pipeline=asked), tiny(**options)
    assert again.options.pipeline == fresh.options.pipeline == ax.PipelineOptions(**{"schedule": "1f1b", **options})
    assert again.predicted.iteration_seconds == pytest.approx(fresh.predicted.iteration_seconds, rel=6e-3)
    assert fresh.predicted.iteration_seconds <= again.predicted.iteration_seconds * (1 + 1e-9)
    fresh.save(tmp_path / "p")
    loaded = ax.load_plan(tmp_path / "p")
    assert loaded.options == fresh.options
    assert [s.latency_seconds for s in loaded.stages] == [s.latency_seconds for s in fresh.stages]
    assert ax.replan(loaded).predicted == fresh.predicted
    assert ax.replan(loaded, pipeline=ax.PipelineOptions()).options.pipeline == ax.PipelineOptions(schedule="1f1b")


def test_the_stages_are_those_that_were_asked_for(plan):
    two = ax.replan(plan, pipeline=ax.PipelineOptions(num_stages=2, cuts=(1,)))
    assert [s.layers for s in two.stages] == [(0, 0), (1, 3)]
    whole = ax.replan(plan, pipeline=ax.PipelineOptions(stage_submeshes=((0, 2, 2),)))
    assert [s.submesh for s in whole.stages] == [(2, 2)]
    gpipe = ax.replan(plan, pipeline=ax.PipelineOptions(schedule="gpipe"))
    assert {s.microbatches_held for s in gpipe.stages} == {8}
    assert "schedule gpipe" in plan_report(gpipe)
    assert gpipe.predicted.peak_bytes_per_device > plan.predicted.peak_bytes_per_device


def test_communication_is_part_of_a_stage_and_its_latency_still_adds_up(plan):
    counted = ax.replan(plan, pipeline=ax.PipelineOptions(communication=True, num_stages=4))
    assert all(s.receive_seconds > 0 for s in counted.stages)
    for s in counted.stages:
        assert s.latency_seconds == s.microbatch_seconds + s.iteration_seconds / 8 + s.receive_seconds
    t = [s.latency_seconds for s in counted.stages]
    assert objective_seconds(counted) == pytest.approx(sum(t) + 7 * max(t) + counted.tied_seconds, rel=1e-12)
    of_paper = ax.replan(plan, pipeline=ax.PipelineOptions(paper=True, num_stages=4))
    assert all(s.receive_seconds == 0 for s in of_paper.stages)
    t = [s.latency_seconds for s in of_paper.stages]
    assert of_paper.predicted.iteration_seconds == pytest.approx(sum(t) + 7 * max(t), rel=1e-12)


def test_the_papers_models_on_its_devices_are_planned_in_its_mode():
    """Nothing is captured: a request knows its mode."""

    def mode(model, cluster, **options):
        request = PlanRequest(
            model=model, cluster=ax.Cluster.parse(cluster), num_microbatches=4, pipeline=ax.PipelineOptions(**options)
        )
        return request.pipeline.mode

    for model in ("gpt-1.3b", "moe-2.4b", "wide-resnet-2b"):
        assert mode(model, "1x8:v100") == mode(model, "1x8:v100", schedule="gpipe") == IDEAL
        assert mode(model, "1x8:v100", paper=False) == mode(model, "1x8:a100") == mode(model, "1x8:h100") == ""
        assert mode(model, "1x8:a100", paper=True) == IDEAL
    assert mode("gpt-tiny", "1x8:v100") == mode("llama-3-8b", "1x8:v100") == ""
    assert mode("gpt-1.3b", "1x8:a100", paper=True, communication=True) == "Eq. 2 of the paper, sends counted"


def test_a_schedule_that_exists_for_some_b_alone_takes_the_best_of_those(plan):
    asked = ax.PipelineOptions(schedule="interleaved-1f1b", num_stages=2)
    best = ax.replan(plan, num_microbatches="auto", pipeline=asked)
    assert best.options.num_microbatches % 2 == 0
    fits = {t.num_microbatches: t.iteration_seconds is not None for t in best.microbatches}
    assert 1 not in fits, "one microbatch is no round of two stages"
    assert fits[2]
    assert fits[64]
    with pytest.raises(OptionError, match="does not exist"):
        ax.replan(plan, num_microbatches=3, pipeline=asked)
    small = ax.plan(
        "mlp-tiny",
        "1x2:v100",
        num_microbatches="auto",
        global_batch=6,
        num_layers=4,
        delta=1.0,
        scheduler="serial",
        pipeline=asked,
    )
    assert {t.num_microbatches for t in small.microbatches} == {2, 6}
    assert all(t.iteration_seconds or t.least_seconds for t in small.microbatches)


def test_the_sum_of_a_tied_weight_is_paid_by_its_second_stage_once_an_iteration(plan, tmp_path):
    """The embedding and the head of a GPT share theirs: first and last stage."""
    counted = ax.replan(plan, pipeline=ax.PipelineOptions(tied_weights=True, num_stages=3))
    ((readers, size),) = counted.costs.tied_weights
    assert readers == (0, 3)
    link = counted.cluster.between_nodes
    paid = 2 * link.latency_seconds + size / link.bandwidth
    assert [s.tied_seconds for s in counted.stages] == [0.0, 0.0, pytest.approx(paid, rel=1e-12)]
    t = [s.latency_seconds for s in counted.stages]
    assert objective_seconds(counted) == pytest.approx(sum(t) + 7 * max(t) + paid, rel=1e-12)
    update = counted.stages[-1].iteration_seconds + counted.stages[-1].tied_seconds
    assert counted.timeline().times[-1].update_seconds == update
    assert "Stages 0, 2 share a weight" in plan_report(counted)
    counted.save(tmp_path / "p")
    assert ax.load_plan(tmp_path / "p").tied_seconds == counted.tied_seconds
    alone = ax.replan(plan, pipeline=ax.PipelineOptions(tied_weights=True, num_stages=1))
    assert alone.tied_seconds == 0.0
    assert "share a weight" not in plan_report(alone)


@pytest.mark.slow
def test_what_hides_is_the_clusters_and_makes_a_plan_no_slower(plan, tmp_path):
    shares = {"collective_overlap": 0.8, "gradient_overlap": 0.5}
    hiding = tiny(ax.Cluster.parse("2x2:v100", **shares))
    assert hiding.predicted.iteration_seconds <= plan.predicted.iteration_seconds * (1 + 5e-3)
    one = [tiny(c, num_stages=1).predicted.iteration_seconds for c in (plan.cluster, hiding.cluster)]
    assert one[1] < one[0]
    said = plan_report(hiding)
    assert "collectives run behind the computation beside them for up to 80 % of the shorter of the two" in said
    assert "gradient sums run behind the backward pass of the operator that reads the weight for up to 50 %" in said
    hiding.save(tmp_path / "p")
    assert ax.load_plan(tmp_path / "p").cluster == hiding.cluster


@pytest.mark.slow
def test_a_stage_receives_each_storage_that_crosses_its_ends_once():
    from alpa_explore.planner.microbatch_graph import microbatch_graph

    graph = microbatch_graph("gpt-tiny", 8)
    layered = assign_layers(graph, cluster_operators(graph, 4, delta=0.5).layer_of_forward)
    received = received_bytes(layered)
    checked = 0
    for first, last in itertools.combinations_with_replacement(range(4), 2):
        inside = {
            o.index
            for o in graph.operators
            if o.phase is not Phase.UPDATE and first <= layered.layer_of[o.index] <= last
        }
        read = {t for o in inside for t in graph.operators[o].inputs}
        sent = {t for t in read if graph.tensors[t].producer is not None and graph.tensors[t].producer not in inside}
        largest = {}
        for t in sent:
            base = layered.storage[t]
            largest[base] = max(largest.get(base, 0), graph.tensors[t].bytes)
        assert received[first, last] == sum(largest.values())
        checked += bool(sent)
    assert received[0, 3] == 0
    assert checked == 9


@pytest.mark.slow
def test_a_schedule_that_holds_more_is_planned_within_memory_or_refused_with_a_way_out():
    free = tiny("1x4:v100", schedule="gpipe", num_stages=2)
    need = max(s.peak_bytes for s in free.stages)
    tight = ax.Cluster.parse("1x4:v100", memory_bytes=int(0.97 * need))
    fitted = tiny(tight, schedule="gpipe", num_stages=2)
    assert all(s.peak_bytes <= 0.97 * need and s.microbatches_held == 8 for s in fitted.stages)
    # What is left below the free plan's need came from slower or other choices.
    assert fitted.predicted.iteration_seconds >= free.predicted.iteration_seconds
    with pytest.raises(InfeasiblePlanError, match="1f1b holds fewer"):
        tiny(ax.Cluster.parse("1x2:v100", memory_bytes=2**18), schedule="gpipe")


def test_constraints_that_no_plan_keeps_are_named_with_the_one_to_drop(plan):
    with pytest.raises(InfeasiblePlanError, match="without stage_submeshes there is a plan"):
        ax.replan(plan, pipeline=ax.PipelineOptions(num_stages=3, stage_submeshes=((-1, 2, 2),)))
    with pytest.raises(OptionError, match="layer 7"):
        ax.replan(plan, pipeline=ax.PipelineOptions(cuts=(7,)))


def test_a_smaller_space_of_submeshes_cannot_be_widened_later():
    every, few = tiny("3x1:v100"), tiny("3x1:v100", submesh_space="power-of-two")
    assert [p.nodes for p in every.costs.submeshes] == [1, 2, 3]
    assert [p.nodes for p in few.costs.submeshes] == [1, 2]
    assert {submesh for _, _, submesh in every.costs.screened} == {2}, "sizes are powers of two"
    assert not few.costs.screened
    assert ax.replan(every, pipeline=few.options.pipeline).predicted == few.predicted
    with pytest.raises(OptionError, match="Plan again"):
        ax.replan(few, pipeline=ax.PipelineOptions())


def test_where_constraints_leave_too_little_memory_the_error_says_which_stage_lacks_how_much():
    asked = {"cuts": (1,), "num_stages": 2}
    memory = 4_000_000

    def planned(memory_bytes, **options):
        return tiny(ax.Cluster.parse("1x2:v100", memory_bytes=memory_bytes), **options)

    planned(memory)
    with pytest.raises(InfeasiblePlanError, match=r"2 stages: stage 1 of 2 \(layers 1–3 on 1×1\) needs") as caught:
        planned(memory, **asked)
    lacks = int(caught.value.over_bytes)
    assert lacks > 0
    assert max(stage.peak_bytes for stage in planned(memory + lacks, **asked).stages) == memory + lacks


@pytest.mark.slow
def test_the_command_line_takes_the_options(capsys):
    words = "plan gpt-tiny --cluster 2x2:v100 -B 8 --layers 4 --scheduler serial --json --stages 2 --cut 1"
    code = main([*words.split(), "--schedule", "gpipe", "--communication", "--stage-submesh=-1=1x2"])
    assert code == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["options"]["pipeline"]["stage_submeshes"] == [[-1, 1, 2]]
    assert [s["layers"] for s in shown["stages"]] == [[0, 0], [1, 3]]
    assert {s["microbatches_held"] for s in shown["stages"]} == {8}
    more = ["--schedule", "interleaved-1f1b", "--stages-per-submesh", "2", "--tied-weights", "--gradient-overlap", "1"]
    assert main([*words.replace("--cut 1", "--cut 2").split(), *more]) == 0
    asked = json.loads(capsys.readouterr().out)
    pipeline = asked["options"]["pipeline"]
    assert (pipeline["schedule"], pipeline["stages_per_submesh"], pipeline["tied_weights"]) == (more[1], 2, True)
    assert asked["predicted"]["tied_seconds"] > 0
    assert main([*words.split(), "--imbalance", "0", "--stage-submesh", "0=2x2"]) == 1
    assert "No plan satisfies all pipeline constraints" in capsys.readouterr().err
