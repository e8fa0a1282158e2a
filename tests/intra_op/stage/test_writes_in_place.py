"""What PyTorch writes in place takes no memory of its own; losses hold what their kernels hold."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import alpa_explore as ax
from alpa_explore.cluster import Cluster
from alpa_explore.graph import Phase
from alpa_explore.intra_op.stage.layered_graph import assign_layers
from tests.intra_op.stage.test_liveness import measured_peak, predicted_peak


class Forward(torch.nn.Module):
    """A linear layer, and what makes a loss of its output and a second input."""

    def __init__(self, loss) -> None:
        super().__init__()
        self.layer, self.loss = torch.nn.Linear(32, 32), loss

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return self.loss(self.layer(x), y)


def written_view(x: Tensor, y: Tensor) -> Tensor:
    x = x * 2
    x[:, 4:20].mul_(y[:, 4:20])
    x[:, :2] = y[:, :2]
    return x.square().sum()


def by_index(x: Tensor, y: Tensor) -> Tensor:
    made = torch.zeros_like(x)
    made[torch.arange(63, -1, -1)] = x.sin()
    return (made * y).sum()


def activations(x: Tensor, y: Tensor) -> Tensor:
    x = F.relu(x.add_(y), inplace=True)
    return (x * 3).tanh_().square().sum()


def fourier(x: Tensor, y: Tensor) -> Tensor:
    return torch.fft.irfft(torch.fft.rfft(x, 64) * torch.fft.rfft(y, 64), 64).square().mean()


CASES = {
    "mse": F.mse_loss,
    "sum of squares": lambda x, y: F.mse_loss(x, y, reduction="sum"),
    "each square": lambda x, y: F.mse_loss(x, y, reduction="none").mean(1).amax(),
    "smooth l1": lambda x, y: F.smooth_l1_loss(x, y, beta=0.3),
    "huber": F.huber_loss,
    "soft margin": lambda x, y: F.soft_margin_loss(x, y.sign()),
    "entropy": lambda x, y: F.binary_cross_entropy(x.sigmoid(), y.sigmoid(), weight=y[:1].abs()),
    "entropy of logits": lambda x, y: F.binary_cross_entropy_with_logits(x, y.sigmoid()),
    "weighted entropy": lambda x, y: F.binary_cross_entropy_with_logits(x, y.sigmoid(), weight=y.abs()),
    "entropy of weighted classes": lambda x, y: F.binary_cross_entropy_with_logits(
        x, y.sigmoid(), pos_weight=y[0].abs()
    ),
    "cosine": lambda x, y: F.cosine_embedding_loss(x, y, y[:, 0].sign()),
    "written view": written_view,
    "rows by index": by_index,
    "activations": activations,
    "fourier": fourier,
}


@pytest.mark.parametrize("name", CASES)
def test_the_peak_is_that_of_a_step_and_gradients_are_those_of_pytorch(name: str) -> None:
    torch.manual_seed(0)
    model, inputs = Forward(CASES[name]), (torch.randn(64, 32), torch.randn(64, 32))
    graph = ax.capture(model, inputs)
    assert predicted_peak(graph) == pytest.approx(measured_peak(model, inputs), rel=5e-3)
    plan = ax.plan(graph, "1x2:h100", num_microbatches=1, scheduler="serial")
    found = ax.verify_interpreted(plan, model=model, data=lambda number: inputs, graph=graph)
    assert found.passed, found


def test_gradients_are_added_in_place_by_eager_pytorch_alone() -> None:
    """Where a gradient is added to one that is there; torch.compile makes new ones, in kernels with what is around."""
    model = Forward(lambda x, y: (x.sin() * x.cos()).sum())
    graph = ax.capture(model, (torch.randn(64, 32), torch.randn(64, 32)))
    (adds,) = (o for o in graph.operators if o.in_place and o.phase is Phase.BACKWARD)
    layered = assign_layers(
        graph, (0,) * len(graph.forward_operators), software=Cluster.parse("1x1:h100@eager").software
    )
    assert layered.storage[adds.outputs[0]] == layered.storage[adds.inputs[0]]
    compiled = assign_layers(graph, (0,) * len(graph.forward_operators), software=Cluster.parse("1x1:h100").software)
    assert compiled.storage[adds.outputs[0]] == adds.outputs[0]
