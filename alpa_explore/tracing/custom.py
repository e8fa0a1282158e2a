"""Operators of this package: functions that torch knows by a name, with the shapes of what they make and gradients.

They change none of their arguments, and exist as `torch.ops.alpa_explore.NAME` once their module is imported.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._library.custom_ops import CustomOpDef
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

Function = Callable[..., Any]


def operator(shapes: Function, schema: str | None = None) -> Callable[[Function], CustomOpDef]:
    """A function as the operator of its name; `shapes` makes empty tensors like its results from its arguments.

    `schema`, 'NAME(Tensor x, …) -> …': where name and annotations of the function do not say it.
    """

    def registered(function: Function) -> CustomOpDef:
        name, bracket, rest = (schema or function.__name__).partition("(")
        signature = bracket + rest or None
        made = torch.library.custom_op(f"alpa_explore::{name}", function, mutates_args=(), schema=signature)
        made.register_fake(shapes)
        return made

    return registered


def gradients(of: CustomOpDef, *, made: Sequence[int] = (0,)) -> Callable[[Function], Function]:
    """The function (inputs, outputs, gradients of the outputs at the places `made`) -> gradients of the first inputs as
    the derivative of an operator; the other inputs have none. A gradient that is None is zero; where all are, nothing
    is computed."""

    def registered(function: Function) -> Function:
        def keep(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
            leaves, ctx.form = tree_flatten((inputs, output))
            ctx.others = [None if isinstance(leaf, Tensor) else leaf for leaf in leaves]
            ctx.places = [place for place, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]
            ctx.save_for_backward(*(leaves[place] for place in ctx.places))
            if isinstance(output, tuple):
                ctx.mark_non_differentiable(*(t for place, t in enumerate(output) if place not in made))
            ctx.set_materialize_grads(False)

        def differentiate(ctx: Any, *given: Tensor | None) -> tuple[Any, ...]:
            leaves = list(ctx.others)
            for place, tensor in zip(ctx.places, ctx.saved_tensors, strict=True):
                leaves[place] = tensor
            inputs, output = tree_unflatten(leaves, ctx.form)
            wanted = [given[place] for place in made]
            found = () if all(g is None for g in wanted) else function(inputs, output, *wanted)
            rest = ([None] * len(x) if _tensors(x) else None for x in inputs[len(found) :])
            return (*found, *rest)

        of.register_autograd(differentiate, setup_context=keep)
        return function

    return registered


def _tensors(value: Any) -> bool:
    """Whether a value is a list of tensors, whose gradients are a list too."""
    return isinstance(value, list | tuple) and any(isinstance(leaf, Tensor) for leaf in tree_leaves(value))


def like(*tensors: Tensor | None) -> list[Tensor]:
    """Empty tensors of the shapes and dtypes of those that are given."""
    return [t.new_empty(t.shape) for t in tensors if t is not None]


def wide(*dtypes: torch.dtype) -> torch.dtype:
    """The dtype in which values of these are computed, where that is not theirs: fp32, or fp64 with one of them."""
    return torch.float64 if torch.float64 in dtypes else torch.float32
