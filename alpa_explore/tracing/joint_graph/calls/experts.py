"""Calls of routed experts, replaced by the one operator of `tracing.experts`.

These are `models.routed_experts`, and the experts of Hugging Face's models, in all forms that they can take there
(grouped, batched, a loop): transformers looks their function up when they run, and here finds the operator. How gate
and up projection are combined is found by calling the module's own function on a few numbers. Experts of which it is
not known, or that do more (a norm after them), are left as the model has them.
"""

import itertools
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import _disable_current_modes

from alpa_explore.models import routed_experts
from alpa_explore.models.routed_experts import ACTIVATIONS, Gate
from alpa_explore.tracing import experts as operator
from alpa_explore.tracing.autocast import lowered

_HUGGING_FACE = "transformers.integrations.moe"
_AS_GIVEN = "grouped_mm"
"""The form of transformers that autocast does not reach: it computes in the dtype of the weights."""
_PROBE = torch.linspace(-9.0, 9.0, 32, dtype=torch.float64, device="cpu")
"""What a module's gate is called on: both sides of zero, and beyond usual limits."""


def as_one_operator(
    tokens: Tensor,
    chosen: Tensor,
    weights: Tensor,
    matrices: Sequence[Tensor],
    biases: Sequence[Tensor],
    gate: Gate,
    inputs_first: bool,
    *,
    as_given: bool = False,
) -> Tensor:
    """What `models.routed_experts` returns, by one operator; in a region of autocast its products are in that dtype,
    unless tensors are to be taken `as_given`."""
    low = tokens
    if not as_given:
        (low,), matrices, biases = lowered(tokens), lowered(*matrices), lowered(*biases)
    options = (gate.activation, gate.layout, inputs_first, gate.limit, gate.alpha, gate.shift)
    shard = 0, len(matrices[-1]), True
    made: Tensor = operator.experts(low, chosen, weights, list(matrices), list(biases), *options, *shard)[0]
    return made.to(tokens.dtype)


@contextmanager
def whole_experts() -> Iterator[None]:
    """While this is entered, routed experts are one operator."""
    with ExitStack() as stack:
        stack.enter_context(patch.object(routed_experts, "_computed", as_one_operator))
        library = sys.modules.get(_HUGGING_FACE)
        if library is not None and hasattr(library, "ExpertsInterface"):
            found = library.ExpertsInterface.get_interface
            stack.enter_context(patch.object(library.ExpertsInterface, "get_interface", _interface(found)))
        yield


def _interface(found: Callable[..., Any]) -> Callable[..., Any]:
    """`get_interface` of transformers: (interface, name of the form, the module's own) -> the function that runs."""

    def get_interface(self: Any, name: str, default: Callable[..., Any]) -> Callable[..., Any]:
        kept = found(self, name, default)

        def run(module: nn.Module, tokens: Tensor, chosen: Tensor, weights: Tensor) -> Tensor:
            parts = _parts(module)
            if parts is None:
                given: Tensor = kept(module, tokens, chosen, weights)
                return given
            matrices, biases, gate = parts
            how = gate, bool(module.is_transposed)
            return as_one_operator(tokens, chosen, weights, matrices, biases, *how, as_given=name == _AS_GIVEN)

        return run

    return get_interface


def _parts(module: Any) -> tuple[list[Tensor], list[Tensor], Gate] | None:
    """(matrices, biases, gate) of a module of transformers; None where the operator is not what it computes."""
    if getattr(module, "has_post_expert_norm", False) or getattr(module, "_is_expert_parallel", False):
        return None
    names = ("gate_up_proj" if module.has_gate else "up_proj", "down_proj")
    matrices = [t for name in names if isinstance(t := getattr(module, name, None), Tensor)]
    biases = [t for name in names if isinstance(t := getattr(module, f"{name}_bias", None), Tensor)]
    complete = len(matrices) == 2 and len(biases) == 2 * bool(module.has_bias)
    gate = _gate(module) if complete else None
    return None if gate is None else (matrices, biases, gate)


def _gate(module: Any) -> Gate | None:
    """The gate that gives what the module's own function gives on a few numbers."""
    with _disable_current_modes(), torch.no_grad():
        probe = torch.stack((_PROBE, _PROBE.roll(7) * 1.5))
        try:
            expected = module._apply_gate(probe) if module.has_gate else module.act_fn(probe)
        except (AttributeError, RuntimeError, TypeError, ValueError):
            return None  # it reads more than its input
        if not isinstance(expected, Tensor) or not expected.is_floating_point():
            return None
        for gate in _candidates(module):
            found = gate.inner(probe)
            if found.shape == expected.shape and torch.allclose(found, expected.to(found.dtype), atol=1e-9):
                return gate
    return None


def _candidates(module: Any) -> Iterator[Gate]:
    """Every activation and layout, with and without the limits and factors among the module's own numbers."""
    own = {float(v) for v in vars(module).values() if isinstance(v, int | float) and not isinstance(v, bool) and v > 0}
    layouts = ("concatenated", "interleaved") if module.has_gate else ("plain",)
    plain = (Gate(name, layout) for layout, name in itertools.product(layouts, ACTIVATIONS))
    limited = (
        Gate(name, layout, limit, alpha, shift)
        for layout, name, limit, alpha, shift in itertools.product(
            layouts, ACTIVATIONS, sorted(own), (1.0, *sorted(own)), (0.0, 1.0)
        )
    )
    return itertools.chain(plain, limited)
