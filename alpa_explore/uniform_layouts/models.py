"""Which model is priced: a catalogue name, or a Hugging Face config of a family whose blocks the cost model knows.

Decoders of Llama's kind with heads of hidden / heads, and GPTs, are captured; other blocks (experts, latent or windowed
attention, wider heads) have a closed form (`cost.blocks`). As in the measured runs that this was held against, norms of
heads, biases of projections and routers, and other activations are not priced, and the first dense blocks of DeepSeek
count as the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from alpa_explore.cost.blocks.shapes import AttentionShape, BlockShape, Decoder, ExpertsShape
from alpa_explore.errors import OptionError
from alpa_explore.models.catalog import CatalogEntry, entry
from alpa_explore.models.configs import DecoderConfig, GPTConfig, HuggingFaceConfig, LlamaConfig
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
        decoder = self.architecture.decoder
        return 1 if decoder is None else len(decoder.period)

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
    attention = AttentionShape(
        heads=config.heads,
        kv_heads=config.kv_heads,
        head=config.head,
        value_head=config.head,
        sinks=config.sinks,
    )
    if (latent := config.latent) is not None:
        attention = replace(
            attention,
            head=latent.plain + latent.rotary,
            value_head=latent.value,
            query_rank=latent.query_rank,
            key_rank=latent.key_rank,
            rotary_head=latent.rotary,
        )
    experts = None
    if (routed := config.experts) is not None:
        experts = ExpertsShape(
            experts=routed.count, topk=routed.chosen, ffn=routed.ffn, shared_ffn=routed.shared * routed.ffn
        )
    return _decoder(
        config.layers, config.hidden, config.ffn, config.vocabulary, config.tied, attention, experts, config.window
    )


def _decoder(
    layers: int,
    hidden: int,
    ffn: int,
    vocabulary: int,
    tied: bool,
    attention: AttentionShape,
    experts: ExpertsShape | None,
    window: int | None,
) -> Architecture:
    """Blocks with a closed form, unless they are those of Llama. A `window` is that of every second block."""
    plain = Architecture(
        kind="llama",
        layers=layers,
        hidden=hidden,
        heads=attention.heads,
        kv_heads=attention.kv_heads,
        ffn=ffn,
        vocabulary=vocabulary,
        tied=tied,
    )
    if experts is None and not window and not attention.key_rank and attention.head * attention.heads == hidden:
        return plain
    block = BlockShape(hidden=hidden, attention=attention, ffn=0 if experts else ffn, experts=experts)
    period: tuple[BlockShape, ...] = (block,)
    if window:
        period = (replace(block, attention=replace(attention, window=window)), block)
    return replace(
        plain,
        ffn=experts.ffn if experts else ffn,
        experts=experts.experts if experts else 1,
        topk=experts.topk if experts else 1,
        decoder=Decoder(period=period),
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
    head = _size(values, "head_dim", 128 if kind in ("qwen3", "qwen3_moe") else hidden // heads)
    attention = AttentionShape(
        heads=heads,
        kv_heads=_size(values, "num_key_value_heads", heads),
        head=head,
        value_head=head,
        sinks=kind == "gpt_oss",
    )
    if kind == "deepseek_v3":
        rotary = _size(values, "qk_rope_head_dim")
        attention = replace(
            attention,
            head=_size(values, "qk_nope_head_dim") + rotary,
            value_head=_size(values, "v_head_dim"),
            query_rank=_size(values, "q_lora_rank", 0),
            key_rank=_size(values, "kv_lora_rank"),
            rotary_head=rotary,
        )
    return _decoder(
        _size(values, "num_hidden_layers"),
        hidden,
        _size(values, "intermediate_size", 0 if "moe_intermediate_size" in values else None),
        _size(values, "vocab_size"),
        bool(values.get("tie_word_embeddings", False)),
        attention,
        _experts_of(kind, values),
        _size(values, "sliding_window") if kind == "gpt_oss" else None,
    )


def _experts_of(kind: str, values: Mapping[str, Any]) -> ExpertsShape | None:
    if kind not in _EXPERTS:
        return None
    count, width, shared = _EXPERTS[kind]
    if values.get("mlp_only_layers") or values.get("decoder_sparse_step", 1) != 1:
        raise _unknown("blocks without experts among others (mlp_only_layers, decoder_sparse_step)")
    if (kinds := values.get("mlp_layer_types")) and kinds.count("dense") > _MOST_DENSE * len(kinds):
        raise _unknown(f"{kinds.count('dense')} blocks of {len(kinds)} without experts (mlp_layer_types)")
    ffn, beside = _size(values, width), _size(values, shared, 0) if shared else 0
    return ExpertsShape(
        experts=_size(values, count),
        topk=_size(values, "num_experts_per_tok"),
        ffn=ffn,
        shared_ffn=beside * ffn if shared == _SHARED else beside,
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
