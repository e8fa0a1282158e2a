"""The model of a measured run: a decoder by its sizes, its config for `models`, its FLOPs; its kind by its name; and
what the columns leave open about models with experts: heads, latents, windows, shared experts.

A family that is in the catalogue has the config of that model; others are given by their config.json on Hugging Face.
A model that is not known here has heads of hidden / heads, no shared expert and experts in every block.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from alpa_explore.models.catalog import entry
from alpa_explore.models.configs import DecoderConfig, ExpertsConfig, GPTConfig, LatentConfig
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
        sizes: dict[str, Any] = {"hidden": self.hidden, "layers": blocks, "heads": self.heads, "vocabulary": words}
        sizes["sequence"] = sequence
        more: dict[str, Any] = {"kv_heads": self.kv_heads, "ffn": self.ffn, "tied": self.tied}
        if self.kind == "llama":
            return DecoderConfig(**sizes, **more)
        plain = self.kind == "gpt"
        # The Megatron of 2021 and its fork spell attention out.
        spelled_out = software in SPELLED_OUT and plain and self.kv_heads == self.heads and self.tied
        if spelled_out and self.ffn % self.hidden == 0:
            return GPTConfig(**sizes, mlp_ratio=self.ffn // self.hidden)
        return GPTConfig(
            **sizes,
            **more,
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
ModelConfig = GPTConfig | DecoderConfig


def padded_vocabulary(vocabulary: int, tensor: int, software: str) -> int:
    """The vocabulary that the framework trains: Megatron pads it to a multiple of 128 × tp (its default
    make_vocab_size_divisible_by), the others as far as tp devices need it."""
    unit = 128 * tensor if software.startswith("megatron") and tensor > 1 else tensor
    return -(-vocabulary // unit) * unit


_LLAMA = ("llama", "mistral", "qwen", "internlm", "baichuan", "yi-")
_GPT = ("gpt", "mpt", "bloom", "opt-", "megatron")
_NEMOTRON = "nemotron"
_CATALOGUE = {
    "deepseekv3": "deepseek-v3",
    "kimik2": "deepseek-v3",  # moonshotai/Kimi-K2-Base: the same blocks with other numbers of heads and experts
    "qwen3": "qwen3-30b-a3b",
    "gptoss": "gpt-oss-120b",
    "mixtral": "mixtral-8x7b",
}
"""Part of the model's name, in lower case without spaces, hyphens and underscores -> the model of the catalogue."""
_LLAMA4: Mapping[str, dict[str, Any]] = {
    # meta-llama/Llama-4-Maverick-17B-128E: interleave_moe_layer_step, intermediate_size_mlp
    "llama4maverick": {"ffn": 16384, "every": 2},
    "llama4scout": {"ffn": 0, "every": 1},
}
_PREDICTED_AHEAD = {"deepseekv3": 1}
"""Further tokens predicted in training, unless a note says that there is none."""
_NOT_AHEAD = re.compile(r"\b(?:no|w/o|without) MTP\b")
_DIRECT_QUERIES = ("moonlight", "deepseekv2lite", "deepseekv316b")
"""Models of DeepSeek-V2-Lite's shape: queries come from the input, and two experts are shared (config.json of
deepseek-ai/DeepSeek-V2-Lite and moonshotai/Moonlight-16B-A3B)."""


def decoder_of(model: str, sizes: Mapping[str, int], note: str = "") -> tuple[DecoderConfig, int]:
    """The config of a model with experts, from its columns and what is known of it by name, and the further tokens that
    it predicts; a proxy, with fewer blocks, predicts none.

    The first dense blocks of DeepSeek-V3 (first_k_dense_replace 3: MLPs whose FLOPs are those of 9 experts) count as
    the others.
    """
    plain = "".join(c for c in model.lower() if c not in " -_")
    hidden, heads, count = sizes["hidden"], sizes["heads"], sizes["experts"]
    routed = ExpertsConfig(count=count, chosen=sizes["topk"], ffn=sizes["ffn"])
    config = DecoderConfig(
        family=model,
        hidden=hidden,
        layers=sizes["layers"],
        heads=heads,
        kv_heads=sizes["kv_heads"],
        head=hidden // heads,
        vocabulary=sizes["vocab"],
        sequence=sizes["seq"],
        experts=routed,
    )
    if any(part in plain for part in _DIRECT_QUERIES):
        latent = LatentConfig(query_rank=0, key_rank=512, rotary=64, plain=128, value=128)
        return replace(config, latent=latent, experts=replace(routed, shared=2, gate="sigmoid")), 0
    for part, name in _CATALOGUE.items():
        if part in plain:
            known = entry(name).config
            assert isinstance(known, DecoderConfig), "a decoder with experts"
            assert known.experts is not None, "a decoder with experts"
            kept = replace(known.experts, count=count, chosen=routed.chosen, ffn=routed.ffn, dense_blocks=0, groups=1)
            sized = {name: getattr(config, name) for name in ("hidden", "layers", "heads", "kv_heads", "vocabulary")}
            ahead = 0 if "proxy" in plain or _NOT_AHEAD.search(note) else _PREDICTED_AHEAD.get(part, 0)
            return replace(known, experts=replace(kept, chosen_groups=1), **sized), ahead
    for part, values in _LLAMA4.items():
        if part in plain:
            beside = replace(routed, shared=1, every=values["every"])
            return replace(config, head=128, ffn=values["ffn"], experts=beside), 0
    return config, 0


def kind_of(model: str, hidden: int, ffn: int | None) -> Literal["llama", "gpt", "nemotron"]:
    """The kind by the model's name; for other names, an MLP of exactly 4 × hidden is a GPT's."""
    name = model.lower()
    if _NEMOTRON in name:
        return "nemotron"
    # "llama" before "gpt": megatron-llama is a Llama, and "llama-like" has any width.
    if any(part in name for part in _LLAMA):
        return "llama"
    if any(part in name for part in _GPT):
        return "gpt"
    return "gpt" if ffn is None or ffn == 4 * hidden else "llama"
