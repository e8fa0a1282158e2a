"""Which model is priced: a catalogue name, or a Hugging Face config of a family whose sizes are known by their names.

Seconds and bytes are those of the model's own graph; what is read here are the sizes that layouts divide, and those of
which FLOPs are counted. The first dense blocks of DeepSeek count as the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from alpa_explore.errors import OptionError
from alpa_explore.models.catalog import CatalogEntry, entry
from alpa_explore.models.configs import (
    DecoderConfig,
    ExpertsConfig,
    GPTConfig,
    HuggingFaceConfig,
    LatentConfig,
    LlamaConfig,
)
from alpa_explore.models.configs.huggingface import size_of
from alpa_explore.uniform_layouts.pricing.architecture import Architecture

_DENSE = ("llama", "mistral", "qwen2", "qwen3", "phi3", "olmo2", "granite", "smollm3", "seed_oss")
_SHARED = "n_shared_experts"
_EXPERTS = {
    "mixtral": ("num_local_experts", "intermediate_size", ""),
    "gpt_oss": ("num_local_experts", "intermediate_size", ""),
    "minimax_m2": ("num_local_experts", "intermediate_size", ""),
    "olmoe": ("num_experts", "intermediate_size", ""),
    "qwen3_moe": ("num_experts", "moe_intermediate_size", ""),
    "qwen2_moe": ("num_experts", "moe_intermediate_size", "shared_expert_intermediate_size"),
    "deepseek_v3": ("n_routed_experts", "moe_intermediate_size", _SHARED),
    "glm4_moe": ("n_routed_experts", "moe_intermediate_size", _SHARED),
    "hy_v3": ("num_experts", "moe_intermediate_size", _SHARED),
}
"""Values of model_type -> keys of the number of experts, of their width, and of that of the shared one, or of the
number of shared experts as wide as the others; empty where there is none."""
_MOST_DENSE = 0.1
"""Share of blocks without experts, at the beginning of a model, up to which they count as the others."""
FAMILIES = (*_DENSE, *_EXPERTS, "gpt2")
"""Values of model_type in a Hugging Face config."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutModel:
    """A model whose layouts can be priced."""

    entry: CatalogEntry
    architecture: Architecture
    sequence: int
    """Tokens of a sample."""

    @property
    def period(self) -> int:
        """Blocks of a period: more than one where unlike blocks take turns."""
        return self.architecture.period

    @property
    def name(self) -> str:
        """As the user gave it, with the length of its samples where that is not the model's own."""
        return self.entry.name


def layout_model(model: str, sequence: int | None = None) -> LayoutModel:
    """The model of a catalogue name or of the path of a config.json.

    UnknownNameError with the nearest names; OptionError for a model of another family; otherwise as `models.entry`.
    """
    if not isinstance(model, str):
        raise OptionError(
            "Layouts are enumerated for a model by its sizes",
            found=type(model).__name__,
            remedy="Give a name that `alpa-explore models` lists, or the path of a Hugging Face config.json; a model "
            "of your own is planned by `ax.plan`.",
        )
    known = entry(model, sequence)
    config = known.config
    if isinstance(config, LlamaConfig):
        found = _plain("llama", config, config.ffn)
    elif isinstance(config, GPTConfig):
        kind: Literal["gpt", "nemotron"] = "gpt" if config.positions == "learned" else "nemotron"
        found = replace(_plain(kind, config, config.mlp_width), spelled_out=config.attention == "spelled-out")
    elif isinstance(config, DecoderConfig):
        found = _of_decoder(config)
    elif isinstance(config, HuggingFaceConfig):
        found = _of_huggingface(config)
    else:
        raise _unknown(f"{known.name}, a {known.family}")
    assert known.sequence is not None, "a decoder has a sequence"
    return LayoutModel(entry=known, architecture=found, sequence=known.sequence)


def _plain(kind: Literal["llama", "gpt", "nemotron"], config: LlamaConfig | GPTConfig, ffn: int) -> Architecture:
    return Architecture(
        kind=kind,
        layers=config.layers,
        hidden=config.hidden,
        heads=config.heads,
        kv_heads=config.key_heads,
        ffn=ffn,
        vocabulary=config.vocabulary,
        tied=config.tied,
    )


def _of_decoder(config: DecoderConfig) -> Architecture:
    """With the config, unless its blocks are those of Llama."""
    routed = config.experts
    plain = routed is None and not config.window and config.latent is None
    return Architecture(
        kind="llama",
        layers=config.layers,
        hidden=config.hidden,
        heads=config.heads,
        kv_heads=config.kv_heads,
        ffn=config.ffn if routed is None else routed.ffn,
        vocabulary=config.vocabulary,
        tied=config.tied,
        decoder=None if plain and config.head * config.heads == config.hidden else config,
    )


def _of_huggingface(config: HuggingFaceConfig) -> Architecture:
    values = config.values
    kind = values["model_type"]
    if kind not in FAMILIES:
        raise _unknown(f"model_type {kind!r:.60}")
    if kind == "gpt2":
        hidden = _size(values, "n_embd")
        return Architecture(
            kind="gpt",
            layers=_size(values, "n_layer"),
            hidden=hidden,
            heads=_size(values, "n_head"),
            kv_heads=_size(values, "n_head"),
            ffn=_size(values, "n_inner", 4 * hidden),
            vocabulary=_size(values, "vocab_size"),
            tied=bool(values.get("tie_word_embeddings", True)),
        )
    hidden, heads = _size(values, "hidden_size"), _size(values, "num_attention_heads")
    latent = None
    if kind == "deepseek_v3":
        latent = LatentConfig(
            query_rank=_size(values, "q_lora_rank", 0),
            key_rank=_size(values, "kv_lora_rank"),
            rotary=_size(values, "qk_rope_head_dim"),
            plain=_size(values, "qk_nope_head_dim"),
            value=_size(values, "v_head_dim"),
        )
    routed = _experts_of(kind, values)
    return _of_decoder(
        DecoderConfig(
            family=kind,
            hidden=hidden,
            layers=_size(values, "num_hidden_layers"),
            heads=heads,
            kv_heads=_size(values, "num_key_value_heads", heads),
            head=_size(values, "head_dim", 128 if kind in ("qwen3", "qwen3_moe") else hidden // heads),
            ffn=_size(values, "intermediate_size") if routed is None else 0,
            vocabulary=_size(values, "vocab_size"),
            sequence=1,
            tied=bool(values.get("tie_word_embeddings", False)),
            sinks=kind == "gpt_oss",
            window=_size(values, "sliding_window") if kind == "gpt_oss" else None,
            latent=latent,
            experts=routed,
        )
    )


def _experts_of(kind: str, values: Mapping[str, Any]) -> ExpertsConfig | None:
    if kind not in _EXPERTS:
        return None
    count, width, shared = _EXPERTS[kind]
    if values.get("mlp_only_layers") or values.get("decoder_sparse_step", 1) != 1:
        raise _unknown("blocks without experts among others (mlp_only_layers, decoder_sparse_step)")
    if (kinds := values.get("mlp_layer_types")) and kinds.count("dense") > _MOST_DENSE * len(kinds):
        raise _unknown(f"{kinds.count('dense')} blocks of {len(kinds)} without experts (mlp_layer_types)")
    ffn, beside = _size(values, width), _size(values, shared, 0) if shared else 0
    return ExpertsConfig(
        count=_size(values, count),
        chosen=_size(values, "num_experts_per_tok"),
        ffn=ffn,
        shared=beside if shared == _SHARED else round(beside / ffn),
    )


def _size(values: Mapping[str, Any], key: str, default: int | None = None) -> int:
    value = size_of(values, key)
    if value is None and default is not None:
        return default
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise OptionError(
            "The config lacks a size that decides on its layouts",
            found=f"{key} = {value!r:.40}",
            remedy=f"Give {key} as a whole number, as the model's config.json on Hugging Face has it.",
        )
    return value


def _unknown(found: str) -> OptionError:
    return OptionError(
        "Layouts are not enumerated for this family of models",
        found=found,
        remedy="Give a decoder of the catalogue (GPT, Llama, Qwen3, Mixtral, DeepSeek, GPT-OSS) or a Hugging Face "
        f"config of {', '.join(FAMILIES)}; for others compare baselines: `alpa-explore baselines`.",
    )
