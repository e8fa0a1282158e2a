"""Attention of Hugging Face's models with windows, sinks or soft caps, replaced by the one of `tracing.attention`.

transformers looks up the function for attention, and the one for masks, when a model runs. The masks that are made here
remember which causal window they hold, so that attention needs no mask of all scores. Attention takes them, sinks
(`s_aux`, as in GPT-OSS) and a cap of the scores (`softcap`, as in Gemma 2), which torch's function has not; all else
runs as transformers has it. Masks with padding or of packed samples stay masks.
"""

import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch.utils.weak import WeakTensorKeyDictionary

from alpa_explore.tracing.attention import attention
from alpa_explore.tracing.autocast.regions import lowered

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
