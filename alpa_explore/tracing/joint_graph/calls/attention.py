"""Calls of torch's `scaled_dot_product_attention`, replaced by the one operator of `tracing.attention`.

torch decomposes attention on fake tensors into products and a softmax of all scores, whatever device the model is
made for; a GPU runs one kernel that stores no scores. Left as torch has them (and so decomposed) are calls that the
operator does not compute: with a mask that has a gradient, with tensors of more than four dims. Dropout draws a seed,
and from it other numbers than torch would. The catalogue's attention with a window or sinks, and Hugging Face's
(`huggingface_attention`), are the same operator.

What a model reads and writes at the places of a mask is in forms that have a shape before they run: `x[mask] = value`
is a choice between `value` and x; torch's own backward pass of it counts the places. What `masked_select` finds in rows
of whole numbers is kept as rows, the selected entries first, for `ctc_calls` alone.
"""

import math
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import DynamicOutputShapeException
from torch.nn import functional
from torch.utils.weak import WeakTensorKeyDictionary

from alpa_explore.models import decoder as catalogue
from alpa_explore.tracing.attention import attention
from alpa_explore.tracing.autocast.regions import lowered
from alpa_explore.tracing.joint_graph.calls.huggingface import huggingface_attention

SELECT = (torch.masked_select, Tensor.masked_select)


class SelectedRows:
    """What one run of a model has selected from rows of whole numbers."""

    def __init__(self) -> None:
        self._rows: Any = WeakTensorKeyDictionary()

    def select(self, values: Tensor, mask: Tensor) -> Tensor:
        """The selected values as rows, padded behind; torch's own where the values are no rows of whole numbers."""
        if values.dim() != 2 or values.shape != mask.shape or values.is_floating_point():
            return torch.masked_select(values, mask)
        rows = values.gather(1, torch.argsort(mask.logical_not().to(torch.int8), dim=1, stable=True))
        self._rows[rows] = True
        return rows

    def refuse(self, args: tuple[object, ...]) -> None:
        """Raises torch's own exception where an argument is what was selected: its shape is not known."""
        if self._rows and any(isinstance(a, Tensor) and a in self._rows for a in args):
            raise DynamicOutputShapeException(torch.ops.aten.masked_select.default)


def written(function: Any, args: tuple[Any, ...]) -> bool:
    """Whether the call was `x[mask] = value` with one value for all places, which is done here then."""
    if function is not Tensor.__setitem__:
        return False
    target, mask, value = args
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool or mask.shape != target.shape[: mask.dim()]:
        return False
    inner = target.shape[mask.dim() :]
    if isinstance(value, Tensor):
        if value.dim() > len(inner):  # a value for each place: their number is not known
            return False
        value = value.to(target.dtype)
    target.copy_(torch.where(mask[(...,) + (None,) * len(inner)], value, target))
    return True


CALL = functional.scaled_dot_product_attention
"""torch's own function."""


def as_one_operator(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """What torch's function returns, by one operator where that computes it."""
    query, key, value = lowered(query, key, value)
    whole = _four_dims(query, key, value, attn_mask, enable_gqa)
    plain_mask = attn_mask is None or not (attn_mask.requires_grad or is_causal)
    if whole is None or not plain_mask or not 0 <= dropout_p < 1:
        kept = CALL(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)
        return kept
    factor = 1 / math.sqrt(query.shape[-1]) if scale is None else float(scale)
    seed = torch.rand((), dtype=torch.float64, device=query.device) if dropout_p else None
    output: Tensor = attention(*whole, is_causal, factor, float(dropout_p), seed)[0]
    return output.view(output.shape[4 - query.dim() :])


@contextmanager
def whole_attention() -> Iterator[None]:
    """Within torch's own modules too (`nn.MultiheadAttention`), which call the function by its name in
    `torch.nn.functional`; within the catalogue's models and those of Hugging Face."""
    with ExitStack() as stack:
        stack.enter_context(patch.object(functional, "scaled_dot_product_attention", as_one_operator))
        stack.enter_context(patch.object(catalogue, "_spelled_out", _catalogues))
        stack.enter_context(huggingface_attention())
        yield


def _catalogues(query: Tensor, key: Tensor, value: Tensor, window: int | None, sinks: Tensor | None) -> Tensor:
    """Causal attention with a window or sinks, by one operator."""
    query, key, value = lowered(query, key, value)
    factor = query.shape[-1] ** -0.5
    made: Tensor = attention(query, key, value, None, True, factor, window=window or 0, sink=sinks)[0]
    return made


def _four_dims(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, grouped: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor | None] | None:
    """(queries [b, hq, sq, d], keys, values, mask) as the operator takes them; None where it does not.

    Dims that are missing are put in front, so the first of three counts as heads; samples and heads that torch would
    broadcast are expanded, but one head of keys and values stays one.
    """
    tensors = (query, key, value)
    if any(t.is_nested or not t.is_floating_point() or t.dtype != query.dtype or t.dim() > 4 for t in tensors):
        return None
    if min(t.dim() for t in tensors) < 2 or 0 in (*query.shape, *key.shape, *value.shape):
        return None
    q, k, v = (t[(None,) * (4 - t.dim())] for t in tensors)
    if q.shape[-1] != k.shape[-1] or k.shape[-2] != v.shape[-2]:
        return None
    samples, shared = (max(t.shape[d] for t in whole) for d, whole in ((0, (q, k, v)), (1, (k, v))))
    heads = max(q.shape[1], shared)
    if any(t.shape[0] not in (1, samples) for t in (q, k, v)) or any(t.shape[1] not in (1, shared) for t in (k, v)):
        return None
    if q.shape[1] not in (1, heads) or heads % shared or (shared not in (1, heads) and not grouped):
        return None
    if mask is not None and (mask.dim() > 4 or any(m not in (1, n) for m, n in _aligned(mask, q, k, samples, heads))):
        return None
    q = q.expand(samples, heads, -1, -1)
    return q, k.expand(samples, shared, -1, -1), v.expand(samples, shared, -1, -1), mask


def _aligned(mask: Tensor, query: Tensor, key: Tensor, samples: int, heads: int) -> Iterator[tuple[int, int]]:
    """(dim of the mask, dim of the scores) from the last one on."""
    return zip(reversed(mask.shape), (key.shape[-2], query.shape[-2], heads, samples), strict=False)
