"""Losses over class scores. Over a sharded batch the sum is pending; its divisor counts the targets of all shards."""

from __future__ import annotations

from alpa_explore.graph import Operator, Tensor
from alpa_explore.sharding.rules.factors import Splits
from alpa_explore.sharding.spec import PARTIAL, REPLICATE
from alpa_explore.sharding.strategy import Split

_NONE = 0
"""torch's code of the reduction that keeps one loss per target (1: their mean, 2: their sum)."""
_SCALAR_BYTES = 4


def nll_forward(operator: Operator, inputs: tuple[Tensor, ...], outputs: tuple[Tensor, ...]) -> Splits:
    """(scores N×C×…, targets, weight?, reduction, ignored) -> (loss, total weight).

    Over a sharded batch each device adds the losses of its rows; the total weight (the number of targets that are not
    ignored) is all-reduced, and a mean divides by it (sharding.local). Classes are not sharded.
    """
    scores = inputs[0]
    if len(scores.shape) < 2 or scores.shape[0] < 2:
        return ()
    whole = (REPLICATE,) * (len(inputs) - 2)
    if operator.arguments[3] == _NONE:
        return (Split("batch", scores.shape[0], (0, 0, *whole), (0, REPLICATE)),)
    return (Split("batch", scores.shape[0], (0, 0, *whole), (PARTIAL, REPLICATE), _SCALAR_BYTES),)


def nll_backward(operator: Operator, inputs: tuple[Tensor, ...], outputs: tuple[Tensor, ...]) -> Splits:
    """(dloss, scores, targets, weight?, reduction, ignored, total weight): rows are independent."""
    scores = inputs[1]
    if len(scores.shape) < 2 or scores.shape[0] < 2:
        return ()
    whole = (REPLICATE,) * (len(inputs) - 3)
    gradient = 0 if operator.arguments[4] == _NONE else REPLICATE
    return (Split("batch", scores.shape[0], (gradient, 0, 0, *whole), (0,)),)


RULES = {
    **dict.fromkeys(("aten.nll_loss_forward.default", "aten.nll_loss2d_forward.default"), nll_forward),
    **dict.fromkeys(("aten.nll_loss_backward.default", "aten.nll_loss2d_backward.default"), nll_backward),
}
