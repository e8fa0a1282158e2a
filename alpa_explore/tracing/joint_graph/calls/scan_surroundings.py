"""What the function of a step reads from around it, found by running it on stand-ins."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

_Tensors = Sequence[torch.Tensor]


def stand_in(tensor: torch.Tensor, first: int = 0) -> torch.Tensor:
    """A stand-in for a tensor, without its first dims."""
    made = torch.empty(tensor.shape[first:], dtype=tensor.dtype, device="cpu")
    return made.requires_grad_(tensor.requires_grad)


def stand_in_carried(tensor: torch.Tensor) -> torch.Tensor:
    """The same for what is carried: after the first step it has a gradient."""
    made = stand_in(tensor.detach())
    return made.requires_grad_(made.is_floating_point())


class Around(TorchFunctionMode):
    """What a step reads from around it: tensors that no call inside has made and that are none of its inputs.

    Inside it sees stand-ins for them. Calls that read nothing else belong around the step, too, unless they draw random
    numbers or write: they are run once, before the scan, and the step sees what stands in for their results.
    """

    def __init__(self) -> None:
        super().__init__()
        self.read: list[torch.Tensor] = []
        """Stand-ins that the step reads itself."""
        self._originals: dict[int, torch.Tensor] = {}
        """By the id of a stand-in the tensor around the step."""
        self._stand_ins: dict[int, torch.Tensor] = {}
        """By the id of a tensor around the step; of a result of `_calls`, which stands for itself, by its own."""
        self._calls: list[tuple[Any, Any, Any] | None] = []
        """(function, arguments, result), of stand-ins; None for a call that is run inside all the same."""
        self._inside: dict[int, torch.Tensor] = {}  # kept, so that no other tensor gets the same id
        self._left: Iterator[tuple[Any, Any, Any] | None] | None = None
        self._given: dict[int, torch.Tensor] | None = None

    @contextmanager
    def recording(self, inputs: _Tensors) -> Iterator[None]:
        """The first run of the step, which finds out what it reads."""
        self._inside = {id(t): t for t in inputs}
        with self:
            yield

    @contextmanager
    def replaying(self, inputs: _Tensors, given: _Tensors) -> Iterator[None]:
        """Another run, with `given` in place of `read`."""
        self._inside, self._left = {id(t): t for t in inputs}, iter(self._calls)
        self._given = {id(one): t for one, t in zip(self.read, given, strict=True)}
        with self:
            yield

    def is_inside(self, result: Any) -> bool:
        """Whether a result of the step is a tensor that it was given or that a call in it made."""
        return isinstance(result, torch.Tensor) and id(result) in self._inside

    def values(self) -> list[torch.Tensor]:
        """The tensors of `read`, where the scan is called."""
        known = dict(self._originals)
        for function, arguments, result in filter(None, self._calls):
            if _tensors(result):
                args, kwargs = tree_map_only(torch.Tensor, lambda t: known[id(t)], arguments)
                made = _tensors(function(*args, **kwargs))
                known.update((id(r), m) for r, m in zip(_tensors(result), made, strict=True))
        return [known[id(t)] for t in self.read]

    def __torch_function__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        arguments = args, kwargs or {}
        read = _tensors(arguments)
        # What is around the step is run without its contexts.
        plain = torch.is_grad_enabled() and not any(torch.is_autocast_enabled(d) for d in ("cpu", "cuda"))
        if plain and read and not any(id(t) in self._inside for t in read):
            call = self._record(function, arguments) if self._left is None else next(self._left, None)
            if call is not None:
                return call[2]
        args, kwargs = tree_map_only(torch.Tensor, self._seen, arguments)
        made = function(*args, **kwargs)
        self._inside.update((id(t), t) for t in _tensors(made))
        return made

    def _record(self, function: Any, arguments: Any) -> tuple[Any, Any, Any] | None:
        """Run a call that reads nothing of the step; None where it must be run in every step."""
        arguments = tree_map_only(torch.Tensor, self._standing_in, arguments)
        with _Repeatable() as watched:  # type: ignore[no-untyped-call]  # torch has no annotation
            made = function(*arguments[0], **arguments[1])
        call = (function, arguments, made) if watched.repeatable else None
        self._calls.append(call)
        if call is not None:
            self._stand_ins.update((id(t), t) for t in _tensors(made))
        return call

    def _standing_in(self, tensor: torch.Tensor) -> torch.Tensor:
        found = self._stand_ins.get(id(tensor))
        if found is None:
            found = self._stand_ins[id(tensor)] = stand_in(tensor)
            self._originals[id(found)] = tensor
            self._stand_ins[id(found)] = found
        return found

    def _seen(self, tensor: torch.Tensor) -> torch.Tensor:
        if id(tensor) in self._inside:
            return tensor
        if self._given is not None:  # a tensor that no run has shown before stays: it becomes a constant
            known = self._stand_ins.get(id(tensor))
            return tensor if known is None else self._given.get(id(known), tensor)
        found = self._standing_in(tensor)
        if not any(t is found for t in self.read):
            self.read.append(found)
        return found


class _Repeatable(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch has no annotation
    """Whether calls give the same whenever they are run: they draw no random numbers and write into no tensor."""

    repeatable = True

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if torch.Tag.nondeterministic_seeded in func.tags or func._schema.is_mutable:
            self.repeatable = False
        return func(*args, **(kwargs or {}))


def _tensors(values: Any) -> list[torch.Tensor]:
    return [t for t in tree_leaves(values) if isinstance(t, torch.Tensor)]
