"""`verify` compares the captured graph with the module: a fault of capture shows, and so does what a run leaves out."""

from dataclasses import replace

import pytest
import torch
from torch import nn

import alpa_explore as ax
from alpa_explore.errors import OptionError
from alpa_explore.runtime.reference.plain_module import check_module
from alpa_explore.runtime.training import OwnModel
from alpa_explore.tracing.evaluate import initial_weights, input_values
from alpa_explore.tracing.inputs.example import microbatch_tensors
from tests.one_layer import OneLayer
from tests.zoo.modules import ZOO
from tests.zoo.training import planned


class Complex(nn.Module):
    """A filter in the frequency domain, as in Fourier neural operators."""

    def __init__(self):
        super().__init__()
        self.up = nn.Linear(8, 16)
        self.filter = nn.Parameter(torch.randn(9, dtype=torch.complex64))
        self.down = nn.Linear(16, 3)

    def forward(self, x):
        spectrum = torch.view_as_complex(torch.stack([self.up(x)[..., :9], self.up(x)[..., 7:]], dim=-1))
        return self.down(torch.cat([(spectrum * self.filter).real, (spectrum * self.filter).imag[..., :7]], dim=-1))


class Partly(nn.Module):
    """A frozen table, a tied matrix, a weight that is never used, a buffer that is only read."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(16, 8).requires_grad_(False)
        self.up, self.down = nn.Linear(8, 8), nn.Linear(8, 8)
        self.down.weight = self.up.weight
        self.unused = nn.Linear(3, 3)
        self.register_buffer("scale", torch.linspace(0.5, 2.0, 8))

    def forward(self, tokens):
        return self.down(torch.tanh(self.up(self.table(tokens)))) * self.scale


def mse(output, target):
    return ((output - target) ** 2).mean()


X = torch.linspace(-1, 1, 48).reshape(6, 8)
CASES = {
    "complex": (Complex, (X, X[:, :3]), mse, "adam"),
    "partly": (Partly, (torch.arange(12).reshape(4, 3), torch.ones(4, 3, 8)), mse, "sgd_momentum"),
    "float64": (
        lambda: nn.Sequential(nn.Linear(8, 4), nn.Tanh()).double(),
        (X.double(), X[:, :4].double()),
        mse,
        "adamw",
    ),
    "ignored targets": (
        lambda: nn.Linear(8, 5),
        (X, torch.tensor([0, 4, -100, 2, -100, 1])),
        nn.CrossEntropyLoss(),
        "sgd",
    ),
}


def captured(build, inputs, loss, optimizer):
    torch.manual_seed(0)
    model = build()
    graph = ax.capture(model, inputs, loss, optimizer=optimizer)
    values = input_values(graph, microbatch_tensors(inputs, loss))
    return graph, OwnModel(model=model, example_inputs=inputs, loss=loss), initial_weights(graph, model), values


def worst(checked):
    return max(checked.differences, key=lambda difference: difference.relative_error)


@pytest.mark.parametrize("name", CASES)
def test_a_captured_graph_has_the_loss_gradients_and_update_of_the_module(name: str) -> None:
    graph, source, state, values = captured(*CASES[name])
    before = {key: value.clone() for key, value in source.model.state_dict().items()}
    checked = check_module(graph, source, state, [values], 1e-2)
    assert worst(checked).relative_error < 2e-6, worst(checked)
    assert {difference.what for difference in checked.differences} == {
        "module loss",
        "module gradient",
        "module weight",
    }
    assert len(checked.differences) == 1 + 2 * len(graph.parameters)
    assert checked.written == ()
    torch.testing.assert_close(dict(source.model.state_dict()), before, rtol=0, atol=0)


def test_the_imaginary_part_of_a_weight_is_trained() -> None:
    graph, source, _, _ = captured(*CASES["complex"])
    plan = ax.baseline(graph, "1x2:cpu", "inter-only", num_microbatches=2, num_layers=2, delta=2.0)
    checked = ax.verify_interpreted(
        plan, graph=graph, model=source.model, example_inputs=source.example_inputs, loss=source.loss
    )
    assert checked.passed, checked.worst


def test_a_graph_with_another_gradient_than_the_module_is_refused() -> None:
    """A fault that a comparison of the graph with itself cannot see."""
    graph, source, state, values = captured(*CASES["partly"])
    (product,) = [o for o in graph.operators if o.kind == "aten.tanh_backward.default"]
    other = replace(product, kind="aten.sigmoid_backward.default")
    wrong = replace(graph, operators=tuple(other if o is product else o for o in graph.operators))
    assert worst(check_module(wrong, source, state, [values], 1e-2)).relative_error > 0.01
    assert worst(check_module(graph, source, state, [values], 1e-2)).relative_error < 2e-6


def test_what_the_module_trains_and_the_graph_does_not_is_a_difference() -> None:
    graph, source, state, values = captured(*CASES["partly"])
    source.model.table.requires_grad_(True)
    found = worst(check_module(graph, source, state, [values], 1e-2))
    assert (found.what, found.name, found.relative_error) == ("module gradient", "table.weight", float("inf"))


def test_buffers_that_the_forward_pass_writes_are_compared_after_all_microbatches_or_named() -> None:
    def build():
        return nn.Sequential(nn.Linear(8, 4), nn.BatchNorm1d(4), nn.ReLU())

    graph, source, state, values = captured(build, (X, X[:, :4]), mse, "sgd")
    (x, y), names = graph.inputs, [one.name for one in graph.written]
    microbatches = [values, {x: values[x] * 2 - 1, y: values[y]}, {x: values[x] ** 2, y: values[y]}]
    checked = check_module(graph, source, state, microbatches, 1e-2)
    assert worst(checked).relative_error < 1e-5
    assert [d.name for d in checked.differences if d.what == "module buffer"] == names
    assert checked.written == ()
    assert not source.model[1].running_mean.any(), "the module of the user is not changed"

    mean, variance, count = graph.written
    swapped = (replace(mean, value=variance.value), replace(variance, value=mean.value), count)
    other = check_module(replace(graph, written=swapped), source, state, microbatches, 1e-2)
    assert {d.name for d in other.differences if d.relative_error > 0.1} == set(names[:2])

    frozen = check_module(graph, source, state, microbatches, 1e-2, names[1:])
    assert frozen.written == ("1.running_var", "1.num_batches_tracked")
    assert [d.name for d in frozen.differences if d.what == "module buffer"] == names[:1]


def test_a_model_of_ones_own_without_data_is_told_what_it_lacks():
    class Model(OneLayer):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(x).pow(2).mean()

    model, inputs = Model(), (torch.randn(4, 8),)
    graph = ax.capture(model, inputs)
    plan = ax.plan(graph, "1x2:v100", num_microbatches=2, num_layers=1, cache=False, scheduler="serial")
    with pytest.raises(OptionError, match=r"needs data: model= alone\. Give example_inputs="):
        ax.verify_interpreted(plan, graph=graph, model=model)


def test_weights_that_are_no_numbers_are_named() -> None:
    kind = ZOO["weight and its transpose"]()
    plan, graph = planned(kind)
    with torch.no_grad():
        kind.model.body.w[1, 2] = float("nan")
    with pytest.raises(OptionError, match=r"not a number in one process either.* no number in body\.w"):
        ax.verify_interpreted(plan, model=kind.model, data=kind.inputs, graph=graph)


class Reaching(nn.Module):
    """What a copy of a module does not have: a hook of a weight, a function that reads another weight of it."""

    def __init__(self):
        super().__init__()
        self.layer, self.other = nn.Linear(8, 8), nn.Linear(8, 8)
        self.layer.weight.register_hook(lambda gradient: gradient.clamp(-0.01, 0.01))
        self.call = lambda x: self.other(self.layer(x))
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x):
        self.seen.add_(1)
        return self.call(x).square().mean()


def test_the_module_itself_is_compared_and_has_its_own_state_again() -> None:
    torch.manual_seed(0)
    model = Reaching()
    model.layer.weight.grad = torch.ones(8, 8)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    graph = ax.capture(model, (X,))
    plan = ax.plan(graph, "1x2:cpu", num_microbatches=2, num_layers=1, scheduler="serial")
    found = ax.verify_interpreted(plan, graph=graph, model=model, data=lambda n: (X + n,))
    assert found.passed, found
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert torch.equal(model.layer.weight.grad, torch.ones(8, 8))
    assert model.other.weight.grad is None


def test_a_module_that_fails_in_plain_pytorch_is_named() -> None:
    class Failing(nn.Linear):
        def forward(self, x):
            if not isinstance(x, torch._subclasses.FakeTensor | torch._subclasses.functional_tensor.FunctionalTensor):
                raise NotImplementedError("no kernel for this device")
            return super().forward(x).square().mean()

    graph = ax.capture(model := Failing(8, 8), (X,))
    plan = ax.plan(graph, "1x2:cpu", num_microbatches=2, num_layers=1, scheduler="serial")
    with pytest.raises(OptionError, match=r"fails in plain PyTorch.*no kernel"):
        ax.verify_interpreted(plan, graph=graph, model=model, data=lambda n: (X,))
