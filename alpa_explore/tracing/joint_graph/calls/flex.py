"""Calls of torch's `flex_attention`, written as attention with a mask, or as products and a softmax.

Without a compiler torch has no backward pass for it on CPUs, where all tensors of a capture are. A call without a
change of its scores is attention with the block mask as a mask of all scores: one operator (`attention_calls`). Others
are spelled out, and their plans say so. In both, blocks that the mask leaves out are computed: their time is estimated
too high.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch.nn import functional
from torch.nn.attention import flex_attention as library

Score = Callable[..., torch.Tensor]


def _attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    score: Score,
    blocks: tuple[Any, ...],
    scale: float,
    options: dict[str, Any],
    *captured: tuple[Any, ...],
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(output, logsumexp, largest scores) of a call, as torch's operator returns them; the two last are empty where
    attention is one operator."""
    allowed = blocks[-1]
    shape = (query.shape[0], query.shape[1], query.shape[2], key.shape[2])
    if score is library._identity and not (options.get("OUTPUT_LOGSUMEXP") or options.get("OUTPUT_MAX")):
        mask = None if allowed is library.noop_mask else _each(allowed, None, shape)
        # Called by its name: while a model is traced it is one operator.
        output = functional.scaled_dot_product_attention(query, key, value, mask, scale=scale, enable_gqa=True)
        return output, query.new_empty(0), query.new_empty(0)
    groups = query.shape[1] // key.shape[1]
    if groups > 1:
        key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
    scores = _each(score, query @ key.transpose(-2, -1) * scale, shape)
    if allowed is not library.noop_mask:
        scores = scores.masked_fill(~_each(allowed, None, shape), -torch.inf)
    reached = scores.logsumexp(-1)
    # A row with no key to look at is zero, as torch has it.
    weights = (scores - reached.masked_fill(reached == -torch.inf, 0).unsqueeze(-1)).exp()
    return weights.to(value.dtype) @ value, reached, scores.amax(-1)


def _each(function: Score, scores: torch.Tensor | None, shape: tuple[int, ...]) -> torch.Tensor:
    """`function` of every score and its indices (sample, head, query, key), of `shape`."""
    for dim in reversed(range(4)):
        along = tuple(0 if d == dim else None for d in range(4))
        function = torch.vmap(function, in_dims=along if scores is None else (0, *along))
    indices = [torch.arange(n) for n in shape]
    return function(*indices) if scores is None else function(scores, *indices)


@contextmanager
def plain_flex_attention() -> Iterator[None]:
    """While this is entered, torch's function calls `_attention` in place of its operator, with no compiler."""
    with ExitStack() as stack:
        stack.enter_context(patch.object(library, "flex_attention_hop", _attention))
        stack.enter_context(patch.object(library, "_validate_device", lambda query, key, value: None))
        stack.enter_context(patch.object(library, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True))
        yield
