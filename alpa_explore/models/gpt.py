"""GPT as the paper trains it: decoder, learned positions, pre-layer-norm, LM head tied to the token embedding."""

from __future__ import annotations

import torch
from torch import nn

from alpa_explore.models.configs import GPTConfig
from alpa_explore.models.transformer import CausalSelfAttention, Decoder, FeedForward, mask_for


class GPTBlock(nn.Module):
    """x + attention(norm(x)), then x + MLP(norm(x))."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(config.hidden)
        self.attention = CausalSelfAttention(config.hidden, config.heads)
        self.mlp_norm = nn.LayerNorm(config.hidden)
        self.mlp = FeedForward(config.hidden, config.mlp_ratio)

    def forward(self, x_BSM: torch.Tensor, mask_SS: torch.Tensor) -> torch.Tensor:
        """(B, S, M) -> (B, S, M)."""
        x_BSM = x_BSM + self.attention(self.attention_norm(x_BSM), mask_SS)
        y: torch.Tensor = x_BSM + self.mlp(self.mlp_norm(x_BSM))
        return y


class GPT(Decoder):
    """The model with its loss: `forward(tokens, targets)` is the mean cross-entropy."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__(config, (GPTBlock(config) for _ in range(config.layers)))

    def forward(self, tokens_BS: torch.Tensor, targets_BS: torch.Tensor) -> torch.Tensor:
        """(B, S) token numbers and the tokens that follow them -> scalar loss in float32."""
        x_BSM = self.embedding(tokens_BS)
        mask_SS = mask_for(self.mask, tokens_BS.shape[1])
        for block in self.h:
            x_BSM = block(x_BSM, mask_SS)
        return self.embedding.loss(self.final_norm(x_BSM), targets_BS)
