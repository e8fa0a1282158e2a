"""What is asked of discovery, and how it refuses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from alpa_explore.graph import Operator, Tensor

Placements: TypeAlias = tuple[int, ...]
"""One for each input, or each output: a dim, REPLICATE or PARTIAL."""


@dataclass(frozen=True, slots=True)
class Question:
    """An operator on tensors of given shapes and dtypes."""

    operator: Operator
    """Its Refs are the places of its inputs: two places that read one tensor may hold different pieces."""
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]


class RefusalError(Exception):
    """The operator cannot be judged; the message is the reason."""


def short(error: Exception) -> str:
    """The first line of an error."""
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:120]}"


def is_floating(dtype: str) -> bool:
    """True for real floating dtypes: the only ones in which devices hold addends."""
    return dtype.startswith(("float", "bfloat"))
