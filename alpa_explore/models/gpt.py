"""GPT as the paper trains it: learned positions, pre-layer-norm, attention spelled out, LM head tied to the token
embedding. And with attention as one operator: Megatron-LM's and NeMo's (Nemotron among them), and llm-foundry's MPT.

Shape suffixes: B microbatch, S sequence, M model (hidden), H heads, K heads of keys and values, G = H / K, D head dim.
"""

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from alpa_explore.models.configs import GPTConfig
from alpa_explore.models.transformer import (
    INITIAL_STD,
    Block,
    CausalSelfAttention,
    Decoder,
    FeedForward,
    heads_of_groups,
    init_weights,
    mask_for,
    rotary_tables,
    rotated,
    table_for,
    token_loss,
)


def _block(config: GPTConfig) -> Block:
    attention = CausalSelfAttention(config.hidden, config.heads)
    return Block(partial(nn.LayerNorm, config.hidden), attention, FeedForward(config.hidden, config.mlp_ratio))


class GPT(Decoder):
    """The model with its loss: `forward(tokens, targets)` is the mean cross-entropy."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__(config, (_block(config) for _ in range(config.layers)))

    def forward(self, tokens_BS: Tensor, targets_BS: Tensor) -> Tensor:
        """(B, S) token numbers and the tokens that follow them -> scalar loss in float32."""
        x_BSM = self.embedding(tokens_BS)
        mask_SS = mask_for(self.mask, tokens_BS.shape[1])
        for block in self.h:
            x_BSM = block(x_BSM, mask_SS)
        return self.embedding.loss(self.final_norm(x_BSM), targets_BS)


ROPE_THETA = 10_000.0
"""Base of the rotary frequencies of Nemotron; no shape depends on it."""


class FusedCausalAttention(nn.Module):
    """Causal attention by `scaled_dot_product_attention`; queries, keys and values come from one product."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.key_heads, self.group = config.kv_heads, config.heads // config.kv_heads
        self.head = config.hidden // config.heads
        self.qkv = nn.Linear(config.hidden, config.qkv_width, bias=config.bias)
        self.projection = nn.Linear(config.hidden, config.hidden, bias=config.bias)

    def forward(self, x_BSM: Tensor, tables: tuple[Tensor, Tensor] | None) -> Tensor:
        """(B, S, M) -> (B, S, M); `tables` are cosines and sines of rotary positions."""
        q_BHSD, k_BKSD, v_BKSD = heads_of_groups(self.qkv(x_BSM), self.key_heads, self.head)
        if tables is not None:
            q_BHSD, k_BKSD = rotated(q_BHSD, *tables), rotated(k_BKSD, *tables)
        mixed_BHSD = F.scaled_dot_product_attention(q_BHSD, k_BKSD, v_BKSD, is_causal=True, enable_gqa=self.group > 1)
        merged: Tensor = self.projection(mixed_BHSD.transpose(1, 2).flatten(2))
        return merged


class FusedGPTBlock(nn.Module):
    """x + attention(norm(x)), then x + MLP(norm(x))."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(config.hidden)
        self.attention = FusedCausalAttention(config)
        self.mlp_norm = nn.LayerNorm(config.hidden)
        self.up = nn.Linear(config.hidden, config.mlp_width, bias=config.bias)
        self.down = nn.Linear(config.mlp_width, config.hidden, bias=config.bias)
        self.squared_relu = config.activation == "squared-relu"

    def forward(self, x_BSM: Tensor, tables: tuple[Tensor, Tensor] | None) -> Tensor:
        """(B, S, M) -> (B, S, M)."""
        x_BSM = x_BSM + self.attention(self.attention_norm(x_BSM), tables)
        wide = self.up(self.mlp_norm(x_BSM))
        y: Tensor = x_BSM + self.down(F.relu(wide).square() if self.squared_relu else F.gelu(wide))
        return y


class FusedGPT(nn.Module):
    """The model with its loss: `forward(tokens, targets)` is the mean cross-entropy."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.sequence = config.sequence
        self.tokens = nn.Embedding(config.vocabulary, config.hidden)
        self.positions = None
        if config.positions == "learned":
            self.positions = nn.Parameter(torch.empty(config.sequence, config.hidden))
            nn.init.normal_(self.positions, std=INITIAL_STD)
        else:
            cosines_SD, sines_SD = rotary_tables(config.sequence, config.hidden // config.heads, ROPE_THETA)
            self.register_buffer("cosines", cosines_SD, persistent=False)
            self.register_buffer("sines", sines_SD, persistent=False)
        self.h = nn.ModuleList(FusedGPTBlock(config) for _ in range(config.layers))
        self.final_norm = nn.LayerNorm(config.hidden)
        self.head = None if config.tied else nn.Linear(config.hidden, config.vocabulary, bias=False)
        self.apply(init_weights)

    def forward(self, tokens_BS: Tensor, targets_BS: Tensor) -> Tensor:
        """(B, S) token numbers and the tokens that follow them -> scalar loss in float32."""
        x_BSM, length = self.tokens(tokens_BS), tokens_BS.shape[1]
        tables = None
        if self.positions is not None:
            x_BSM = x_BSM + table_for(self.positions, length)
        else:
            assert isinstance(self.cosines, Tensor)
            assert isinstance(self.sines, Tensor)
            tables = table_for(self.cosines, length), table_for(self.sines, length)
        for block in self.h:
            x_BSM = block(x_BSM, tables)
        weight = self.tokens.weight if self.head is None else self.head.weight
        return token_loss(F.linear(self.final_norm(x_BSM), weight), targets_BS)
