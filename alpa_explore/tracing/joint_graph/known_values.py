"""Values that a model makes from constants alone: known while it is traced, though all tensors are fake.

A model may read such a value to take a short cut. Those of Hugging Face compare the positions 0, 1, 2, … with each
other, and leave the causal mask to the attention kernel when they find a single sequence. Without the value the model
is traced as for torch.compile and builds a mask of all scores.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils.weak import WeakTensorKeyDictionary

MOST_ELEMENTS = 1 << 20
"""Values of larger tensors are not kept: masks of all scores would take gigabytes. Set by hand."""

_MADE = frozenset({"arange", "full", "ones", "tensor", "zeros"})
_FOLLOWED = frozenset(
    (
        *(
            "add",
            "all",
            "any",
            "bool",
            "cat",
            "clamp",
            "clone",
            "contiguous",
            "cumsum",
            "diff",
            "eq",
            "expand",
            "flatten",
        ),
        *("float", "ge", "gt", "int", "long", "pad"),
        *(
            "le",
            "logical_and",
            "logical_not",
            "logical_or",
            "lt",
            "mul",
            "ne",
            "neg",
            "new_full",
            "new_ones",
            "new_zeros",
        ),
        *("repeat", "reshape", "select"),
        *("squeeze", "stack", "sub", "sum", "to", "unsqueeze", "view", "where", "__add__", "__and__", "__eq__"),
        *("__ge__", "__getitem__", "__gt__", "__invert__", "__le__", "__lt__", "__mul__", "__ne__", "__neg__"),
        *("__or__", "__radd__", "__rmul__", "__rsub__", "__sub__"),
    )
)
_READ = frozenset({"__bool__", "__float__", "__index__", "__int__", "item", "tolist"})
_IN_PLACE = frozenset({"__setitem__", "__iadd__", "__iand__", "__imul__", "__ior__", "__isub__", "__itruediv__"})
"""Names of torch functions: those that make a known tensor, that pass it on, that read it, that write to a tensor."""


class KnownValues:
    """The known values of one run of a model. Nothing random and nothing that depends on inputs or weights is known."""

    def __init__(self) -> None:
        self._real: Any = WeakTensorKeyDictionary()

    def readable(self, function: Any, args: tuple[Any, ...]) -> torch.Tensor | None:
        """The real tensor that the call reads a value of, if that is known."""
        if _name(function) not in _READ or not args or not isinstance(args[0], torch.Tensor):
            return None
        known: torch.Tensor | None = self._real.get(args[0])
        return known

    def follow(self, function: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], result: Any) -> None:
        """Note the value of the tensor that a call returned, if it follows from known ones."""
        name = _name(function)
        if name == "__setitem__" and all(t in self._real for t in _tensors(args)):
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
        if not isinstance(result, torch.Tensor) or result.numel() > MOST_ELEMENTS:
            return
        if not (name in _FOLLOWED or (name in _MADE and not _tensors((args, kwargs)))):
            return
        if any(t not in self._real for t in _tensors((args, kwargs))):
            return
        real_args, real_kwargs = self._replaced(args), self._replaced(dict(kwargs))
        with _disable_current_modes():
            real = function(*real_args, **real_kwargs)
        if real.shape == result.shape and real.dtype == result.dtype:
            self._real[result] = real

    def _replaced(self, value: Any) -> Any:
        """An argument with known tensors in place of fake ones."""
        if isinstance(value, torch.Tensor):
            return self._real[value]
        if isinstance(value, tuple | list):
            return type(value)(self._replaced(v) for v in value)
        if isinstance(value, dict):
            return {k: self._replaced(v) for k, v in value.items()}
        return value


def _name(function: Any) -> str:
    return getattr(function, "__name__", "")


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = tuple(value.values())
    return [t for v in value for t in _tensors(v)] if isinstance(value, tuple | list) else []
