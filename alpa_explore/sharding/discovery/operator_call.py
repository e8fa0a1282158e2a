"""The operator under test, and the error for one that cannot be tested."""

from dataclasses import dataclass
from typing import TypeAlias

from alpa_explore.graph import Operator, Tensor

Placements: TypeAlias = tuple[int, ...]
"""For each input, or each output: the dim that is sharded, REPLICATE or PARTIAL."""


@dataclass(frozen=True, slots=True)
class OperatorCall:
    """An operator on tensors of given shapes and dtypes."""

    operator: Operator
    """Its Refs are input positions: two positions that read one tensor may hold different shards of it."""
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]


class UnsupportedOperatorError(Exception):
    """The operator cannot be tested; the message is the reason."""


def short(error: Exception) -> str:
    """The class and the first line of an error, at most 120 characters of it."""
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:120]}"
