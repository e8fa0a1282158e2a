"""LSTM, GRU and RNN are a product and one operator for each layer and direction; loss and gradients are torch's."""

import pytest
import torch
from torch import nn
from torch._higher_order_ops.scan import scan
from torch.nn import functional as F

from alpa_explore.cluster import Cluster, LogicalMesh
from alpa_explore.cost.compute import compute_seconds
from alpa_explore.cost.kernels import Kernel
from alpa_explore.cost.model import CostModel
from alpa_explore.errors import CaptureError
from alpa_explore.graph.counts import RECURRENCES, packet
from alpa_explore.graph.document import dump_graph, load_graph
from alpa_explore.sharding.splits import splits_for
from alpa_explore.tracing.capture import capture
from tests.tracing.autograd import assert_autograd

SAMPLES, STEPS, SIZE = 4, 7, 6


class Model(nn.Module):
    """Its loss reads every output and all last states; `given` begins with states of its own."""

    def __init__(self, kind, *, layers=2, given=False, **options):
        super().__init__()
        self.layers = kind(5, SIZE, layers, **options)
        states = layers * (2 if self.layers.bidirectional else 1)
        self.given = nn.ParameterList(torch.randn(states, SAMPLES, SIZE) for _ in range(2 * given))

    def forward(self, x, y):
        states = None
        if self.given:
            states = tuple(self.given) if isinstance(self.layers, nn.LSTM) else self.given[0]
        made, last = self.layers(x, states)
        last = last if isinstance(last, tuple) else (last,)
        return (made * y).sum() + sum(state.square().sum() for state in last)


def compared(model, inputs):
    """The captured graph, with torch's loss and gradients."""
    model, inputs = model.double(), tuple(t.double() for t in inputs)
    graph = capture(model, inputs)
    assert_autograd(graph, model, inputs)
    return graph


def recurrences(graph):
    return [packet(o.kind) for o in graph.operators if packet(o.kind) in RECURRENCES]


OPTIONS = [
    {},
    {"batch_first": True},
    {"bidirectional": True, "layers": 1},
    {"bidirectional": True, "batch_first": True, "bias": False},
    {"given": True, "dropout": 0.0},
    {"given": True, "bidirectional": True},
]


@pytest.mark.sweep(kept=6, in_turn=True)
@pytest.mark.slow
@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
@pytest.mark.parametrize("options", OPTIONS, ids=lambda o: " ".join(o) or "plain")
def test_a_layer_and_direction_is_one_operator(kind, options):
    torch.manual_seed(0)
    model = Model(kind, **options)
    outputs = SIZE * (2 if model.layers.bidirectional else 1)
    shape = (SAMPLES, STEPS) if model.layers.batch_first else (STEPS, SAMPLES)
    graph = compared(model, (torch.randn(*shape, 5), torch.randn(*shape, outputs)))
    count = model.layers.num_layers * (2 if model.layers.bidirectional else 1)
    forward = f"alpa_explore.{kind.__name__.lower()}_recurrence"
    assert sorted(recurrences(graph)) == [forward] * count + [f"{forward}_backward"] * count
    assert {splits_for(o, graph.tensors).how for o in graph.operators} == {"rule"}
    assert load_graph(dump_graph(graph)) == graph


@pytest.mark.parametrize("kind", ["tanh", "relu"])
def test_both_functions_of_an_rnn(kind):
    torch.manual_seed(0)
    compared(Model(nn.RNN, nonlinearity=kind), (torch.randn(STEPS, 4, 5), torch.randn(STEPS, 4, SIZE)))


def test_a_state_that_alone_is_read_has_gradients():
    class Last(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.LSTM(5, SIZE)

        def forward(self, x, y):
            return (self.layer(x)[1][1] * y).sum()

    torch.manual_seed(0)
    compared(Last(), (torch.randn(STEPS, SAMPLES, 5), torch.randn(1, SAMPLES, SIZE)))


def test_a_sequence_without_samples_and_one_step():
    torch.manual_seed(0)
    compared(Model(nn.GRU), (torch.randn(1, SAMPLES, 5), torch.randn(1, SAMPLES, SIZE)))
    compared(Model(nn.LSTM, layers=1), (torch.randn(STEPS, 5), torch.randn(STEPS, SIZE)))


@pytest.mark.slow
def test_dropout_lies_between_layers():
    model = Model(nn.LSTM, layers=3, dropout=0.3)
    inputs = torch.randn(STEPS, SAMPLES, 5), torch.randn(STEPS, SAMPLES, SIZE)
    for mode, count in ((True, 2), (False, 0)):
        kinds = [o.kind for o in capture(model.train(mode), inputs).operators]
        assert kinds.count("aten.native_dropout.default") == count


def test_projections_are_torchs():
    torch.manual_seed(0)
    inputs = torch.randn(2, SAMPLES, 5), torch.randn(2, SAMPLES, 3)
    assert not recurrences(compared(Model(nn.LSTM, layers=1, proj_size=3), inputs))


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
@pytest.mark.parametrize("within", [False, True])
def test_packed_sequences_are_refused_with_what_to_do(kind, within):
    class Packed(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = kind(5, SIZE)

        def forward(self, x, lengths):
            if within:
                return self.layer(nn.utils.rnn.pack_padded_sequence(x, lengths))[0].data.sum()
            packed = nn.utils.rnn.PackedSequence(x.flatten(0, 1)[:12], torch.tensor([4, 3, 3, 1, 1]))
            state = torch.zeros(1, SAMPLES, SIZE)
            return self.layer(packed, (state, state) if kind is nn.LSTM else state)[0].data.sum()

    with pytest.raises(CaptureError, match="Give the padded tensor"):
        capture(Packed(), (torch.randn(STEPS, SAMPLES, 5), torch.tensor([5, 3, 3, 1])))


@pytest.mark.slow
def test_the_operators_are_those_of_autograd():
    """The backward operators against finite differences, and by torch's own checks of an operator."""
    torch.manual_seed(0)
    h, c, of = *(torch.randn(2, 3).double().requires_grad_() for _ in range(2)), torch.ops.alpa_explore

    def drawn(*shape):
        return torch.randn(shape, dtype=torch.float64, requires_grad=True)

    for reverse in (False, True):
        lstm = drawn(2, 4, 12), drawn(12, 3), h, c, reverse
        gru = drawn(2, 4, 9), drawn(9, 3), drawn(9), h, reverse
        rnn = drawn(2, 4, 3), drawn(3, 3), h, reverse, False
        assert torch.autograd.gradcheck(lambda *a: of.lstm_recurrence(*a)[:2], lstm)
        assert torch.autograd.gradcheck(lambda *a: of.gru_recurrence(*a)[0], gru)
        assert torch.autograd.gradcheck(of.rnn_recurrence, rnn)
    for operator, arguments in ((of.lstm_recurrence, lstm), (of.gru_recurrence, gru), (of.rnn_recurrence, rnn)):
        torch.library.opcheck(operator.default, arguments)


class LanguageModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.layer, self.head = nn.Embedding(64, 32), nn.LSTM(32, 32, batch_first=True), nn.Linear(32, 64)

    def forward(self, tokens, targets):
        return F.cross_entropy(self.head(self.layer(self.table(tokens))[0]).flatten(0, 1), targets.flatten())


@pytest.mark.parametrize("device", ["v100", "h100"])
def test_its_price_is_that_of_its_steps_in_sequence(device):
    """On a device that computes float32 in TF32, and on one that cannot; four devices with a quarter of the samples
    each."""
    tokens = torch.zeros(64, 10, dtype=torch.int64)
    graph = capture(LanguageModel(), (tokens, tokens))
    (operator,) = (o for o in graph.operators if o.kind == "alpa_explore.lstm_recurrence.default")
    assert operator.flops == 10 * 2 * 64 * 128 * 32
    assert operator.launches == 10
    cluster = Cluster.parse(f"1x4:{device}")
    model = CostModel(cluster.device, LogicalMesh((4,), (1e11,), (1e-6,)))
    priced = model.operator(graph, operator.index)
    samples = 64 // 4
    # Of one sample: gates in, active gates, every h and c out for each step; h and c before, c after.
    each = 4 * samples * (128 + 128 + 32 + 32) + 4 * samples * 3 * 32 / 10 + 4 * 128 * 32
    product = Kernel(
        flops=2 * samples * 128 * 32,
        bytes_accessed=each,
        dtype={"h100": "tf32", "v100": "float32"}[device],
        matrix=True,
        kind=model.kernel(operator, graph.tensors, priced.strategies[0]).kind,
        sizes=(1, samples, 128, 32),
    )
    assert len(priced.strategies) == 1  # a heavy operator: never whole on every device
    assert priced.seconds[0] == pytest.approx(10 * compute_seconds(cluster.device, product))


@pytest.mark.sweep(kept=1, in_turn=True)
@pytest.mark.slow
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("dim", [0, 1])
def test_a_scan_of_torch_in_any_direction_is_its_steps(reverse, dim):
    class Scans(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.decay = nn.Linear(5, SIZE), nn.Parameter(torch.rand(SIZE))

        def forward(self, x, y):
            def step(carry, now):
                state, count = carry["state"] * self.decay + now, carry["count"] + 1
                return {"state": state, "count": count}, (torch.tanh(state), state * count)

            begin = {"state": torch.zeros_like(y), "count": torch.zeros_like(y)}
            last, (made, counted) = scan(step, begin, self.layer(x), dim=dim, reverse=reverse)
            return ((made + counted).sum(dim) * y).sum() + last["state"].square().sum()

    torch.manual_seed(0)
    compared(Scans(), (torch.randn(4, 4, 5), torch.randn(4, SIZE)))


class Cells(nn.Module):
    """A loop of Python over a cell of torch."""

    def __init__(self, size=5):
        super().__init__()
        self.cell = nn.GRUCell(size, size)

    def forward(self, x, y):
        h = torch.zeros_like(y)
        for now in x.unbind(0):
            h = self.cell(now, h)
        return ((h - y) ** 2).mean()


@pytest.mark.slow
def test_an_unrolled_loop_is_named_with_its_line_and_what_to_do():
    (warning,) = capture(Cells(), (torch.randn(20, 3, 5), torch.randn(3, 5))).warnings
    line = Cells.forward.__code__.co_firstlineno + 3
    assert f"test_recurrence.py:{line} in cell" in warning
    assert "nn.GRU" in warning
    assert not capture(Cells(), (torch.randn(8, 3, 5), torch.randn(3, 5))).warnings
