"""The scalar loss of a model's output, and the division of example inputs between model and loss.

Without `loss` the model returns its own: a scalar, an object or dict with `loss` (Hugging Face), or a tuple whose first
entry is a scalar. A `loss` callable is called as loss(output, *targets), where the targets are the last of the
example inputs, as many as it has required arguments after the first; of keyword inputs the one named 'labels',
'targets' or 'target' is the target. A loss by name ('cross_entropy', 'mse') has one target and is applied to the
output's `logits`, where it has them.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.nn import functional

from alpa_explore.errors import CaptureError, nearest_names

Loss: TypeAlias = "str | Callable[..., Tensor] | None"
TARGET_NAMES = ("labels", "targets", "target")


@dataclass(frozen=True, slots=True, kw_only=True)
class Division:
    """Example inputs divided into the arguments of the model and the targets of the loss."""

    arguments: tuple[Any, ...]
    keywords: dict[str, Any]
    targets: tuple[Any, ...]


def divide(example_inputs: tuple[Any, ...] | Mapping[str, Any], loss: Loss) -> Division:
    """Divide the example inputs into arguments of the model and targets of `loss` (none without a loss)."""
    count = _target_count(loss)
    if isinstance(example_inputs, Mapping):
        keywords = dict(example_inputs)
        names = [n for n in TARGET_NAMES if n in keywords][:count]
        if len(names) < count:
            raise CaptureError(
                "The loss has no target",
                found=f"example inputs {sorted(keywords)}, and the loss takes {count} target(s)",
                remedy="Name the target 'labels', 'targets' or 'target'; or pass no loss if the model computes it.",
            )
        targets = tuple(keywords.pop(n) for n in names)
        return Division(arguments=(), keywords=keywords, targets=targets)
    if count >= len(example_inputs) and count:
        raise CaptureError(
            "The loss has no target",
            found=f"{len(example_inputs)} example input(s), and the loss takes {count} of them as targets",
            remedy="Pass example_inputs=(input, …, target): the last ones go to the loss.",
        )
    cut = len(example_inputs) - count
    return Division(arguments=tuple(example_inputs[:cut]), keywords={}, targets=tuple(example_inputs[cut:]))


def _target_count(loss: Loss) -> int:
    if loss is None:
        return 0
    if isinstance(loss, str):
        if loss not in _NAMED:
            raise CaptureError("Unknown loss", found=repr(loss), remedy=nearest_names(loss, _NAMED))
        return 1
    if not callable(loss):
        raise CaptureError(
            "The loss is not callable", found=type(loss).__name__, remedy="Pass a function (output, target) -> scalar."
        )
    function = loss.forward if isinstance(loss, torch.nn.Module) else loss
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:  # built-in functions have no signature
        return 1
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        return 1
    return max(sum(p.default is p.empty for p in positional) - 1, 0)


def scalar_loss(output: Any, targets: tuple[Any, ...], loss: Loss) -> Tensor:
    """The loss as a tensor of rank 0. CaptureError when there is none or it is not a single number."""
    if loss is None:
        value = _own_loss(output)
    elif isinstance(loss, str):
        value = _NAMED[loss](_prediction(output), *targets)
    else:
        value = loss(output, *targets)
    if not isinstance(value, Tensor) or value.numel() != 1 or not value.is_floating_point():
        raise CaptureError(
            "The loss is not a single number",
            found=_describe(value),
            remedy="Reduce it, for instance with .mean(), or pass loss= a function (output, target) -> scalar.",
        )
    return value.reshape(())


def _own_loss(output: Any) -> Tensor:
    if isinstance(output, Tensor) and output.numel() == 1:
        return output
    attribute = output.get("loss") if isinstance(output, Mapping) else getattr(output, "loss", None)
    if isinstance(attribute, Tensor):
        return attribute
    if isinstance(output, tuple) and output and isinstance(output[0], Tensor) and output[0].numel() == 1:
        return output[0]
    raise CaptureError(
        "The model returns no loss",
        found=_describe(output),
        remedy="Pass loss='cross_entropy', loss='mse' or a function (output, target) -> scalar, with the target as the "
        "last example input; a Hugging Face model computes its own loss when it is given labels=….",
    )


def beside_loss(output: Any) -> list[Tensor]:
    """The tensors that a model which computes its own loss returns beside it."""
    values = output if isinstance(output, tuple | list) else output.values() if isinstance(output, Mapping) else ()
    return [value for value in values if isinstance(value, Tensor) and value is not _own_loss(output)]


def _prediction(output: Any) -> Tensor:
    logits = getattr(output, "logits", None)
    if isinstance(logits, Tensor):
        return logits
    if isinstance(output, tuple) and output and isinstance(output[0], Tensor):
        return output[0]
    if isinstance(output, Tensor):
        return output
    raise CaptureError(
        "A named loss needs a tensor",
        found=_describe(output),
        remedy="Pass loss= a function (output, target) -> scalar.",
    )


def _cross_entropy(prediction: Tensor, target: Tensor) -> Tensor:
    """Classes are the last dim when the target has the other dims (language models), else dim 1 (torch's
    convention)."""
    if target.shape == prediction.shape[:-1]:
        return functional.cross_entropy(prediction.flatten(0, -2), target.flatten())
    return functional.cross_entropy(prediction, target)


_NAMED: dict[str, Callable[..., Tensor]] = {"cross_entropy": _cross_entropy, "mse": functional.mse_loss}


def _describe(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"a tensor of shape {list(value.shape)}, {value.dtype}".replace("torch.", "")
    if isinstance(value, tuple | list):
        return f"a {type(value).__name__} of " + ", ".join(_describe(v) for v in value)
    if isinstance(value, Mapping):
        return f"{type(value).__name__} with {', '.join(map(str, value))}"
    return type(value).__name__
