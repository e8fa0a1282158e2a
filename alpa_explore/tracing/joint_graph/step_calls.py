"""The ATen calls of a forward and backward pass on fake tensors, not traced: a fifth of the time of a joint trace."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch._subclasses import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from alpa_explore.tracing.cancelling import stop_if_cancelled
from alpa_explore.tracing.joint_graph.trace import Run, as_traced, with_values_read
from alpa_explore.tracing.symbols import tensors_in

Call = tuple[str, tuple[int, ...]]
"""A call as text, with `#` for every tensor it reads or makes, and the numbers of those tensors."""


@dataclass(frozen=True, slots=True)
class StepCalls:
    """The calls of one training step, in order. Tensors are numbered as in the step's tensors, then as they appear."""

    forward: list[Call]
    backward: list[Call]
    """Hooks, gradient modes and the backward of an own `autograd.Function` show only here."""
    gradients: list[Call]
    """For each tensor that requires a gradient that tensor and its gradient, if it has one."""


def step_calls(run: Run, tensors: Sequence[Tensor], mode: FakeTensorMode) -> StepCalls:
    """The calls of `run(tensors)` and of the backward pass from its result to the tensors that require gradients."""

    def recorded() -> StepCalls:
        recorder = _Recorder(tensors)
        with as_traced(), mode, recorder:
            loss, *_ = run(tensors)
            forward = len(recorder.calls)
            wanted = [tensor for tensor in tensors if tensor.requires_grad]
            gradients = torch.autograd.grad(loss, wanted, allow_unused=True)
        made = [recorder.described(pair) for pair in zip(wanted, gradients, strict=True)]
        return StepCalls(recorder.calls[:forward], recorder.calls[forward:], made)

    return with_values_read(recorded)


def changes(run: Run, tensors: Sequence[Tensor], mode: FakeTensorMode) -> bool:
    """Whether `run(tensors)` makes other calls the second time, or reads what the first one made and kept in the
    model."""

    def forward() -> _Recorder:
        recorder = _Recorder(tensors)
        with as_traced(), mode, recorder:
            run(tensors)
        return recorder

    first, second = with_values_read(forward), with_values_read(forward)
    return first.calls != second.calls or not first.made.isdisjoint(second.read)


class _Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch has no annotation
    def __init__(self, tensors: Sequence[Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch has no annotation
        self.calls: list[Call] = []
        self._seen = list(tensors)  # kept, so that no other tensor gets the same id
        self._number = {id(tensor): number for number, tensor in enumerate(tensors)}
        self.read: set[int] = set()
        """Ids of what calls read that none has made."""
        self.made: set[int] = set()
        """Ids of what calls have made."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        stop_if_cancelled()
        result = func(*args, **(kwargs or {}))
        if func.namespace == "prim":  # reads the device or the layout of a tensor
            return result
        self.read |= {id(t) for t in tensors_in((args, kwargs))} - self.made
        made = (id(t) for t in tensors_in(result))
        self.made |= {key for key in made if key not in self._number}  # `-` would go through all numbers
        self.calls.append(self.described((str(func), args, sorted((kwargs or {}).items()), result)))
        return result

    def described(self, value: object) -> Call:
        """A value that holds tensors, as a call."""
        numbers: list[int] = []
        text = self._text(value, numbers)
        return text, tuple(numbers)

    def _text(self, value: object, numbers: list[int]) -> str:
        if isinstance(value, Tensor):
            if id(value) not in self._number:
                self._number[id(value)] = len(self._seen)
                self._seen.append(value)
            numbers.append(self._number[id(value)])
            return f"# {tuple(value.shape)} {value.dtype}"
        if isinstance(value, list | tuple):
            return f"({', '.join(self._text(part, numbers) for part in value)})"
        return f"{type(value).__name__} {value!r}"
