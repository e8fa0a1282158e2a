"""Calls of torch's `scan`, written as a loop over its steps.

torch keeps the function of a step as a graph inside the graph, which no rule of sharding and no price knows. Written
out, each step is its own operators: right, and long to plan where the steps are many; the graph's warnings say so.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch.utils._pytree import tree_leaves, tree_map

_LIBRARY = importlib.import_module("torch._higher_order_ops.scan")  # its package has the function under that name


def _steps(
    combine: Callable[..., tuple[Any, Any]],
    init: Sequence[torch.Tensor],
    xs: Sequence[torch.Tensor],
    additional_inputs: Sequence[torch.Tensor] = (),
) -> tuple[Any, Any]:
    """(the carry after the last step, every output stacked along dim 0), in the containers that `combine` returns."""
    made, carry = [], init
    for step in range(xs[0].shape[0]):
        carry, outputs = combine(*tree_leaves(carry), *(x[step] for x in xs), *additional_inputs)
        made.append(outputs)
    return carry, tree_map(lambda *steps: torch.stack(steps), *made)


def _run(function: Callable[..., Any], *arguments: Any) -> Any:
    return function(*arguments)


@contextmanager
def unrolled_scans() -> Iterator[None]:
    """While this is entered, torch's function calls `_steps` in place of its operator, with no compiler."""
    with patch.object(_LIBRARY, "scan_op", _steps), patch.object(_LIBRARY, "_maybe_compile_and_run_fn", _run):
        yield
