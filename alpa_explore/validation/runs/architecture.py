"""A decoder by its sizes, of a measured run or of a name: its config for `models`, its products and FLOPs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from alpa_explore.models.configs import DecoderConfig, GPTConfig, LlamaConfig
from alpa_explore.models.configs.decoder import WINDOW_PERIOD
from alpa_explore.uniform_layouts.stages import Sizes


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture(Sizes):
    """A decoder. `kind` decides what its columns leave open: 'llama' has a gated MLP, RMS norm and rotary
    positions; 'nemotron' an MLP of two matrices with squared ReLU, rotary positions and no biases; 'gpt' GELU, learned
    positions and biases (Megatron's GPT, and llm-foundry's MPT, whose numbers of parameters it gives exactly)."""

    kind: Literal["llama", "gpt", "nemotron"]
    tied: bool
    decoder: DecoderConfig | None = None
    """The config of a model with experts, latent or windowed attention, or with heads of another size than hidden /
    heads; None for others."""
    spelled_out: bool = False
    """Whether a GPT's attention is two products and a softmax, whatever the software."""

    @property
    def experts(self) -> int:
        """Routed experts of a block; 1 where there are none."""
        return self.decoder.experts.count if self.decoder is not None and self.decoder.experts is not None else 1

    @property
    def chosen_experts(self) -> int:
        """Routed experts that a token passes through; 1 where there are none."""
        return self.decoder.experts.chosen if self.decoder is not None and self.decoder.experts is not None else 1

    @property
    def period(self) -> int:
        """Unlike blocks that take turns."""
        return 1 if self.decoder is None else self.decoder.period

    def config(
        self, sequence: int, *, layers: int | None = None, vocabulary: int | None = None, software: str = ""
    ) -> ModelConfig:
        """The config of the model as `software` runs it, or of one with fewer layers or a padded vocabulary.
        OptionError for sizes that do not divide."""
        blocks = self.layers if layers is None else layers
        words = self.vocabulary if vocabulary is None else vocabulary
        if self.decoder is not None:
            kept = replace(self.decoder, layers=blocks, kv_heads=self.kv_heads, vocabulary=words, sequence=sequence)
            return replace(kept, tied=self.tied)
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
        config, ahead = self.decoder, self.predicted_ahead
        latent, window = config.latent, config.window
        widths = 2 * config.head if latent is None else latent.plain + latent.rotary + latent.value
        seen = float(sequence)  # twice the keys that a query sees in the mean
        if window is not None and window < sequence:
            narrow = 2 * window - window**2 / sequence
            seen += (narrow - sequence) / WINDOW_PERIOD
        each = config.active_products + config.heads * widths * seen
        return 6.0 * ((self.layers + ahead) * each + (1 + ahead) * head) * tokens


SPELLED_OUT = ("megatron-v2", "megatron-deepspeed")
"""Software that computes attention by matrix products and a softmax."""
ModelConfig = GPTConfig | LlamaConfig | DecoderConfig


def padded_vocabulary(vocabulary: int, tensor: int, software: str) -> int:
    """The vocabulary that the framework trains: Megatron pads it to a multiple of 128 × tp (its default
    make_vocab_size_divisible_by), the others as far as tp devices need it."""
    unit = 128 * tensor if software.startswith("megatron") and tensor > 1 else tensor
    return -(-vocabulary // unit) * unit
