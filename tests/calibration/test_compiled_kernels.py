"""The kernels that torch.compile makes of several operators: they are compiled, timed as one, and priced by that."""

import pytest
import torch
from torch._inductor import config as inductor

import alpa_explore as ax
from alpa_explore.calibration.profiling.profile import Profiling, mattering, timed_or_why
from alpa_explore.calibration.profiling.timing import Timed, as_compiled, kernel_call, random_inputs
from alpa_explore.calibration.profiling.wanted import WantedKernel, plan_kernels
from alpa_explore.cluster.kernel_store import KernelStore
from alpa_explore.cost.measured import measured_kernel
from alpa_explore.plans.report.error_bands import measured_share


def planned(model: str = "gpt-tiny", kernels: KernelStore | None = None) -> ax.Plan:
    changes = {} if kernels is None else {"measured": kernels}
    cluster = ax.Cluster.parse("1x2:cpu@compiled").with_changes(**changes)
    return ax.plan(model, cluster, num_microbatches=4, precision="float32", cache=False)


@pytest.fixture(scope="module")
def plan() -> ax.Plan:
    return planned()


def store(wanted: tuple[WantedKernel, ...], factor: float) -> KernelStore:
    """Every fused kernel as if it had taken `factor` times what the formulas say, every other kernel as they say."""
    kernels = {}
    for each in wanted:
        assert each.kernel.name is not None
        seconds = each.seconds * (factor if each.is_compiled else 1.0)
        kernels[each.name] = measured_kernel(
            each.kernel, each.kernel.name, seconds=seconds, host_seconds=0.0, spread=0.0
        )
    return KernelStore(device="x", driver="", software="torch", date="2026-11-30", kernels=kernels)


def test_the_fused_kernels_of_equal_layers_are_one_and_the_plan_is_covered(plan: ax.Plan) -> None:
    wanted = plan_kernels(plan)
    fused = [each for each in wanted if each.is_compiled]
    assert max(round(each.calls) for each in fused) >= 4, "gpt-tiny has four layers"
    assert len({each.name for each in fused}) == len(fused)
    computed = sum(o.compute_seconds for s in plan.stages for o in s.operators if o.phase != "update")
    timed = sum(each.plan_seconds for each in wanted if not each.update)
    assert 0.95 * computed < timed <= computed * (1 + 1e-9)
    assert 0.1 * computed < sum(each.plan_seconds for each in fused)
    eager = ax.reprice(plan, plan.cluster.with_changes(software="eager"))
    assert not any(each.is_compiled for each in plan_kernels(eager)), "eager PyTorch fuses nothing"


def test_operators_of_a_fused_kernel_take_its_measured_seconds(plan: ax.Plan) -> None:
    wanted = plan_kernels(plan)
    same = planned(kernels=store(wanted, 1.0))
    assert same.predicted.iteration_seconds == pytest.approx(plan.predicted.iteration_seconds, rel=1e-9)
    share = measured_share(same)
    assert share is not None
    assert share > 0.95, "fused kernels count as timed"
    slower = ax.reprice(plan, plan.cluster.with_changes(measured=store(wanted, 3.0)))
    before = sum(o.compute_seconds for s in plan.stages for o in s.operators if o.phase != "update")
    after = sum(o.compute_seconds for s in slower.stages for o in s.operators if o.phase != "update")
    fused = sum(each.plan_seconds for each in wanted if each.is_compiled)
    assert after - before == pytest.approx(2 * fused, rel=0.05)


@pytest.mark.slow
@pytest.mark.parametrize("model", ["gpt-tiny", "llama-tiny"])
def test_a_fused_kernel_is_compiled_computes_what_its_operators_do_and_is_timed(model: str) -> None:
    fused = [each for each in plan_kernels(planned(model)) if each.is_compiled and len(each.call.steps) > 2]
    norm = "rms_norm" if model == "llama-tiny" else "layer_norm"
    chosen = next(each for each in fused if any(norm in step.kind for step in each.call.steps))
    torch.manual_seed(0)
    inputs = random_inputs(chosen, 2, "cpu")
    with torch.no_grad():
        kernel = as_compiled(chosen, inputs)
        torch.testing.assert_close(kernel(*inputs), kernel_call(chosen, "cpu")(*inputs), rtol=1e-4, atol=1e-5)
    found = timed_or_why(chosen, "cpu")
    assert isinstance(found, Timed), found
    assert found.seconds > 0


def test_without_a_compiler_the_profile_says_the_remedy_once_and_times_the_other_kernels(
    plan: ax.Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inductor.cpp, "cxx", ("no-such-compiler",))

    of_plan = mattering(plan_kernels(plan))
    assert sum(each.is_compiled for each in of_plan) > 3
    empty = KernelStore(device="x", driver="", software="", date="", kernels={})
    profiling, given = Profiling(plan, empty, seconds=600.0, kind="cpu"), []
    for each in profiling.waiting():
        given.append(each)
        steady = Timed(seconds=each.seconds, host_seconds=0.0, spread=0.0)
        profiling.add(each, timed_or_why(each, "cpu") if each.is_compiled else steady)
        if len(given) == sum(not wanted.is_compiled for wanted in of_plan) + 1:
            break  # before a plan is made anew
    assert sum(each.is_compiled for each in given) == 1
    found = profiling.result()
    ((_, why),) = found.untimed
    assert why.startswith("torch.compile finds no compiler")
    assert "apt install g++" in why
    assert not found.failed, "strategies keep their price"
    assert found.timed == len(given) - 1
