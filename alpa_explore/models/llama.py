"""Llama (arXiv 2302.13971; grouped queries: 2307.09288): RMS norm, rotary positions, SwiGLU, attention as one operator.

Shape suffixes: B microbatch, S sequence, M model (hidden), H heads, K heads of keys and values, D head dim.
"""

import torch
import torch.nn.functional as F
from torch import nn

from alpa_explore.models.configs import LlamaConfig
from alpa_explore.models.transformer import heads_of_groups, init_weights, rotary_tables, rotated, table_for, token_loss

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
        q_BHSD, k_BKSD, v_BKSD = (self._heads(product(x_BSM)) for product in (self.q, self.k, self.v))
        q_BHSD, k_BKSD = rotated(q_BHSD, cosines_SD, sines_SD), rotated(k_BKSD, cosines_SD, sines_SD)
        return _attended(self.projection, q_BHSD, k_BKSD, v_BKSD, grouped=self.grouped)

    def _heads(self, x_BSM: torch.Tensor) -> torch.Tensor:
        """(B, S, heads · D) -> (B, heads, S, D)."""
        return x_BSM.view(*x_BSM.shape[:2], -1, self.head).transpose(1, 2)


class FusedGroupedQueryAttention(nn.Module):
    """The same with queries, keys and values from one product."""

    def __init__(self, hidden: int, heads: int, kv_heads: int) -> None:
        super().__init__()
        self.head, self.key_heads = hidden // heads, kv_heads
        self.grouped = kv_heads != heads
        self.qkv = nn.Linear(hidden, (heads + 2 * kv_heads) * self.head, bias=False)
        self.projection = nn.Linear(hidden, hidden, bias=False)

    def forward(self, x_BSM: torch.Tensor, cosines_SD: torch.Tensor, sines_SD: torch.Tensor) -> torch.Tensor:
        """(B, S, M) -> (B, S, M)."""
        q_BHSD, k_BKSD, v_BKSD = heads_of_groups(self.qkv(x_BSM), self.key_heads, self.head)
        q_BHSD, k_BKSD = rotated(q_BHSD, cosines_SD, sines_SD), rotated(k_BKSD, cosines_SD, sines_SD)
        return _attended(self.projection, q_BHSD, k_BKSD, v_BKSD, grouped=self.grouped)


def _attended(
    projection: nn.Module, q_BHSD: torch.Tensor, k_BKSD: torch.Tensor, v_BKSD: torch.Tensor, *, grouped: bool
) -> torch.Tensor:
    mixed_BHSD = F.scaled_dot_product_attention(q_BHSD, k_BKSD, v_BKSD, is_causal=True, enable_gqa=grouped)
    merged: torch.Tensor = projection(mixed_BHSD.transpose(1, 2).flatten(2))
    return merged


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


class FusedSwiGLU(nn.Module):
    """The same with gate and up from one product. Their rows alternate in its weight, so that a shard of the rows holds
    gate and up of the same channels."""

    def __init__(self, hidden: int, ffn: int) -> None:
        super().__init__()
        self.gate_up = nn.Linear(hidden, 2 * ffn, bias=False)
        self.down = nn.Linear(ffn, hidden, bias=False)

    def forward(self, x_BSM: torch.Tensor) -> torch.Tensor:
        """(B, S, M) -> (B, S, M)."""
        gate, up = self.gate_up(x_BSM).unflatten(2, (-1, 2)).unbind(3)
        y: torch.Tensor = self.down(F.silu(gate) * up)
        return y


class LlamaBlock(nn.Module):
    """x + attention(norm(x)), then x + MLP(norm(x))."""

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__()
        self.attention_norm = RMSNorm(config.hidden)
        fused = config.fused_projections
        attention = FusedGroupedQueryAttention if fused else GroupedQueryAttention
        self.attention = attention(config.hidden, config.heads, config.key_heads)
        self.mlp_norm = RMSNorm(config.hidden)
        self.mlp = (FusedSwiGLU if fused else SwiGLU)(config.hidden, config.ffn)

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
