"""Operators on real tensors, and their FLOPs.

`run_operator` is the single definition of what an Operator computes; the proofs of sharding rules and the interpreter
use it.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

import torch
from torch.utils.flop_counter import flop_registry

from alpa_explore.graph import Argument, Operator, Ref, Tensor, counts
from alpa_explore.tracing import attention, attention_blocks, experts  # noqa: F401  # register their operators
from alpa_explore.tracing.fused import ctc, recurrence, rms_norm, scan, selective_scan, wkv  # noqa: F401  # likewise
from alpa_explore.tracing.symbols import called, overload, to_torch

LITERAL = "constant.literal"
"""A tensor written out in the model's code: arguments are its elements (flat) and its shape, keyword `dtype`."""

LAYOUT_DEPENDENT = frozenset(
    {
        "aten._linalg_det.default",
        "aten._linalg_slogdet.default",
        "aten._linalg_solve_ex.default",
        "aten.as_strided.default",
    }
)
"""What these return depends on how their first argument lies in memory. Those of linear algebra factor the transpose of
a matrix where it is contiguous, and the backward pass is traced for one of the two. They read contiguous ones."""

OperatorCall: TypeAlias = Callable[[Mapping[int, torch.Tensor]], tuple[torch.Tensor, ...]]
"""Index of a tensor -> its value, to what the operator returns."""

# An operator runs on the device of its tensors, and no plan depends on these keywords.
DROPPED_KEYWORDS = frozenset({"device", "layout", "pin_memory", "non_blocking"})


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
    return operator_call(operator, device)(tensors)


def operator_call(operator: Operator, device: torch.device | str = "cpu") -> OperatorCall:
    """`run_operator` of one operator, for many runs: constants are resolved once."""
    kind = operator.kind
    if kind.startswith("optimizer."):
        raise ValueError(f"{kind} keeps state between steps: run it with torch.optim")
    given = [*operator.arguments, *(argument for _, argument in operator.keywords)]
    reads = [(place, argument) for place, argument in enumerate(given) if _reads(argument)]
    constants: list[Any] = [None if _reads(argument) else to_torch(argument, {}) for argument in given]
    names, count = tuple(name for name, _ in operator.keywords), len(operator.arguments)
    makes = not operator.inputs and kind != LITERAL and _takes_device(kind)
    fixed: dict[str, Any] = {"device": torch.device(device)} if makes else {}

    def call(tensors: Mapping[int, torch.Tensor]) -> tuple[torch.Tensor, ...]:
        values = constants.copy()
        for place, argument in reads:
            values[place] = tensors[argument.tensor] if type(argument) is Ref else to_torch(argument, tensors)
        arguments, keywords = values[:count], dict(zip(names, values[count:], strict=True)) | fixed
        if kind == LITERAL:
            made = torch.tensor(arguments[0], dtype=keywords["dtype"], device=device).reshape(arguments[1])
            return (made,)
        if kind in LAYOUT_DEPENDENT:
            # The whole tensor was contiguous when it was captured; a weight that was updated, or a shard, may not be.
            arguments[0] = arguments[0].contiguous()
        return called(kind, arguments, keywords)

    return call


def _reads(argument: Argument) -> bool:
    """Whether an argument has tensors."""
    return isinstance(argument, Ref) or (isinstance(argument, tuple) and any(map(_reads, argument)))


def run_on_meta(
    operator: Operator, shapes: Mapping[int, Sequence[int]], dtypes: Mapping[int, str]
) -> tuple[Mapping[int, torch.Tensor], tuple[torch.Tensor, ...]]:
    """Run one operator on shapes alone: (its inputs by tensor index, its outputs), on the meta device. Raises whatever
    the operator does."""
    given = {t: torch.empty(tuple(s), dtype=getattr(torch, dtypes[t]), device="meta") for t, s in shapes.items()}
    return given, run_operator(operator, given, "meta")


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
            real = int(formula(*values, out_val=outputs[0] if len(outputs) == 1 else tuple(outputs)))
            return real * (4 if any(t.is_complex() for t in outputs) else 1)
    return counts.flops(kind, read, made, arguments)


# Memo of a pure function.
@lru_cache(maxsize=1024)
def _takes_device(kind: str) -> bool:
    return any(a.name == "device" for a in overload(kind)._schema.arguments)
