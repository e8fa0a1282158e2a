"""Llama: the sizes of Hugging Face's config.json (hidden_size, intermediate_size, num_key_value_heads, …)."""

from __future__ import annotations

from dataclasses import dataclass, replace

from alpa_explore.models.configs.sizes import check_heads, qkv_width


@dataclass(frozen=True, slots=True, kw_only=True)
class LlamaConfig:
    """A decoder with RMS norm, rotary positions, grouped-query attention and a gated MLP (SwiGLU); no biases.

    OptionError where sizes do not divide.
    """

    hidden: int
    layers: int
    heads: int
    vocabulary: int
    sequence: int
    ffn: int
    """Width of the gated MLP, which has three matrices."""
    kv_heads: int | None = None
    """Heads of keys and values; None is `heads`."""
    tied: bool = False
    """Whether the LM head is the token embedding's weight."""
    fused_projections: bool = False
    """Whether queries, keys and values come from one product, and gate and up from another, as Megatron-LM, nanotron
    and NeMo compute them."""
    rope_theta: float = 500_000.0
    """Base of the rotary frequencies; no shape and no time depends on it."""

    def __post_init__(self) -> None:
        check_heads(self.hidden, self.heads, self.key_heads)

    @property
    def key_heads(self) -> int:
        """Heads of keys and values."""
        return self.heads if self.kv_heads is None else self.kv_heads

    @property
    def periods(self) -> int:
        """Number of equal parts in sequence that the model consists of: its blocks."""
        return self.layers

    def with_periods(self, periods: int) -> LlamaConfig:
        """The config of a model with that many blocks."""
        return replace(self, layers=periods)

    @property
    def parameter_count(self) -> int:
        """Embedding + layers · (attention + 3 matrices of the MLP + 2 norms) + final norm + LM head unless tied."""
        h = self.hidden
        layer = h * qkv_width(h, self.heads, self.key_heads) + h * h + 3 * h * self.ffn + 2 * h
        return self.vocabulary * h * (1 if self.tied else 2) + self.layers * layer + h

    @property
    def description(self) -> str:
        """One line for display."""
        grouped = f" ({self.kv_heads} of keys)" if self.key_heads != self.heads else ""
        return (
            f"Llama: {self.layers} layers, hidden {self.hidden:,}, {self.heads} heads{grouped}, MLP {self.ffn:,}, "
            f"sequence {self.sequence:,}, vocabulary {self.vocabulary:,}"
        )
