"""Values that a model makes from constants alone: known while it is traced, though all tensors are fake.

A model may read such a value to take a short cut. Those of Hugging Face compare the positions 0, 1, 2, … with each
other, and leave the causal mask to the attention kernel when they find a single sequence. Without the value the model
is traced as for torch.compile and builds a mask of all scores.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_map_only
from torch.utils.weak import WeakTensorKeyDictionary

from alpa_explore.tracing.symbols import tensors_in

MOST_ELEMENTS = 1 << 20
"""Values of larger tensors are not kept: masks of all scores would take gigabytes."""

_MADE = frozenset({"arange", "eye", "full", "ones", "tensor", "zeros"})
_FILLED = frozenset({"full_like", "new_full", "new_ones", "new_zeros", "ones_like", "zeros_like"})
_FOLLOWED = frozenset(
    """
    add all any bool cat clamp clone contiguous cumsum diff eq expand flatten float ge gt int le logical_and
    logical_not logical_or long lt mul ne neg pad repeat reshape select squeeze stack sub sum to tril triu unsqueeze
    view where __add__ __and__ __eq__ __ge__ __getitem__ __gt__ __invert__ __le__ __lt__ __mul__ __ne__ __neg__
    __or__ __radd__ __rmul__ __rsub__ __sub__
    """.split()
)
_READ = frozenset({"__bool__", "__float__", "__index__", "__int__", "item", "tolist"})
_IN_PLACE = frozenset({"__setitem__", "__iadd__", "__iand__", "__imul__", "__ior__", "__isub__", "__itruediv__"})
"""Names of torch functions: those that make a known tensor, that fill one of the shape of any other, that pass a known
one on, that read it, that write to a tensor."""


class KnownValues:
    """The known values of one run of a model. Nothing random and nothing that depends on inputs or weights is known."""

    def __init__(self) -> None:
        self._real: Any = WeakTensorKeyDictionary()

    def readable(self, function: Any, args: tuple[Any, ...]) -> Tensor | None:
        """The real tensor that the call reads a value of, if that is known."""
        if _name(function) not in _READ or not args or not isinstance(args[0], Tensor):
            return None
        known: Tensor | None = self._real.get(args[0])
        return known

    def places(self, function: Any, args: tuple[Any, ...]) -> tuple[list[int], ...] | None:
        """Where a mask that is known is true, by dim, for `x[mask]` and `masked_select(x, mask)`; else None."""
        if _name(function) not in ("__getitem__", "masked_select") or len(args) != 2:
            return None
        values, mask = args
        if not (isinstance(mask, Tensor) and mask.dtype == torch.bool and mask.dim() and mask in self._real):
            return None
        covered = values.shape if _name(function) == "masked_select" else values.shape[: mask.dim()]
        if mask.shape != covered:
            return None
        with _disable_current_modes():
            return tuple(place.tolist() for place in self._real[mask].nonzero(as_tuple=True))

    def follow(self, function: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], result: Any) -> None:
        """Note the value of the tensor that a call returned, if it follows from known ones."""
        name = _name(function)
        if name == "__setitem__" and all(t in self._real for t in tensors_in(args)):
            target, place, value = self._replaced(args)
            with _disable_current_modes():
                target = target.clone()
                target[place] = value
            self._real.clear()  # others may share its memory
            self._real[args[0]] = target
            return
        if name in _IN_PLACE or (name.endswith("_") and not name.endswith("__")) or "out" in kwargs:
            self._real.clear()  # one of them may be the tensor that was written to, or share its memory
            return
        if not isinstance(result, Tensor) or result.numel() > MOST_ELEMENTS:
            return
        if name in _FILLED and not tensors_in((args[1:], kwargs)):  # of the first argument only the shape is read
            with _disable_current_modes():
                fill = _fill_of(name, args, kwargs)
                self._real[result] = torch.full(tuple(result.shape), fill, dtype=result.dtype)
            return
        if not (name in _FOLLOWED or (name in _MADE and not tensors_in((args, kwargs)))):
            return
        if any(t not in self._real for t in tensors_in((args, kwargs))):
            return
        real_args, real_kwargs = self._replaced((args, dict(kwargs)))
        with _disable_current_modes():
            real = function(*real_args, **real_kwargs)
        if real.shape == result.shape and real.dtype == result.dtype:
            self._real[result] = real

    def _replaced(self, values: Any) -> Any:
        """Arguments with known tensors in place of fake ones."""
        return tree_map_only(Tensor, self._real.__getitem__, values)


def _fill_of(name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """The number of which a call of `_FILLED` makes a tensor."""
    if "full" not in name:
        return int("ones" in name)
    return kwargs["fill_value"] if "fill_value" in kwargs else args[-1]


def _name(function: Any) -> str:
    return getattr(function, "__name__", "")
