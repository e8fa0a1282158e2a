"""The training step of one model at every batch size: a few captures, from which the other sizes follow (`rescale`).

The first requested size is captured. For all further sizes the model is captured at 4 and 8 units (multiples of the
unit, so that sizes which the model divides stay integers), and other sizes are rescaled from these two. The first such
result is checked against a capture. A size that cannot be rescaled is captured; if the check failed, every size is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from alpa_explore.arguments import checked
from alpa_explore.errors import BatchError, OptionError
from alpa_explore.graph import TrainingGraph
from alpa_explore.tracing.capture import capture
from alpa_explore.tracing.inputs.example import flatten_example
from alpa_explore.tracing.inputs.losses import Loss
from alpa_explore.tracing.resizing.rescale import rescale

_ANCHORS = (4, 8)
"""Numbers of units at which the model is captured for rescaling. Not 1: torch treats sizes of 1 specially."""


class Batches:
    """The graphs of one model by number of samples; `captures` is the number of captures made."""

    def __init__(self, capture_at: Callable[[int], TrainingGraph], samples: int, *, unit: int | None = None) -> None:
        self.samples = samples
        """Number of samples of the example inputs."""
        self.captures = 0
        self._capture_at, self._unit = capture_at, samples if unit is None else unit
        self._captured: dict[int, TrainingGraph] = {}
        self._graphs: dict[int, TrainingGraph] = {}
        self._rescaling_is_valid: bool | None = None
        """Whether rescaling reproduced a capture; None before the first comparison."""

    def at_batch(self, samples: int) -> TrainingGraph:
        """The graph of a microbatch of `samples`, equal to a capture at that size. CaptureError when capture fails."""
        if samples < 1:
            raise OptionError(
                "A microbatch must hold at least one sample",
                found=f"{samples}",
                remedy="Give a microbatch of 1 or more.",
            )
        if samples not in self._graphs:
            self._graphs[samples] = self._rescaled_or_captured(samples)
        return self._graphs[samples]

    def _rescaled_or_captured(self, samples: int) -> TrainingGraph:
        if not self._captured or self._rescaling_is_valid is False:
            return self._capture(samples)
        low, high = (self._capture(self._unit * times) for times in _ANCHORS)
        others = [n for n in self._captured if n not in (low.samples, high.samples)][:1]
        try:
            derived = rescale(low, high, samples)
            if self._rescaling_is_valid is None:
                others = others or [self._capture(samples).samples]
                self._rescaling_is_valid = all(rescale(low, high, n) == self._captured[n] for n in others)
        except BatchError:
            return self._capture(samples)
        return derived if self._rescaling_is_valid else self._capture(samples)

    def _capture(self, samples: int) -> TrainingGraph:
        if samples not in self._captured:
            self.captures += 1
            self._captured[samples] = self._capture_at(samples)
        return self._captured[samples]


@checked("model")
def capture_batches(
    model: nn.Module, example_inputs: tuple[Any, ...] | Mapping[str, Any] | Tensor, loss: Loss = None, **options: Any
) -> Batches:
    """`model` at any batch size, for `ax.plan(…, global_batch=…)`; `options` are those of `ax.capture`.

    The batch is dim 0 of every example input whose dim 0 is as large as that of the first one. Nothing is captured yet:
    capture errors are raised when a size is requested.
    """
    samples = flatten_example(model, example_inputs, loss).samples

    def sized(leaf: Any, requested_samples: int) -> Any:
        if not isinstance(leaf, Tensor) or not leaf.dim() or leaf.shape[0] != samples:
            return leaf
        return torch.empty((requested_samples, *leaf.shape[1:]), dtype=leaf.dtype, device="meta")

    def capture_at(requested_samples: int) -> TrainingGraph:
        inputs = pytree.tree_map(lambda leaf: sized(leaf, requested_samples), example_inputs)
        return capture(model, inputs, loss, **options)

    return Batches(capture_at, samples)
