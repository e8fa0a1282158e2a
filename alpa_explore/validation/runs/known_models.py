"""What the columns of a run leave open about models with experts: heads, latents, windows, shared experts.

From the config.json of each model on Hugging Face; the file names the fields. A model that is not known here has heads
of hidden / heads, no shared expert and experts in every block.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownModel:
    """A family of models with experts."""

    part: str
    """Of the model's name, in lower case without spaces, hyphens and underscores."""
    source: str
    head: int = 0
    """Size of a head of queries and keys; 0: hidden / heads."""
    value_head: int = 0
    """Of values; 0: the same."""
    query_rank: int = 0
    key_rank: int = 0
    rotary_head: int = 0
    sinks: bool = False
    window: int = 0
    """Keys that a query of every second block sees."""
    shared_ffn: int = 0
    dense_ffn: int = 0
    """Width of the MLP of blocks without experts."""
    experts_every: int = 1
    """Every so many blocks have experts."""
    predicted_ahead: int = 0
    """Further tokens predicted in training."""


_DEEPSEEK: dict[str, Any] = {
    "head": 192,
    "value_head": 128,
    "query_rank": 1536,
    "key_rank": 512,
    "rotary_head": 64,
    "shared_ffn": 2048,
}
KNOWN = (
    # first_k_dense_replace 3: blocks of 18,432 wide MLPs, whose FLOPs are those of 9 experts; counted as the others.
    KnownModel(part="deepseekv3", source="deepseek-ai/DeepSeek-V3", predicted_ahead=1, **_DEEPSEEK),
    KnownModel(part="kimik2", source="moonshotai/Kimi-K2-Base", **_DEEPSEEK),
    KnownModel(part="qwen3", source="Qwen/Qwen3-30B-A3B, Qwen/Qwen3-235B-A22B", head=128),
    KnownModel(part="gptoss", source="openai/gpt-oss-120b, openai/gpt-oss-20b", head=64, window=128, sinks=True),
    KnownModel(part="mixtral", source="mistralai/Mixtral-8x7B-v0.1, mistralai/Mixtral-8x22B-v0.1", head=128),
    KnownModel(
        part="llama4maverick",
        source="meta-llama/Llama-4-Maverick-17B-128E (interleave_moe_layer_step, intermediate_size_mlp)",
        head=128,
        shared_ffn=8192,
        dense_ffn=16384,
        experts_every=2,
    ),
    KnownModel(part="llama4scout", source="meta-llama/Llama-4-Scout-17B-16E", head=128, shared_ffn=8192),
)


def known_model(name: str) -> KnownModel:
    """What is known of a model by its name; the defaults where nothing is."""
    plain = "".join(c for c in name.lower() if c not in " -_")
    for known in KNOWN:
        if known.part in plain:
            return known
    return KnownModel(part="", source="")
