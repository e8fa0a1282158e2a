"""The modules that GPT and the mixture of experts share: tied embedding, causal attention, MLP, loss, decoder frame.

Shape suffixes: B microbatch, S sequence, M model (hidden), H heads, D head dim, V vocabulary.

Rotary positions (RoFormer, arXiv 2104.09864): pairs of channels of queries and keys turn by the token's position.
Channels i and i + D/2 are a pair, as Hugging Face and NeMo lay them out.
"""

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from alpa_explore.models.configs import GPTConfig, MoEConfig


def rotary_tables(sequence: int, head: int, theta: float) -> tuple[Tensor, Tensor]:
    """(cosines, sines), (S, D) each, of position · theta^(−2i / D); `head` must be even."""
    assert head % 2 == 0, f"rotary positions turn pairs of channels, a head has {head}"
    frequencies = theta ** (-torch.arange(0, head, 2, dtype=torch.float32) / head)
    angles = torch.arange(sequence, dtype=torch.float32)[:, None] * frequencies
    both = torch.cat((angles, angles), dim=1)
    return both.cos(), both.sin()


def rotated(x_BHSD: Tensor, cosines_SD: Tensor, sines_SD: Tensor) -> Tensor:
    """Queries or keys, turned; the tables are of their length."""
    first, second = x_BHSD.chunk(2, dim=3)
    turned: Tensor = x_BHSD * cosines_SD + torch.cat((-second, first), dim=3) * sines_SD
    return turned


def table_for(table_SD: Tensor, length: int) -> Tensor:
    """The table for a sequence of `length`; at full length the table itself, which adds no operator."""
    return table_SD if table_SD.shape[0] == length else table_SD[:length]


INITIAL_STD = 0.02
"""Standard deviation of initial weights, as in GPT-2."""


def init_weights(module: nn.Module) -> None:
    """GPT-2's initialisation of linear layers and embeddings; for `Module.apply`."""
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=INITIAL_STD)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)


class TiedEmbedding(nn.Module):
    """Token embedding, learned positions, and the LM head that shares the token embedding's weight."""

    def __init__(self, vocabulary: int, sequence: int, hidden: int) -> None:
        super().__init__()
        self.sequence = sequence
        self.tokens = nn.Embedding(vocabulary, hidden)
        self.positions = nn.Parameter(torch.empty(sequence, hidden))
        nn.init.normal_(self.positions, std=INITIAL_STD)

    def forward(self, tokens_BS: Tensor) -> Tensor:
        """(B, S) token numbers -> (B, S, M)."""
        length = tokens_BS.shape[1]
        # Slicing at full length would add an operator to every captured graph.
        positions = self.positions if length == self.sequence else self.positions[:length]
        embedded: Tensor = self.tokens(tokens_BS) + positions
        return embedded

    def loss(self, hidden_BSM: Tensor, targets_BS: Tensor) -> Tensor:
        """Mean cross-entropy of the tied head's predictions, in float32: a float16 sum over tokens would overflow."""
        return token_loss(F.linear(hidden_BSM, self.tokens.weight), targets_BS)


def token_loss(logits_BSV: Tensor, targets_BS: Tensor) -> Tensor:
    """Mean cross-entropy over all tokens, a scalar in float32 whatever the dtype of the logits."""
    return F.cross_entropy(logits_BSV.flatten(0, 1).float(), targets_BS.flatten())


class CausalSelfAttention(nn.Module):
    """Multi-head attention by two plain matrix products and a softmax (fused attention came after the paper)."""

    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        assert hidden % heads == 0, f"{hidden} is not a multiple of {heads} heads"
        self.heads = heads
        self.qkv = nn.Linear(hidden, 3 * hidden)
        self.projection = nn.Linear(hidden, hidden)

    def forward(self, x_BSM: Tensor, mask_SS: Tensor) -> Tensor:
        """(B, S, M) -> (B, S, M); `mask_SS` is added to the scores: 0, or −inf where a token must not attend."""
        batch, length, hidden = x_BSM.shape
        head = hidden // self.heads
        # Heads come before q, k, v in the fused weight, so that a shard of its rows holds whole heads.
        qkv_BHS3D = self.qkv(x_BSM).view(batch, length, self.heads, 3 * head).transpose(1, 2)
        q_BHSD, k_BHSD, v_BHSD = qkv_BHS3D.split(head, dim=3)
        # q is scaled before the product: unscaled scores may leave the range of float16.
        scores_BHSS = torch.matmul(q_BHSD * (1.0 / math.sqrt(head)), k_BHSD.transpose(2, 3)) + mask_SS
        mixed_BHSD = torch.matmul(F.softmax(scores_BHSS, dim=3), v_BHSD)
        merged: Tensor = self.projection(mixed_BHSD.transpose(1, 2).reshape(batch, length, hidden))
        return merged


def heads_of_groups(qkv_BSM: Tensor, key_heads: int, head: int) -> tuple[Tensor, Tensor, Tensor]:
    """The output of one product, (B, S, K · (G + 2) · D), as queries (B, H, S, D), keys and values (B, K, S, D).

    Groups come before q, k, v in the weight, so that a shard of its rows holds whole groups.
    """
    grouped_BSKD = qkv_BSM.view(*qkv_BSM.shape[:2], key_heads, -1)
    queries = grouped_BSKD.shape[3] - 2 * head
    q_BSKD, k_BSKD, v_BSKD = grouped_BSKD.split_with_sizes((queries, head, head), dim=3)
    if queries > head:
        q_BSKD = q_BSKD.reshape(*q_BSKD.shape[:2], -1, head)
    return q_BSKD.transpose(1, 2), k_BSKD.transpose(1, 2), v_BSKD.transpose(1, 2)


class FeedForward(nn.Module):
    """Two linear layers with a GELU between them."""

    def __init__(self, hidden: int, ratio: int) -> None:
        super().__init__()
        self.up = nn.Linear(hidden, ratio * hidden)
        self.down = nn.Linear(ratio * hidden, hidden)

    def forward(self, x_BSM: Tensor) -> Tensor:
        """(B, S, M) -> (B, S, M)."""
        y: Tensor = self.down(F.gelu(self.up(x_BSM), approximate="tanh"))
        return y


class Block(nn.Module):
    """x + attention(norm(x), …), then x + MLP(norm(x))."""

    def __init__(self, norm: Callable[[], nn.Module], attention: nn.Module, mlp: nn.Module) -> None:
        super().__init__()
        self.attention_norm, self.attention = norm(), attention
        self.mlp_norm, self.mlp = norm(), mlp

    def forward(self, x_BSM: Tensor, *of_attention: Any) -> Tensor:
        """(B, S, M) -> (B, S, M)."""
        x_BSM = x_BSM + self.attention(self.attention_norm(x_BSM), *of_attention)
        y_BSM: Tensor = x_BSM + self.mlp(self.mlp_norm(x_BSM))
        return y_BSM


class Decoder(nn.Module):
    """Embedding, blocks, final layer norm and the causal mask; a subclass defines how its blocks are called."""

    mask: Tensor

    def __init__(self, config: GPTConfig | MoEConfig, blocks: Iterable[nn.Module]) -> None:
        """`blocks` is consumed after the embedding is made: the order in which weights are drawn decides their
        values."""
        super().__init__()
        self.embedding = TiedEmbedding(config.vocabulary, config.sequence, config.hidden)
        self.h = nn.ModuleList(blocks)
        self.final_norm = nn.LayerNorm(config.hidden)
        # One buffer for all layers: made inside them it would be a tensor that crosses every cut.
        self.register_buffer("mask", causal_mask(config.sequence), persistent=False)
        self.apply(init_weights)


def causal_mask(length: int) -> Tensor:
    """(S, S) of 0 on and below the diagonal and −inf above; every row has a 0, so no softmax is over −inf only."""
    return torch.full((length, length), float("-inf")).triu(1)


def mask_for(mask_SS: Tensor, length: int) -> Tensor:
    """The mask for a sequence of `length`; at full length the mask itself, which adds no operator."""
    return mask_SS if mask_SS.shape[0] == length else mask_SS[:length, :length]
