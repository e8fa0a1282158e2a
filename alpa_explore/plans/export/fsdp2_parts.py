"""The parts of a model between which FSDP2 code cuts it: embedding, list of blocks, norm and head, as source."""

from __future__ import annotations

from dataclasses import dataclass

_HEAD_WEIGHT = '''

def head_weight(model):
    """The weight that makes scores of the vocabulary."""
    return {weight}
'''
_PARTS = '''

def make_model():
    """The model, alike on every rank."""
    {model}


def embed(model, tokens):
    """What enters the first block."""
    return {embed}


def apply_block(model, block, x, positions):
    """One block; `positions` are those of the sequence that this rank has."""
    return {block}


def last_norm(model, x):
    """What the head reads."""
    return {norm}
'''


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """How a family of models is cut."""

    list: str = "h"
    first: tuple[str, ...] = ("tokens",)
    last: tuple[str, ...] = ("final_norm", "head")
    embedding: str = "tokens"
    """The module of the token embedding, whose weight a tied head reads."""
    embed: str = "model.tokens(tokens)"
    block: str
    norm: str = "model.final_norm(x)"
    weight: str = "model.head.weight"
    tied_weight: str = "model.tokens.weight"
    head: str = "head"
    sequence_parallel: bool = True
    """Whether what the embedding returns can be a shard of the sequence."""
    attention: bool = True
    """Whether attention takes its number of heads from its input, so that a device can have some of them."""
    context: bool = True
    """Whether attention is `F.scaled_dot_product_attention` and positions are read from a table."""


_ROTARY = "model.cosines[positions], model.sines[positions]"
FAMILIES = {
    "llama": Parts(block=f"block(x, {_ROTARY})"),
    "decoder": Parts(block=f"block(x, ({_ROTARY}))"),
    "gpt": Parts(
        first=("embedding",),
        last=("final_norm",),
        embedding="embedding.tokens",
        embed="model.embedding(tokens)",
        block="block(x, model.mask[positions][:, positions])",
        tied_weight="model.embedding.tokens.weight",
        sequence_parallel=False,
        attention=False,
        context=False,
    ),
}
"""Families of the catalogue."""
UNKNOWN = Parts(
    block="block(x)",
    embed="NotImplemented  # write: model.…(tokens)",
    norm="NotImplemented  # write: model.…(x)",
    attention=False,
    context=False,
    sequence_parallel=False,
)
"""A model from outside the catalogue: the user writes the functions."""


def parts_source(parts: Parts, recipe: str | None, *, tied: bool) -> str:
    """The functions that the code calls, as Python source."""
    if recipe is None:
        model = 'raise NotImplementedError("Make your model here.")'
    else:
        model = "from alpa_explore.models.catalog import build\n\n    "
        model += f'return build({recipe!r}, 1, device="cpu", seed=0)[0]'
    functions = _PARTS.format(model=model, embed=parts.embed, block=parts.block, norm=parts.norm)
    return functions + _HEAD_WEIGHT.format(weight=parts.tied_weight if tied else parts.weight)
