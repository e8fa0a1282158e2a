"""The training step of one model at every batch size: few captures, the other sizes follow from them (`rescale`).

The first size that is asked for is captured. From the second on, captures at 4 and 8 units serve all others: multiples,
so that what the model divides stays whole. They must first give again what was captured at another size. A size that
does not follow from them is captured; where they gave something else once, every size is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from alpa_explore.errors import BatchError, OptionError
from alpa_explore.graph import TrainingGraph
from alpa_explore.tracing.capture import capture
from alpa_explore.tracing.inputs.example import flatten_example
from alpa_explore.tracing.inputs.losses import Loss
from alpa_explore.tracing.resizing.rescale import rescale

_ANCHORS = (4, 8)
"""Units at which captures are made for the other sizes. Not 1, which torch treats apart."""


class Batches:
    """Graphs of one model by their samples. `captures` counts what was captured."""

    def __init__(self, capture_at: Callable[[int], TrainingGraph], samples: int, *, unit: int | None = None) -> None:
        self.samples = samples
        """Of the example that the model came with."""
        self.captures = 0
        self._capture_at, self._unit = capture_at, samples if unit is None else unit
        self._captured: dict[int, TrainingGraph] = {}
        self._known: dict[int, TrainingGraph] = {}
        self._agreed: bool | None = None
        """Whether a capture was what the anchors say; None before the first comparison."""

    def at_batch(self, samples: int) -> TrainingGraph:
        """The graph of a microbatch of `samples`; equal to a capture at that size. CaptureError if it cannot be had."""
        if samples < 1:
            raise OptionError(
                "A microbatch holds at least one sample", found=f"{samples}", remedy="Give a microbatch of 1 or more."
            )
        if samples not in self._known:
            self._known[samples] = self._made(samples)
        return self._known[samples]

    def _made(self, samples: int) -> TrainingGraph:
        if not self._captured or self._agreed is False:
            return self._capture(samples)
        low, high = (self._capture(self._unit * times) for times in _ANCHORS)
        others = [n for n in self._captured if n not in (low.samples, high.samples)]
        try:
            derived = rescale(low, high, samples)
            if self._agreed is None:
                others = others or [self._capture(samples).samples]
                self._agreed = all(rescale(low, high, n) == self._captured[n] for n in others)
        except BatchError:
            return self._capture(samples)
        return derived if self._agreed else self._capture(samples)

    def _capture(self, samples: int) -> TrainingGraph:
        if samples not in self._captured:
            self.captures += 1
            self._captured[samples] = self._capture_at(samples)
        return self._captured[samples]


def capture_batches(
    model: nn.Module,
    example_inputs: tuple[Any, ...] | Mapping[str, Any] | torch.Tensor,
    loss: Loss = None,
    **options: Any,
) -> Batches:
    """`model` at any batch size, for `ax.plan(…, global_batch=…)`; `options` are those of `ax.capture`.

    The batch is dim 0 of every example input that has as many entries there as the first one. Nothing is captured yet:
    errors of capture come when a size is asked for.
    """
    samples = flatten_example(model, example_inputs, loss).samples

    def sized(leaf: Any, wanted: int) -> Any:
        if not isinstance(leaf, torch.Tensor) or not leaf.dim() or leaf.shape[0] != samples:
            return leaf
        return torch.empty((wanted, *leaf.shape[1:]), dtype=leaf.dtype, device="meta")

    def capture_at(wanted: int) -> TrainingGraph:
        inputs = pytree.tree_map(lambda leaf: sized(leaf, wanted), example_inputs)
        return capture(model, inputs, loss, **options)

    return Batches(capture_at, samples)
