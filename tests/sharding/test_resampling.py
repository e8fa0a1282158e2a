"""Pads and pooling of images larger than a trial: their gradients are divided, not replicated."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import alpa_explore as ax

CALLS = {
    "reflect": lambda x: F.pad(x, (1, 1, 1, 1), mode="reflect"),
    "reflect by unlike widths": lambda x: F.pad(x, (1, 3, 2, 1), mode="reflect"),
    "replicate": lambda x: F.pad(x, (5, 5, 5, 5), mode="replicate"),
    "max pool without pad": lambda x: F.max_pool2d(x, 3, 2),
}


@pytest.mark.parametrize("name", CALLS)
def test_the_batch_of_a_gradient_is_divided(name):
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mix = nn.Conv2d(8, 8, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.mix(CALLS[name](self.mix(x))).pow(2).mean()

    graph = ax.capture(Model(), (torch.randn(8, 8, 20, 20),))
    covered = {row.kind: row for row in ax.coverage(graph)}
    assert [row.kind for row in covered.values() if row.how == "replicated"] == []
    found = [row for row in covered.values() if row.how == "discovered"]
    assert all({"dim0", "dim1"} <= set(row.factors) for row in found), found
