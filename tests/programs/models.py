"""Models for programs beside the catalogue's: (model, one microbatch) by name, with the loss that the model returns."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from alpa_explore.models.catalog import build


def llama(samples):
    """Hugging Face's, with grouped queries."""
    import transformers

    config = transformers.LlamaConfig(
        hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        vocab_size=128,
    )  # fmt: skip
    tokens = torch.randint(1, 128, (samples, 16))
    return transformers.AutoModelForCausalLM.from_config(config), {"input_ids": tokens, "labels": tokens}


class ThreeTimes(nn.Module):
    """One weight in three layers."""

    def __init__(self):
        super().__init__()
        self.shared, self.out = nn.Linear(16, 16, bias=False), nn.Linear(16, 1)

    def forward(self, x, y):
        for _ in range(3):
            x = torch.tanh(self.shared(x))
        return functional.mse_loss(self.out(x), y)


OWN = {
    "llama-tiny": llama,
    "three-times": lambda samples: (ThreeTimes(), (torch.randn(samples, 16), torch.randn(samples, 1))),
}


def build_any(name, samples):
    """A model of the catalogue, or one of these."""
    return OWN[name](samples) if name in OWN else build(name, samples, device="cpu")
