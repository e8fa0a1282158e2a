"""The repeated modules of a model."""

import pytest
import torch
from torch import nn

from alpa_explore.layering.blocks import repeated_modules
from alpa_explore.tracing.capture import capture


class Net(nn.Module):
    def __init__(self, outer, inner):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(*(nn.Linear(8, 8) for _ in range(inner))) for _ in range(outer))

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x.sum()


@pytest.mark.parametrize(
    ("outer", "inner", "expected"),
    [
        (3, 1, ("blocks.0", "blocks.1", "blocks.2")),
        (2, 2, ("blocks.0", "blocks.1")),
        (2, 3, ("blocks.0.0", "blocks.0.1", "blocks.0.2")),
        (1, 1, ()),
    ],
)
def test_the_largest_family_counts_and_of_equal_ones_the_outer(outer, inner, expected):
    with torch.device("meta"):
        assert repeated_modules(capture(Net(outer, inner), (torch.empty(4, 8),))) == expected
