"""A model may read values that it makes from constants alone, but none of inputs, weights or random numbers."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from alpa_explore.errors import CaptureError
from alpa_explore.tracing.capture import capture


class Reading(nn.Module):
    """Takes the square where `value(x)` is true."""

    def __init__(self, value):
        super().__init__()
        self.value, self.layer = value, nn.Linear(4, 4)

    def forward(self, x):
        y = self.layer(x)
        return (y.square() if self.value(x) else y.tanh()).sum()


def kinds(value):
    return {o.kind for o in capture(Reading(value), (torch.randn(2, 4),)).forward_operators}


def written(x):
    zeros = torch.zeros(2, 4)
    zeros[0] = x[0]
    return zeros.any()


def row_of_a_table(x):
    places = torch.arange(8).unsqueeze(0).expand(2, -1)
    return (torch.diff(places, prepend=places[:, :1] - 1) != 1).cumsum(-1)[:, -1].sum() == 0


@pytest.mark.parametrize("value", [row_of_a_table, lambda x: torch.ones(3).sum().item() > 2])
def test_a_branch_on_constants_is_taken_as_the_model_takes_it(value):
    assert "aten.pow.Tensor_Scalar" in kinds(value)
    assert "aten.tanh.default" in kinds(lambda x: not value(x))


@pytest.mark.parametrize("value", [lambda x: x.sum() > 0, lambda x: torch.rand(3).sum() > 1, written])
def test_a_branch_on_anything_else_is_an_error(value):
    with pytest.raises(CaptureError, match="values"):
        kinds(value)
