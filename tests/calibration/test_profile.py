"""Kernels of a plan that are timed on the attached device, and plans that are made with them."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import alpa_explore as ax
from alpa_explore.accuracy.tuning import ERROR_OF_CURVES, ERROR_OF_TIMED, RUNS_ON_CPU
from alpa_explore.attached.profile import profile
from alpa_explore.calibration import tuning
from alpa_explore.calibration.profiling.profile import Profiling, device, mattering, timed_or_why
from alpa_explore.calibration.profiling.timing import Timed
from alpa_explore.calibration.profiling.wanted import WantedKernel, plan_kernels, wanted_kernels
from alpa_explore.cluster import Cluster, Submesh, logical_mesh
from alpa_explore.cluster.kernel_store import KernelStore, read_kernel_store, this_host
from alpa_explore.cluster.software_profiles import load_software
from alpa_explore.cost.compute import compute_seconds, least_seconds
from alpa_explore.cost.kernels import KernelKind
from alpa_explore.cost.measured import VIEW, is_measured, measured_kernel
from alpa_explore.cost.model import CostModel
from alpa_explore.errors import AlpaExploreError, ClusterError, OptionError
from alpa_explore.graph.counts import is_view
from alpa_explore.plans.rebuild import details_of
from alpa_explore.plans.report.error_bands import band_of, measured_sentence, measured_share
from alpa_explore.plans.report.summary import plan_report


@pytest.fixture(scope="module")
def plan() -> ax.Plan:
    return ax.plan("gpt-tiny", "1x2:cpu", num_microbatches=4, precision="float32", cache=False)


@pytest.fixture(scope="module")
def wanted(plan: ax.Plan) -> tuple[WantedKernel, ...]:
    return wanted_kernels(plan)


def store(wanted: tuple[WantedKernel, ...], factor: float) -> KernelStore:
    """Every kernel but views as if it had taken `factor` times what the formulas say."""
    kernels = {}
    for each in (each for each in wanted if each.seconds):
        assert each.kernel.name is not None
        timed = {"seconds": factor * each.seconds, "host_seconds": 0.0, "spread": 0.0}
        kernels[each.name] = measured_kernel(each.kernel, each.kernel.name, **timed)
    return KernelStore(device="x", driver="", software="torch", date="2026-11-29", kernels=kernels)


def with_store(cluster: Cluster, kernels: KernelStore) -> Cluster:
    return replace(cluster, device=replace(cluster.device, measured=kernels))


def replanned(plan: ax.Plan, kernels: KernelStore) -> ax.Plan:
    cluster = with_store(plan.cluster, kernels)
    return ax.plan("gpt-tiny", cluster, num_microbatches=4, precision="float32", cache=False)


def test_the_kernels_of_the_plan_come_first_and_take_its_computing_time(
    plan: ax.Plan, wanted: tuple[WantedKernel, ...]
) -> None:
    of_plan = [each.plan_seconds for each in wanted]
    assert of_plan == sorted(of_plan, reverse=True)
    computed = sum(o.compute_seconds for s in plan.stages for o in s.operators if o.phase != "update")
    of_microbatch = sum(each.plan_seconds for each in wanted if not each.update)
    assert 0.9 * computed < of_microbatch <= computed * (1 + 1e-9)
    updated = sum(o.compute_seconds for s in plan.stages for o in s.operators if o.phase == "update")
    assert 4 * (sum(of_plan) - of_microbatch) == pytest.approx(updated), "B = 4"
    assert len({each.name for each in wanted}) == len(wanted)
    assert any(seconds == 0 for seconds in of_plan), "other strategies need kernels that the plan does not have"


def test_with_measurements_that_equal_the_formulas_the_plan_is_the_same(
    plan: ax.Plan, wanted: tuple[WantedKernel, ...]
) -> None:
    same = replanned(plan, store(wanted, 1.0))
    assert same.predicted.iteration_seconds == pytest.approx(plan.predicted.iteration_seconds, rel=1e-9)
    assert [s.layers for s in same.stages] == [s.layers for s in plan.stages]


@pytest.mark.parametrize("factor", [0.2, 3.0])
def test_the_time_of_a_plan_follows_the_measurements(
    plan: ax.Plan, wanted: tuple[WantedKernel, ...], factor: float
) -> None:
    def computing(of: ax.Plan) -> dict[str, float]:
        return {o.name: o.compute_seconds for s in of.stages for o in s.operators if o.measured_seconds}

    changed = replanned(plan, store(wanted, factor))
    assert computing(changed)
    unchanged = wanted_kernels(changed)
    assert sum(computing(changed).values()) == pytest.approx(
        factor * sum(each.plan_seconds for each in unchanged if not each.update), rel=1e-9
    )
    share = measured_share(changed)
    assert share is not None
    assert 0.9 < share <= 1
    assert measured_sentence(changed) in plan_report(changed)
    assert measured_share(plan) is None
    assert not measured_sentence(plan)


def test_costs_that_are_searched_for_on_demand_find_the_plan_of_a_new_search_with_measurements(
    plan: ax.Plan, wanted: tuple[WantedKernel, ...]
) -> None:
    cluster = with_store(plan.cluster, store(wanted[::2], 0.1))
    first = ax.plan("gpt-tiny", cluster, num_microbatches=4, precision="float32", cache=False)
    other = ax.replan(first, delta=0.2, cache=False)
    new = ax.plan("gpt-tiny", cluster, num_microbatches=4, precision="float32", delta=0.2, cache=False)
    assert other.predicted.iteration_seconds == pytest.approx(new.predicted.iteration_seconds, rel=1e-9)


def test_of_kernels_of_one_size_the_fastest_lowers_the_bounds(plan: ax.Plan, wanted: tuple[WantedKernel, ...]) -> None:
    first = next(iter(store(wanted[:1], 0.1).kernels.values()))
    other = replace(first, name=f"{first.name} of another shape", seconds=20 * first.seconds)
    for order in ((first, other), (other, first)):
        kernels = KernelStore(device="x", driver="", software="", date="", kernels={k.name: k for k in order})
        device = with_store(plan.cluster, kernels).device
        kernel = replace(wanted[0].kernel, name=None)
        assert least_seconds(device, [kernel])[0] <= first.seconds * (1 + 1e-9)


def test_a_scheduler_measures_what_its_hosts_have(plan: ax.Plan) -> None:
    with pytest.raises(OptionError, match="Leave out the kind"):
        profile(plan, scheduler="127.0.0.1:1", kind="cpu")


def test_a_plan_file_keeps_the_measurements(
    plan: ax.Plan, wanted: tuple[WantedKernel, ...], tmp_path_factory: pytest.TempPathFactory
) -> None:
    made = replanned(plan, store(wanted, 2.0))
    path = tmp_path_factory.mktemp("plans") / "a.plan.json"
    made.save(path)
    read = ax.load_plan(path)
    assert read.cluster == made.cluster
    assert measured_share(read) == pytest.approx(measured_share(made))
    again = ax.rebuild(read)
    assert again.predicted.iteration_seconds == made.predicted.iteration_seconds


def test_profile_times_what_matters_first_goes_on_where_it_stopped_and_names_the_device(
    plan: ax.Plan, wanted: tuple[WantedKernel, ...], tmp_path_factory: pytest.TempPathFactory
) -> None:
    done: list[tuple[int, int, float]] = []
    first = profile(plan, seconds=1e-9, kind="cpu")
    assert first.timed == 0
    assert first.plan_share == 0

    class Stop:
        def is_set(self) -> bool:
            return len(done) == 2

    two = profile(plan, seconds=600, kind="cpu", progress=lambda *told: done.append(told), cancel=Stop())  # type: ignore[arg-type]  # an event that is set after two kernels
    assert two.timed == 2
    assert two.left == len(wanted) - 2
    assert set(two.store.kernels) == {VIEW.name, wanted[0].name}
    assert two.plan_share == pytest.approx(done[-1][2])
    path = tmp_path_factory.mktemp("stores") / "kernels.json"
    path.write_text(json.dumps(two.store.as_json()))
    assert read_kernel_store(str(path)) == two.store
    known = Cluster.parse(f"1x2:cpu+{path}")
    assert known.device.measured == two.store
    assert Cluster.parse(f"1x2:cpu+{path}@megatron").device.measured == two.store
    again = profile(plan, seconds=1e-9, kind="cpu", store=two.store)
    steady = [kernel for kernel in two.store.kernels.values() if kernel.spread <= tuning.STEADY]
    assert (again.timed, again.known) == (0, len(steady)), "on a machine under load one may be timed again"
    assert again.plan_share == two.plan_share
    other = replace(two.store, device="another card")
    with pytest.raises(OptionError, match="another card"):
        profile(plan, seconds=1, kind="cpu", store=other)


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (lambda body: body.pop("kernels"), "no list named kernels"),
        (lambda body: body.update(device=7), "device is 7"),
        (lambda body: body["kernels"].append({"name": "a"}), "kernels[1] has no 'family'"),
        (lambda body: body["kernels"][0].update(seconds=-1.0), "kernels[0] is not a kernel"),
        (lambda body: body["kernels"][0].update(seconds=0), "kernels[0] takes no time"),
        (lambda body: body["kernels"][0].update(sizes=[1, 2]), "kernels[0]['sizes'] has 2 entries"),
        (lambda body: body.update(failed=["a"]), "failed does not name kernels"),
    ],
)
def test_a_damaged_store_is_refused_with_the_place(
    wanted: tuple[WantedKernel, ...], tmp_path_factory: pytest.TempPathFactory, change: object, found: str
) -> None:
    body = store(wanted[:1], 1.0).as_json()
    assert callable(change)
    change(body)
    path = tmp_path_factory.mktemp("stores") / "kernels.json"
    path.write_text(json.dumps(body))
    with pytest.raises(AlpaExploreError) as caught:
        Cluster.parse(f"1x2:cpu+{path}")
    assert found in str(caught.value)


def test_a_profile_follows_the_plan_to_the_kernels_that_formulas_make_look_fast(plan: ax.Plan) -> None:
    kernels = KernelStore(device="x", driver="", software="", date="", kernels={})
    profiling = Profiling(plan, kernels, seconds=600.0, kind="cuda")
    first = {each.name for each in mattering(plan_kernels(plan))}
    later = 0
    for each in profiling.waiting():
        if not each.plan_seconds:  # of other strategies: all of the plan's are known
            break
        later += each.name not in first
        profiling.add(each, Timed(seconds=20 * each.seconds, host_seconds=0.0, spread=0.0))
    found = profiling.result()
    assert later > 0, "the plans that follow run other kernels"
    assert found.plan_share > tuning.MATTERING
    share = measured_share(replanned(plan, found.store))
    assert share is not None
    assert share > 0.9
    of_plan_alone = [k for k in found.store.kernels.values() if k.name in first]
    share = measured_share(replanned(plan, kernels.with_kernels(of_plan_alone)))
    assert share is not None
    assert share < 0.5, "and would not be known, had the profile stayed with the first plan"


def here(**changes: str) -> KernelStore:
    empty = KernelStore(device="", driver="", software="", date="2026-01-01", kernels={})
    return replace(empty, **(device("cpu") | changes))


def test_a_plan_for_a_device_that_is_not_attached_is_not_profiled(plan: ax.Plan) -> None:
    of_h100 = ax.reprice(plan, Cluster.parse("1x2:h100"))
    with pytest.raises(OptionError, match="for h100, which is not attached") as caught:
        profile(of_h100, kind="cpu")
    assert "CPU" in caught.value.found


@pytest.mark.parametrize(
    ("device", "name", "fits"),
    [
        ("NVIDIA H100 80GB HBM3", "h100", True),
        ("NVIDIA A100-SXM4-80GB", "a100-80gb", True),
        ("NVIDIA GB200", "gb200-nvl72", True),
        ("NVIDIA GeForce RTX 4090", "rtx-4090", True),
        ("x86_64 CPU", "cpu", True),
        ("NVIDIA GB200", "b200", False),
        ("NVIDIA H200", "h100", False),
        ("x86_64 CPU", "h100", False),
        ("NVIDIA H100 80GB HBM3", "cpu", False),
    ],
)
def test_kernels_of_one_device_are_not_taken_for_those_of_another(
    tmp_path_factory: pytest.TempPathFactory, device: str, name: str, fits: bool
) -> None:
    path = tmp_path_factory.mktemp("stores") / "kernels.json"
    path.write_text(json.dumps(here(device=device).as_json()))
    if fits:
        assert Cluster.parse(f"1x2:{name}+{path}").device.measured is not None
        return
    with pytest.raises(ClusterError, match="timed on another device"):
        Cluster.parse(f"1x2:{name}+{path}")


def test_kernels_of_another_torch_or_machine_are_kept_and_both_are_named(
    plan: ax.Plan, wanted: tuple[WantedKernel, ...]
) -> None:
    old = here(software="torch 2.9", host="another").with_kernels(tuple(store(wanted[:1], 1.0).kernels.values()))
    for _ in range(2):
        found = profile(plan, seconds=1e-9, kind="cpu", store=old)
        assert found.known == 1
        assert found.store.software == f"torch 2.9; {here().software}"
        assert found.store.host == f"another; {this_host()}"
        old = found.store


def test_a_kernel_that_fails_or_varies_is_named_and_the_others_are_timed(
    plan: ax.Plan, wanted: tuple[WantedKernel, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    times: dict[str, int] = {}

    def played(each: WantedKernel, _kind: str) -> Timed:
        times[each.name] = times.get(each.name, 0) + 1
        if each.name == wanted[0].name:
            raise torch.OutOfMemoryError("the device is full\nand more")
        if each.name == wanted[2].name:
            raise ValueError("a target out of range")
        spread = 0.9 / times[each.name] if each.name == wanted[1].name else 0.0
        return Timed(seconds=each.seconds, host_seconds=0.0, spread=spread)

    monkeypatch.setattr("alpa_explore.calibration.profiling.profile.timed", played)
    found = profile(plan, seconds=600, kind="cpu")
    assert found.failed == ((wanted[0].name, "the device is full"),)
    assert found.unsteady == (wanted[1].name,)
    assert found.store.kernels[wanted[1].name].spread == 0.45, "the steadier of two times"
    assert times[wanted[1].name] == 2
    assert (found.timed, found.left) == (len(found.store.kernels), 0)
    assert wanted[0].name not in found.store.kernels
    assert found.store.failed == {wanted[0].name: "the device is full"}
    assert found.untimed == ((wanted[2].name, "a target out of range"),)
    again = profile(plan, seconds=600, kind="cpu", store=found.store)
    assert times[wanted[1].name] > 2, "what varied is timed again with the store, as what failed is"
    assert again.known == found.timed - 1


def test_a_strategy_whose_kernel_cannot_run_has_no_price_and_the_plan_says_why(
    plan: ax.Plan, wanted: tuple[WantedKernel, ...], tmp_path_factory: pytest.TempPathFactory
) -> None:
    used = next(each for each in plan_kernels(plan) if each.kernel.matrix)
    every = [each.name for each in wanted if each.kernel.name and each.kernel.name.family == _family(used)]
    timed = store(wanted, 1.0)
    for failed in ([used.name], every):
        kernels = timed.with_kernels((), dict.fromkeys(failed, "the device is full"))
        assert kernels.digest != timed.digest
        path = tmp_path_factory.mktemp("stores") / "kernels.json"
        path.write_text(json.dumps(kernels.as_json()))
        assert read_kernel_store(str(path)).failed == kernels.failed
        found = replanned(plan, kernels)
        needed = {each.name for each in plan_kernels(found)} & set(failed)
        assert bool(needed) == (failed == every), "where no strategy runs none is better than another"
        assert "(the device is full): strategies that need such a kernel have no price" in plan_report(found)


def test_the_errors_of_the_band_are_those_of_the_record() -> None:
    record = json.loads((Path(__file__).parents[2] / "benchmarks/on_cpu.json").read_text())
    runs = len(record["rows"])
    of_all = {s["by"]: s for s in record["scores"] if (s["figure"], s["rows"]) == ("computing", runs)}
    found = {by: (round(s["mean error"], 3), round(s["bias"], 3)) for by, s in of_all.items()}
    assert (runs, found) == (RUNS_ON_CPU, {"kernels": ERROR_OF_TIMED, "curves": ERROR_OF_CURVES})


def test_the_error_band_follows_the_share_that_was_timed(plan: ax.Plan, wanted: tuple[WantedKernel, ...]) -> None:
    assert band_of(plan, "seconds") is None
    errors = []
    for kernels in (wanted[:1], wanted[:20], wanted):
        made = replanned(plan, replace(store(kernels, 1.0), device="x86_64 CPU", host=this_host()))
        band, share = band_of(made, "seconds"), measured_share(made)
        assert band is not None
        assert share is not None
        assert band.fraction == pytest.approx(ERROR_OF_TIMED[0] * share + ERROR_OF_CURVES[0] * (1 - share))
        assert f"{100 * share:.0f} % of the computing time" in plan_report(made)
        assert "% of the computing time were timed on this device, x86_64 CPU (2026" in plan_report(made)
        errors.append(band.fraction)
        assert band_of(made, "bytes") is None, "kernels that were timed say nothing of memory"
    assert errors == sorted(errors, reverse=True)
    of_gpu = replanned(plan, replace(store(wanted, 1.0), device="NVIDIA H100 80GB HBM3"))
    assert band_of(of_gpu, "seconds") is None, "of GPUs there is no record of plans with timed kernels"


@pytest.mark.parametrize("host", ["", "another", f"{this_host()}; another"])
def test_kernels_of_another_machine_are_of_this_kind_of_device_and_have_the_band_of_formulas(
    plan: ax.Plan, wanted: tuple[WantedKernel, ...], tmp_path_factory: pytest.TempPathFactory, host: str
) -> None:
    body = replace(store(wanted, 2.0), device="x86_64 CPU", host=host).as_json()
    if not host:
        del body["host"]  # as in older files
    path = tmp_path_factory.mktemp("stores") / "kernels.json"
    path.write_text(json.dumps(body))
    made = replanned(plan, read_kernel_store(str(path)))
    assert made.predicted.iteration_seconds > 1.2 * plan.predicted.iteration_seconds, "their times are used"
    assert band_of(made, "seconds") == band_of(plan, "seconds")
    named = f"host {host}, 2026" if host else "2026"
    assert f"timed on this kind of device, x86_64 CPU ({named}" in plan_report(made)


def _family(wanted: WantedKernel) -> str:
    assert wanted.kernel.name is not None
    return wanted.kernel.name.family


def test_kernels_that_nobody_timed_are_as_slow_beside_their_formulas_as_others_of_their_kind(
    plan: ax.Plan, wanted: tuple[WantedKernel, ...]
) -> None:
    assert all(each.kernel.name for each in wanted)
    families = sorted({each.kernel.name.family for each in wanted if each.kernel.name and not each.update})
    some = tuple(each for each in wanted if each.kernel.name and each.kernel.name.family in families[::2])
    device = with_store(plan.cluster, store(some, 20.0)).device
    slower = {
        each.name: compute_seconds(device, each.kernel) / each.seconds
        for each in wanted
        if each not in some and each.kernel.kind is KernelKind.MEMORY and each.kernel.dtype == "float32"
    }
    assert len(slower) > 10
    assert list(slower.values()) == pytest.approx([20.0] * len(slower))
    few = [next(each for each in some if each.kernel.name and each.kernel.name.family == f) for f in families[:6:2]]
    device = with_store(plan.cluster, store(tuple(few), 20.0)).device
    other = next(each for each in wanted if each.name in slower)
    assert compute_seconds(device, other.kernel) == pytest.approx(other.seconds), "of three families nothing follows"


def test_each_software_has_its_own_times_of_updates(plan: ax.Plan) -> None:
    names = {
        software: {each.name for each in wanted_kernels(ax.reprice(plan, plan.cluster.with_changes(software=software)))}
        for software in ("alpa", "eager", "megatron")
    }
    ways = {of: {name.split()[1] for name in found if name.startswith("optimizer")} for of, found in names.items()}
    assert ways == {"alpa": {"plain"}, "eager": {"fused"}, "megatron": {"fused"}}


def test_experts_that_exchange_tokens_are_not_timed_and_follow_those_that_do_not() -> None:
    made = ax.plan("mixtral-tiny", "1x4:cpu", num_microbatches=1, precision="float32", num_layers=2, cache=False)
    wanted = wanted_kernels(made)
    assert not any(each.name.endswith("and exchanges") for each in wanted)
    experts = [each for each in wanted if each.name.startswith("alpa_explore.experts.default")]
    device = with_store(made.cluster, store(tuple(experts), 5.0)).device
    graph = details_of(made).graph
    at = next(n for n, operator in enumerate(graph.operators) if operator.kind == "alpa_explore.experts.default")
    mesh = logical_mesh(made.cluster, Submesh(1, 4), (1, 4)).squeezed()
    model, plain = (CostModel(of, mesh) for of in (device, made.cluster.device))
    sent = [s for s in model.operator(graph, at).strategies if any(s.exchanges)]
    assert sent
    for strategy in sent:
        kernel = model.kernel(graph.operators[at], graph.tensors, strategy)
        formula = compute_seconds(made.cluster.device, plain.kernel(graph.operators[at], graph.tensors, strategy))
        assert compute_seconds(device, kernel) == pytest.approx(5 * formula)
        assert not is_measured(device, kernel)


def test_a_view_takes_time_where_the_host_that_calls_it_is_the_device(plan: ax.Plan) -> None:
    first, *others = Profiling(plan, here(), seconds=3600, kind="cpu").waiting()
    assert first.name == VIEW.name
    assert first.kernel.name is not None
    assert all(other.seconds for other in others), "all views have one name"
    assert all(each.seconds for each in Profiling(plan, here(), seconds=3600, kind="cuda").waiting())
    found = timed_or_why(first, "cpu")
    assert isinstance(found, Timed)
    view = measured_kernel(first.kernel, first.kernel.name, **found._asdict())
    device = replace(plan.cluster.device, measured=here().with_kernels([view], {}))
    graph = details_of(plan).graph
    model = CostModel(device, logical_mesh(plan.cluster, Submesh(1, 2), (2, 1)).squeezed())
    views = [o for o in graph.operators if o.inputs and is_view(o.kind) and not o.bytes_accessed]
    assert len(views) > 10
    for operator in views:
        assert model.operator(graph, operator.index).seconds.max() == found.seconds > 1e-7
    compiled = CostModel(replace(device, software=load_software("compiled")), model.mesh)
    assert all(compiled.operator(graph, operator.index).seconds.max() == 0 for operator in views), "it calls no views"


def test_the_steps_of_the_optimizer_come_before_what_matters_little(plan: ax.Plan) -> None:
    """Formulas count the bytes of a step; of a small weight it takes the time of dozens of calls."""
    profiling = Profiling(plan, here(), seconds=3600, kind="cuda")
    names = []
    for wanted in profiling.waiting():
        profiling.add(wanted, Timed(seconds=wanted.seconds, host_seconds=0.0, spread=0.0))
        names.append(wanted)
    much = {wanted.name for wanted in mattering(plan_kernels(plan))}
    steps = {wanted.name for wanted in plan_kernels(plan) if wanted.update}
    assert steps - much, "else this says nothing"
    assert {wanted.name for wanted in names[: len(much | steps)]} == much | steps
