"""The whole planner on tiny models: what a plan must satisfy, and what it says when there is none."""

import itertools
import math
import re
import subprocess
import sys
import threading
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch

import alpa_explore as ax
from alpa_explore.errors import (
    CancelledError,
    ClusterError,
    InfeasiblePlanError,
    LayeringError,
    MachineMemoryError,
    OptionError,
    UnknownNameError,
)
from alpa_explore.execution import available_memory
from alpa_explore.intra_op.solve_limited import solve_limited
from alpa_explore.planner import microbatches
from alpa_explore.planner.least_time import LeastTime
from alpa_explore.plans.iteration_time import objective_seconds
from tests.waiting import until


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory, monkeypatch):
    """One cache for this module, none of the user's."""
    folder = tmp_path_factory.getbasetemp() / "planner-cache"
    monkeypatch.setenv("ALPA_EXPLORE_CACHE", str(folder))


def tiny_cluster(memory_bytes=16 * 2**30, devices=2):
    # A slow device: on a fast one every tiny kernel is bound by its launch and one stage is always best.
    slow = {"peak_flops": {"float32": 1e10, "float16": 1e10}, "half_efficiency_flops": 0.0, "launch_seconds": 1e-6}
    return ax.Cluster.parse(f"1x{devices}:v100", memory_bytes=memory_bytes, **slow)


def tiny_plan(name="gpt-tiny", cluster=None, b=4, layers=4, **options):
    options.setdefault("delta", 1.0)
    return ax.plan(
        name, cluster or tiny_cluster(), num_microbatches=b, num_layers=layers, scheduler="serial", **options
    )


@pytest.mark.sweep(kept=1, in_turn=True)
@pytest.mark.slow
@pytest.mark.parametrize("name", ["gpt-tiny", "moe-tiny", "mlp-tiny", "wide-resnet-tiny"])
def test_a_plan_covers_model_and_cluster_and_keeps_its_own_arithmetic(name):
    plan = tiny_plan(name, tiny_cluster(devices=4), layers=3)
    b, stages = plan.options.num_microbatches, plan.stages
    assert [s.layers[0] for s in stages] == [0] + [s.layers[1] + 1 for s in stages[:-1]]
    assert stages[-1].layers[1] == len(plan.layers) - 1
    assert sorted(d for s in stages for d in s.devices) == list(range(plan.cluster.devices))
    assert all(len(s.devices) == s.submesh[0] * s.submesh[1] for s in stages)
    latencies = [s.latency_seconds for s in stages]
    predicted = plan.predicted
    assert predicted.t_max_seconds == max(latencies)
    assert predicted.sum_latency_seconds == pytest.approx(sum(latencies), rel=1e-12)
    assert objective_seconds(plan) == pytest.approx(sum(latencies) + (b - 1) * max(latencies), rel=1e-12)
    assert predicted.iteration_seconds == plan.timeline().makespan_seconds
    assert predicted.bubble_fraction == plan.timeline().bubble_fraction
    assert predicted.peak_bytes_per_device == max(s.peak_bytes for s in stages) <= plan.cluster.device.memory_bytes
    assert 0 <= predicted.bubble_fraction < 1
    best = [p for p in plan.t_max_sweep if p.objective_seconds is not None]
    assert min(p.iteration_seconds for p in best) == predicted.iteration_seconds
    named = [o.name for s in stages for o in s.operators if o.phase != "update"]
    assert len(named) == len(set(named)), "an operator stands in two stages"
    forward = [n for layer in plan.layers for n in layer.operators]
    assert set(forward) <= set(named)
    # What crosses the end of the first layer is made in it; later ones also let pass what comes from before them.
    assert plan.layers[0].operator_cut_bytes[-1] == plan.layers[0].cut_bytes
    assert all(layer.operator_cut_bytes[-1] >= layer.cut_bytes for layer in plan.layers)
    assert all(len(layer.operator_cut_bytes) == len(layer.operators) for layer in plan.layers)


def test_no_other_partition_of_the_same_costs_is_faster():
    plan = tiny_plan(cluster=tiny_cluster(), layers=4, b=8)
    costs, layers = plan.costs, plan.costs.num_layers
    best = float("inf")
    for depth in range(1, layers + 1):
        for cuts in itertools.combinations(range(1, layers), depth - 1):
            bounds = [0, *cuts, layers]
            for shapes in itertools.product(range(len(costs.submeshes)), repeat=depth):
                if sum(costs.submeshes[m].devices for m in shapes) != plan.cluster.devices:
                    continue
                ranges = [(bounds[i], bounds[i + 1] - 1, m) for i, m in enumerate(shapes)]
                chosen = [costs.choose(r, min(depth - i, 8), 8) for i, r in enumerate(ranges)]
                if all(chosen):
                    t = [c.latency_seconds(8) for c in chosen]
                    best = min(best, sum(t) + 7 * max(t))
    assert plan.predicted.iteration_seconds == pytest.approx(best, rel=1e-12)


def test_another_b_is_planned_from_the_costs_that_are_known():
    graph = tiny_plan_graph()
    plan = ax.plan(graph, tiny_cluster(), num_microbatches=4, num_layers=4, delta=1.0, scheduler="serial")
    for b in (1, 2, 16, 64):
        again = ax.replan(plan, num_microbatches=b)
        fresh = ax.plan(graph, tiny_cluster(), num_microbatches=b, num_layers=4, delta=1.0, scheduler="serial")
        assert again.options.num_microbatches == b
        assert again.predicted.iteration_seconds == pytest.approx(fresh.predicted.iteration_seconds, rel=6e-3)
        assert again.predicted.iteration_seconds >= fresh.predicted.iteration_seconds * (1 - 1e-9)
        assert len(again.stages[0].operators) > 0
    assert ax.replan(ax.replan(plan, num_microbatches=9), num_microbatches=4).predicted == plan.predicted


@pytest.mark.slow
def test_solves_that_stop_early_still_end_in_the_best_plan(monkeypatch):
    exact = tiny_plan("moe-tiny", tiny_cluster(devices=4), cache=False, solver="elimination")
    # Every problem counts as wide, and 20 % from the optimum is near enough for the first round.
    monkeypatch.setattr("alpa_explore.intra_op.elimination.tuning.CHEAP_JOINS", -1.0)
    monkeypatch.setattr("alpa_explore.intra_op.bounds.tuning.GAP_CHECK_INTERVAL", 1)
    monkeypatch.setattr("alpa_explore.pricing.tuning.TOLERANCE", 0.2)
    problems = Counter()

    def count(progress):
        if progress.done == 0:
            problems[progress.pass_name] += progress.total

    near = tiny_plan("moe-tiny", tiny_cluster(devices=4), cache=False, progress=count)
    assert problems["proof"], "nothing stopped early: the test shows nothing"
    assert near.predicted.iteration_seconds == pytest.approx(exact.predicted.iteration_seconds, rel=1e-9)
    assert problems["proof"] < problems["sharding"], "stages that no plan wants need no proof"


@pytest.mark.sweep(kept=1, in_turn=True)
@pytest.mark.slow
@pytest.mark.parametrize("name", ["gpt-tiny", "moe-tiny", "wide-resnet-tiny", "mlp-tiny"])
def test_composed_ranges_give_the_plan_of_one_ilp_for_every_stage(name):
    passes = set()
    composed = tiny_plan(name, layers=2, cache=False, progress=lambda progress: passes.add(progress.pass_name))
    each = tiny_plan(name, layers=2, cache=False, solver="ilp")
    assert "composition" in passes
    assert [(s.layers, s.submesh) for s in composed.stages] == [(s.layers, s.submesh) for s in each.stages]
    assert composed.predicted.iteration_seconds == pytest.approx(each.predicted.iteration_seconds, rel=1e-9)


def test_without_a_number_of_layers_there_are_as_many_as_can_be_balanced():
    def lopsided(width=8):
        # The head does most of the work: two balanced layers cannot be had at delta 0.5, let alone eight.
        return torch.nn.Sequential(*(torch.nn.Linear(width, width) for _ in range(6)), torch.nn.Linear(width, 400))

    graph = ax.capture(lopsided(), (torch.randn(4, 8),), loss=lambda y: y.square().mean())
    assert len(ax.plan(graph, tiny_cluster(), num_microbatches=2, scheduler="serial").layers) == 1
    even = torch.nn.Sequential(*(torch.nn.Linear(8, 8) for _ in range(6)))
    graph = ax.capture(even, (torch.randn(4, 8),), loss=lambda y: y.square().mean())
    assert len(ax.plan(graph, tiny_cluster(), num_microbatches=2, scheduler="serial").layers) == 8


def tiny_plan_graph():
    from alpa_explore.models.catalog import build

    module, inputs = build("gpt-tiny", 4)
    return ax.capture(module, inputs, name="mine", rematerialization=True)


def test_a_second_run_takes_its_solves_from_the_cache():
    first = tiny_plan("mlp-tiny", layers=2)
    second = tiny_plan("mlp-tiny", layers=2)
    assert second.statistics.cached_solves >= second.statistics.distinct_solves > 0
    assert second.predicted == first.predicted
    assert [s.solution_key for s in second.stages] == [s.solution_key for s in first.stages]


def _older(text: bytes) -> bytes:
    """An entry as another version of the code would have written it."""
    words = text.split(b" ", 3)
    return b" ".join([*words[:2], b"0123456789abcdef", words[3]])


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (lambda text: text[: len(text) // 2], "damaged"),
        (lambda text: b"", "damaged"),
        (lambda text: b"\xff\x00garbage", "damaged"),
        (_older, "another version"),
    ],
)
def test_a_cache_that_cannot_be_used_is_computed_again_and_the_plan_says_so_once(fault, said, tmp_path, monkeypatch):
    monkeypatch.setenv("ALPA_EXPLORE_CACHE", str(tmp_path))
    sound = tiny_plan("mlp-tiny", layers=2)
    entries = [path for path in tmp_path.rglob("*.json") if path.is_file()]
    assert len(entries) > 2
    for path in entries:
        path.write_bytes(fault(path.read_bytes()))
    again = tiny_plan("mlp-tiny", layers=2)
    assert [warning for warning in again.warnings if "cache" in warning] == list(again.warnings)
    assert len(again.warnings) == 1
    assert said in again.warnings[0]
    assert again.stages == sound.stages
    assert tiny_plan("mlp-tiny", layers=2).warnings == sound.warnings == ()


@pytest.mark.distributed
def test_a_killed_run_leaves_no_entry_half_written_and_the_next_plan_is_the_same(tmp_path, monkeypatch):
    monkeypatch.setenv("ALPA_EXPLORE_CACHE", str(tmp_path))
    code = (
        "import alpa_explore as ax\n"
        "for layers in (2, 3, 4):\n"
        "    ax.plan('gpt-tiny', '1x4:v100', num_microbatches=4, num_layers=layers, delta=1.0, scheduler='serial')\n"
    )
    run = subprocess.Popen([sys.executable, "-c", code])
    try:
        until(lambda: len(list(tmp_path.rglob("*.json"))) >= 3 or run.poll() is not None, "there are entries")
        assert run.poll() is None, "the run ended before it could be killed"
    finally:
        run.kill()
        run.wait()
    cluster = ax.Cluster.parse("1x4:v100")
    again = tiny_plan(cluster=cluster, layers=3)
    assert again.warnings == ()
    assert again.stages == tiny_plan(cluster=cluster, layers=3, cache=False).stages


def test_a_machine_without_memory_ends_a_plan_with_what_to_reduce(monkeypatch):
    monkeypatch.setattr(available_memory, "available_bytes", lambda: 2**20)
    with pytest.raises(MachineMemoryError) as refused:
        tiny_plan("mlp-tiny", layers=2, cache=False)
    assert "fewer nodes" in refused.value.remedy


def test_a_cache_that_cannot_be_written_is_said_once_and_the_plan_is_the_same(tmp_path, monkeypatch):
    sound = tiny_plan("mlp-tiny", layers=2)
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("ALPA_EXPLORE_CACHE", str(tmp_path / "file"))
    found = tiny_plan("mlp-tiny", layers=2)
    # The number of a choice among those of its problem depends on what the cache knew.
    numbered, stages = ([replace(s, solution_key="") for s in plan.stages] for plan in (found, sound))
    assert numbered == stages
    assert sum("not written any more" in warning for warning in found.warnings) == 1


@pytest.mark.distributed
def test_worker_processes_give_the_same_plan():
    serial = tiny_plan(cache=False)
    spread = ax.plan(
        "gpt-tiny", tiny_cluster(), num_microbatches=4, num_layers=4, delta=1.0, scheduler="processes", cache=False
    )
    assert spread.predicted == serial.predicted
    assert [tuple(s.operators) for s in spread.stages] == [tuple(s.operators) for s in serial.stages]


@pytest.mark.slow
def test_less_memory_makes_leaner_slower_plans_down_to_none():
    free = tiny_plan("mlp-tiny", tiny_cluster(devices=4), b=16, layers=3)
    needed = free.predicted.peak_bytes_per_device
    seconds, fits = [free.predicted.iteration_seconds], True
    for share in (0.9, 0.7, 0.5, 0.3, 0.2, 0.1, 0.02):
        try:
            plan = tiny_plan("mlp-tiny", tiny_cluster(int(needed * share), 4), b=16, layers=3)
        except InfeasiblePlanError:
            fits = False
            continue
        assert fits, "fits in less memory but not in more"
        assert plan.predicted.peak_bytes_per_device <= needed * share
        seconds.append(plan.predicted.iteration_seconds)
    assert not fits, "2 % of the memory cannot be enough"
    assert len(seconds) > 1, "no leaner plan was found at all"
    assert seconds == sorted(seconds)


@pytest.mark.slow
def test_a_stage_whose_workspace_overflows_is_brought_within_memory():
    # No price for weights and activations finds what fits: it is the temporaries of gpt-tiny that are too large.
    roomy = tiny_plan(cluster=tiny_cluster(devices=2), layers=1)
    tight = tiny_cluster(int(0.95 * roomy.stages[0].peak_bytes), devices=2)
    found = tiny_plan(cluster=tight, layers=1)
    assert found.predicted.peak_bytes_per_device <= tight.device.memory_bytes < roomy.stages[0].peak_bytes


@pytest.mark.slow
def test_where_memory_is_short_the_stage_holds_the_best_choice_that_fits():
    roomy = tiny_plan("mlp-tiny", tiny_cluster(devices=2), layers=1, cache=False)
    stage = roomy.stages[0]
    tight = tiny_cluster(int(0.9 * stage.peak_bytes), devices=2)
    passes = set()
    found = tiny_plan("mlp-tiny", tight, layers=1, cache=False, progress=lambda p: passes.add(p.pass_name))
    assert "proof within memory" in passes
    assert roomy.predicted.iteration_seconds < found.predicted.iteration_seconds
    assert found.predicted.peak_bytes_per_device <= tight.device.memory_bytes < stage.peak_bytes
    best = math.inf
    for mesh in {c.logical_mesh for c in itertools.chain(*found.costs.candidates.values())}:
        if mesh.devices == 2:
            problem = found.details.problem((0, 0), mesh)
            limited = solve_limited(
                problem.at(inverse_b=1 / found.options.num_microbatches, memory_price=0.0, microbatches_held=1),
                problem.memory_limit(1, tight.device.memory_bytes),
            )
            best = min(best, limited.objective)
    assert found.stages[0].latency_seconds == pytest.approx(best, rel=1e-6)


@pytest.mark.slow
def test_when_nothing_fits_the_error_names_the_stage_the_bytes_and_a_change_that_fits():
    with pytest.raises(InfeasiblePlanError) as caught:
        tiny_plan(cluster=tiny_cluster(memory_bytes=200_000))
    error = caught.value
    assert error.exit_code == 1
    assert re.search(r"stage \d of \d .*layers \d–\d.* on each device of 195.3 KiB, [\d.]+ MiB over$", error.found)
    over = math.ceil(error.over_bytes)
    assert tiny_plan(cluster=tiny_cluster(memory_bytes=200_000 + over)).stages, "the named change does not fit"


@pytest.mark.slow
@pytest.mark.parametrize(("asked", "advised"), [("auto", False), ("full", False), (True, False), ("norms", True)])
def test_recomputation_that_was_tried_is_not_advised(asked, advised):
    with pytest.raises(InfeasiblePlanError) as caught:
        tiny_plan(cluster=tiny_cluster(memory_bytes=100_000), rematerialization=asked)
    assert ("recomput" in caught.value.remedy) is advised


def test_one_device_alone_works():
    plan = tiny_plan(cluster=tiny_cluster(devices=1))
    assert [s.devices for s in plan.stages] == [(0,)]
    assert all(not o.communication for o in plan.stages[0].operators)


@pytest.mark.slow
def test_boundaries_set_by_hand_are_kept():
    plan = tiny_plan(boundaries=("h.1", "h.2"))
    assert len(plan.layers) == 3
    assert plan.options.boundaries == ("h.1", "h.2")


def test_numbers_of_numpy_make_the_plan_and_the_file_of_plain_ones(tmp_path):
    plain = tiny_plan("mlp-tiny", layers=2)
    found = tiny_plan("mlp-tiny", b=np.int64(4), layers=np.int32(2), delta=np.float32(1.0))
    assert found.options == plain.options
    assert found.statistics.cached_solves == found.statistics.distinct_solves, "the keys are the same"
    more = ax.replan(found, num_microbatches=np.arange(9)[8])
    more.save(tmp_path / "a.plan.json")
    assert ax.load_plan(tmp_path / "a.plan.json").options.num_microbatches == 8


@pytest.mark.parametrize(
    ("options", "error", "advice"),
    [
        ({"name": "gpt-1.4b"}, UnknownNameError, "gpt-1.3b"),
        ({"cluster": "1x4:v1000"}, UnknownNameError, "v100"),
        ({"cluster": "1x0:v100"}, ClusterError, "at least one device"),
        ({"cluster": 8}, ClusterError, "'2x8:a100'"),
        ({"name": torch.nn.Linear(2, 2)}, OptionError, "ax.capture"),
        ({"global_batch": 64.0}, OptionError, "1 or more"),
        ({"b": 0}, OptionError, "1 or more"),
        ({"b": 3}, OptionError, "divi"),
        ({"b": None}, OptionError, "'auto'"),
        ({"b": 2.0}, OptionError, "'auto'"),
        ({"b": True}, OptionError, "'auto'"),
        ({"delta": -0.1}, OptionError, "0 or more"),
        ({"delta": "0.5"}, OptionError, "0 or more"),
        ({"layers": 2.5}, OptionError, "leave it out"),
        ({"delta": 0.0, "layers": 7}, LayeringError, "delta"),
        ({"layers": 100_000}, LayeringError, "operators"),
        ({"layers": 0}, OptionError, "at least one"),
        ({"solver": "simplex"}, OptionError, "ilp"),
        ({"precision": "int4"}, OptionError, "nvfp4"),
    ],
)
def test_bad_input_is_explained(options, error, advice):
    with pytest.raises(error, match=advice):
        tiny_plan(**options)


@pytest.mark.slow
def test_a_cancelled_run_says_so_and_keeps_what_was_solved():
    cancel = threading.Event()

    def stop_soon(progress):
        if progress.done >= 2:
            cancel.set()

    options = {"layers": 4, "b": 8}
    with pytest.raises(CancelledError):
        tiny_plan("moe-tiny", progress=stop_soon, cancel=cancel, **options)
    assert tiny_plan("moe-tiny", **options).statistics.cached_solves >= 3


def stopped_after(tasks, of_pass, **options):
    """The CancelledError of a plan that is stopped once so many tasks of a pass are done."""
    cancel = threading.Event()

    def progress(seen):
        if seen.pass_name.endswith(of_pass) and seen.done >= tasks:
            cancel.set()

    with pytest.raises(CancelledError) as raised:
        tiny_plan(progress=progress, cancel=cancel, cache=False, **options)
    return raised.value


def test_a_search_that_is_stopped_has_the_best_plan_of_what_was_priced(tmp_path):
    four = tiny_cluster(devices=4)
    for options in ({}, {"rematerialization": "auto"}):
        best = tiny_plan(cluster=four, **options)
        known = stopped_after(2, "composition", cluster=four, **options).known
        assert isinstance(known, ax.Plan)
        assert known.predicted.iteration_seconds >= best.predicted.iteration_seconds * (1 - 1e-9)
        assert sum(len(stage.devices) for stage in known.stages) == 4
        assert any("search was stopped" in warning for warning in known.warnings)
        known.save(tmp_path / "a.plan.json")
        assert ax.load_plan(tmp_path / "a.plan.json").predicted == known.predicted
    assert stopped_after(0, "composition", cluster=four).known is None


def test_of_several_numbers_of_microbatches_the_best_so_far_is_known(monkeypatch):
    cancel, planned, unbounded = threading.Event(), {}, LeastTime(seconds=0.0, over_bytes=-1.0)
    monkeypatch.setattr(microbatches, "least_time", lambda *_: unbounded)

    def stop_at_the_second(seen):
        if seen.pass_name.endswith(": fastest choices") and seen.done:
            planned.setdefault(int(seen.pass_name.split()[2].rstrip(":")))
            if len(planned) == 2:
                cancel.set()

    with pytest.raises(CancelledError) as raised:
        tiny_plan(b="auto", global_batch=8, progress=stop_at_the_second, cancel=cancel, cache=False)
    known, first = raised.value.known, next(iter(planned))
    assert known.options.num_microbatches in planned
    least = tiny_plan(b=first, global_batch=8, cache=False).predicted.iteration_seconds
    assert known.predicted.iteration_seconds <= least, "that of the first is known in any case"
    assert any("search was stopped" in warning for warning in known.warnings)


def test_a_search_for_b_that_is_stopped_before_the_first_plan_says_so():
    cancel = threading.Event()

    def stop_at_the_second(seen):
        if seen.pass_name == "B = 4: layering":
            cancel.set()

    with pytest.raises(CancelledError, match="2 of 4 numbers of microbatches had a bound, and none a plan") as raised:
        tiny_plan(b="auto", global_batch=8, progress=stop_at_the_second, cancel=cancel, cache=False)
    assert raised.value.known is None
