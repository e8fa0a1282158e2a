"""Rematerialisation chosen by the pipeline: of all versions the best is taken, and what is not needed is not paid."""

import itertools
import json
from dataclasses import replace

import pytest

import alpa_explore as ax
from alpa_explore.cli import main
from alpa_explore.errors import InfeasiblePlanError, OptionError
from alpa_explore.graph import Phase
from alpa_explore.inter_op.stage_table import best_pipeline
from alpa_explore.intra_op.solve_limited import solve_limited
from alpa_explore.intra_op.stage.layered_graph import assign_layers
from alpa_explore.intra_op.stage.recomputation import Recomputation
from alpa_explore.layering import cluster_operators
from alpa_explore.planner.microbatch_graph import microbatch_graph
from alpa_explore.plans.report.summary import plan_report
from alpa_explore.search.stages.tied_weights import tied_weights
from alpa_explore.search.stages.versions import kinds_of, layered_versions
from tests.daily import today

B, STAGES = 8, 2
MEMORIES = (1_900_000, (2_150_000, 2_300_000)[today().toordinal() % 2], 2**34)
"""Of a device: layers of every stage compute again, those of one stage, none. Of the second, one each day."""


@pytest.fixture(scope="module", autouse=True)
def own_cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ALPA_EXPLORE_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


def planned(memory, rematerialization, **options):
    return ax.plan(
        "gpt-tiny",
        ax.Cluster.parse("1x4:v100", memory_bytes=memory),
        num_microbatches=B,
        num_layers=4,
        scheduler="serial",
        rematerialization=rematerialization,
        pipeline=ax.PipelineOptions(num_stages=STAGES, **options),
    )


@pytest.fixture(scope="module")
def plans():
    return {memory: planned(memory, "auto") for memory in MEMORIES}


@pytest.mark.slow
def test_only_layers_that_are_asked_for_compute_again_and_all_of_them_is_what_the_model_says():
    graph = microbatch_graph("gpt-tiny", 4)
    layers = cluster_operators(graph, 3, delta=2.0).layer_of_forward
    everything, nothing = (assign_layers(replace(graph, rematerialization=r), layers) for r in (True, False))
    for some in itertools.chain.from_iterable(itertools.combinations(range(3), n) for n in range(4)):
        mixed = assign_layers(graph, layers, Recomputation.of_layers(some))
        assert mixed.recomputation.layers == some
        assert mixed.recomputed == {o for o in everything.recomputed if mixed.layer_of[o] in some}
        for layer in range(3):
            assert mixed.held[layer] == (everything if layer in some else nothing).held[layer]


@pytest.mark.slow
def test_with_room_for_everything_nothing_is_computed_again(plans):
    free, none = plans[2**34], planned(2**34, False)
    assert free.predicted == none.predicted
    assert all(s.recomputation == "" for s in free.stages)
    assert "Nothing is recomputed" in plan_report(free)


@pytest.mark.slow
def test_where_memory_is_short_the_choice_of_each_stage_beats_all_and_none(plans):
    better = mixed = 0
    for memory, auto in plans.items():
        others = []
        for choice in (True, False):
            try:
                others.append(planned(memory, choice).predicted.iteration_seconds)
            except InfeasiblePlanError:
                others.append(float("inf"))
        assert auto.predicted.iteration_seconds <= min(others) * (1 + 1e-9)
        better += auto.predicted.iteration_seconds < 0.99 * min(others)
        mixed += len({s.recomputation for s in auto.stages} - {"full"}) > 0 and memory < 2**34
    assert better >= 2
    assert mixed >= 2


@pytest.mark.slow
def test_every_stage_of_the_best_pipeline_is_the_optimum_over_all_versions(plans):
    checked = 0
    for memory, auto in plans.items():
        best = best_pipeline(auto.costs, auto.cluster, auto.options.pipeline, B)
        bound = best_pipeline(auto.costs, auto.cluster, auto.options.pipeline, B, bound=True)
        assert best.total_seconds == pytest.approx(bound.total_seconds, rel=1e-9)
        for stage in auto.stages:
            pieces = [(m.nodes, m.devices_per_node) for m in auto.costs.submeshes]
            known = auto.costs.candidates[(*stage.layers, pieces.index(stage.submesh))]
            least = float("inf")
            for mesh, version in {(c.logical_mesh, c.version) for c in known}:
                problem = auto.details.problem(stage.layers, mesh, version)
                asked = problem.at(inverse_b=1 / B, memory_price=0.0, microbatches_held=stage.microbatches_held)
                found = solve_limited(asked, problem.memory_limit(stage.microbatches_held, memory))
                least = min(least, found.objective)
            assert stage.latency_seconds - stage.receive_seconds == pytest.approx(least, rel=1e-9)
            checked += 1
    assert checked == STAGES * len(MEMORIES)


@pytest.mark.slow
def test_the_file_the_timeline_and_the_operators_know_which_layers_compute_again(plans, tmp_path):
    auto = next(p for p in plans.values() if any(s.recomputation for s in p.stages))
    auto.save(tmp_path / "p")
    loaded = ax.load_plan(tmp_path / "p")
    assert [s.recomputation for s in loaded.stages] == [s.recomputation for s in auto.stages]
    assert [v.name for v in loaded.costs.versions] == ["none", "norms+attention", "half", "full"]
    assert ax.replan(loaded).predicted == auto.predicted
    assert "recomputes" in plan_report(loaded)
    for stage, times in zip(auto.stages, auto.timeline().times, strict=True):
        spent = dict.fromkeys(("forward", "backward"), 0.0)
        for o in stage.operators:
            if o.phase != "update":
                spent[o.phase] += o.compute_seconds + o.communication_seconds
                spent["backward"] += bool(o.recomputed) * (o.compute_seconds + o.communication_seconds)
        assert times.forward_seconds == pytest.approx(spent["forward"], rel=1e-6)
        problem = auto.details.problem(
            stage.layers,
            next(
                c.logical_mesh
                for f in auto.costs.candidates.values()
                for c in f
                if c.solution_key == stage.solution_key
            ),
            next(c.version for f in auto.costs.candidates.values() for c in f if c.solution_key == stage.solution_key),
        )
        again = {o.name for o in stage.operators if o.recomputed}
        graph = problem.stage.layered.graph
        assert again == {
            graph.operators[o].name for o in problem.stage.layered.recomputed & set(problem.stage.operators)
        }


@pytest.mark.slow
def test_tied_weights_are_those_whose_gradient_is_made_in_several_layers():
    graph = microbatch_graph("gpt-tiny", 4)
    layered = assign_layers(graph, cluster_operators(graph, 4, delta=1.0).layer_of_forward)
    embedding = next(p for p in graph.parameters if graph.tensors[p.tensor].name == "embedding.tokens.weight")
    assert tied_weights(layered) == (((0, 3), graph.tensors[embedding.gradient].bytes),)
    sums = [o for o in graph.operators if o.phase is Phase.UPDATE and len(o.inputs) == 2 and "add" in o.kind]
    assert len(sums) == 1, "one weight has two uses"


@pytest.mark.slow
def test_kinds_of_recomputation_are_known_or_refused(capsys):
    assert kinds_of(None, 4) == kinds_of(False, 4) == (None,)
    assert kinds_of(True, 4) == kinds_of("full", 4) == (Recomputation("full"),)
    assert kinds_of("layers", 2) == (Recomputation.of_layers((0, 1)),)
    assert kinds_of("mlp+norms", 2) == kinds_of("norms+mlp", 2)
    for unknown in ("some", "norms+full", "norms+norms", "", 3):
        with pytest.raises(OptionError, match=r"norms\+attention.*'auto'"):
            kinds_of(unknown, 4)
    words = "plan gpt-tiny --cluster 1x4:v100 -B 8 --layers 4 --scheduler serial --stages 2 --json --remat"
    for given, shown in (("auto", ""), ("all", "full"), ("attention+norms", "norms+attention")):
        assert main([*words.split(), given]) == 0
        plan = json.loads(capsys.readouterr().out)
        assert [s["recomputation"] for s in plan["stages"]] == [shown] * 2
    assert main([*words.split(), "layers"]) == 0
    assert [s["rematerialized"] for s in json.loads(capsys.readouterr().out)["stages"]] == [[0, 1], [2, 3]]
    assert main([*words.split(), "everything"]) == 2
    assert "norms+attention" in capsys.readouterr().err


@pytest.mark.slow
def test_a_model_without_a_part_says_so_and_chooses_without_it():
    graph = microbatch_graph("wide-resnet-tiny", 4)
    layers = cluster_operators(graph, 2, delta=2.0).layer_of_forward
    with pytest.raises(OptionError, match="no attention in the blocks of wide-resnet-tiny"):
        layered_versions(graph, layers, "attention")
    names = [version.recomputation.name for version in layered_versions(graph, layers, "auto")]
    assert "norms+attention" not in names
    assert {"none", "full"} <= set(names)
