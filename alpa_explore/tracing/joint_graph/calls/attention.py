"""Calls of torch's `scaled_dot_product_attention`, replaced by the one operator of `tracing.attention`.

torch decomposes attention on fake tensors into products and a softmax of all scores, whatever device the model is
made for; a GPU runs one kernel that stores no scores. Left as torch has them (and so decomposed) are calls that the
operator does not compute: with a mask that has a gradient, with tensors of more than four dims. Dropout draws a seed,
and from it other numbers than torch would. The catalogue's attention with a window or sinks, and Hugging Face's
(`huggingface_attention`), are the same operator.

What a model reads and writes at the places of a mask is in forms that have a shape before they run: `x[mask] = value`
is a choice between `value` and x; torch's own backward pass of it counts the places. What `masked_select` finds in rows
of whole numbers is kept as rows, the selected entries first, for `ctc_calls` alone.

Hugging Face: transformers looks up the function for attention, and the one for masks, when a model runs. The masks that
are made here remember which causal window they hold, so that attention needs no mask of all scores. Attention takes
them, sinks (`s_aux`, as in GPT-OSS) and a cap of the scores (`softcap`, as in Gemma 2), which torch's function has not;
all else runs as transformers has it. Masks with padding or of packed samples stay masks.
"""

import inspect
import math
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import DynamicOutputShapeException
from torch.nn import functional
from torch.utils.weak import WeakTensorKeyDictionary

from alpa_explore.models import decoder as catalogue
from alpa_explore.tracing.attention import attention
from alpa_explore.tracing.autocast import lowered

_MASKS, _ATTENTION = "transformers.masking_utils", "transformers.modeling_utils"
_FORMS = ("eager", "sdpa")
"""Forms of attention that take masks of all scores."""
_KNOWN = frozenset({"sliding_window", "s_aux", "softcap", "is_causal"})
_HARMLESS = frozenset(
    {
        "dropout",
        "scaling",
        "position_ids",
        "use_cache",
        "cache_position",
        "output_hidden_states",
        "output_router_logits",
    }
)
"""Arguments of attention that the operator knows, and others that change nothing of what it computes."""


@contextmanager
def huggingface_attention() -> Iterator[None]:
    """While this is entered, such attention is one operator."""
    masking, modeling = sys.modules.get(_MASKS), sys.modules.get(_ATTENTION)
    windows = WeakTensorKeyDictionary()
    with ExitStack() as stack:
        if masking is not None and modeling is not None and hasattr(modeling, "AttentionInterface"):
            functions = masking.ALL_MASK_ATTENTION_FUNCTIONS
            made = {form: _remembering(functions[form], masking, windows) for form in _FORMS}
            stack.enter_context(patch.dict(functions._local_mapping, made))
            found = modeling.AttentionInterface.get_interface
            patched = _interface(found, windows)
            stack.enter_context(patch.object(modeling.AttentionInterface, "get_interface", patched))
        yield


def _remembering(function: Callable[..., Any], masking: Any, windows: Any) -> Callable[..., Any]:
    """A function for masks whose causal masks are in `windows`, with their window (0: all keys before a query)."""

    def mask(*args: Any, **given: Any) -> Any:
        made = function(*args, **given)
        plain = given.get("attention_mask") is None and not given.get("q_offset") and not given.get("kv_offset")
        if isinstance(made, Tensor) and plain and given.get("q_length") == given.get("kv_length"):
            window = _window(given.get("mask_function"), masking)
            if window is not None:
                windows[made] = window
        return made

    return mask


def _window(function: Any, masking: Any) -> int | None:
    """The window of a function (sample, head, query, key) -> seen of transformers; None for another mask than that of
    causal windows."""
    parts = [function]
    if getattr(function, "__qualname__", "") == "and_masks.<locals>.and_mask":
        parts = list(inspect.getclosurevars(function).nonlocals.get("mask_functions", ()))
    sizes = []
    for part in parts:
        if part is masking.causal_mask_function:
            continue
        if getattr(part, "__qualname__", "") != "sliding_window_overlay.<locals>.inner_mask":
            return None
        size = inspect.getclosurevars(part).nonlocals.get("sliding_window")
        if not isinstance(size, int):
            return None
        sizes.append(size)
    return min(sizes, default=0) if masking.causal_mask_function in parts else None


def _interface(found: Callable[..., Any], windows: Any) -> Callable[..., Any]:
    """`get_interface` of transformers: (interface, name of the form, the module's own) -> the function that runs."""

    def get_interface(self: Any, name: str, default: Callable[..., Any]) -> Callable[..., Any]:
        kept = found(self, name, default)
        return _attention(kept, windows) if name in _FORMS else kept

    return get_interface


def _attention(kept: Callable[..., Any], windows: Any) -> Callable[..., Any]:
    """`kept`, the function of transformers, or the operator where that computes it and `kept` would need all scores."""

    def run(
        module: nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Tensor | None,
        *args: Any,
        **given: Any,
    ) -> Any:
        window = None if attention_mask is None else windows.get(attention_mask)
        sink, cap = given.get("s_aux"), given.get("softcap")
        unknown = (
            {name for name, value in given.items() if value is not None and value is not False} - _KNOWN - _HARMLESS
        )
        banded = window is not None and query.shape[2] == key.shape[2]
        masked = attention_mask is not None and (banded or not attention_mask.requires_grad)
        if args or unknown or not masked or not (banded or sink is not None or cap is not None):
            return kept(module, query, key, value, attention_mask, *args, **given)
        query, key, value = lowered(query, key, value)
        scale, dropout = given.get("scaling"), float(given.get("dropout") or 0.0)
        output: Tensor = attention(
            query,
            key,
            value,
            None if banded else attention_mask,
            banded,
            query.shape[-1] ** -0.5 if scale is None else float(scale),
            dropout,
            torch.rand((), dtype=torch.float64, device=query.device) if dropout else None,
            window=window if banded else 0,
            softcap=float(cap or 0.0),
            sink=sink,
        )[0]
        return output.transpose(1, 2).contiguous(), None

    return run


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
    with (
        patch.object(functional, "scaled_dot_product_attention", as_one_operator),
        patch.object(catalogue, "_spelled_out", _catalogues),
        huggingface_attention(),
    ):
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
