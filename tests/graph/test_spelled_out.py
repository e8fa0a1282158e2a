"""Attention that is spelled out is found, and a plan says what it costs."""

from dataclasses import replace

import torch
from torch import nn
from torch.nn import functional as F

import alpa_explore as ax
from alpa_explore.graph.spelled_out import spelled_out_attention, spelled_out_warnings
from alpa_explore.tracing.capture import capture


class SelfAttention(nn.Module):
    """With heads of 4 in 12 positions, so that scores are larger than queries."""

    def __init__(self, *, fused=False, masked=False, dropout=0.0):
        super().__init__()
        self.qkv, self.fused, self.masked, self.dropout = nn.Linear(8, 24), fused, masked, dropout

    def forward(self, x, y):
        q, k, v = self.qkv(x).view(2, 12, 3, 2, 4).permute(2, 0, 3, 1, 4)
        if self.fused:
            mixed = F.scaled_dot_product_attention(q, k, v)
        else:
            scores = q @ k.transpose(-2, -1) / 2
            if self.masked:
                scores = scores + torch.full((12, 12), -1e9).triu(1)
            mixed = F.dropout(torch.softmax(scores, -1), self.dropout) @ v
        return F.mse_loss(mixed.transpose(1, 2).reshape(2, 12, 8), y)


class Router(nn.Module):
    """A softmax between two products that is no attention."""

    def __init__(self):
        super().__init__()
        self.gate, self.expert = nn.Linear(8, 4), nn.Parameter(torch.randn(2, 4, 8))

    def forward(self, x, y):
        return F.mse_loss(torch.softmax(self.gate(x), -1) @ self.expert, y)


INPUTS = (torch.randn(2, 12, 8), torch.randn(2, 12, 8))
SCORES = 4 * 2 * 2 * 12 * 12


def found(model):
    return [one.score_bytes / SCORES for one in spelled_out_attention(capture(model, INPUTS))]


def test_every_tensor_of_scores_that_is_written_counts():
    # q kᵀ, its scaling and the softmax, and the same three in the backward pass
    assert found(SelfAttention()) == [6]
    assert found(SelfAttention(masked=True)) == [7]
    assert 7 < found(SelfAttention(dropout=0.1))[0] < 9


def test_one_operator_and_a_router_are_not_spelled_out():
    assert found(SelfAttention(fused=True)) == found(Router()) == []


def test_a_plan_warns_with_the_bytes_and_the_remedy():
    graph = capture(SelfAttention(), INPUTS)
    (warning,) = spelled_out_warnings(graph)
    assert "13.5 KiB of scores" in warning
    assert "scaled_dot_product_attention" in warning
    plan = ax.plan(graph, "1x1:cpu", num_microbatches=1, num_layers=1)
    assert warning in plan.warnings
    assert warning not in ax.plan(capture(SelfAttention(fused=True), INPUTS), "1x1:cpu", num_microbatches=1).warnings


def test_the_models_of_the_catalogue_are_spelled_out_on_purpose():
    graph = capture(SelfAttention(), INPUTS)
    assert spelled_out_warnings(replace(graph, recipe="gpt-1.3b")) == ()
    assert spelled_out_warnings(replace(graph, recipe="models:make"))
