"""The model of a run: its kind by its name, and what the columns leave open about models with experts: heads, latents,
windows, shared experts.

A family that is in the catalogue has the config of that model; others are given by their config.json on Hugging Face.
A model that is not known here has heads of hidden / heads, no shared expert and experts in every block.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

from alpa_explore.models.catalog import entry
from alpa_explore.models.configs import DecoderConfig, ExpertsConfig, LatentConfig

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
