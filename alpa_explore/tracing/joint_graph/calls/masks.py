"""What a model reads and writes at the places of a mask, in forms that have a shape before they run.

`x[mask] = value` is a choice between `value` and x; torch's own backward pass of it counts the places. What
`masked_select` finds in rows of whole numbers is kept as rows, the selected entries first, for `ctc_calls` alone.
"""

from __future__ import annotations

from typing import Any

import torch
from torch._subclasses.fake_tensor import DynamicOutputShapeException
from torch.utils.weak import WeakTensorKeyDictionary

SELECT = (torch.masked_select, torch.Tensor.masked_select)


class SelectedRows:
    """What one run of a model has selected from rows of whole numbers."""

    def __init__(self) -> None:
        self._rows: Any = WeakTensorKeyDictionary()

    def select(self, values: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """The selected values as rows, padded behind; torch's own where the values are no rows of whole numbers."""
        if values.dim() != 2 or values.shape != mask.shape or values.is_floating_point():
            return torch.masked_select(values, mask)
        rows = values.gather(1, torch.argsort(mask.logical_not().to(torch.int8), dim=1, stable=True))
        self._rows[rows] = True
        return rows

    def refuse(self, args: tuple[object, ...]) -> None:
        """Raises torch's own exception where an argument is what was selected: its shape is not known."""
        if self._rows and any(isinstance(a, torch.Tensor) and a in self._rows for a in args):
            raise DynamicOutputShapeException(torch.ops.aten.masked_select.default)


def written(function: Any, args: tuple[Any, ...]) -> bool:
    """Whether the call was `x[mask] = value` with one value for all places, which is done here then."""
    if function is not torch.Tensor.__setitem__:
        return False
    target, mask, value = args
    if not isinstance(mask, torch.Tensor) or mask.dtype != torch.bool or mask.shape != target.shape[: mask.dim()]:
        return False
    inner = target.shape[mask.dim() :]
    if isinstance(value, torch.Tensor):
        if value.dim() > len(inner):  # a value for each place: their number is not known
            return False
        value = value.to(target.dtype)
    target.copy_(torch.where(mask[(...,) + (None,) * len(inner)], value, target))
    return True
