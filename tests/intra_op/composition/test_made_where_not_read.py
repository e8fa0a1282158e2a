"""A layer may make terms of the gradient of a parameter that it does not read: an LSTM whose head is its embedding."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional

import alpa_explore as ax


class TiedLstm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.lstm, self.head = nn.Embedding(40, 24), nn.LSTM(24, 24, 2, batch_first=True), nn.Linear(24, 40)
        self.head.weight = self.words.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        states, _ = self.lstm(self.words(tokens[:, :-1]))
        return functional.cross_entropy(self.head(states).reshape(-1, 40), tokens[:, 1:].reshape(-1))


@pytest.mark.parametrize("cluster", ["1x2:h100", "2x2:h100"])
def test_a_tied_lstm_has_a_plan(cluster: str) -> None:
    graph = ax.capture(TiedLstm(), {"tokens": torch.zeros(8, 9, dtype=torch.int64)})
    plan = ax.plan(graph, cluster, num_microbatches=2, scheduler="serial")
    exact = ax.plan(graph, cluster, num_microbatches=2, scheduler="serial", solver="highs")
    assert plan.predicted.iteration_seconds == pytest.approx(exact.predicted.iteration_seconds, rel=1e-6)
