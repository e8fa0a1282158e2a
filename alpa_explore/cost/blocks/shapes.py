"""What a decoder's block consists of. Sizes are those of the whole model, before any parallelism."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionShape:
    """Causal attention: grouped queries, or latent where `key_rank` is given (DeepSeek-V2, arXiv 2405.04434)."""

    heads: int
    kv_heads: int
    head: int
    """Size of a head of queries and keys."""
    value_head: int
    """Size of a head of values."""
    window: int = 0
    """Keys that a query sees at most; 0 for all before it."""
    sinks: bool = False
    """Whether the softmax has a learned term in its denominator (GPT-OSS), which few fused kernels compute."""
    query_rank: int = 0
    """Width of the latent from which queries are made; 0 where they come from the input."""
    key_rank: int = 0
    """Width of the latent from which keys and values are made; 0 for grouped queries."""
    rotary_head: int = 0
    """Channels of a latent head that turn by position; they are made once for all heads of keys."""

    def scores(self, queries: int, keys: int) -> float:
        """Pairs of a query and a key that it sees, of one head; `queries` are spread evenly over the `keys` before
        them, as zig-zag order has it."""
        if self.window and self.window < keys:
            return queries * (self.window - self.window**2 / (2 * keys))
        return queries * keys / 2

    def products(self, hidden: int) -> int:
        """Elements of its matrices."""
        out = self.heads * self.value_head * hidden
        if not self.key_rank:
            return hidden * (self.heads * self.head + self.kv_heads * (self.head + self.value_head)) + out
        queries = self.heads * self.head
        made = self.query_rank * (hidden + queries) if self.query_rank else hidden * queries
        keys = self.heads * (self.head - self.rotary_head + self.value_head)
        return made + hidden * (self.key_rank + self.rotary_head) + self.key_rank * keys + out


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertsShape:
    """Routed experts, each a gated MLP."""

    experts: int
    topk: int
    ffn: int
    shared_ffn: int = 0
    """Width of the MLP through which every token passes beside its routed experts; 0 for none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockShape:
    """x + attention(norm(x)), then x + MLP(norm(x)), where the MLP is gated and dense, or one of experts."""

    hidden: int
    attention: AttentionShape
    ffn: int = 0
    """Width of the dense MLP; 0 where there are experts."""
    experts: ExpertsShape | None = None

    @property
    def active_products(self) -> int:
        """Elements of the matrices that a token meets: multiply-adds of a token, attention's scores apart."""
        wide = self.ffn
        if self.experts is not None:
            wide = self.experts.topk * self.experts.ffn + self.experts.shared_ffn
        routing = 0 if self.experts is None else self.hidden * self.experts.experts
        return self.attention.products(self.hidden) + 3 * self.hidden * wide + routing

    @property
    def parameters(self) -> int:
        """Elements of all matrices."""
        unused = 0 if self.experts is None else (self.experts.experts - self.experts.topk) * self.experts.ffn
        return self.active_products + 3 * self.hidden * unused


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoder:
    """The blocks of a decoder: a period of them that repeats, and what follows the last one."""

    period: tuple[BlockShape, ...]
    predicted_ahead: int = 0
    """Further tokens that are predicted, each by a block and the head again (DeepSeek-V3, arXiv 2412.19437, §2.2)."""
