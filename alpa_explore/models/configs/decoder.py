"""Llama and the decoders after it: Qwen3, Mixtral, DeepSeek-V3, GPT-OSS. One config; what a family lacks stays at its
default, which is a Llama's.

The values in catalog.json are those of Hugging Face's config.json of each model.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

from alpa_explore.errors import OptionError
from alpa_explore.models.configs.paper import LanguageModel, check_divides

WINDOW_PERIOD = 2
"""Of blocks with a window and blocks without, one each, as in GPT-OSS."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentConfig:
    """Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434): queries, and keys with values, come from a narrow
    latent each; a part of every head has rotary positions, and in keys all heads share that part."""

    query_rank: int
    """Width of the latent of queries; 0 where they come from the input."""
    key_rank: int
    """Width of the latent of keys and values."""
    rotary: int
    """Size of the part of a head that has positions."""
    plain: int
    """Size of the part that has none."""
    value: int
    """Size of a head of values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertsConfig:
    """A feed-forward of experts: every token is computed by the few that its gate chooses; none is dropped."""

    count: int
    """Routed experts."""
    chosen: int
    """Of them, by each token (top-k)."""
    ffn: int
    """Width of an expert."""
    shared: int = 0
    """Experts that every token goes through; together they are one MLP of shared × ffn."""
    dense_blocks: int = 0
    """The first blocks, which have a dense MLP in place of experts."""
    every: int = 1
    """Of the blocks after these every so many have experts, the last of each; the others a dense MLP (Llama 4)."""
    gate: Literal["softmax", "sigmoid"] = "softmax"
    """softmax: the weights are the softmax over the logits of the chosen experts. sigmoid: the sigmoids of the chosen
    ones, scaled to a sum of `scale`; a bias that is not trained joins in the choice (DeepSeek-V3, arXiv 2412.19437)."""
    groups: int = 1
    """Groups of experts, of which a token first chooses `chosen_groups` by the sum of their two best."""
    chosen_groups: int = 1
    scale: float = 1.0

    def __post_init__(self) -> None:
        check_divides("number of experts", self.count, "groups of experts", self.groups)
        if not 1 <= self.chosen <= self.count * self.chosen_groups // self.groups:
            raise OptionError(
                "A token cannot choose that many experts",
                found=f"{self.chosen} of {self.count}, from {self.chosen_groups} of {self.groups} groups",
                remedy="Choose at least one, and no more than the chosen groups hold.",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderConfig(LanguageModel):
    """A decoder with RMS norm, rotary positions, grouped keys or latent attention, SwiGLU or experts.

    OptionError where sizes do not divide.
    """

    family: str = "Llama"
    """For display: 'Qwen3', 'Mixtral', …"""
    kv_heads: int = 0
    """Heads of keys and values; 0 becomes `heads`."""
    head: int = 0
    """Size of a head of queries, keys and values; 0 becomes hidden / heads. Not used by latent attention."""
    ffn: int = 0
    """Width of the dense MLP; 0 where every block has experts."""
    tied: bool = False
    """Whether the LM head is the token embedding's weight."""
    norm_heads: bool = False
    """Whether each head of queries and keys goes through an RMS norm (Qwen3)."""
    bias: bool = False
    """Whether attention, router and experts have biases (GPT-OSS)."""
    window: int | None = None
    """Tokens that a query sees, itself included, in blocks 0, 2, 4, …; None: all before it, in every block."""
    sinks: bool = False
    """Whether each head has a trained logit that takes part in the softmax and has no value (GPT-OSS)."""
    clamped: bool = False
    """Whether SwiGLU is GPT-OSS's, with clamped inputs."""
    fused_projections: bool = False
    """Whether queries, keys and values come from one product, and gate and up from another, as Megatron-LM, nanotron
    and NeMo compute them; not with norms of heads."""
    latent: LatentConfig | None = None
    experts: ExpertsConfig | None = None
    rope_theta: float = 10_000.0
    """Base of the rotary frequencies; no shape and no time depends on it."""

    def __post_init__(self) -> None:
        if not self.head:
            check_divides("hidden size", self.hidden, "heads", self.heads)
            object.__setattr__(self, "head", self.hidden // self.heads)
        object.__setattr__(self, "kv_heads", self.kv_heads or self.heads)
        check_divides("number of heads", self.heads, "heads of keys and values", self.kv_heads)
        if (self.layers - self.dense_blocks) % self.period:
            raise OptionError(
                "Unlike blocks take turns, in a period that divides their number",
                found=f"{self.layers - self.dense_blocks} blocks in periods of {self.period}",
                remedy=f"Give a multiple of {self.period}.",
            )
        if self.ffn == 0 and (self.experts is None or self.experts.dense_blocks or self.experts.every > 1):
            raise OptionError("Some blocks have neither experts nor an MLP", found="ffn = 0", remedy="Give its width.")

    @property
    def dense_blocks(self) -> int:
        """The first blocks that are unlike the rest."""
        return self.experts.dense_blocks if self.experts is not None else 0

    def has_experts(self, block: int) -> bool:
        """Whether the feed-forward of this block, counted from 0, is one of experts."""
        experts = self.experts
        return (
            experts is not None
            and block >= experts.dense_blocks
            and not ((block - experts.dense_blocks + 1) % experts.every)
        )

    @property
    def period(self) -> int:
        """Unlike blocks that take turns after the first dense ones."""
        return math.lcm(WINDOW_PERIOD if self.window is not None else 1, self.experts.every if self.experts else 1)

    @property
    def periods(self) -> int:
        """Number of equal parts in sequence after the first dense blocks."""
        return (self.layers - self.dense_blocks) // self.period

    def with_periods(self, periods: int) -> DecoderConfig:
        """The config of a model with that many of them."""
        return replace(self, layers=self.dense_blocks + periods * self.period)

    @property
    def parameter_count(self) -> int:
        """Embedding + blocks · (attention + feed-forward + 2 norms) + final norm + LM head unless tied."""
        h = self.hidden
        ends = self.vocabulary * h * (1 if self.tied else 2) + h
        experts = sum(map(self.has_experts, range(self.layers)))
        dense = (self.layers - experts) * 3 * h * self.ffn
        return ends + self.layers * (self._attention + 2 * h) + dense + experts * self._experts

    @property
    def _attention_matrices(self) -> int:
        h = self.hidden
        if (latent := self.latent) is not None:
            queries = self.heads * (latent.plain + latent.rotary)
            queries = h * latent.query_rank + latent.query_rank * queries if latent.query_rank else h * queries
            keys = h * (latent.key_rank + latent.rotary) + latent.key_rank * self.heads * (latent.plain + latent.value)
            return queries + keys + self.heads * latent.value * h
        return 2 * h * self.head * (self.heads + self.kv_heads)

    @property
    def active_products(self) -> float:
        """Multiply-adds of a token with the matrices of a block, in the mean over a period; scores apart."""
        routed, wide = self.experts, float(3 * self.ffn)
        if routed is not None:
            wide += (3 * (routed.chosen + routed.shared) * routed.ffn + routed.count - wide) / routed.every
        return self._attention_matrices + self.hidden * wide

    @property
    def _attention(self) -> int:
        h, weights = self.hidden, self._attention_matrices
        if (latent := self.latent) is not None:
            return weights + latent.query_rank + latent.key_rank
        queries, keys = self.heads * self.head, self.kv_heads * self.head
        biases = queries + 2 * keys + h if self.bias else 0
        return weights + biases + (2 * self.head if self.norm_heads else 0) + (self.heads if self.sinks else 0)

    @property
    def _expert(self) -> int:
        assert self.experts is not None
        width = self.experts.ffn
        return 3 * self.hidden * width + (2 * width + self.hidden if self.bias else 0)

    @property
    def _experts(self) -> int:
        """Of a block: the routed and shared experts, and the router."""
        if self.experts is None:
            return 0
        router = self.hidden * self.experts.count + (self.experts.count if self.bias else 0)
        shared = 3 * self.hidden * self.experts.shared * self.experts.ffn
        return self.experts.count * self._expert + shared + router

    @property
    def description(self) -> str:
        """One line for display."""
        parts = [f"{self.family}: {self.layers} layers, hidden {self.hidden:,}, {self.heads} heads"]
        if self.latent is not None:
            parts[0] += " (latent)"
        elif self.kv_heads != self.heads:
            parts[0] += f" ({self.kv_heads} of keys)"
        if self.experts is None:
            parts.append(f"MLP {self.ffn:,}")
        else:
            shared = f" and {self.experts.shared} shared" if self.experts.shared else ""
            parts.append(f"{self.experts.chosen} of {self.experts.count}{shared} experts of {self.experts.ffn:,}")
        if self.window is not None:
            parts.append(f"window {self.window:,} in every second layer")
        return ", ".join((*parts, f"sequence {self.sequence:,}, vocabulary {self.vocabulary:,}"))
