"""What an optimizer keeps and moves, against torch's own optimizers, and plans with these states."""

from dataclasses import replace

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import alpa_explore as ax
from alpa_explore.calibration.profiling.timing import timed, update
from alpa_explore.calibration.profiling.wanted import plan_kernels, wanted_kernels
from alpa_explore.cluster import Cluster, Software
from alpa_explore.cluster.software import STATES, UPDATES
from alpa_explore.cost.plain_kernels import state_bytes, step_bytes
from alpa_explore.errors import AlpaExploreError, ClusterError
from alpa_explore.plans.report.summary import plan_report

OPTIMIZERS = {
    "adam": (2, torch.optim.Adam, {}),
    "adamw": (2, torch.optim.AdamW, {}),
    "sgd": (0, torch.optim.SGD, {}),
    "sgd_momentum": (1, torch.optim.SGD, {"momentum": 0.9}),
}


class Moved(TorchDispatchMode):
    """Counts the bytes that kernels read and write, a tensor once a kernel."""

    def __init__(self, gradients: list[torch.Tensor]) -> None:
        super().__init__()
        self.bytes, self._gradients = 0, {id(gradient) for gradient in gradients}

    def __torch_dispatch__(self, kernel, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]  # torch's form
        kwargs = kwargs or {}
        made = kernel(*args, **kwargs)
        self.bytes += _bytes(tree_leaves((args, kwargs)))
        given = {a.name: v for a, v in zip(kernel._schema.arguments, args, strict=False)} | kwargs
        written = [given[a.name] for a in kernel._schema.arguments if a.alias_info and a.alias_info.is_write]
        # Fused kernels may scale gradients, and write them only then.
        self.bytes += _bytes(
            [t for t in tree_leaves(written if kernel._schema.is_mutable else made) if id(t) not in self._gradients]
        )
        return made


def _bytes(leaves: list[object]) -> int:
    tensors = {id(t): t.nbytes for t in leaves if isinstance(t, torch.Tensor) and t.numel() > 1}
    return sum(tensors.values())


@pytest.mark.parametrize("how", UPDATES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_step_moves_the_bytes_that_torchs_kernels_do_and_keeps_its_state(
    name: str, dtype: torch.dtype, how: str
) -> None:
    moments, make, options = OPTIMIZERS[name]
    weights = [torch.nn.Parameter(torch.randn(8, 16).to(dtype)) for _ in range(3)]
    optimizer = make(weights, lr=1e-3, foreach=how == "foreach", fused=how == "fused", **options)
    for weight in weights:
        weight.grad = torch.randn_like(weight)
    optimizer.step()
    with Moved([weight.grad for weight in weights if weight.grad is not None]) as moved:
        optimizer.step()
    software = Software(plain_loop=True, update=how, states="bfloat16" if dtype is torch.bfloat16 else "float32")
    elements = sum(weight.numel() for weight in weights)
    assert moved.bytes == elements * step_bytes(name, moments, dtype.itemsize, software)
    kept = [v for state in optimizer.state.values() for v in state.values() if isinstance(v, torch.Tensor)]
    assert _bytes(kept) == elements * state_bytes(moments, dtype.itemsize, software)


def test_a_master_copy_adds_its_bytes_and_the_casts_to_and_from_it() -> None:
    plain, fused = (Software(plain_loop=loop, update="fused") for loop in (True, False))
    assert state_bytes(2, 2, plain) == state_bytes(2, 2, fused) == 12
    # Gradient to float32 (2 + 4), Adam in float32 (4 · 7), weight to 16 bits (4 + 2).
    assert step_bytes("adam", 2, 2, plain) == 40
    # Gradient read (2), moments and master read and written (2 · 12), weight written (2).
    assert step_bytes("adam", 2, 2, fused) == 28
    assert step_bytes("adamw", 2, 2, replace(plain, update="foreach")) == 6 + 4 * 20 + 6


def test_8_bit_states_are_a_byte_a_moment_and_a_scale_for_256() -> None:
    software = Software(states="8-bit")
    assert state_bytes(2, 2, software) == 2 + 2 * 4 / 256
    assert step_bytes("adam", 2, 2, software) == 3 * 2 + 2 * (2 + 2 * 4 / 256)
    assert state_bytes(1, 4, software) == 1 + 4 / 256
    with pytest.raises(ClusterError, match="Unknown states") as caught:
        Software(states="4-bit")
    assert "8-bit" in caught.value.remedy


def planned(states: str, cluster: str = "1x1:h100@eager", **changes: int) -> ax.Plan:
    found = Cluster.parse(cluster).with_changes(**changes)
    found = found.with_changes(software=replace(found.software, states=states))
    return ax.plan("gpt-tiny", found, num_microbatches=2, precision="bfloat16", num_layers=2, cache=False)


def test_states_change_the_memory_and_the_update_of_a_plan_and_stay_with_another_software() -> None:
    plans = {states: planned(states) for states in STATES}
    weights = sum(t.bytes for t in plans["float32"].stages[0].tensors if t.role == "weight") / 2
    for states, each in (("bfloat16", 4), ("8-bit", 2 + 2 / 64)):
        saved = plans["float32"].stages[0].weight_bytes - plans[states].stages[0].weight_bytes
        assert saved == pytest.approx(weights * (12 - each), rel=1e-3)
    seconds = [plans[states].stages[0].iteration_seconds for states in STATES]
    assert seconds == sorted(seconds, reverse=True)
    again = plans["8-bit"].cluster.with_changes(software="megatron")
    assert again.software.states == "8-bit"
    said = [", optimizer states in 8-bit" in plan_report(plans[states]) for states in STATES]
    assert said == [False, False, True]


def test_a_model_whose_float32_states_are_too_large_has_a_plan_with_8_bit_ones() -> None:
    held = {states: planned(states).stages[0] for states in ("float32", "8-bit")}
    reserve = Cluster.parse("1x1:h100@eager").software.reserve_bytes
    room = round((held["float32"].weight_bytes + held["8-bit"].weight_bytes) / 2 + 3e6 + reserve)
    with pytest.raises(AlpaExploreError):
        planned("float32", memory_bytes=round(held["float32"].weight_bytes / 2 + reserve))
    assert planned("8-bit", memory_bytes=room + 2**28).predicted.iteration_seconds > 0


def test_steps_with_states_of_16_bits_are_timed_as_torchs_and_8_bit_ones_have_the_formula() -> None:
    made = planned("bfloat16", "1x1:cpu@eager")
    wanted = next(each for each in wanted_kernels(made) if each.update)
    assert " fused bfloat16 " in wanted.name
    torch.manual_seed(0)
    sets = [[torch.rand(8, 16).bfloat16(), torch.rand(8, 16).bfloat16()] for _ in range(3)]
    expected = [torch.nn.Parameter(weight.clone()) for weight, _ in sets]
    for weight, (_, gradient) in zip(expected, sets, strict=True):
        weight.grad = gradient
    torch.optim.Adam(expected, lr=1e-3, fused=True).step()
    for new, right in zip(update(wanted, sets)(), expected, strict=True):
        torch.testing.assert_close(new, right.detach(), rtol=0, atol=0)
    assert timed(wanted, "cpu").seconds > 0
    assert not any(each.update for each in plan_kernels(planned("8-bit", "1x1:cpu@eager")))
