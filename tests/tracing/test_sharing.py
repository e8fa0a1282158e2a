"""Equal views are one, and pending sums with several readers are completed once; the values stay the same."""

from collections import Counter

import pytest
import torch
from torch import nn

from alpa_explore.graph import Phase
from alpa_explore.tracing.capture import capture
from tests.tracing.autograd import assert_autograd

ALIAS, VIEW = "aten.alias.default", "aten.view.default"


class Projections(nn.Module):
    """Three layers that read one tensor of three dims."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Module()
        self.inner.q, self.inner.k, self.inner.v = (nn.Linear(8, 8, bias=False) for _ in range(3))
        self.shift, self.scale = nn.Parameter(torch.ones(8)), nn.Parameter(torch.ones(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.tanh(x + self.shift) * self.scale
        return (self.inner.q(x) * self.inner.k(x) + self.inner.v(x)).square().sum()


class Blocks(nn.Module):
    """The same, in a list: a pipeline may be cut between them."""

    def __init__(self) -> None:
        super().__init__()
        self.h = nn.ModuleList(nn.Linear(8, 8, bias=False) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.tanh(x)
        return (self.h[0](x) * self.h[1](x)).square().sum()


def kinds(graph, phase):
    return Counter(o.kind for o in graph.operators if o.phase is phase)


def test_layers_that_read_one_tensor_share_its_view():
    graph = capture(Projections(), (torch.empty(2, 4, 8),))
    entering = [o for o in graph.operators if o.kind == VIEW and o.phase is Phase.FORWARD]
    (shared,) = (o for o in entering if graph.tensors[o.outputs[0]].shape == (8, 8))
    readers = [graph.operators[r] for r in graph.readers[shared.outputs[0]]]
    assert [o.kind for o in readers if o.phase is Phase.FORWARD] == ["aten.mm.default"] * 3
    assert kinds(graph, Phase.FORWARD)[VIEW] == 1 + 3


def test_blocks_keep_views_of_their_own():
    graph = capture(Blocks(), (torch.empty(2, 4, 8),))
    assert kinds(graph, Phase.FORWARD)[VIEW] == 2 + 2


def test_a_sum_of_gradients_with_two_readers_is_completed_once():
    """The gradient out of the projections is read by that of the scale and that of what is scaled."""
    graph = capture(Projections(), (torch.empty(2, 4, 8),))
    aliases = [o for o in graph.operators if o.kind == ALIAS]
    (last,) = (o for o in aliases if graph.operators[graph.tensors[o.inputs[0]].producer].kind == "aten.add.Tensor")
    assert graph.readers[last.inputs[0]] == (last.index,)
    assert len(graph.readers[last.outputs[0]]) == 2
    assert last.phase is Phase.BACKWARD
    assert last.forward == graph.operators[graph.tensors[last.inputs[0]].producer].forward
    assert last.bytes_accessed == last.flops == 0


@pytest.mark.parametrize("kind", [Projections, Blocks])
def test_values_are_those_of_the_model(kind):
    torch.manual_seed(0)
    model, x = kind().double(), torch.randn(2, 4, 8, dtype=torch.float64)
    graph = capture(model, (x,))
    assert_autograd(graph, model, (x,))
