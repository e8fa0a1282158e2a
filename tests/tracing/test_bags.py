"""Bags of embeddings and the losses on their scores: the captured graph gives torch's own loss and gradients."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from alpa_explore.sharding.splits import splits_for
from alpa_explore.tracing.capture import capture
from tests.tracing.autograd import assert_autograd


class Clicks(nn.Module):
    """Scores of bags, and the chance that each is clicked."""

    def __init__(self, mode: str, last: bool) -> None:
        super().__init__()
        self.table, self.top = nn.EmbeddingBag(64, 16, mode=mode, include_last_offset=last), nn.Linear(16, 1)

    def forward(self, indices: torch.Tensor, offsets: torch.Tensor | None, clicked: torch.Tensor) -> torch.Tensor:
        scores = self.top(self.table(indices, offsets)).squeeze(1)
        return F.binary_cross_entropy_with_logits(scores, clicked, pos_weight=torch.full((), 2.0))


@pytest.mark.parametrize("mode", ["sum", "mean"])
@pytest.mark.parametrize(
    ("offsets", "last"),
    [(None, False), ([0, 4, 4, 20], False), ([0, 4, 4, 20, 32], True)],
    ids=["rows", "bags", "last"],
)
def test_bags_and_clicks_give_the_loss_and_gradients_of_torch(mode, offsets, last):
    torch.manual_seed(0)
    model = Clicks(mode, last)
    indices = torch.randint(64, (4, 8) if offsets is None else (32,))
    inputs = (indices, None if offsets is None else torch.tensor(offsets), torch.rand(4))
    graph = capture(model, inputs)
    assert_autograd(graph, model, inputs)
    assert {splits_for(o, graph.tensors).how for o in graph.operators} == {"rule"}
