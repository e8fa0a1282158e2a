"""The architecture of a measured run, by the name of its model and its columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

from alpa_explore.cost.blocks.shapes import AttentionShape, BlockShape, Decoder, ExpertsShape
from alpa_explore.validation.runs.known_models import KnownModel

_LLAMA = ("llama", "mistral", "qwen", "internlm", "baichuan", "yi-")
_GPT = ("gpt", "mpt", "bloom", "opt-", "megatron")
_NEMOTRON = "nemotron"


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


def decoder_of(known: KnownModel, sizes: Mapping[str, int]) -> Decoder:
    """The blocks of a model with experts, from its columns and what is known of it by name."""
    hidden, heads = sizes["hidden"], sizes["heads"]
    head = known.head or hidden // heads
    attention = AttentionShape(
        heads=heads,
        kv_heads=sizes["kv_heads"],
        head=head,
        value_head=known.value_head or head,
        sinks=known.sinks,
        query_rank=known.query_rank,
        key_rank=known.key_rank,
        rotary_head=known.rotary_head,
    )
    experts = ExpertsShape(experts=sizes["experts"], topk=sizes["topk"], ffn=sizes["ffn"], shared_ffn=known.shared_ffn)
    routed = BlockShape(hidden=hidden, attention=attention, experts=experts)
    period = [routed]
    if known.experts_every > 1:
        dense = BlockShape(hidden=hidden, attention=attention, ffn=known.dense_ffn)
        period = [dense] * (known.experts_every - 1) + [routed]
    if known.window:
        narrow = replace(attention, window=known.window)
        period = [replace(block, attention=narrow) for block in period] + period
    return Decoder(period=tuple(period), predicted_ahead=known.predicted_ahead)
