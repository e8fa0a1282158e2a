"""A model's parameters and buffers as fake tensors: shapes and dtypes without memory.

Each distinct tensor of the model gets one fake tensor on the CPU, whatever the original is (allocated, on a GPU, on the
meta device, already fake). The model is changed only inside `installed`, which always restores it.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn
from torch._subclasses import FakeTensor, FakeTensorMode
from torch.nn.parameter import is_lazy

from alpa_explore.errors import CaptureError

GradientHook = Callable[[Tensor], Tensor | None]
Slot = tuple[nn.Module, str, bool]
"""Where a model holds a tensor: module, name in it, True for a parameter (False: buffer)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelTensor:
    """One distinct tensor of the model, with every slot that holds it (a tied weight has several)."""

    name: str
    fake: Tensor
    slots: tuple[Slot, ...]
    hooks: tuple[GradientHook, ...]
    """What `register_hook` of the parameter was given, in order."""

    @property
    def is_parameter(self) -> bool:
        """Whether the model holds it as a parameter; else as a buffer."""
        return any(is_parameter for _, _, is_parameter in self.slots)

    @property
    def trainable(self) -> bool:
        """True for a parameter that requires a gradient."""
        return self.fake.requires_grad


def model_tensors(model: nn.Module, mode: FakeTensorMode, precision: torch.dtype | None) -> tuple[ModelTensor, ...]:
    """The model's distinct parameters, then buffers, in registration order, floating ones as `precision`."""
    slots: dict[int, list[Slot]] = {}
    first: dict[int, tuple[str, Tensor]] = {}
    for is_parameter in (True, False):
        for path, module in model.named_modules():
            for name, tensor in (module._parameters if is_parameter else module._buffers).items():
                if tensor is None:
                    continue
                full_name = f"{path}.{name}" if path else name
                if is_lazy(tensor):
                    raise CaptureError(
                        "A parameter has no shape yet",
                        found=f"{full_name} of a lazy module",
                        remedy="Call the model once on example inputs, then capture it.",
                    )
                first.setdefault(id(tensor), (full_name, tensor))
                slots.setdefault(id(tensor), []).append((module, name, is_parameter))
    return tuple(
        ModelTensor(
            name=name,
            fake=fake_like(tensor, mode, precision, tensor.requires_grad),
            slots=tuple(slots[key]),
            hooks=_gradient_hooks(name, tensor),
        )
        for key, (name, tensor) in first.items()
    )


def _gradient_hooks(name: str, tensor: Tensor) -> tuple[GradientHook, ...]:
    """The hooks of a parameter on its gradient; CaptureError for one that runs after the gradient is stored."""
    if stored := getattr(tensor, "_post_accumulate_grad_hooks", None):
        raise CaptureError(
            "A parameter has a hook that runs after its gradient is stored, which a plan cannot do",
            found=f"{name}.register_post_accumulate_grad_hook({next(iter(stored.values()))!r})",
            remedy="Remove the hook; an optimizer inside the backward pass is an option of the run, not of the model.",
        )
    return tuple((tensor._backward_hooks or {}).values())


def fake_like(
    tensor: Tensor, mode: FakeTensorMode, precision: torch.dtype | None = None, requires_grad: bool = False
) -> Tensor:
    """A fake CPU tensor with the shape and strides of `tensor`; a floating dtype becomes `precision`, if given."""
    dtype = precision if precision is not None and tensor.is_floating_point() else tensor.dtype
    with mode:
        if tensor.layout is not torch.strided:
            raise CaptureError(
                "A tensor is not dense", found=str(tensor.layout), remedy="Pass dense tensors (tensor.to_dense())."
            )
        made = torch.empty_strided(tuple(tensor.shape), tensor.stride(), dtype=dtype, device="cpu")
    assert isinstance(made, FakeTensor)
    return made.requires_grad_(requires_grad)


@contextmanager
def installed(held: Sequence[ModelTensor], tensors: Sequence[Tensor]) -> Iterator[None]:
    """Put `tensors` into the slots of the model, and restore the original tensors at the end."""
    saved: list[tuple[dict[str, Tensor | None], str, Tensor | None]] = []
    try:
        for model_tensor, tensor in zip(held, tensors, strict=True):
            for module, name, is_parameter in model_tensor.slots:
                tensors_of_module = cast(
                    "dict[str, Tensor | None]", module._parameters if is_parameter else module._buffers
                )
                saved.append((tensors_of_module, name, tensors_of_module[name]))
                tensors_of_module[name] = tensor
        yield
    finally:
        for tensors_of_module, name, original in reversed(saved):
            tensors_of_module[name] = original


_OF_EVERY_MODULE = frozenset(vars(nn.Module()))
"""Attributes that hold parameters, buffers, modules and hooks."""


def replacements(model_tensor: ModelTensor, tensor: Tensor) -> list[Tensor | None]:
    """What slots of the model hold in place of the `tensor` that was installed there."""
    now = [
        (module._parameters if is_parameter else module._buffers).get(name)
        for module, name, is_parameter in model_tensor.slots
    ]
    return [value for value in now if value is not tensor]


@contextmanager
def attributes_restored(model: nn.Module) -> Iterator[Callable[[], frozenset[str]]]:
    """Undo at the end what a forward pass keeps in attributes of modules, or in dicts and lists there: a table that it
    makes once would be a tensor of another trace the next time. Yields what names the attributes kept so far."""
    paths = [(path, module) for path, module in model.named_modules()]
    saved = [(vars(module), dict(vars(module))) for _, module in paths]
    contents = [(v, copy(v)) for _, values in saved for v in values.values() if type(v) in (dict, list)]

    def kept() -> frozenset[str]:
        names = set()
        copies = {id(container): before for container, before in contents}
        for (path, _), (namespace, before) in zip(paths, saved, strict=True):
            for name in namespace.keys() - _OF_EVERY_MODULE:
                value = namespace[name]
                filled = id(value) in copies and _identities(value) != _identities(copies[id(value)])
                if value is not before.get(name) or filled:
                    names.add(f"{path}.{name}" if path else name)
        return frozenset(names)

    try:
        yield kept
    finally:
        for namespace, values in saved:
            if namespace.keys() != values.keys() or any(namespace[name] is not v for name, v in values.items()):
                namespace.clear()
                namespace.update(values)
        for held, before in contents:
            if _identities(held) != _identities(before):
                held.clear()
                (held.update if isinstance(held, dict) else held.extend)(before)


def _identities(held: dict[object, object] | list[object]) -> list[object]:
    """What a container holds, compared by identity: tensors have no equality that is True or False."""
    return [(key, id(value)) for key, value in (held.items() if isinstance(held, dict) else enumerate(held))]


def attribute_tensors(model: nn.Module) -> dict[int, str]:
    """id -> path of the tensors that the model holds as plain attributes, not as parameters or buffers."""
    return {
        id(value): f"{path}.{name}" if path else name
        for path, module in model.named_modules()
        for name, value in vars(module).items()
        if isinstance(value, Tensor)
    }


def attribute_named(model: nn.Module, path: str) -> Tensor | None:
    """The plain attribute at a path of `attribute_tensors`; None if there is no such tensor."""
    owner, _, name = path.rpartition(".")
    modules = dict(model.named_modules())
    value = vars(modules[owner]).get(name) if owner in modules else None
    return value if isinstance(value, Tensor) else None
