"""Losses over class scores. The sum over a cut batch is pending; its divisor counts the targets of all shards."""

from __future__ import annotations

from alpa_explore.graph import Operator, Tensor
from alpa_explore.sharding.rules.factors import Splits
from alpa_explore.sharding.spec import PARTIAL, REPLICATE
from alpa_explore.sharding.strategy import Split

_MEAN = 1
_SCALAR_BYTES = 4


def nll_forward(operator: Operator, inputs: tuple[Tensor, ...], outputs: tuple[Tensor, ...]) -> Splits:
    """(scores N×C, targets, weight?, reduction, ignored) -> (loss, total weight).

    Over a cut batch each device adds the losses of its rows; the total weight (how many targets are not ignored) is
    all-reduced, and a mean divides by it (sharding.local). Classes stay whole.
    """
    scores = inputs[0]
    if operator.arguments[3] == 0 or len(scores.shape) != 2:
        return ()
    whole = (REPLICATE,) * (len(inputs) - 2)
    return (Split("batch", scores.shape[0], (0, 0, *whole), (PARTIAL, REPLICATE), _SCALAR_BYTES),)


def nll_backward(operator: Operator, inputs: tuple[Tensor, ...], outputs: tuple[Tensor, ...]) -> Splits:
    """(dloss, scores, targets, weight?, reduction, ignored, total weight): rows are independent."""
    scores = inputs[1]
    if operator.arguments[4] == 0 or len(scores.shape) != 2:
        return ()
    whole = (REPLICATE,) * (len(inputs) - 3)
    return (Split("batch", scores.shape[0], (REPLICATE, 0, 0, *whole), (0,)),)


RULES = {
    "aten.nll_loss_forward.default": nll_forward,
    "aten.nll_loss_backward.default": nll_backward,
}
