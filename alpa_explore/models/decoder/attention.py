"""Causal attention of the decoders: grouped keys with options, and latent attention.

Shape suffixes: B microbatch, S sequence, M model (hidden), H heads, K heads of keys and values, D head dim.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from alpa_explore.models.configs import DecoderConfig, LatentConfig
from alpa_explore.models.llama import RMSNorm
from alpa_explore.models.rotary import rotated

Tables = tuple[torch.Tensor, torch.Tensor]
"""Cosines and sines of rotary positions."""


def causal_attention(
    q_BHSD: torch.Tensor,
    k_BKSD: torch.Tensor,
    v_BKSD: torch.Tensor,
    window: int | None = None,
    sinks_H: torch.Tensor | None = None,
) -> torch.Tensor:
    """Attention of every query to itself and those before it, (B, H, S, D), in the dtype of the queries.

    With `window` it sees that many tokens, itself included. A sink is a logit of each head that takes part in the
    softmax and has no value: it scales what attention without it gives by σ(logsumexp of the scores − sink).
    """
    if window is None and sinks_H is None:
        grouped = q_BHSD.shape[1] != k_BKSD.shape[1]
        whole: torch.Tensor = F.scaled_dot_product_attention(q_BHSD, k_BKSD, v_BKSD, is_causal=True, enable_gqa=grouped)
        return whole
    return _spelled_out(q_BHSD, k_BKSD, v_BKSD, window, sinks_H)


def _spelled_out(
    q_BHSD: torch.Tensor, k_BKSD: torch.Tensor, v_BKSD: torch.Tensor, window: int | None, sinks_H: torch.Tensor | None
) -> torch.Tensor:
    """With all scores. A capture puts one operator in its place (`tracing.joint_graph.calls.attention`)."""
    k_BHSD, v_BHSD = (t.repeat_interleave(q_BHSD.shape[1] // t.shape[1], dim=1) for t in (k_BKSD, v_BKSD))
    scores_BHSS = (q_BHSD @ k_BHSD.transpose(2, 3)).float() * q_BHSD.shape[3] ** -0.5
    seen_SS = torch.ones(scores_BHSS.shape[2:], dtype=torch.bool, device=scores_BHSS.device).tril()
    if window is not None:
        seen_SS = seen_SS.triu(1 - window)
    scores_BHSS = scores_BHSS.masked_fill(~seen_SS, -torch.inf)
    mixed_BHSD: torch.Tensor = scores_BHSS.softmax(3).to(v_BHSD.dtype) @ v_BHSD
    if sinks_H is None:
        return mixed_BHSD
    share_BHS = torch.sigmoid(scores_BHSS.logsumexp(3) - sinks_H.float()[:, None])
    scaled_BHSD: torch.Tensor = mixed_BHSD * share_BHS.unsqueeze(3).to(mixed_BHSD.dtype)
    return scaled_BHSD


class DecoderAttention(nn.Module):
    """Grouped keys; norms of heads, biases, a window and sinks where the config has them."""

    def __init__(self, config: DecoderConfig, window: int | None) -> None:
        super().__init__()
        self.head, self.window = config.head, window
        widths = (config.heads * config.head, config.kv_heads * config.head)
        self.q = nn.Linear(config.hidden, widths[0], bias=config.bias)
        self.k = nn.Linear(config.hidden, widths[1], bias=config.bias)
        self.v = nn.Linear(config.hidden, widths[1], bias=config.bias)
        self.projection = nn.Linear(widths[0], config.hidden, bias=config.bias)
        self.q_norm = RMSNorm(config.head) if config.norm_heads else None
        self.k_norm = RMSNorm(config.head) if config.norm_heads else None
        self.sinks = nn.Parameter(torch.zeros(config.heads)) if config.sinks else None

    def forward(self, x_BSM: torch.Tensor, tables: Tables) -> torch.Tensor:
        """(B, S, M) -> (B, S, M)."""
        q_BHSD, k_BKSD = self._heads(self.q(x_BSM), self.q_norm), self._heads(self.k(x_BSM), self.k_norm)
        v_BKSD = self._heads(self.v(x_BSM), None)
        q_BHSD, k_BKSD = rotated(q_BHSD, *tables), rotated(k_BKSD, *tables)
        mixed_BHSD = causal_attention(q_BHSD, k_BKSD, v_BKSD, self.window, self.sinks)
        y_BSM: torch.Tensor = self.projection(mixed_BHSD.transpose(1, 2).flatten(2))
        return y_BSM

    def _heads(self, x_BSM: torch.Tensor, norm: nn.Module | None) -> torch.Tensor:
        """(B, S, heads · D) -> (B, heads, S, D), each head through `norm`."""
        x_BSHD = x_BSM.view(*x_BSM.shape[:2], -1, self.head)
        normed_BSHD: torch.Tensor = x_BSHD if norm is None else norm(x_BSHD)
        return normed_BSHD.transpose(1, 2)


class LatentAttention(nn.Module):
    """Multi-head latent attention as it is trained: keys and values of all heads are made from the latent."""

    def __init__(self, config: DecoderConfig, latent: LatentConfig) -> None:
        super().__init__()
        hidden, heads = config.hidden, config.heads
        self.heads, self.latent = heads, latent
        queries = heads * (latent.plain + latent.rotary)
        self.q_down = nn.Linear(hidden, latent.query_rank, bias=False) if latent.query_rank else nn.Identity()
        self.q_norm = RMSNorm(latent.query_rank) if latent.query_rank else nn.Identity()
        self.q_up = nn.Linear(latent.query_rank or hidden, queries, bias=False)
        self.kv_down = nn.Linear(hidden, latent.key_rank + latent.rotary, bias=False)
        self.kv_norm = RMSNorm(latent.key_rank)
        self.kv_up = nn.Linear(latent.key_rank, heads * (latent.plain + latent.value), bias=False)
        self.projection = nn.Linear(heads * latent.value, hidden, bias=False)

    def forward(self, x_BSM: torch.Tensor, tables: Tables) -> torch.Tensor:
        """(B, S, M) -> (B, S, M)."""
        sizes = self.latent
        q_BHSD = self._heads(self.q_up(self.q_norm(self.q_down(x_BSM))))
        q_plain, q_turned = q_BHSD.split_with_sizes((sizes.plain, sizes.rotary), dim=3)
        latent_BSM, shared_BSD = self.kv_down(x_BSM).split_with_sizes((sizes.key_rank, sizes.rotary), dim=2)
        k_turned = rotated(shared_BSD.unsqueeze(1), *tables).expand(-1, self.heads, -1, -1)
        k_plain, v_BHSD = self._heads(self.kv_up(self.kv_norm(latent_BSM))).split_with_sizes(
            (sizes.plain, sizes.value), dim=3
        )
        q_BHSD = torch.cat((q_plain, rotated(q_turned, *tables)), dim=3)
        k_BHSD = torch.cat((k_plain, k_turned), dim=3)
        mixed_BHSD = F.scaled_dot_product_attention(q_BHSD, k_BHSD, v_BHSD, is_causal=True)
        y_BSM: torch.Tensor = self.projection(mixed_BHSD.transpose(1, 2).flatten(2))
        return y_BSM

    def _heads(self, x_BSM: torch.Tensor) -> torch.Tensor:
        """(B, S, H · D) -> (B, H, S, D)."""
        return x_BSM.view(*x_BSM.shape[:2], self.heads, -1).transpose(1, 2)
