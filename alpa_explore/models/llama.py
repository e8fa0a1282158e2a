"""Llama (arXiv 2302.13971; grouped queries: 2307.09288): RMS norm, rotary positions, SwiGLU, attention as one operator.

Shape suffixes: B microbatch, S sequence, M model (hidden), H heads, K heads of keys and values, D head dim.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from alpa_explore.models.configs import LlamaConfig
from alpa_explore.models.rotary import rotary_tables, rotated, table_for
from alpa_explore.models.transformer import init_weights, token_loss

NORM_EPSILON = 1e-5
"""Added to the mean square, as in the published configs of Llama 2 and 3."""


class RMSNorm(nn.Module):
    """x / √(mean of x² + ε) · weight by `rms_norm`, which computes in float32; the result has the dtype of x."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden))

    def forward(self, x_BSM: torch.Tensor) -> torch.Tensor:
        """(B, S, M) -> (B, S, M)."""
        return F.rms_norm(x_BSM, self.weight.shape, self.weight, NORM_EPSILON)


class GroupedQueryAttention(nn.Module):
    """Causal attention in which a head of keys and values serves heads / kv_heads heads of queries."""

    def __init__(self, hidden: int, heads: int, kv_heads: int) -> None:
        super().__init__()
        self.head = hidden // heads
        self.grouped = kv_heads != heads
        self.q = nn.Linear(hidden, hidden, bias=False)
        self.k = nn.Linear(hidden, kv_heads * self.head, bias=False)
        self.v = nn.Linear(hidden, kv_heads * self.head, bias=False)
        self.projection = nn.Linear(hidden, hidden, bias=False)

    def forward(self, x_BSM: torch.Tensor, cosines_SD: torch.Tensor, sines_SD: torch.Tensor) -> torch.Tensor:
        """(B, S, M) -> (B, S, M)."""
        q_BHSD = rotated(self._heads(self.q(x_BSM)), cosines_SD, sines_SD)
        k_BKSD = rotated(self._heads(self.k(x_BSM)), cosines_SD, sines_SD)
        v_BKSD = self._heads(self.v(x_BSM))
        mixed_BHSD = F.scaled_dot_product_attention(q_BHSD, k_BKSD, v_BKSD, is_causal=True, enable_gqa=self.grouped)
        merged: torch.Tensor = self.projection(mixed_BHSD.transpose(1, 2).flatten(2))
        return merged

    def _heads(self, x_BSM: torch.Tensor) -> torch.Tensor:
        """(B, S, heads · D) -> (B, heads, S, D)."""
        return x_BSM.view(*x_BSM.shape[:2], -1, self.head).transpose(1, 2)


class SwiGLU(nn.Module):
    """down(silu(gate(x)) · up(x))."""

    def __init__(self, hidden: int, ffn: int) -> None:
        super().__init__()
        self.gate = nn.Linear(hidden, ffn, bias=False)
        self.up = nn.Linear(hidden, ffn, bias=False)
        self.down = nn.Linear(ffn, hidden, bias=False)

    def forward(self, x_BSM: torch.Tensor) -> torch.Tensor:
        """(B, S, M) -> (B, S, M)."""
        y: torch.Tensor = self.down(F.silu(self.gate(x_BSM)) * self.up(x_BSM))
        return y


class LlamaBlock(nn.Module):
    """x + attention(norm(x)), then x + MLP(norm(x))."""

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__()
        self.attention_norm = RMSNorm(config.hidden)
        self.attention = GroupedQueryAttention(config.hidden, config.heads, config.key_heads)
        self.mlp_norm = RMSNorm(config.hidden)
        self.mlp = SwiGLU(config.hidden, config.ffn)

    def forward(self, x_BSM: torch.Tensor, cosines_SD: torch.Tensor, sines_SD: torch.Tensor) -> torch.Tensor:
        """(B, S, M) -> (B, S, M)."""
        x_BSM = x_BSM + self.attention(self.attention_norm(x_BSM), cosines_SD, sines_SD)
        y: torch.Tensor = x_BSM + self.mlp(self.mlp_norm(x_BSM))
        return y


class Llama(nn.Module):
    """The model with its loss: `forward(tokens, targets)` is the mean cross-entropy."""

    cosines: torch.Tensor
    sines: torch.Tensor

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__()
        self.tokens = nn.Embedding(config.vocabulary, config.hidden)
        self.h = nn.ModuleList(LlamaBlock(config) for _ in range(config.layers))
        self.final_norm = RMSNorm(config.hidden)
        self.head = None if config.tied else nn.Linear(config.hidden, config.vocabulary, bias=False)
        # One pair of tables for all layers: made inside them they would be tensors that cross every cut.
        cosines_SD, sines_SD = rotary_tables(config.sequence, config.hidden // config.heads, config.rope_theta)
        self.register_buffer("cosines", cosines_SD, persistent=False)
        self.register_buffer("sines", sines_SD, persistent=False)
        self.apply(init_weights)

    def forward(self, tokens_BS: torch.Tensor, targets_BS: torch.Tensor) -> torch.Tensor:
        """(B, S) token numbers and the tokens that follow them -> scalar loss in float32."""
        x_BSM = self.tokens(tokens_BS)
        length = tokens_BS.shape[1]
        cosines_SD, sines_SD = table_for(self.cosines, length), table_for(self.sines, length)
        for block in self.h:
            x_BSM = block(x_BSM, cosines_SD, sines_SD)
        weight = self.tokens.weight if self.head is None else self.head.weight
        return token_loss(F.linear(self.final_norm(x_BSM), weight), targets_BS)
