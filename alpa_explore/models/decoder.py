"""The decoder: x + attention(norm(x)), then x + feed-forward(norm(x)), with the options of `DecoderConfig`.

Without them it is Llama (arXiv 2302.13971; grouped queries: 2307.09288): RMS norm, rotary positions, SwiGLU, attention
as one operator. Shape suffixes: B microbatch, S sequence, M model (hidden), D the dims of a head that have positions.

Experts have no capacity: a gate chooses for each token, and no token is dropped. More suffixes: T tokens, E experts, K
chosen experts of a token (in attention H heads, K heads of keys and values, D head dim).
"""

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from alpa_explore.models.configs import DecoderConfig, ExpertsConfig, LatentConfig
from alpa_explore.models.configs.decoder import WINDOW_PERIOD
from alpa_explore.models.routed_experts import Gate, routed_experts
from alpa_explore.models.transformer import (
    INITIAL_STD,
    Block,
    heads_of_groups,
    init_weights,
    rotary_tables,
    rotated,
    table_for,
    token_loss,
)

Tables = tuple[Tensor, Tensor]
"""Cosines and sines of rotary positions."""


def causal_attention(
    q_BHSD: Tensor, k_BKSD: Tensor, v_BKSD: Tensor, window: int | None = None, sinks_H: Tensor | None = None
) -> Tensor:
    """Attention of every query to itself and those before it, (B, H, S, D), in the dtype of the queries.

    With `window` it sees that many tokens, itself included. A sink is a logit of each head that takes part in the
    softmax and has no value: it scales what attention without it gives by σ(logsumexp of the scores − sink).
    """
    if window is None and sinks_H is None:
        grouped = q_BHSD.shape[1] != k_BKSD.shape[1]
        whole: Tensor = F.scaled_dot_product_attention(q_BHSD, k_BKSD, v_BKSD, is_causal=True, enable_gqa=grouped)
        return whole
    return _spelled_out(q_BHSD, k_BKSD, v_BKSD, window, sinks_H)


def _spelled_out(q_BHSD: Tensor, k_BKSD: Tensor, v_BKSD: Tensor, window: int | None, sinks_H: Tensor | None) -> Tensor:
    """With all scores. A capture puts one operator in its place (`tracing.joint_graph.calls.attention`)."""
    k_BHSD, v_BHSD = (t.repeat_interleave(q_BHSD.shape[1] // t.shape[1], dim=1) for t in (k_BKSD, v_BKSD))
    scores_BHSS = (q_BHSD @ k_BHSD.transpose(2, 3)).float() * q_BHSD.shape[3] ** -0.5
    seen_SS = torch.ones(scores_BHSS.shape[2:], dtype=torch.bool, device=scores_BHSS.device).tril()
    if window is not None:
        seen_SS = seen_SS.triu(1 - window)
    scores_BHSS = scores_BHSS.masked_fill(~seen_SS, -torch.inf)
    mixed_BHSD: Tensor = scores_BHSS.softmax(3).to(v_BHSD.dtype) @ v_BHSD
    if sinks_H is None:
        return mixed_BHSD
    share_BHS = torch.sigmoid(scores_BHSS.logsumexp(3) - sinks_H.float()[:, None])
    scaled_BHSD: Tensor = mixed_BHSD * share_BHS.unsqueeze(3).to(mixed_BHSD.dtype)
    return scaled_BHSD


NORM_EPSILON = 1e-5
"""Added to the mean square, as in the published configs of Llama 2 and 3."""


class RMSNorm(nn.Module):
    """x / √(mean of x² + ε) · weight by `rms_norm`, which computes in float32; the result has the dtype of x."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden))

    def forward(self, x_BSM: Tensor) -> Tensor:
        """(B, S, M) -> (B, S, M)."""
        return F.rms_norm(x_BSM, self.weight.shape, self.weight, NORM_EPSILON)


class SwiGLU(nn.Module):
    """down(silu(gate(x)) · up(x))."""

    def __init__(self, hidden: int, ffn: int) -> None:
        super().__init__()
        self.gate = nn.Linear(hidden, ffn, bias=False)
        self.up = nn.Linear(hidden, ffn, bias=False)
        self.down = nn.Linear(ffn, hidden, bias=False)

    def forward(self, x_BSM: Tensor) -> Tensor:
        """(B, S, M) -> (B, S, M)."""
        y: Tensor = self.down(F.silu(self.gate(x_BSM)) * self.up(x_BSM))
        return y


class FusedSwiGLU(nn.Module):
    """The same with gate and up from one product. Their rows alternate in its weight, so that a shard of the rows holds
    gate and up of the same channels."""

    def __init__(self, hidden: int, ffn: int) -> None:
        super().__init__()
        self.gate_up = nn.Linear(hidden, 2 * ffn, bias=False)
        self.down = nn.Linear(ffn, hidden, bias=False)

    def forward(self, x_BSM: Tensor) -> Tensor:
        """(B, S, M) -> (B, S, M)."""
        gate, up = self.gate_up(x_BSM).unflatten(2, (-1, 2)).unbind(3)
        y: Tensor = self.down(F.silu(gate) * up)
        return y


class DecoderAttention(nn.Module):
    """Grouped keys; norms of heads, biases, a window and sinks where the config has them."""

    def __init__(self, config: DecoderConfig, window: int | None) -> None:
        super().__init__()
        self.head, self.window = config.head, window
        widths = (config.heads * config.head, config.kv_heads * config.head)
        self.key_heads, self.fused = config.kv_heads, config.fused_projections
        if self.fused:
            self.qkv = nn.Linear(config.hidden, widths[0] + 2 * widths[1], bias=config.bias)
        else:
            self.q = nn.Linear(config.hidden, widths[0], bias=config.bias)
            self.k = nn.Linear(config.hidden, widths[1], bias=config.bias)
            self.v = nn.Linear(config.hidden, widths[1], bias=config.bias)
        self.projection = nn.Linear(widths[0], config.hidden, bias=config.bias)
        self.q_norm = RMSNorm(config.head) if config.norm_heads else None
        self.k_norm = RMSNorm(config.head) if config.norm_heads else None
        self.sinks = nn.Parameter(torch.zeros(config.heads)) if config.sinks else None

    def forward(self, x_BSM: Tensor, tables: Tables) -> Tensor:
        """(B, S, M) -> (B, S, M)."""
        if self.fused:
            q_BHSD, k_BKSD, v_BKSD = heads_of_groups(self.qkv(x_BSM), self.key_heads, self.head)
        else:
            q_BHSD, k_BKSD = self._heads(self.q(x_BSM), self.q_norm), self._heads(self.k(x_BSM), self.k_norm)
            v_BKSD = self._heads(self.v(x_BSM), None)
        q_BHSD, k_BKSD = rotated(q_BHSD, *tables), rotated(k_BKSD, *tables)
        mixed_BHSD = causal_attention(q_BHSD, k_BKSD, v_BKSD, self.window, self.sinks)
        y_BSM: Tensor = self.projection(mixed_BHSD.transpose(1, 2).flatten(2))
        return y_BSM

    def _heads(self, x_BSM: Tensor, norm: nn.Module | None) -> Tensor:
        """(B, S, heads · D) -> (B, heads, S, D), each head through `norm`."""
        x_BSHD = x_BSM.view(*x_BSM.shape[:2], -1, self.head)
        normed_BSHD: Tensor = x_BSHD if norm is None else norm(x_BSHD)
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

    def forward(self, x_BSM: Tensor, tables: Tables) -> Tensor:
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
        y_BSM: Tensor = self.projection(mixed_BHSD.transpose(1, 2).flatten(2))
        return y_BSM

    def _heads(self, x_BSM: Tensor) -> Tensor:
        """(B, S, H · D) -> (B, H, S, D)."""
        return x_BSM.view(*x_BSM.shape[:2], self.heads, -1).transpose(1, 2)


CLAMPED = Gate(limit=7.0, alpha=1.702, shift=1.0)
"""GPT-OSS's SwiGLU: swiglu_limit and swiglu_alpha of its configuration in transformers."""


class SoftmaxGate(nn.Module):
    """The experts with the largest logits, weighted by the softmax over their logits, in float32."""

    def __init__(self, config: ExpertsConfig, hidden: int, *, bias: bool) -> None:
        super().__init__()
        self.router = nn.Linear(hidden, config.count, bias=bias)
        self.chosen = config.chosen

    def forward(self, x_TM: Tensor) -> tuple[Tensor, Tensor]:
        """(T, M) -> (chosen experts (T, K), their weights (T, K))."""
        logits_TK, chosen_TK = self.router(x_TM).float().topk(self.chosen, dim=1)
        return chosen_TK, logits_TK.softmax(1).to(x_TM.dtype)


class SigmoidGate(nn.Module):
    """DeepSeek-V3's: the groups with the best two experts, in them the best experts, weighted by their sigmoids.

    `correction` joins in the choice alone; training moves it by a rule of its own, not by a gradient.
    """

    correction: Tensor

    def __init__(self, config: ExpertsConfig, hidden: int) -> None:
        super().__init__()
        self.router = nn.Linear(hidden, config.count, bias=False)
        self.register_buffer("correction", torch.zeros(config.count))
        self.config = config

    def forward(self, x_TM: Tensor) -> tuple[Tensor, Tensor]:
        """(T, M) -> (chosen experts (T, K), their weights (T, K))."""
        scores_TE = F.linear(x_TM.float(), self.router.weight.float()).sigmoid()
        ranked_TE = (scores_TE + self.correction.float()).detach()
        if self.config.groups > 1:
            grouped = ranked_TE.view(ranked_TE.shape[0], self.config.groups, -1)
            best_TG = grouped.topk(2, dim=2).values.sum(2)
            last_T1 = best_TG.topk(self.config.chosen_groups, dim=1).values[:, -1:]
            ranked_TE = grouped.masked_fill((best_TG < last_T1).unsqueeze(2), -torch.inf).flatten(1)
        chosen_TK = ranked_TE.topk(self.config.chosen, dim=1).indices
        weights_TK = scores_TE.gather(1, chosen_TK)
        weights_TK = weights_TK / weights_TK.sum(1, keepdim=True) * self.config.scale
        return chosen_TK, weights_TK.to(x_TM.dtype)


class Experts(nn.Module):
    """Routed experts behind a gate, and the shared ones."""

    def __init__(self, config: DecoderConfig, experts: ExpertsConfig, shared: nn.Module | None) -> None:
        super().__init__()
        hidden, count, width = config.hidden, experts.count, experts.ffn
        sigmoid = experts.gate == "sigmoid"
        self.gate = SigmoidGate(experts, hidden) if sigmoid else SoftmaxGate(experts, hidden, bias=config.bias)
        # Gate and up are apart: a shard of the columns then holds both of the same channels.
        shapes = ((hidden, width), (hidden, width), (width, hidden))
        self.matrices = nn.ParameterList(torch.empty(count, *shape).normal_(std=INITIAL_STD) for shape in shapes)
        self.biases = nn.ParameterList(torch.zeros(count, shape[1]) for shape in shapes if config.bias)
        self.shared, self.swiglu = shared, CLAMPED if config.clamped else Gate()

    def forward(self, x_BSM: Tensor) -> Tensor:
        """(B, S, M) -> (B, S, M)."""
        x_TM = x_BSM.flatten(0, 1)
        chosen_TK, weights_TK = self.gate(x_TM)
        y_TM = routed_experts(x_TM, chosen_TK, weights_TK, [*self.matrices], [*self.biases], gate=self.swiglu)
        y_BSM = y_TM.view(x_BSM.shape)
        return y_BSM if self.shared is None else y_BSM + self.shared(x_BSM)


def decoder_block(config: DecoderConfig, index: int) -> Block:
    """Block number `index`."""
    window = config.window if index % WINDOW_PERIOD == 0 else None
    latent, experts = config.latent, config.experts
    attention = DecoderAttention(config, window) if latent is None else LatentAttention(config, latent)
    if experts is None or not config.has_experts(index):
        mlp: nn.Module = (FusedSwiGLU if config.fused_projections else SwiGLU)(config.hidden, config.ffn)
    else:
        shared = SwiGLU(config.hidden, experts.shared * experts.ffn) if experts.shared else None
        mlp = Experts(config, experts, shared)
    return Block(partial(RMSNorm, config.hidden), attention, mlp)


class Decoder(nn.Module):
    """The model with its loss: `forward(tokens, targets)` is the mean cross-entropy; balancing losses of experts are
    left out."""

    cosines: Tensor
    sines: Tensor

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.tokens = nn.Embedding(config.vocabulary, config.hidden)
        self.h = nn.ModuleList(decoder_block(config, index) for index in range(config.layers))
        self.final_norm = RMSNorm(config.hidden)
        self.head = None if config.tied else nn.Linear(config.hidden, config.vocabulary, bias=False)
        # One pair of tables for all layers: made inside them they would be tensors that cross every cut.
        turned = config.head if config.latent is None else config.latent.rotary
        cosines_SD, sines_SD = rotary_tables(config.sequence, turned, config.rope_theta)
        self.register_buffer("cosines", cosines_SD, persistent=False)
        self.register_buffer("sines", sines_SD, persistent=False)
        self.apply(init_weights)

    def forward(self, tokens_BS: Tensor, targets_BS: Tensor) -> Tensor:
        """(B, S) token numbers and the tokens that follow them -> scalar loss in float32."""
        x_BSM = self.tokens(tokens_BS)
        length = tokens_BS.shape[1]
        tables = table_for(self.cosines, length), table_for(self.sines, length)
        for block in self.h:
            x_BSM = block(x_BSM, tables)
        weight = self.tokens.weight if self.head is None else self.head.weight
        return token_loss(F.linear(self.final_norm(x_BSM), weight), targets_BS)
