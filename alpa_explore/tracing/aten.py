"""ATen calls as frozen Operators and back: constants become Symbols, and an Operator can be run on real tensors.

`run_operator` is the single definition of what an Operator computes; the proofs of sharding rules and the interpreter
use it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import torch
from torch.utils.flop_counter import flop_registry

from alpa_explore.graph import Argument, Operator, Ref, Symbol, Tensor, counts
from alpa_explore.tracing import attention, attention_blocks, experts, zigzag  # noqa: F401  # register their operators
from alpa_explore.tracing.fused import ctc, recurrence, rms_norm, selective_scan, wkv  # noqa: F401  # likewise

LITERAL = "constant.literal"
"""A tensor written out in the model's code: arguments are its elements (flat) and its shape, keyword `dtype`."""

_PREFIX = {torch.dtype: "dtype", torch.layout: "layout", torch.memory_format: "memory_format"}
# An operator runs on the device of its tensors, and no plan depends on these keywords.
DROPPED_KEYWORDS = frozenset({"device", "layout", "pin_memory", "non_blocking"})


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


def from_symbol(symbol: Symbol) -> object:
    """The torch constant that a Symbol stands for."""
    if symbol.kind == "device":
        return torch.device(symbol.value)
    if symbol.kind == "complex":
        return complex(symbol.value)
    assert symbol.kind in _PREFIX.values(), f"unknown symbol kind {symbol.kind!r}"
    return getattr(torch, symbol.value)


def to_torch(argument: Argument, tensors: Mapping[int, torch.Tensor]) -> Any:
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


# Memo of a pure function.
@lru_cache(maxsize=1024)
def draws(kind: str) -> bool:
    """Whether an operator draws random numbers."""
    is_aten = kind != LITERAL and not kind.startswith("optimizer.")
    return is_aten and torch.Tag.nondeterministic_seeded in overload(kind).tags


def run_operator(
    operator: Operator, tensors: Mapping[int, torch.Tensor], device: torch.device | str = "cpu"
) -> tuple[torch.Tensor, ...]:
    """Run one forward or backward operator; the tensors it returns, in the order of `operator.outputs`.

    `tensors` maps tensor index -> value and must hold `operator.inputs`. `device` is where an operator without inputs
    (arange, zeros) makes its output. Random operators draw from torch's generator. Optimizer operators keep state
    between steps and are not run here: ValueError.
    """
    if operator.kind.startswith("optimizer."):
        raise ValueError(f"{operator.kind} keeps state between steps: run it with torch.optim")
    arguments = [to_torch(a, tensors) for a in operator.arguments]
    keywords = {name: to_torch(a, tensors) for name, a in operator.keywords}
    if operator.kind == LITERAL:
        made = torch.tensor(arguments[0], dtype=keywords["dtype"], device=device).reshape(arguments[1])
        return (made,)
    if operator.kind == "aten.view.default":
        # The captured view was legal for the strides of the whole tensor; those of a shard or a copy may differ.
        return (arguments[0].reshape(arguments[1]),)
    if not operator.inputs and _takes_device(operator.kind):
        keywords["device"] = torch.device(device)
    return flatten_outputs(overload(operator.kind)(*arguments, **keywords))


def flatten_outputs(result: object) -> tuple[torch.Tensor, ...]:
    """The result of an ATen call as a flat tuple of tensors; outputs that a mask disabled (None) are left out."""
    if isinstance(result, torch.Tensor):
        return (result,)
    if isinstance(result, Sequence):
        return tuple(t for part in result for t in flatten_outputs(part))
    assert result is None, f"an operator returned {type(result).__name__}"
    return ()


def operator_flops(
    kind: str,
    read: Sequence[Tensor],
    made: Sequence[Tensor],
    arguments: Sequence[Argument],
    values: Sequence[Any],
    outputs: Sequence[torch.Tensor],
) -> int:
    """FLOPs of the whole operator, from `graph.counts`; of kinds that it lacks, from torch's flop registry.

    `values` are the arguments in torch's form and `outputs` the results, on fake or meta tensors.
    """
    if not counts.is_matrix_product(kind) and kind != LITERAL:
        formula = flop_registry.get(overload(kind).overloadpacket)
        if formula is not None:
            return int(formula(*values, out_val=outputs[0] if len(outputs) == 1 else tuple(outputs)))
    return counts.flops(kind, read, made, arguments)


# Memo of a pure function.
@lru_cache(maxsize=1024)
def _takes_device(kind: str) -> bool:
    return any(a.name == "device" for a in overload(kind)._schema.arguments)
