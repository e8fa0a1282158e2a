"""A decoder by its sizes, of a measured run or of a name: its config for `models`, its products and FLOPs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from alpa_explore.cost.blocks.shapes import Decoder
from alpa_explore.models.configs import GPTConfig, LlamaConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """A decoder. `kind` decides what its columns leave open: 'llama' has a gated MLP, RMS norm and rotary
    positions; 'nemotron' an MLP of two matrices with squared ReLU, rotary positions and no biases; 'gpt' GELU, learned
    positions and biases (Megatron's GPT, and llm-foundry's MPT, whose numbers of parameters it gives exactly)."""

    kind: Literal["llama", "gpt", "nemotron"]
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    ffn: int
    vocabulary: int
    """As the source gives it; frameworks pad it (`padded_vocabulary`)."""
    tied: bool
    experts: int = 1
    topk: int = 1
    """Experts that a token passes through."""
    decoder: Decoder | None = None
    """The blocks of a model whose work has a closed form: with experts, or with heads of another size than hidden /
    heads; None for others."""
    spelled_out: bool = False
    """Whether a GPT's attention is two products and a softmax, whatever the software."""

    @property
    def sizes(self) -> str:
        """'24 layers, hidden 1,024, 16 heads, vocabulary 50,257'."""
        keys = "" if self.kv_heads == self.heads else f" ({self.kv_heads:,} of keys)"
        return (
            f"{self.layers:,} layers, hidden {self.hidden:,}, {self.heads:,} heads{keys}, vocabulary "
            f"{self.vocabulary:,}"
        )

    def config(
        self, sequence: int, *, layers: int | None = None, vocabulary: int | None = None, software: str = ""
    ) -> ModelConfig:
        """The config of the model as `software` runs it, or of one with fewer layers or a padded vocabulary.

        Where the blocks have a closed form it is a dense one with the same embedding and head, whose blocks stand for
        nothing. OptionError for sizes that do not divide.
        """
        blocks = self.layers if layers is None else layers
        words = self.vocabulary if vocabulary is None else vocabulary
        if self.decoder is not None:
            return LlamaConfig(
                hidden=self.hidden,
                layers=blocks,
                heads=self.kv_heads,
                ffn=self.hidden,
                vocabulary=words,
                sequence=sequence,
                tied=self.tied,
                fused_projections=True,
            )
        if self.kind == "llama":
            return LlamaConfig(
                hidden=self.hidden,
                layers=blocks,
                heads=self.heads,
                kv_heads=self.kv_heads,
                ffn=self.ffn,
                vocabulary=words,
                sequence=sequence,
                tied=self.tied,
                fused_projections=True,
            )
        plain = self.kind == "gpt"
        # The Megatron of 2021 and its fork spell attention out.
        spelled_out = (
            (self.spelled_out or software in SPELLED_OUT) and plain and self.kv_heads == self.heads and self.tied
        )
        if spelled_out and self.ffn % self.hidden == 0:
            return GPTConfig(
                hidden=self.hidden,
                layers=blocks,
                heads=self.heads,
                vocabulary=words,
                sequence=sequence,
                mlp_ratio=self.ffn // self.hidden,
            )
        return GPTConfig(
            hidden=self.hidden,
            layers=blocks,
            heads=self.heads,
            kv_heads=self.kv_heads,
            ffn=self.ffn,
            vocabulary=words,
            sequence=sequence,
            tied=self.tied,
            attention="fused",
            positions="learned" if plain else "rotary",
            activation="gelu" if plain else "squared-relu",
            bias=plain,
        )

    @property
    def block_products(self) -> int:
        """Elements of the matrices of one block: multiply-adds of its products for one token."""
        attention = 2 * self.hidden * self.hidden * (1 + self.kv_heads / self.heads)
        return round(attention) + (3 if self.kind == "llama" else 2) * self.hidden * self.ffn

    def flops(self, tokens: int, sequence: int) -> float:
        """Model FLOPs of training on `tokens` tokens, without recomputation: 6 a multiply-add; attention is counted
        whole (not halved for causality), as in Megatron's formula (Narayanan et al., arXiv 2104.04473, appendix)."""
        head = self.hidden * self.vocabulary
        if self.decoder is None:
            return 6.0 * (self.layers * (self.block_products + 2 * self.hidden * sequence) + head) * tokens
        period, ahead = self.decoder.period, self.decoder.predicted_ahead
        each = [
            block.active_products
            + block.attention.heads
            * (block.attention.head + block.attention.value_head)
            * block.attention.scores(sequence, sequence)
            / sequence
            * 2
            for block in period
        ]
        mean = sum(each) / len(period)
        return 6.0 * ((self.layers + ahead) * mean + (1 + ahead) * head) * tokens


SPELLED_OUT = ("megatron-v2", "megatron-deepspeed")
"""Software that computes attention by matrix products and a softmax."""
ModelConfig = GPTConfig | LlamaConfig


def padded_vocabulary(vocabulary: int, tensor: int, software: str) -> int:
    """The vocabulary that the framework trains: Megatron pads it to a multiple of 128 × tp (its default
    make_vocab_size_divisible_by), the others as far as tp devices need it."""
    unit = 128 * tensor if software.startswith("megatron") and tensor > 1 else tensor
    return -(-vocabulary // unit) * unit
