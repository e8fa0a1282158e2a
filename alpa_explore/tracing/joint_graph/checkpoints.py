"""Calls of `torch.utils.checkpoint` in a model: what they compute is traced once, and which modules they recompute.

The planner prices recomputation itself, so the trace has the forward pass without it, and the graph the regions that
the model recomputes. Both forms of torch end here, whatever name the model knows them by (`checkpoint`,
`checkpoint_sequential`, `gradient_checkpointing_enable` of transformers, wrappers of modules).

A region is known by its modules: the one that is checkpointed, or those that a checkpointed function calls first. What
such a function computes beside them is not recomputed in a plan; a remark says so.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch.utils import checkpoint as torchs

from alpa_explore.tracing.joint_graph.locate import TracePosition


@dataclass(slots=True, kw_only=True)
class Checkpoints:
    """The regions of one forward pass."""

    model: nn.Module
    place: TracePosition
    inputs_need_gradients: bool
    """Whether an example input requires a gradient: the fake inputs of a trace do not."""
    regions: list[tuple[str, ...]] = field(default_factory=list)
    parts: dict[str, dict[str, None]] = field(default_factory=dict)
    """Name of a checkpointed function that is no whole module -> the modules that it calls."""
    chooses: bool = False
    """Whether a checkpoint chooses tensors to keep."""

    @property
    def remarks(self) -> tuple[str, ...]:
        """What a plan does not recompute as the model does."""
        remarks = []
        for name, modules in self.parts.items():
            shown = ", ".join(list(modules)[:3]) + (f" and {len(modules) - 3} more" if len(modules) > 3 else "")
            remarks.append(
                f"the model checkpoints the function {name}, which is known by the modules that it calls: a plan "
                f"recomputes {shown or 'nothing, because it calls none'}"
            )
        if self.chooses:
            remarks.append(
                "a checkpoint of the model chooses by context_fn which tensors it keeps, which is not followed: a plan "
                "recomputes all of its modules"
            )
        return tuple(remarks)

    @contextmanager
    def followed(self) -> Iterator[None]:
        """While this is entered, checkpoints of torch run what they are given, and are noted."""
        self.regions.clear()
        self.parts.clear()
        self.chooses = False
        with (
            patch.object(torchs, "CheckpointFunction", self),
            patch.object(torchs, "_checkpoint_without_reentrant_generator", self._other_form),
        ):
            yield

    def apply(self, function: Callable[..., Any], preserve: bool, *args: Any) -> Any:
        """In place of `CheckpointFunction`, the form that needs an input with a gradient, or else computes none."""
        tensors = [value for value in args if isinstance(value, Tensor)]
        if not self.inputs_need_gradients and not any(t.requires_grad for t in tensors):
            with torch.no_grad():
                return function(*args)
        with self._noted(function):
            return function(*args)

    def _other_form(
        self, function: Callable[..., Any], preserve: bool, context_fn: Any, *others: Any, **kwargs: Any
    ) -> Iterator[None]:
        self.chooses |= context_fn is not torchs.noop_context_fn
        with self._noted(function):
            yield

    @contextmanager
    def _noted(self, function: Callable[..., Any]) -> Iterator[None]:
        whole = self._path(function)
        outer = len(self.place.modules)
        entered: dict[str, None] = {}
        with ExitStack() as stack:
            if whole is not None:  # a method of a module runs none of its hooks
                self.place.modules.append(whole)
                stack.callback(self._left, outer)
            stack.enter_context(
                self.place.entering(lambda path: entered.setdefault(path) if len(self.place.modules) == outer else None)
            )
            yield
        if whole is not None:
            self.regions.append((whole,))
            return
        name = getattr(function, "__qualname__", type(function).__name__)
        if entered:
            self.regions.append(tuple(entered))
        if not name.startswith("checkpoint_sequential"):  # runs modules and nothing else
            self.parts.setdefault(name, {}).update(entered)

    def _left(self, outer: int) -> None:
        del self.place.modules[outer:]

    def _path(self, function: Any) -> str | None:
        """The path of the module that a function runs as a whole; None for another function."""
        given: tuple[Any, ...] = ()
        while isinstance(function, partial):
            function, given = function.func, (*function.args, *given)
        module = function if isinstance(function, nn.Module) else getattr(function, "__self__", next(iter(given), None))
        if not isinstance(module, nn.Module):
            return None
        path = next((path for path, known in self.model.named_modules() if known is module), None)
        # A method of the module that is running computes a part of it.
        return (
            None
            if path == self.place.module and not isinstance(function, nn.Module) and not _is_call(function)
            else path
        )


def _is_call(function: Any) -> bool:
    """Whether a method is a whole module: its `forward`, or the call of it."""
    return getattr(function, "__name__", "") in ("forward", "__call__", "_wrapped_call_impl", "_call_impl")
