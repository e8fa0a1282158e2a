"""Calls of torch's `scan`, by the operator of `tracing.fused.scan`, or written as a loop over its steps.

torch keeps the function of a step as a graph inside the graph. Here that of the step, and that of its gradients, are
traced apart and become arguments of one operator, as text. Tensors that the function reads from around it are found by
running it, and become inputs of the operator. A step that draws random numbers, writes into a tensor from around it,
or holds a tensor of numbers is written out, step by step: right, and long to plan where the steps are many; the graph's
warnings say so.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import torch
from torch._guards import tracing
from torch._subclasses import FakeTensorMode
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map, tree_unflatten

from alpa_explore.graph.loops import LoopBody, dump_body, without_unread
from alpa_explore.tracing.fused import scan as whole
from alpa_explore.tracing.joint_graph.calls.scan_body import traced_body
from alpa_explore.tracing.joint_graph.calls.scan_surroundings import Around, stand_in, stand_in_carried

_LIBRARY = importlib.import_module("torch._higher_order_ops.scan")  # its package has the function under that name
_Step = Callable[..., tuple[Any, Any]]
_Tensors = Sequence[torch.Tensor]


def _scan(combine: _Step, init: _Tensors, xs: _Tensors, additional_inputs: _Tensors = ()) -> tuple[Any, Any]:
    """(the carry after the last step, every output stacked along dim 0), in the containers that `combine` returns."""
    found = _Traced.of(combine, list(init), list(xs), list(additional_inputs))
    if found is None:
        return _steps(combine, init, xs, additional_inputs)
    made = whole.scan(list(init), list(xs), found.shared, found.forward, found.backward, False)
    carries, outputs = found.containers
    carry = made[: carries.num_leaves]
    stacked = made[carries.num_leaves : carries.num_leaves + outputs.num_leaves]
    return tree_unflatten(carry, carries), tree_unflatten(stacked, outputs)


def _steps(combine: _Step, init: _Tensors, xs: _Tensors, additional_inputs: _Tensors = ()) -> tuple[Any, Any]:
    """The same, step by step."""
    made, carry = [], init
    for step in range(xs[0].shape[0]):
        carry, outputs = combine(*tree_leaves(carry), *(x[step] for x in xs), *additional_inputs)
        made.append(outputs)
    return carry, tree_map(lambda *steps: torch.stack(steps), *made)


def _run(function: Callable[..., Any], *arguments: Any) -> Any:
    return function(*arguments)


@contextmanager
def whole_scans() -> Iterator[None]:
    """While this is entered, torch's function calls `_scan` in place of its operator, with no compiler."""
    with patch.object(_LIBRARY, "scan_op", _scan), patch.object(_LIBRARY, "_maybe_compile_and_run_fn", _run):
        yield


class _Traced:
    """A step and its gradients as bodies, the tensors that it reads from around it, and the containers of its
    results."""

    def __init__(self, shared: list[torch.Tensor], containers: tuple[Any, Any], forward: str, backward: str) -> None:
        self.shared, self.containers, self.forward, self.backward = shared, containers, forward, backward

    @classmethod
    def of(cls, combine: _Step, init: _Tensors, xs: _Tensors, additional: _Tensors) -> _Traced | None:
        """None where a step cannot be a body."""
        around = Around()
        # Nothing of this belongs to the graph that is being traced. A scan inside a step is written out in it.
        with ExitStack() as stack:
            stack.enter_context(_disable_current_modes())
            stack.enter_context(tracing(None))
            stack.enter_context(FakeTensorMode())
            stack.enter_context(torch.enable_grad())
            stack.enter_context(patch.object(_LIBRARY, "scan_op", _steps))
            fakes = [*map(stand_in_carried, init), *(stand_in(x, 1) for x in xs), *map(stand_in, additional)]
            with around.recording(fakes):
                results = combine(*fakes)
            leaves, containers = zip(*(tree_flatten(r) for r in results), strict=True)
            if not all(around.is_inside(t) for part in leaves for t in part) or not _alike(init, leaves[0]):
                return None
            every = [*fakes, *map(stand_in, around.read)]

            def step(*tensors: torch.Tensor) -> list[torch.Tensor]:
                given = tensors[: len(fakes)]
                with around.replaying(given, tensors[len(fakes) :]):
                    return tree_leaves(combine(*given))

            carries, outputs = (len(part) for part in leaves)
            counted = len(init), len(xs), len(every) - len(init) - len(xs)
            backward = _backward(step, every, counted, [t for part in leaves for t in part])
            if backward is None:
                return None
            # What was carried before each step is an output, too, where the backward pass reads it.
            kept = [place for place in backward.taken if place < carries]
            forward = traced_body(step, every, counted, (carries, outputs, 0), kept)
        if forward is None:
            return None
        shared = [*additional, *around.values()]
        return cls(shared, (containers[0], containers[1]), dump_body(forward), dump_body(backward))


def _alike(given: _Tensors, made: _Tensors) -> bool:
    return [(t.shape, t.dtype) for t in given] == [(t.shape, t.dtype) for t in made]


def _backward(
    step: Callable[..., list[torch.Tensor]], inputs: _Tensors, counted: tuple[int, int, int], results: _Tensors
) -> LoopBody | None:
    """(gradients of what is carried on; what was carried, stacked inputs, gradients of the outputs; shared inputs) ->
    gradients of the inputs that have any."""
    carries, stacks, _ = counted
    gradients = [torch.empty_like(t).detach() for t in results if t.is_floating_point()]
    last = sum(t.is_floating_point() for t in results[:carries])
    own, shared = inputs[: carries + stacks], inputs[carries + stacks :]
    wanted_places = [place for place, t in enumerate(inputs) if t.requires_grad]

    def differentiated(*tensors: torch.Tensor) -> list[torch.Tensor]:
        of_last, rest = tensors[:last], tensors[last:]
        of_own, rest = rest[: len(own)], rest[len(own) :]
        of_outputs, of_shared = rest[: len(gradients) - last], rest[len(gradients) - last :]
        likes = zip((*of_own, *of_shared), inputs, strict=True)
        given = [t.detach().requires_grad_(like.requires_grad) for t, like in likes]
        made = [t for t in step(*given) if t.is_floating_point()]
        wanted = [given[place] for place in wanted_places]
        # A result that is made from nothing that is differentiated has no history.
        pairs = [(r, g) for r, g in zip(made, (*of_last, *of_outputs), strict=True) if r.requires_grad]
        if not pairs:
            return [torch.zeros_like(t) for t in wanted]
        found = torch.autograd.grad(
            [r for r, _ in pairs], wanted, [g for _, g in pairs], allow_unused=True, materialize_grads=True
        )
        return list(found)

    of_carried, of_own = (sum(place < end for place in wanted_places) for end in (carries, carries + stacks))
    body = traced_body(
        differentiated,
        [*gradients[:last], *own, *gradients[last:], *shared],
        (last, len(own) + len(gradients) - last, len(shared)),
        (of_carried, of_own - of_carried, len(wanted_places) - of_own),
    )
    return None if body is None else replace(without_unread(body), gradients=tuple(wanted_places))
