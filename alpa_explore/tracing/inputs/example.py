"""Example inputs as a flat list of named tensors, and back to the arguments of model and loss."""

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from alpa_explore.errors import CaptureError
from alpa_explore.tracing.inputs.losses import Division, Loss, divide
from alpa_explore.tracing.symbols import tensors_in


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """One microbatch: its tensors in order with their names, and the structure of the call that they belong to."""

    names: tuple[str, ...]
    tensors: tuple[Tensor, ...]
    leaves: tuple[Any, ...]
    structure: pytree.TreeSpec

    @property
    def samples(self) -> int:
        """First dim of the first tensor that has one."""
        return next((int(t.shape[0]) for t in self.tensors if t.dim()), 1)

    @property
    def tokens(self) -> int:
        """Elements of the first integer tensor of rank 2, else `samples`."""
        whole = (t for t in self.tensors if t.dim() == 2 and not t.is_floating_point() and t.dtype != torch.bool)
        return next((t.numel() for t in whole), self.samples)

    def rebuild(self, tensors: Sequence[Tensor]) -> Division:
        """The call with `tensors` in place of those of the example."""
        rest = iter(tensors)
        leaves = [next(rest) if isinstance(leaf, Tensor) else leaf for leaf in self.leaves]
        arguments, keywords, targets = pytree.tree_unflatten(leaves, self.structure)
        return Division(arguments=arguments, keywords=keywords, targets=targets)


def flatten_example(
    model: nn.Module, example_inputs: tuple[Any, ...] | Mapping[str, Any] | Tensor, loss: Loss
) -> Example:
    """Divide the example inputs between model and loss and flatten them. CaptureError when they contain no tensor."""
    if isinstance(example_inputs, Tensor):
        example_inputs = (example_inputs,)
    if isinstance(example_inputs, list):
        example_inputs = tuple(example_inputs)
    if not isinstance(example_inputs, tuple | Mapping):
        raise CaptureError(
            "The example inputs are not a tuple or a dict",
            found=type(example_inputs).__name__,
            remedy="Pass (input, …) or {'input_ids': …, 'labels': …}.",
        )
    division = divide(example_inputs, loss)
    leaves_by_path, structure = pytree.tree_flatten_with_path((division.arguments, division.keywords, division.targets))
    forward = list(inspect.signature(model.forward).parameters)
    named_leaves = [(_name(path, forward), leaf) for path, leaf in leaves_by_path]
    for name, leaf in named_leaves:
        if type(leaf).__module__ == "numpy":
            raise CaptureError(
                "An example input is a NumPy value", found=name, remedy="Pass tensors: torch.from_numpy(array)."
            )
        if not isinstance(leaf, Tensor) and _holds_tensors(leaf):
            # They would be constants of the graph, the same in every microbatch.
            raise CaptureError(
                "An example input holds tensors that cannot be seen from outside",
                found=f"{name}: {type(leaf).__name__}",
                remedy="Pass its tensors as arguments, or in a dict, list, tuple or named tuple; or register the class"
                " with torch.utils._pytree (register_dataclass, register_pytree_node).",
            )
    tensors = [(name, leaf) for name, leaf in named_leaves if isinstance(leaf, Tensor)]
    if not tensors:
        raise CaptureError(
            "The example inputs hold no tensor",
            found=repr(example_inputs)[:80],
            remedy="Pass one microbatch of tensors.",
        )
    return Example(
        names=tuple(n for n, _ in tensors),
        tensors=tuple(t for _, t in tensors),
        leaves=tuple(v for _, v in named_leaves),
        structure=structure,
    )


def microbatch_tensors(inputs: tuple[Any, ...] | Mapping[str, Any] | Tensor, loss: Loss) -> list[Tensor]:
    """The tensors of a microbatch, in the order of `flatten_example`."""
    given = (inputs,) if isinstance(inputs, Tensor) else inputs
    division = divide(tuple(given) if isinstance(given, list) else given, loss)
    return tensors_in((division.arguments, division.keywords, division.targets))


def _holds_tensors(value: object, depth: int = 4) -> bool:
    """Whether a container or an object that torch's pytree does not open has a tensor inside."""
    if isinstance(value, Tensor):
        return True
    if not depth or isinstance(value, nn.Module | type | str | bytes) or callable(value):
        return False
    parts: list[Any] = list(getattr(value, "__dict__", {}).values())
    parts += [getattr(value, name, None) for name in getattr(type(value), "__slots__", ())]
    if isinstance(value, Mapping):
        parts += value.values()
    elif isinstance(value, list | tuple | set | frozenset):
        parts += value
    return any(_holds_tensors(part, depth - 1) for part in parts)


def _name(path: Any, forward: list[str]) -> str:
    """The name of a leaf: the argument of `forward` that it belongs to, and its path inside that."""
    steps: list[Any] = [getattr(step, "key", getattr(step, "idx", None)) for step in path]
    group, rest = steps[0], steps[1:]
    if group == 0 and rest:
        rest[0] = forward[rest[0]] if rest[0] < len(forward) else f"input{rest[0]}"
    elif group == 2:
        rest = ["target", *(rest[1:] if rest[:1] == [0] else rest)]
    return ".".join(map(str, rest))
