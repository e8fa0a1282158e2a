"""Gradients that are zero, but for rounding, raise no alarm; a fault of the same gradients does."""

import pytest
import torch
from torch import nn

import alpa_explore as ax
from alpa_explore.runtime.reference.one_process import OneProcess, rounding_of
from alpa_explore.tracing.capture import capture
from alpa_explore.tracing.evaluate import evaluate, initial_values
from tests.one_layer import OneLayer


class Normed(nn.Module):
    """A bias before a batch norm, whose output is scaled first."""

    def __init__(self, scale: float) -> None:
        super().__init__()
        self.layer, self.norm, self.out, self.scale = nn.Linear(64, 64), nn.BatchNorm1d(64), nn.Linear(64, 16), scale

    def forward(self, x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return (self.out(self.norm(self.layer(x) * self.scale)) - target).square().mean()


class Keys(nn.Module):
    """Attention, to which a bias of all keys makes no difference."""

    def __init__(self) -> None:
        super().__init__()
        self.queries, self.keys, self.values = (nn.Linear(32, 32) for _ in range(3))

    def forward(self, x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        scores = torch.softmax(self.queries(x) @ self.keys(x).transpose(1, 2), -1)
        return (scores @ self.values(x) - target).square().sum()


class Centred(OneLayer):
    """The mean is subtracted from what a layer makes: all that its bias adds."""

    def forward(self, x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        y = self.layer(x)
        return ((y - y.mean(0, keepdim=True)) * target).sum() * 1e4


class Masked(nn.Module):
    """Attention with a mask of -inf, to which a bias of all keys makes no difference."""

    def __init__(self) -> None:
        super().__init__()
        self.queries, self.keys, self.values = (nn.Linear(32, 32) for _ in range(3))

    def forward(self, x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        mask = torch.full((16, 16), -torch.inf).triu(1)
        scores = torch.softmax(self.queries(x) @ self.keys(x).transpose(1, 2) + mask, -1)
        return (scores @ self.values(x) - target).square().sum()


class Gained(Keys):
    """Their result counts for almost nothing until the first step moves its gain."""

    def __init__(self) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.tensor(1e-9))

    def forward(self, x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        scores = torch.softmax(self.queries(x) @ self.keys(x).transpose(1, 2), -1)
        return (scores @ self.values(x) * self.gain - target).square().sum()


CASES = {
    "masked keys": (Masked, (4, 16, 32), (4, 16, 32), "keys.bias"),
    "norm": (lambda: Normed(1.0), (256, 64), (256, 16), "layer.bias"),
    "norm of small numbers": (lambda: Normed(1e-3), (256, 64), (256, 16), "layer.bias"),
    "keys": (Keys, (4, 16, 32), (4, 16, 32), "keys.bias"),
    "centred": (lambda: Centred(16, 16), (64, 16), (64, 16), "layer.bias"),
}


def case(name: str):
    build, *shapes, zero = CASES[name]
    generator = torch.Generator().manual_seed(0)
    torch.manual_seed(0)
    inputs = tuple(torch.randn(shape, generator=generator) for shape in shapes)
    return build(), inputs, zero


@pytest.mark.parametrize("name", CASES)
def test_a_gradient_that_is_zero_but_for_rounding_raises_no_alarm(name: str) -> None:
    model, inputs, zero = case(name)
    graph = capture(model, inputs)
    plan = ax.baseline(graph, "1x4:cpu", "data-parallel", num_microbatches=2, num_layers=1)
    checked = ax.verify_interpreted(plan, graph=graph, model=model, example_inputs=inputs)
    assert checked.worst.relative_error < 3e-6, checked.worst
    assert zero in {d.name for d in checked.differences}


def test_rounding_is_measured_again_where_gradients_have_grown() -> None:
    """Fault of 0.1.0: HuBERT, with a loss that hardly depends on its weights before the first step."""
    torch.manual_seed(0)
    model, inputs = Gained(), (torch.randn(4, 16, 32), torch.randn(4, 16, 32))
    graph = capture(model, inputs)
    values = initial_values(graph, model, inputs)
    microbatch = {index: values[index] for index in graph.inputs}
    state = {index: value for index, value in values.items() if index not in microbatch}
    reference, run = OneProcess(graph, state, 1e-2), OneProcess(graph, state, 1e-2)
    bias = next(place for place, p in enumerate(graph.parameters) if p.name == "keys.bias")
    errors, sizes = [], []
    for step in range(2):
        loss, made = run.gradients([microbatch])
        sizes.append(float(made[bias].abs().max()))
        made[bias] = -made[bias]  # rounding errors alone: as good as the others
        run.state |= {p.tensor: run.updated(place, made[place]) for place, p in enumerate(graph.parameters)}
        recorded = {
            "gradients": [(place, whole_box(gradient), gradient) for place, gradient in made.items()],
            "values": [(p.tensor, whole_box(run.state[p.tensor]), run.state[p.tensor]) for p in graph.parameters],
        }
        compared = list(reference.step(step, [microbatch], loss, [recorded]))
        errors.append(max(d.relative_error for d in compared if d.name == "keys.bias"))
    assert sizes[1] > 1e4 * sizes[0] > 0, "else this says nothing"
    assert max(errors) < 1e-5, errors


def whole_box(tensor: torch.Tensor) -> tuple[tuple[int, int], ...]:
    return tuple((0, size) for size in tensor.shape)


@pytest.mark.parametrize("name", ["norm", "centred"])
def test_the_gradients_of_one_half_of_the_batch_are_a_fault_also_where_their_sum_is_zero(name: str) -> None:
    """As of a rank whose sum over ranks is missing; and a thousandth too much of the others."""
    model, inputs, zero = case(name)
    graph = capture(model, inputs)
    values = initial_values(graph, model, inputs)
    results = evaluate(graph, values)
    made = {}
    for place, parameter in enumerate(graph.parameters):
        gradient = results[parameter.gradient]
        made[place] = gradient * 1.001
        if parameter.name == zero:
            producer = graph.operators[graph.tensors[parameter.gradient].producer]
            while "sum" not in producer.kind:
                producer = graph.operators[graph.tensors[producer.inputs[0]].producer]
            terms = results[producer.inputs[0]]
            made[place] = terms[: len(terms) // 2].sum(0).reshape(gradient.shape)
    microbatch = {index: values[index] for index in graph.inputs}
    state = {index: value for index, value in values.items() if index not in microbatch}
    boxes = {place: tuple((0, n) for n in gradient.shape) for place, gradient in made.items()}
    recorded = {
        "gradients": [(place, boxes[place], gradient) for place, gradient in made.items()],
        "values": [(p.tensor, boxes[place], state[p.tensor]) for place, p in enumerate(graph.parameters)],
    }
    compared = OneProcess(graph, state, 1e-3, [one.name for one in graph.written]).step(
        0, [microbatch], float(results[graph.loss]), [recorded]
    )
    errors = {d.name: d.relative_error for d in compared if d.what == "gradient"}
    assert min(errors.values()) > 5e-4, errors


def test_where_sums_are_short_the_tolerance_alone_decides() -> None:
    torch.manual_seed(0)
    model, inputs = Perceptron(torch.float32, autocast=False), (torch.randn(32, 32), torch.randn(32, 16))
    graph = capture(model, inputs)
    plan = ax.baseline(graph, "1x4:cpu", "data-parallel", num_microbatches=2, num_layers=1)
    checked = ax.verify_interpreted(plan, graph=graph, model=model, example_inputs=inputs, steps=1)
    assert checked.passed
    assert max(difference.rounding for difference in checked.differences) == 0.0
    strict = ax.verify_interpreted(plan, graph=graph, model=model, example_inputs=inputs, steps=1, tolerance=1e-12)
    assert not strict.passed, "a run in float32 adds up in another order"


class SingleLoss(nn.Module):
    """Layers in float64, whose loss is computed in float32."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 16)).double()

    def forward(self, x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return (self.layers(x).float() - target.float()).square().mean()


def test_what_float32_rounds_hides_no_fault_of_a_gradient_in_float64() -> None:
    generator = torch.Generator().manual_seed(0)
    model, inputs = SingleLoss(), tuple(torch.randn(8, 16, generator=generator).double() for _ in range(2))
    graph = capture(model, inputs)
    values = initial_values(graph, model, inputs)
    roundings = rounding_of(graph, values)
    for parameter in graph.parameters:
        gradient = evaluate(graph, values)[parameter.gradient]
        assert roundings[parameter.gradient].scale < 10 * float(gradient.abs().max())


class Perceptron(nn.Module):
    """Three layers, as a whole in a dtype, or under autocast to it."""

    def __init__(self, dtype: torch.dtype, autocast: bool) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, 64), nn.Tanh())
        self.out, self.dtype, self.autocast = nn.Linear(64, 16), dtype, autocast
        if not autocast:
            self.to(dtype)

    def forward(self, x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", self.dtype, enabled=self.autocast):
            y = self.out(self.layers(x if self.autocast else x.to(self.dtype)))
        return (y.float() - target).square().mean()


@pytest.fixture(params=[(torch.bfloat16, False), (torch.bfloat16, True), (torch.float16, False)], ids=str)
def coarse(request: pytest.FixtureRequest):
    """(graph, model, inputs) of a model that computes in 16 bits."""
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(0)
    model, inputs = Perceptron(*request.param), tuple(torch.randn(32, n, generator=generator) for n in (32, 16))
    return capture(model, inputs), model, inputs


def test_sums_in_another_order_raise_no_alarm_in_16_bits(coarse) -> None:
    """With the tolerance of 32 bits, by default: each gradient is held against its own rounding."""
    graph, model, inputs = coarse
    plan = ax.baseline(graph, "1x4:cpu", "data-parallel", num_microbatches=2, num_layers=1)
    checked = ax.verify_interpreted(plan, graph=graph, model=model, example_inputs=inputs)
    assert checked.worst_of("gradient") > checked.tolerance == 1e-5
    assert checked.passed, checked.worst


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (lambda wanted: wanted * 1.01, "gradient scale"),
        (lambda wanted: wanted * 0.99, "gradient scale"),
        (lambda wanted: torch.cat([wanted[:1] * 1.3, wanted[1:]]), "gradient"),
        (lambda wanted: wanted.roll(1, 0), "gradient"),
        (torch.zeros_like, "gradient"),
    ],
)
def test_a_fault_that_rounding_does_not_explain_is_seen_in_16_bits(coarse, fault, kind) -> None:
    """Also one of 1 % of a matrix, which no entry shows: its errors of rounding cancel, and the fault does not."""
    graph, model, inputs = coarse
    values = initial_values(graph, model, inputs)
    reference = OneProcess(graph, {t: v for t, v in values.items() if t not in graph.inputs}, 1e-3)
    reference.measure({index: values[index] for index in graph.inputs})
    results = evaluate(graph, values)
    for place, parameter in enumerate(graph.parameters):
        wanted = results[parameter.gradient]
        if wanted.dim() < 2:
            continue
        made = fault(wanted.double())
        error = float((made - wanted.double()).abs().max())
        compared = list(reference.gradient_compared(0, "gradient", place, error, made, wanted))
        assert any(d.what == kind and d.relative_error > max(d.rounding, 1e-5) for d in compared), compared
        right = list(reference.gradient_compared(0, "gradient", place, 0.0, wanted, wanted))
        assert all(d.relative_error == 0.0 < d.rounding < 0.2 for d in right), right


class LongSums(nn.Module):
    """A convolution over many places: a gradient that one kernel sums over 262,144 of them, far from their mean."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.out = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 1, 1)

    def forward(self, x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return (self.out(torch.tanh(self.layer(x))) - target).square().mean()


@pytest.fixture(scope="module")
def long_sums():
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(0)
    model = LongSums()
    inputs = tuple(torch.randn(4, c, 256, 256, generator=generator) for c in (3, 1))
    return capture(model, inputs), model, inputs


def test_long_sums_within_a_kernel_raise_no_alarm_in_float32(long_sums) -> None:
    graph, model, inputs = long_sums
    plan = ax.baseline(graph, "1x4:cpu", "data-parallel", num_microbatches=1, num_layers=1)
    checked = ax.verify_interpreted(plan, graph=graph, model=model, example_inputs=inputs, steps=1)
    assert checked.worst_of("gradient") > checked.tolerance == 1e-5
    assert checked.passed, checked.worst


FAULTS = {
    "a ten-thousandth too much": lambda whole, part: whole * 1.0001,
    "one entry a ten-thousandth of the largest off": lambda whole, part: (
        whole.flatten().index_add(0, torch.tensor([1]), whole.abs().max()[None] * 1e-4).view_as(whole)
    ),
    "no sum over ranks": lambda whole, part: part,
    "a mean of fewer samples": lambda whole, part: part * 2,
    "zero": lambda whole, part: torch.zeros_like(whole),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_seen_beside_long_sums(long_sums, fault: str) -> None:
    """`part` is what half of the samples add."""
    graph, model, inputs = long_sums
    values = initial_values(graph, model, inputs)
    reference = OneProcess(graph, {t: v for t, v in values.items() if t not in graph.inputs}, 1e-3)
    reference.measure({index: values[index] for index in graph.inputs})
    results = evaluate(graph, values)
    half = {index: values[index].clone() for index in graph.inputs}
    half[graph.inputs[0]][2:] = 0  # only the other samples reach the first weights by their inputs
    parts = evaluate(graph, {**values, **half})
    place = next(place for place, p in enumerate(graph.parameters) if p.name == "layer.weight")
    wanted, part = (of[graph.parameters[place].gradient] for of in (results, parts))
    made = FAULTS[fault](wanted, part)
    error = float((made - wanted).abs().max())
    (found,) = reference.gradient_compared(0, "gradient", place, error, made, wanted)
    assert found.relative_error > 1.5 * max(found.rounding, 1e-5), found
    assert found.rounding <= 5e-5


class Choice(OneLayer):
    """What is summed hangs on the last digits, which differ in float64."""

    def forward(self, x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        y = self.layer(x)
        return (y * torch.where((y * 1e7).sin() > 0, 1.0, -1.0) - target).square().mean()


def test_a_choice_that_falls_differently_in_float64_hides_no_fault() -> None:
    model, inputs = Choice(), (torch.randn(16, 8), torch.randn(16, 8))
    graph = capture(model, inputs)
    values = initial_values(graph, model, inputs)
    results, roundings = evaluate(graph, values), rounding_of(graph, values)
    for parameter in graph.parameters:
        rounding, gradient = roundings[parameter.gradient], results[parameter.gradient]
        assert 0 < rounding.entry <= 5e-5 * max(float(gradient.abs().max()), rounding.scale) * 1.001
