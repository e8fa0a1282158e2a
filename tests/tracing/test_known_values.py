"""A model may read values that it makes from constants alone, but none of inputs, weights or random numbers."""

import pytest
import torch
from torch import nn

from alpa_explore.errors import CaptureError
from alpa_explore.tracing.capture import capture
from tests.one_layer import OneLayer


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


@pytest.mark.parametrize(
    "value",
    [
        row_of_a_table,
        lambda x: torch.ones(3).sum().item() > 2,
        lambda x: (torch.ones_like(x) > 0).all(),
        lambda x: (x.new_full((2,), 3.0) == torch.full_like(x[:, 0], 3.0)).all(),
        lambda x: torch.triu(torch.ones(2, 2), 1).sum() == torch.tril(torch.ones(2, 2), -1).sum(),
    ],
)
def test_a_branch_on_constants_is_taken_as_the_model_takes_it(value):
    assert "aten.pow.Tensor_Scalar" in kinds(value)
    assert "aten.tanh.default" in kinds(lambda x: not value(x))


@pytest.mark.parametrize("value", [lambda x: x.sum() > 0, lambda x: torch.rand(3).sum() > 1, written])
def test_a_branch_on_anything_else_is_an_error(value):
    with pytest.raises(CaptureError, match="values"):
        kinds(value)


@pytest.mark.parametrize(
    "value",
    [
        lambda x: torch.isfinite(x).all(),
        lambda x: not x.exp().isinf().any(),
        lambda x: not (torch.isinf(x) | torch.isnan(x)).any().item(),
        lambda x: (~x.isnan()).all(),
    ],
)
def test_values_are_taken_as_finite_where_a_branch_asks_and_the_graph_says_so(value):
    graph = capture(Reading(value), (torch.randn(2, 4),))
    assert "aten.pow.Tensor_Scalar" in {o.kind for o in graph.forward_operators}
    assert graph.warnings == (
        "the forward pass branches on whether values are finite (the model itself): they are taken as finite",
    )


@pytest.mark.parametrize(
    "value", [lambda x: (x.isnan() & (x > 0)).any(), lambda x: (torch.isnan(x) | torch.isfinite(x)).any()]
)
def test_a_branch_on_finite_values_and_more_is_an_error(value):
    with pytest.raises(CaptureError, match="values"):
        kinds(value)


def test_which_elements_are_missing_is_not_known():
    class Missing(OneLayer):
        def forward(self, x, target):
            return (self.layer(x) - target)[~target.isnan()].square().mean()

    with pytest.raises(CaptureError, match="size depends on values"):
        capture(Missing(4, 4), (torch.randn(2, 4), torch.randn(2, 4)))


@pytest.mark.parametrize("how", ["index", "masked_select"])
def test_what_a_known_mask_selects_is_an_index(how):
    class Rows(OneLayer):
        def forward(self, x):
            y = self.layer(x)
            mask = ~torch.eye(4, dtype=torch.bool)
            return (y[mask] if how == "index" else y.masked_select(mask)).square().sum()

    graph = capture(Rows(4, 4), (torch.randn(4, 4),))
    index = next(o for o in graph.forward_operators if o.kind == "aten.index.Tensor")
    assert graph.tensors[index.outputs[0]].shape == (12,)


def test_a_mask_of_unknown_values_is_no_causal_one():
    layer = nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
    graph = capture(encoder, (torch.randn(2, 3, 8), torch.zeros(3, 3)), loss=lambda y: y.square().sum())
    (attention,) = (o for o in graph.forward_operators if o.kind == "alpa_explore.attention.default")
    assert len(attention.inputs) == 4, "the mask is read"


def test_checks_of_torchs_own_functions_pass():
    class Checked(OneLayer):
        def forward(self, x, spread):
            made = torch.distributions.Normal(self.layer(x), spread)
            return nn.functional.gaussian_nll_loss(self.layer(x), x, spread) - made.log_prob(x).mean()

    graph = capture(Checked(4, 4), (torch.randn(2, 4), torch.rand(2, 4)))
    assert any("log" in o.kind for o in graph.forward_operators)
