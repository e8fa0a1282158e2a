"""Arguments of ATen calls as frozen values and back: constants become Symbols."""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, fx
from torch.utils._pytree import tree_leaves

from alpa_explore.graph import Argument, Ref, Symbol

_PREFIX = {torch.dtype: "dtype", torch.layout: "layout", torch.memory_format: "memory_format"}


def to_symbol(value: object) -> Symbol | None:
    """The Symbol of a torch constant or complex number, None if `value` is neither."""
    for kind, name in _PREFIX.items():
        if isinstance(value, kind):
            return Symbol(name, str(value).removeprefix("torch."))
    if isinstance(value, torch.device):
        return Symbol("device", str(value))
    if isinstance(value, complex):
        return Symbol("complex", repr(value))
    return None


def tensors_in(values: Any) -> list[Tensor]:
    """The tensors in some values and their containers."""
    return [leaf for leaf in tree_leaves(values) if isinstance(leaf, Tensor)]


def frozen(value: Any, of_node: Callable[[fx.Node], Any]) -> Any:
    """An argument of a traced call as a frozen value, with `of_node` of each node in it."""
    if isinstance(value, fx.Node):
        return of_node(value)
    if isinstance(value, list | tuple):
        return tuple(frozen(part, of_node) for part in value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    symbol = to_symbol(value)
    assert symbol is not None, f"an argument of type {type(value).__name__} is not supported"
    return symbol


def from_symbol(symbol: Symbol) -> object:
    """The torch constant that a Symbol stands for."""
    if symbol.kind == "device":
        return torch.device(symbol.value)
    if symbol.kind == "complex":
        return complex(symbol.value)
    assert symbol.kind in _PREFIX.values(), f"unknown symbol kind {symbol.kind!r}"
    return getattr(torch, symbol.value)


def to_torch(argument: Argument, tensors: Mapping[int, Tensor]) -> Any:
    """An argument in the form that torch takes: Refs looked up in `tensors`, Symbols resolved, tuples as lists."""
    if isinstance(argument, Ref):
        return tensors[argument.tensor]
    if isinstance(argument, Symbol):
        return from_symbol(argument)
    if isinstance(argument, tuple):
        return [to_torch(a, tensors) for a in argument]
    return argument


# Memo of a pure function.
@lru_cache(maxsize=1024)
def overload(kind: str) -> Any:
    """The torch operator of a kind: 'aten.mm.default' -> torch.ops.aten.mm.default. AttributeError if there is none."""
    namespace, name, overload_name = kind.split(".")
    return getattr(getattr(getattr(torch.ops, namespace), name), overload_name)


def called(kind: str, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> tuple[Tensor, ...]:
    """The tensors that a call returns."""
    if kind == "aten.view.default":
        # The captured view was legal for the strides of the whole tensor; those of a shard or a copy may differ.
        return (arguments[0].reshape(arguments[1]),)
    return _flatten_outputs(unmasked(kind, arguments, overload(kind)(*arguments, **keywords)))


def unmasked(kind: str, arguments: Sequence[Any], result: Any) -> Any:
    """The result of a call with None for what its mask disables: on meta tensors the backward pass of batch norm makes
    the gradient of its input even where that is the input of the model."""
    if kind != "aten.native_batch_norm_backward.default":
        return result
    return tuple(made if asked else None for made, asked in zip(result, arguments[-1], strict=True))


def _flatten_outputs(result: object) -> tuple[Tensor, ...]:
    """The result of an ATen call as a flat tuple of tensors; outputs that a mask disabled (None) are left out."""
    if isinstance(result, Tensor):
        return (result,)
    if isinstance(result, Sequence):
        return tuple(t for part in result for t in _flatten_outputs(part))
    assert result is None, f"an operator returned {type(result).__name__}"
    return ()
