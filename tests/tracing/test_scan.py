"""torch's scan is one operator, forward and backward; loss and gradients are those of its steps."""

from dataclasses import replace

import pytest
import torch
from torch import nn
from torch._higher_order_ops.scan import scan
from torch.nn import functional as F

import alpa_explore as ax
from alpa_explore.cluster import Cluster, LogicalMesh
from alpa_explore.cost.compute import compute_seconds
from alpa_explore.cost.kernels import Kernel
from alpa_explore.cost.model import CostModel
from alpa_explore.graph.document import dump_graph, load_graph
from alpa_explore.graph.loops import SCAN, body_of, dump_body, load_body
from alpa_explore.programs.lowering.lower import lower
from alpa_explore.runtime.training import OwnModel, training
from alpa_explore.runtime.verify import interpreted_differences
from alpa_explore.sharding.splits import splits_for
from alpa_explore.tracing.capture import capture
from alpa_explore.tracing.evaluate import evaluate, initial_values
from alpa_explore.tracing.resizing.rescale import rescale
from tests.sharding.proof import prove_splits
from tests.tracing.autograd import assert_autograd

SAMPLES, STEPS, SIZE = 4, 5, 6


def looped(step, carry, xs):
    """What `scan` returns, by its definition."""
    made = []
    for now in xs:
        carry, output = step(carry, now)
        made.append(output)
    return carry, torch.stack(made)


class Scans(nn.Module):
    """Scans with a step of its own; `step(self, carry, now)`."""

    def __init__(self, step, begin=torch.zeros_like, size=SIZE):
        super().__init__()
        self.layer, self.cell, self.mix = nn.Linear(size, size), nn.GRUCell(size, size), nn.Linear(size, size)
        self.decay = nn.Parameter(torch.rand(size))
        self.register_buffer("mask", (torch.arange(size) % 3 > 0).to(torch.float32))
        self.step, self.begin, self.scan = step, begin, scan

    def forward(self, x, y):
        entries = self.layer(x).transpose(0, 1)
        last, made = self.scan(lambda carry, now: self.step(self, carry, now), self.begin(y), entries)
        return (made.sum(0) * y).sum() + sum(t.square().sum() for t in torch.utils._pytree.tree_leaves(last))


def decaying(self, carry, now):
    carry = carry * torch.sigmoid(self.decay) + now * self.mask
    return carry, torch.tanh(carry)


def gated(self, carry, now):
    carry = self.cell(now, carry)
    return carry, carry * 2


def mixing(self, carry, now):
    carry = torch.softmax(self.mix(carry), -1) + now
    return carry, carry.clone()


def counting(self, carry, now):
    """Two carried tensors, one of which has no gradient."""
    state, count = carry
    state = state * 0.5 + torch.where(count % 2 == 0, now, now.sin())
    return (state, count + 1), state.t().contiguous().t() * 2


def within(self, carry, now):
    """A scan inside a step."""
    inner, made = scan(lambda c, n: (c * self.decay + n, c + n), carry, torch.stack([now, now.cos()]))
    return inner, made.sum(0)


def writing(self, carry, now):
    carry = carry * self.decay
    carry.add_(now)
    return carry, carry.clone()


def counters(y):
    return torch.zeros_like(y), torch.zeros(y.shape, dtype=torch.int64)


STEP = {
    "decaying": decaying,
    "gated": gated,
    "mixing": mixing,
    "counting": counting,
    "within": within,
    "writing": writing,
}
FACTORS = {
    "decaying": "dim0 dim1",
    "gated": "dim0",
    "mixing": "dim0",
    "counting": "dim0 dim1",
    "within": "dim0 dim1",
    "writing": "dim0 dim1",
}


def of(name, steps=STEPS, samples=SAMPLES):
    torch.manual_seed(0)
    begin = counters if name == "counting" else torch.zeros_like
    model = Scans(STEP[name], begin).double()
    return model, (torch.randn(samples, steps, SIZE).double(), torch.randn(samples, SIZE).double())


def scans(graph):
    return [o for o in graph.operators if o.kind == SCAN]


@pytest.mark.sweep(kept=3, in_turn=True)
@pytest.mark.slow
@pytest.mark.parametrize("name", STEP)
def test_a_scan_is_one_operator_whatever_its_steps(name):
    model, inputs = of(name)
    graph = capture(model, inputs)
    assert len(scans(graph)) == 2
    assert len(graph.operators) == len(capture(*of(name, steps=40)).operators)
    model.scan = looped
    assert_autograd(graph, model, inputs)
    assert load_graph(dump_graph(graph)) == graph


@pytest.mark.sweep(kept=3, in_turn=True)
@pytest.mark.slow
@pytest.mark.parametrize("name", STEP)
def test_every_way_to_divide_it_computes_the_whole(name):
    model, inputs = of(name)
    graph = capture(model, inputs)
    values = evaluate(graph, initial_values(graph, model, inputs))
    for operator in scans(graph):
        coverage = splits_for(operator, graph.tensors)
        assert coverage.how == "rule"
        assert [s.factor for s in coverage.splits] == FACTORS[name].split()
        given = {t: values[t] for t in (*operator.inputs, *operator.outputs)}
        assert prove_splits(coverage.splits, operator, graph.tensors, given) == set(FACTORS[name].split())


def test_gradients_of_what_is_shared_are_pending_sums_where_samples_are_divided():
    graph = capture(*of("gated"))
    backward = scans(graph)[1]
    (samples,) = splits_for(backward, graph.tensors).splits
    assert sorted(set(samples.outputs)) == [-2, 0, 1]
    assert [graph.tensors[t].shape for t, p in zip(backward.outputs, samples.outputs, strict=True) if p == 0] == [
        (SAMPLES, SIZE)
    ]


def test_its_work_is_that_of_its_steps():
    graph = capture(*of("gated"))
    operator = scans(graph)[0]
    body = body_of(operator.arguments)
    products = [o for o in body.operators if o.kind == "aten.addmm.default"]
    assert [o.flops for o in products] == [2 * SAMPLES * SIZE * 3 * SIZE] * 2
    assert operator.flops == STEPS * sum(o.flops for o in body.operators)
    assert operator.bytes_accessed == STEPS * sum(o.bytes_accessed for o in body.operators)
    assert operator.launches == STEPS * sum(o.bytes_accessed > 0 for o in body.operators)
    assert load_body(dump_body(body)) == body


@pytest.mark.slow
def test_a_graph_with_a_scan_has_other_sizes_without_another_capture():
    few, more = (capture(*of("gated", samples=samples)) for samples in (4, 6))
    assert rescale(few, more, 16) == capture(*of("gated", samples=16))


def drawing(self, carry, now):
    carry = carry * self.decay + F.dropout(now, 0.5)
    return carry, carry.clone()


def literal(self, carry, now):
    carry = carry * torch.tensor([0.5, 0.25] * (SIZE // 2), dtype=carry.dtype) + now
    return carry, carry.clone()


def outside(self, carry, now):
    self.mask.mul_(1.0)
    return carry * self.decay + now, now * 2


def widening(self, carry, now):
    """From whole numbers to others."""
    carry = carry * 0.5 + now
    return carry, carry.clone()


@pytest.mark.slow
@pytest.mark.parametrize("step", [drawing, literal, outside, widening])
def test_a_step_that_can_be_no_body_is_written_out(step):
    begin = (lambda y: torch.zeros(y.shape, dtype=torch.int64)) if step is widening else torch.zeros_like
    model, inputs = Scans(step, begin).double(), of("gated")[1]
    few, more = (capture(model, (inputs[0].repeat(1, times, 1), inputs[1])) for times in (1, 2))
    assert not scans(few)
    assert len(more.operators) > len(few.operators)


@pytest.mark.slow
def test_a_scan_that_is_written_out_is_named_in_a_warning():
    model, (x, y) = Scans(literal).double(), of("gated")[1]
    _, warning = capture(model, (x.repeat(1, 16, 1), y)).warnings  # the first one names parameters that are not read
    assert warning.startswith("A loop of Python is unrolled (test_scan.py:")


@pytest.mark.sweep(kept=3)
@pytest.mark.slow
@pytest.mark.parametrize("name", STEP)
@pytest.mark.parametrize("cluster", ["1x2:cpu", "2x2:cpu"])
def test_plans_train_as_one_process_does(name, cluster):
    model, inputs = of(name)
    model, inputs = model.float(), tuple(t.float() for t in inputs)
    own = OwnModel(model=model, example_inputs=inputs, loss=None)
    plan = ax.plan(capture(model, inputs), cluster, num_microbatches=2, num_layers=2, delta=1.0)
    program = lower(plan)
    weights, batches = training(program.graph, plan.model, own, seed=0, allow_import=False)
    compared = interpreted_differences(program, weights, batches)
    assert max(c.relative_error for c in compared) <= 1e-5


class Attending(nn.Module):
    """A step of attention, with a norm: operators of this package inside a body."""

    def __init__(self):
        super().__init__()
        self.mix, self.norm, self.scan = nn.Linear(16, 16), nn.RMSNorm(16), scan

    def forward(self, x, y):
        def step(carry, now):
            heads = self.norm(self.mix(carry + now)).view(len(carry), 4, 2, 8)
            seen = F.scaled_dot_product_attention(heads, heads, heads, is_causal=True)
            return carry + seen.reshape(carry.shape), seen.sum((1, 2, 3))

        last, made = self.scan(step, y, x.transpose(0, 1))
        return (last * y).sum() + made.sum()


@pytest.mark.slow
def test_a_step_may_have_attention_and_is_divided_by_samples():
    torch.manual_seed(0)
    model, inputs = Attending().double(), (torch.randn(4, STEPS, 4, 16).double(), torch.randn(4, 4, 16).double())
    graph = capture(model, inputs)
    model.scan = looped
    values = assert_autograd(graph, model, inputs)
    for operator in scans(graph):
        (samples,) = splits_for(operator, graph.tensors).splits
        given = {t: values[t] for t in (*operator.inputs, *operator.outputs)}
        assert prove_splits((samples,), operator, graph.tensors, given) == {"dim0"}


@pytest.mark.parametrize("device", ["v100", "h100"])
def test_its_price_is_that_of_its_kernels_in_sequence(device):
    graph = capture(*of("decaying"))
    operator = scans(graph)[0]
    cluster = Cluster.parse(f"1x2:{device}")
    model = CostModel(cluster.device, LogicalMesh((2,), (1e11,), (1e-6,)))
    priced = model.operator(graph, operator.index)
    by_name = {s.name: seconds for s, seconds in zip(priced.strategies, priced.seconds, strict=True)}
    assert set(by_name) == {"-", "dim0", "dim1"}
    each = {"-": 1, "dim0": 2, "dim1": 2}
    for name, seconds in by_name.items():
        one = Kernel(
            flops=operator.flops / each[name] / operator.launches,
            bytes_accessed=operator.bytes_accessed / operator.launches / 2,
            dtype="float64",
            matrix=False,
        )
        least = operator.launches * compute_seconds(cluster.device, replace(one, flops=0.0, bytes_accessed=1.0))
        most = operator.launches * compute_seconds(cluster.device, replace(one, bytes_accessed=one.bytes_accessed * 2))
        assert least < seconds <= most * (1 + 1e-9)
