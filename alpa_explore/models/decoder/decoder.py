"""The decoder: x + attention(norm(x)), then x + feed-forward(norm(x)), with the options of `DecoderConfig`.

Shape suffixes: B microbatch, S sequence, M model (hidden), D the dims of a head that have positions.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from alpa_explore.models.configs import DecoderConfig
from alpa_explore.models.configs.decoder import WINDOW_PERIOD
from alpa_explore.models.decoder.attention import DecoderAttention, LatentAttention, Tables
from alpa_explore.models.decoder.experts import Experts
from alpa_explore.models.llama import RMSNorm, SwiGLU
from alpa_explore.models.rotary import rotary_tables, table_for
from alpa_explore.models.transformer import init_weights, token_loss


class DecoderBlock(nn.Module):
    """Block number `index`."""

    def __init__(self, config: DecoderConfig, index: int) -> None:
        super().__init__()
        self.attention_norm = RMSNorm(config.hidden)
        window = config.window if index % WINDOW_PERIOD == 0 else None
        latent = config.latent
        self.attention = DecoderAttention(config, window) if latent is None else LatentAttention(config, latent)
        self.mlp_norm = RMSNorm(config.hidden)
        experts = config.experts
        if experts is None or not config.has_experts(index):
            self.mlp: nn.Module = SwiGLU(config.hidden, config.ffn)
        else:
            shared = SwiGLU(config.hidden, experts.shared * experts.ffn) if experts.shared else None
            self.mlp = Experts(config, experts, shared)

    def forward(self, x_BSM: torch.Tensor, tables: Tables) -> torch.Tensor:
        """(B, S, M) -> (B, S, M)."""
        x_BSM = x_BSM + self.attention(self.attention_norm(x_BSM), tables)
        y_BSM: torch.Tensor = x_BSM + self.mlp(self.mlp_norm(x_BSM))
        return y_BSM


class Decoder(nn.Module):
    """The model with its loss: `forward(tokens, targets)` is the mean cross-entropy; balancing losses of experts are
    left out."""

    cosines: torch.Tensor
    sines: torch.Tensor

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.tokens = nn.Embedding(config.vocabulary, config.hidden)
        self.h = nn.ModuleList(DecoderBlock(config, index) for index in range(config.layers))
        self.final_norm = RMSNorm(config.hidden)
        self.head = None if config.tied else nn.Linear(config.hidden, config.vocabulary, bias=False)
        # One pair of tables for all layers: made inside them they would be tensors that cross every cut.
        turned = config.head if config.latent is None else config.latent.rotary
        cosines_SD, sines_SD = rotary_tables(config.sequence, turned, config.rope_theta)
        self.register_buffer("cosines", cosines_SD, persistent=False)
        self.register_buffer("sines", sines_SD, persistent=False)
        self.apply(init_weights)

    def forward(self, tokens_BS: torch.Tensor, targets_BS: torch.Tensor) -> torch.Tensor:
        """(B, S) token numbers and the tokens that follow them -> scalar loss in float32."""
        x_BSM = self.tokens(tokens_BS)
        length = tokens_BS.shape[1]
        tables = table_for(self.cosines, length), table_for(self.sines, length)
        for block in self.h:
            x_BSM = block(x_BSM, tables)
        weight = self.tokens.weight if self.head is None else self.head.weight
        return token_loss(F.linear(self.final_norm(x_BSM), weight), targets_BS)
