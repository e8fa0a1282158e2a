"""The time of one kernel: of which inputs, on how many cores, and that its memory is as in a run."""

import resource
import weakref
from dataclasses import replace

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import alpa_explore as ax
from alpa_explore.calibration.profiling import timing
from alpa_explore.calibration.profiling.timing import in_turn, timed, update
from alpa_explore.calibration.profiling.wanted import WantedKernel, plan_kernels, wanted_kernels
from alpa_explore.cluster.software import UPDATES
from alpa_explore.programs.execution.optimizer_step import PieceOptimizer


@pytest.fixture(scope="module")
def wanted() -> tuple[WantedKernel, ...]:
    return wanted_kernels(ax.plan("mlp-tiny", "1x2:cpu", num_microbatches=2, precision="float32", cache=False))


@pytest.mark.parametrize(("cache_bytes", "kept"), [(2**20, 8), (3 * 400, 3), (399, 0)])
def test_what_a_timed_kernel_made_is_kept_as_far_as_the_caches_reach(cache_bytes: int, kept: int) -> None:
    """Fault of 0.1.0: of a kernel that makes far more than it reads, over a hundred results filled the memory."""
    alive: weakref.WeakSet[torch.Tensor] = weakref.WeakSet()

    def kernel(value: torch.Tensor) -> tuple[torch.Tensor, ...]:
        made = value.expand(100).clone()
        alive.add(made)
        return (made,)

    step = in_turn([[torch.ones(1)] for _ in range(4)], kernel, cache_bytes)
    assert len(alive) == kept, "from the first timed call on"
    for _ in range(20):
        step()
    assert len(alive) == kept


def test_a_kernel_of_a_cpu_is_timed_on_one_core(wanted: tuple[WantedKernel, ...]) -> None:
    before, seen = torch.get_num_threads(), []

    class Seen(TorchDispatchMode):
        def __torch_dispatch__(self, kernel, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]  # torch's form
            seen.append(torch.get_num_threads())
            return kernel(*args, **(kwargs or {}))

    torch.set_num_threads(2)
    try:
        with Seen():
            timed(wanted[-1], "cpu")
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert set(seen) == {1}


@pytest.mark.parametrize("how", UPDATES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_timed_update_is_the_step_of_torch_with_a_master_copy_of_16_bits(how: str, dtype: torch.dtype) -> None:
    made = ax.plan("mlp-tiny", "1x2:cpu", num_microbatches=2, cache=False)
    wanted = next(each for each in wanted_kernels(made) if each.update)
    assert f" {made.cluster.software.update} " in wanted.name
    torch.manual_seed(0)
    sets = [[torch.rand(8, 16).to(dtype), torch.rand(8, 16).to(dtype)] for _ in range(3)]
    right = [PieceOptimizer(str(wanted.call.steps[0].kind), weight, 1e-3).step(grad) for weight, grad in sets]
    before = [weight.clone() for weight, _ in sets]
    stepped = update(replace(wanted, update=how), sets)()
    for (weight, _), old, new, expected in zip(sets, before, stepped, right, strict=True):
        torch.testing.assert_close(new, expected)
        assert not torch.equal(new, old)
        assert dtype is torch.float32 or how == "plain" or torch.equal(weight, new), "a weight of 16 bits is written"
    took = timed(replace(wanted, update=how), "cpu")
    assert took.seconds > 0


class Heads(torch.nn.Module):
    """Attention whose heads are transposed views, as in most models."""

    def __init__(self) -> None:
        super().__init__()
        self.into, self.out = torch.nn.Linear(32, 96), torch.nn.Linear(32, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (part.unflatten(-1, (4, 8)).transpose(1, 2) for part in self.into(x).chunk(3, -1))
        return self.out(torch.nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)).mean()


def test_a_transposed_input_is_timed_transposed() -> None:
    graph = ax.capture(Heads(), torch.zeros(2, 16, 32), name="heads")
    made = ax.plan(graph, "1x1:cpu", num_microbatches=1, num_layers=1, cache=False)
    wanted = next(each for each in plan_kernels(made) if each.name.startswith("alpa_explore.attention.default"))
    assert [(shape, order) for shape, _, order in wanted.inputs[:3]] == [((2, 4, 16, 8), (0, 2, 1, 3))] * 3
    seen: list[tuple[int, ...]] = []

    class Seen(TorchDispatchMode):
        def __torch_dispatch__(self, kernel, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]  # torch's form
            if "attention" in str(kernel):
                seen.append(args[0].stride())
            return kernel(*args, **(kwargs or {}))

    with Seen():
        timed(wanted, "cpu")
    assert set(seen) == {(512, 8, 32, 1)}


def test_tokens_choose_among_all_experts_where_those_are_timed() -> None:
    made = ax.plan("mixtral-tiny", "1x1:cpu", num_microbatches=1, precision="float32", num_layers=2, cache=False)
    experts = next(w for w in plan_kernels(made) if w.name.startswith("alpa_explore.experts.default"))
    largest: set[int] = set()

    class Seen(TorchDispatchMode):
        def __torch_dispatch__(self, kernel, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]  # torch's form
            if "experts" in str(kernel):
                largest.add(int(args[1].max()))
            return kernel(*args, **(kwargs or {}))

    with Seen():
        timed(experts, "cpu")
    assert largest == {7}


class Wide(torch.nn.Module):
    """Sums of tensors of 48 MiB."""

    def __init__(self) -> None:
        super().__init__()
        self.bias = torch.nn.Parameter(torch.zeros(4096))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x + self.bias).exp().mean()


def test_a_timed_kernel_takes_the_memory_that_earlier_calls_freed(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = ax.capture(Wide(), torch.zeros(3072, 4096), name="wide")
    made = ax.plan(graph, "1x1:cpu", num_microbatches=1, num_layers=1, cache=False)
    wanted = next(each for each in plan_kernels(made) if each.name.startswith("aten.exp.default"))
    faults: list[int] = []

    class Counted(timing.Clock):
        def runs(self, kernel):  # type: ignore[no-untyped-def]  # as there
            calls, found = 5, super().runs(kernel)
            before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
            for _ in range(calls):
                kernel()
            faults.append((resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) // calls)
            return found

    monkeypatch.setattr(timing, "Clock", Counted)
    timed(wanted, "cpu")
    pages = 3072 * 4096 * 4 // resource.getpagesize()
    assert faults[0] < pages / 20, "else the time of a fault for each page is taken for that of the kernel"
