"""Errors of capture: they name the operator, the module, the line and a remedy."""

import random
import statistics
from collections import UserDict
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from alpa_explore.errors import CaptureError
from alpa_explore.tracing.capture import capture
from tests.one_layer import OneLayer


class Model(nn.Module):
    """A linear layer and, inside a submodule, something that may not be traceable."""

    def __init__(self, act):
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.act = Act(act)

    def forward(self, x):
        return self.act(self.layer(x))


class Act(nn.Module):
    def __init__(self, act):
        super().__init__()
        self.call = act

    def forward(self, h):
        return self.call(h)


def branch(h):
    return h.sum() if h.sum() > 0 else -h.sum()


def item(h):
    return h.sum() * h.max().item()


def numpy(h):
    return h.sum() + float(h.detach().numpy().sum())


def nonzero(h):
    return h[h > 0].sum()


def shapes(h):
    return (h @ torch.ones(5, 2)).sum()


def gpu(h):
    return h.cuda().sum()


def unknown_name(h):
    return h.no_such_method()


@pytest.mark.parametrize(
    ("act", "operator", "remedy"),
    [
        (branch, "_local_scalar_dense", "torch.where"),
        (item, "_local_scalar_dense", "torch.where"),
        (numpy, "numpy", "NumPy"),
        (nonzero, "nonzero", "torch.where"),
        (shapes, "matmul", "shapes of the example inputs"),
        (unknown_name, "no_such_method", "outside capture"),
        (gpu, "none running", "on the device of the input"),
    ],
)
def test_an_untraceable_model_names_operator_module_line_and_remedy(act, operator, remedy):
    with pytest.raises(CaptureError) as caught:
        capture(Model(act), torch.randn(2, 4))
    assert operator in caught.value.found
    assert "module act" in caught.value.found
    assert f"test_errors.py:{act.__code__.co_firstlineno + 1}" in caught.value.found
    assert remedy in caught.value.remedy
    assert caught.value.__cause__ is not None


def plain(h):
    return h


def detached(h):
    return h.detach().sum()


@pytest.mark.parametrize(
    ("model", "inputs", "loss", "what"),
    [
        (Model(plain), torch.randn(2, 4), None, "returns no loss"),
        (Model(plain), torch.randn(2, 4), lambda output: output, "not a single number"),
        (Model(plain), torch.randn(2, 4), "mse", "no target"),
        (Model(plain), {"x": torch.randn(2, 4)}, "mse", "no target"),
        (Model(plain), (torch.randn(2, 4), torch.randn(2, 4)), "msee", "Unknown loss"),
        (Model(plain), torch.randn(2, 4), 3, "not callable"),
        (Model(detached), torch.randn(2, 4), None, "depends on no parameter"),
        (Model(plain).requires_grad_(False), torch.randn(2, 4), torch.sum, "no trainable parameter"),
        (Model(plain), ([1, 2],), lambda output: output.sum(), "no tensor"),
        (Model(plain), "tokens", torch.sum, "not a tuple or a dict"),
        (Model(plain), (torch.randn(2, 4).numpy(),), lambda output: output.sum(), "NumPy"),
        (Model(plain), torch.randn(2, 4).to_sparse(), lambda output: output.sum(), "not dense"),
        (nn.LazyLinear(3), torch.randn(2, 4), lambda output: output.sum(), "no shape yet"),
        (Model(plain), torch.zeros(2, 4, dtype=torch.int64), lambda output: output.sum(), "different dtypes"),
        (Model(torch.sum), (torch.randn(2, 4), torch.randn(2, 4)), None, "cannot be traced"),
        ("gpt", torch.randn(2, 4), None, "not a torch module"),
    ],
)
def test_bad_input_gets_a_clear_error(model, inputs, loss, what):
    with pytest.raises(CaptureError) as caught:
        capture(model, inputs, loss=loss)
    assert what in caught.value.what + caught.value.found
    assert caught.value.remedy


def test_the_users_own_line_stands_before_that_of_a_library():
    def through_a_library(h):
        return h.sum() * float(statistics.mean(h.flatten()))

    with pytest.raises(CaptureError) as caught:
        capture(Model(through_a_library), torch.randn(2, 4))
    line = through_a_library.__code__.co_firstlineno + 1
    assert f"test_errors.py:{line} (which leads to {statistics.__file__}:" in caught.value.found


def _where(layer: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return x[torch.where(x[:, 0] > 0)]


def _assigned(layer: nn.Module, x: torch.Tensor) -> torch.Tensor:
    made = torch.zeros_like(x)
    for expert in range(8):
        rows = x.argmax(1) == expert
        made[rows] = layer(x[rows])
    return made


@pytest.mark.parametrize(
    ("construct", "named"),
    [
        (_where, "torch.where(mask), with one argument,"),
        (_assigned, "Indexing by a mask, x[mask],"),
        (lambda layer, x: x[x[:, 0] > 0], "Indexing by a mask, x[mask],"),
        (lambda layer, x: torch.masked_select(x, x > 0), "masked_select"),
        (lambda layer, x: x[torch.nonzero(x[:, 0] > 0).squeeze(1)], "nonzero"),
        (lambda layer, x: x[:, torch.unique(x.argmax(1))], "unique"),
        (lambda layer, x: x.repeat_interleave(x.argmax(1), 0), "repeat_interleave by a tensor"),
    ],
)
def test_a_tensor_sized_by_values_is_refused_by_the_name_of_what_makes_it(construct: Any, named: str) -> None:
    class Model(OneLayer):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return construct(self.layer, self.layer(x)).pow(2).mean()

    with pytest.raises(CaptureError) as caught:
        capture(Model(), (torch.randn(4, 8),))
    assert caught.value.remedy.startswith(f"{named} gives a tensor whose size depends on values")


def test_wrappers_of_a_model_are_the_model_and_what_has_no_code_is_refused() -> None:
    class Model(OneLayer):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(x).pow(2).mean()

    model, inputs = Model(), (torch.randn(4, 8),)
    assert capture(nn.DataParallel(model), inputs) == capture(model, inputs)
    with pytest.raises(CaptureError, match="TorchScript"):
        capture(torch.jit.trace(model, inputs), inputs)
    with pytest.raises(CaptureError, match=r"The model is a class: Model\. Pass one of its modules"):
        capture(Model, inputs)  # type: ignore[arg-type]  # which is the fault
    with pytest.raises(CaptureError, match=r"The loss is a class: MSELoss\. .*loss=MSELoss\(\)"):
        capture(nn.Linear(8, 8), (*inputs, *inputs), loss=nn.MSELoss)


@pytest.mark.parametrize("dtype", [torch.uint16, torch.uint32, torch.complex32, torch.float8_e8m0fnu], ids=str)
@pytest.mark.parametrize("frozen", [True, False])
def test_a_tensor_of_a_dtype_that_plans_do_not_have_is_refused_by_name(dtype, frozen):
    model = nn.Linear(4, 4)
    if frozen:
        model.extra = nn.Parameter(torch.zeros(4, dtype=dtype), requires_grad=False)
    else:
        model.register_buffer("extra", torch.zeros(4, dtype=dtype))
    forward = model.forward
    model.forward = lambda x: forward(x) + model.extra.to(torch.float32)
    with pytest.raises(CaptureError, match=f"{str(dtype).removeprefix('torch.')}.* extra"):
        capture(model, torch.randn(2, 4), loss=lambda y: y.sum())


@dataclass
class Pair:
    x: torch.Tensor
    y: torch.Tensor


class Differs(nn.Module):
    def __init__(self, of_second):
        super().__init__()
        self.layer, self.of_second = nn.Linear(4, 4), of_second

    def forward(self, x, second):
        return (self.layer(x) - self.of_second(second)).square().mean()


@pytest.mark.parametrize(
    ("second", "read"),
    [
        (Pair(torch.zeros(2, 4), torch.zeros(2, 4)), lambda pair: pair.y),
        (UserDict(y=torch.zeros(2, 4)), lambda user: user["y"]),
        (SimpleNamespace(inner=[torch.zeros(2, 4)]), lambda space: space.inner[0]),
        ({torch.zeros(2, 4)}, lambda one: next(iter(one))),
    ],
)
def test_an_input_whose_tensors_cannot_be_seen_is_refused_rather_than_taken_as_a_constant(second, read):
    with pytest.raises(CaptureError, match="cannot be seen"):
        capture(Differs(read), (torch.zeros(2, 4), second))


def of_numpy():
    return float(np.random.rand())  # noqa: NPY002  # as models do


@pytest.mark.parametrize(("draw", "name"), [(random.random, "Python"), (of_numpy, "NumPy")])
def test_random_numbers_from_outside_torch_are_warned_of(draw, name):
    graph = capture(Differs(lambda second: second * draw()), (torch.zeros(2, 4), torch.zeros(2, 4)))
    assert any(f"random numbers of {name}" in warning for warning in graph.warnings)
    graph = capture(Differs(lambda second: second), (torch.zeros(2, 4), torch.zeros(2, 4)))
    assert not any("random" in warning for warning in graph.warnings)


def test_what_depends_on_the_order_in_memory_is_refused():
    class Strided(OneLayer):
        def forward(self, x):
            return self.layer(x).t().as_strided((2, 2), (1, 2)).sum()

    with pytest.raises(CaptureError, match="lies in memory"):
        capture(Strided(4, 4), (torch.zeros(2, 4),))
