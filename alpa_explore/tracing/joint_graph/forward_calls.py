"""The ATen calls of a forward pass on fake tensors, without its backward: a tenth of the time of a joint trace."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch._subclasses import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from alpa_explore.tracing.cancelling import stop_if_cancelled
from alpa_explore.tracing.joint_graph.trace import Run, as_traced, with_values_read

Call = tuple[str, tuple[int, ...]]
"""A call as text, with `#` for every tensor it reads or makes, and the numbers of those tensors."""


def forward_calls(run: Run, tensors: Sequence[torch.Tensor], mode: FakeTensorMode) -> list[Call]:
    """The calls of `run(tensors)` in order. Tensors are numbered as in `tensors`, then as they appear."""

    def recorded() -> list[Call]:
        recorder = _Recorder(tensors)
        with as_traced(), mode, recorder:
            run(tensors)
        return recorder.calls

    return with_values_read(recorded)


class _Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch has no annotation
    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch has no annotation
        self.calls: list[Call] = []
        self._seen = list(tensors)  # kept, so that no other tensor gets the same id
        self._number = {id(tensor): number for number, tensor in enumerate(tensors)}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        stop_if_cancelled()
        result = func(*args, **(kwargs or {}))
        if func.namespace == "prim":  # reads the device or the layout of a tensor
            return result
        numbers: list[int] = []
        text = self._text((str(func), args, sorted((kwargs or {}).items()), result), numbers)
        self.calls.append((text, tuple(numbers)))
        return result

    def _text(self, value: object, numbers: list[int]) -> str:
        if isinstance(value, torch.Tensor):
            if id(value) not in self._number:
                self._number[id(value)] = len(self._seen)
                self._seen.append(value)
            numbers.append(self._number[id(value)])
            return f"# {tuple(value.shape)} {value.dtype}"
        if isinstance(value, list | tuple):
            return f"({', '.join(self._text(part, numbers) for part in value)})"
        return f"{type(value).__name__} {value!r}"
