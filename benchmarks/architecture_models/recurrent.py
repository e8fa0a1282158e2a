"""Recurrent networks and temporal convolutions; all read tokens or frames and return their loss."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

SAMPLES, POSITIONS, WORDS, WIDTH = 8, 32, 1024, 256


class RecurrentLanguageModel(nn.Module):
    """Embedding, recurrent layers of torch, a head over the words."""

    def __init__(self, kind: type[nn.RNNBase], **options: Any) -> None:
        super().__init__()
        self.table = nn.Embedding(WORDS, WIDTH)
        self.layers = kind(WIDTH, WIDTH, 2, batch_first=True, **options)
        self.head = nn.Linear(WIDTH * (2 if self.layers.bidirectional else 1), WORDS)

    def forward(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        scores = self.head(self.layers(self.table(tokens))[0])
        return F.cross_entropy(scores.flatten(0, 1), targets.flatten())


class Cells(nn.Module):
    """A cell of torch in a loop of Python over the positions."""

    def __init__(self, kind: type[nn.RNNCellBase]) -> None:
        super().__init__()
        self.table, self.cell, self.head = nn.Embedding(WORDS, WIDTH), kind(WIDTH, WIDTH), nn.Linear(WIDTH, WORDS)  # type: ignore[call-arg]  # the classes of cells

    def forward(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        state = None
        states = []
        for x in self.table(tokens).unbind(1):
            state = self.cell(x, state)
            states.append(state[0] if isinstance(state, tuple) else state)
        return F.cross_entropy(self.head(torch.stack(states, 1)).flatten(0, 1), targets.flatten())


class Translation(nn.Module):
    """An encoder and a decoder of LSTMs with attention between them (Luong et al. 2015)."""

    def __init__(self) -> None:
        super().__init__()
        self.source, self.target = nn.Embedding(WORDS, WIDTH), nn.Embedding(WORDS, WIDTH)
        self.encoder = nn.LSTM(WIDTH, WIDTH, batch_first=True)
        self.decoder = nn.LSTM(WIDTH, WIDTH, batch_first=True)
        self.mix, self.head = nn.Linear(2 * WIDTH, WIDTH), nn.Linear(WIDTH, WORDS)

    def forward(self, source: torch.Tensor, target: torch.Tensor, next_words: torch.Tensor) -> torch.Tensor:
        read, last = self.encoder(self.source(source))
        written, _ = self.decoder(self.target(target), last)
        weights = (written @ read.transpose(1, 2)).softmax(-1)
        mixed = torch.tanh(self.mix(torch.cat([weights @ read, written], -1)))
        return F.cross_entropy(self.head(mixed).flatten(0, 1), next_words.flatten())


class Speech(nn.Module):
    """Convolutions over a spectrogram, bidirectional recurrence, connectionist loss (DeepSpeech 2, Amodei 2015)."""

    def __init__(self) -> None:
        super().__init__()
        self.convolutions = nn.Sequential(
            nn.Conv2d(1, 32, (11, 41), stride=(2, 2), padding=(5, 20)),
            nn.BatchNorm2d(32),
            nn.Hardtanh(0, 20),
            nn.Conv2d(32, 32, (11, 21), stride=(1, 2), padding=(5, 10)),
            nn.BatchNorm2d(32),
            nn.Hardtanh(0, 20),
        )
        self.layers = nn.GRU(32 * 40, WIDTH, 1, batch_first=True, bidirectional=True)
        self.head = nn.Linear(2 * WIDTH, 32)

    def forward(self, frames: torch.Tensor, letters: torch.Tensor) -> torch.Tensor:
        x = self.convolutions(frames.unsqueeze(1)).transpose(1, 2).flatten(2)
        scores = self.head(self.layers(x)[0]).log_softmax(-1).transpose(0, 1)
        long = torch.full((frames.shape[0],), scores.shape[0], dtype=torch.int64)
        short = torch.full((frames.shape[0],), letters.shape[1], dtype=torch.int64)
        return F.ctc_loss(scores, letters, long, short)


class Temporal(nn.Module):
    """Causal dilated convolutions with gates and residuals (WaveNet, van den Oord 2016)."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.head = nn.Embedding(256, 128), nn.Conv1d(128, 256, 1)
        self.gated = nn.ModuleList(nn.Conv1d(128, 256, 2, dilation=2**k) for k in range(4))
        self.out = nn.ModuleList(nn.Conv1d(128, 128, 1) for _ in range(4))

    def forward(self, samples: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        x = self.table(samples).transpose(1, 2)
        for k, (gated, out) in enumerate(zip(self.gated, self.out, strict=True)):
            value, gate = gated(F.pad(x, (2**k, 0))).chunk(2, 1)
            x = x + out(torch.tanh(value) * torch.sigmoid(gate))
        return F.cross_entropy(self.head(x), targets)


class StateSpace(nn.Module):
    """A diagonal linear recurrence, its states by a sum of powers (S4D, Gu 2022, as one product of convolution)."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.head = nn.Embedding(WORDS, WIDTH), nn.Linear(WIDTH, WORDS)
        self.decay, self.mix = nn.Parameter(torch.rand(WIDTH, 16)), nn.Parameter(torch.rand(WIDTH, 16))

    def forward(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        x = self.table(tokens)
        steps = torch.arange(POSITIONS)
        kernel = (self.mix.unsqueeze(-1) * torch.exp(-self.decay.abs().unsqueeze(-1) * steps)).sum(1)
        apart = steps.unsqueeze(1) - steps
        matrix = torch.where(apart >= 0, kernel[:, apart.clamp(min=0)], 0.0)
        return F.cross_entropy(self.head(torch.einsum("dts,bsd->btd", matrix, x)).flatten(0, 1), targets.flatten())


def _words(model: nn.Module) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    tokens = torch.zeros(SAMPLES, POSITIONS, dtype=torch.int64)
    return model, (tokens, tokens)


MODELS = {
    "lstm": lambda: _words(RecurrentLanguageModel(nn.LSTM)),
    "lstm-bidirectional": lambda: _words(RecurrentLanguageModel(nn.LSTM, bidirectional=True)),
    "lstm-dropout": lambda: _words(RecurrentLanguageModel(nn.LSTM, dropout=0.1)),
    "gru": lambda: _words(RecurrentLanguageModel(nn.GRU)),
    "rnn-tanh": lambda: _words(RecurrentLanguageModel(nn.RNN)),
    "lstm-cells": lambda: _words(Cells(nn.LSTMCell)),
    "gru-cells": lambda: _words(Cells(nn.GRUCell)),
    "lstm-translation": lambda: (Translation(), (torch.zeros(SAMPLES, POSITIONS, dtype=torch.int64),) * 3),
    "deepspeech2": lambda: (Speech(), (torch.zeros(SAMPLES, 64, 160), torch.zeros(SAMPLES, 8, dtype=torch.int64))),
    "wavenet": lambda: (Temporal(), (torch.zeros(SAMPLES, 256, dtype=torch.int64),) * 2),
    "s4d": lambda: _words(StateSpace()),
}
"""Name -> its model and inputs; called under `torch.device("meta")`."""
