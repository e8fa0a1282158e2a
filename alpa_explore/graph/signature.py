"""The signature of an operator, without names: operators of equal signature have equal strategies and costs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from alpa_explore.graph.operator import Operator, Ref
from alpa_explore.graph.tensor import Tensor


def operator_signature(operator: Operator, tensors: Sequence[Tensor] | Mapping[int, Tensor]) -> tuple[object, ...]:
    """Everything that strategies and their costs depend on; no names and no tensor numbers."""
    places = {t: i for i, t in enumerate(dict.fromkeys(operator.inputs))}
    return (
        operator.kind,
        _strip(operator.arguments, places),
        tuple((name, _strip(value, places)) for name, value in operator.keywords),
        tuple((tensors[t].shape, tensors[t].dtype) for t in operator.inputs),
        tuple((tensors[t].shape, tensors[t].dtype) for t in operator.outputs),
        operator.flops,
        operator.bytes_accessed,
        operator.launches,
        operator.stored,
        operator.low,
        operator.joined,
    )


def _strip(argument: object, places: dict[int, int]) -> object:
    """`argument` with tensor numbers replaced by their position among the operator's own inputs."""
    if isinstance(argument, Ref):
        return ("tensor", places[argument.tensor])
    if isinstance(argument, tuple):
        return tuple(_strip(a, places) for a in argument)
    # 1, 1.0 and True are equal in Python but not to an operator.
    return (type(argument).__name__, argument if not (isinstance(argument, float) and math.isnan(argument)) else "nan")
