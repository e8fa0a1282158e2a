"""Losses over class scores. Over a sharded batch the sum is pending; its divisor counts the targets of all shards.

With the classes sharded (a divided vocabulary) each device adds the losses of the targets among its own classes, and
backwards writes the gradient of its own classes (sharding.local).
"""

from alpa_explore.graph import Operator
from alpa_explore.sharding.rules.factors import Splits, Tensors, einsum, kinds
from alpa_explore.sharding.spec import PARTIAL, REPLICATE
from alpa_explore.sharding.strategy import Split, all_reduced

_NONE = 0
"""torch's code of the reduction that keeps one loss per target (1: their mean, 2: their sum)."""
_SCALAR_BYTES = 4


def nll_forward(operator: Operator, inputs: Tensors, outputs: Tensors) -> Splits:
    """(scores N×C×…, targets, weight?, reduction, ignored) -> (loss, total weight).

    Over a sharded batch each device adds the losses of its rows; the total weight (the number of targets that are not
    ignored) is all-reduced, and a mean divides by it. Over sharded classes the losses of every device's own targets
    are a pending sum; the total weight needs no sum where all targets weigh 1.
    """
    scores = inputs[0]
    if len(scores.shape) < 2:
        return ()
    each = operator.arguments[3] == _NONE
    weighs = len(inputs) > 2
    loss = 0 if each else PARTIAL
    weight = all_reduced(0 if each else _SCALAR_BYTES)
    rows = Split("batch", scores.shape[0], (0, 0, *(REPLICATE,) * weighs), (loss, REPLICATE), weight)
    own = (1, REPLICATE, *(0,) * weighs)
    classes = Split("classes", scores.shape[1], own, (PARTIAL, REPLICATE), weight if weighs else ())
    return tuple(s for s in (rows, classes) if s.size > 1)


def nll_backward(operator: Operator, inputs: Tensors, outputs: Tensors) -> Splits:
    """(dloss, scores, targets, weight?, reduction, ignored, total weight): rows and classes are independent."""
    scores = inputs[1]
    if len(scores.shape) < 2:
        return ()
    weighs = len(inputs) > 4
    gradient = 0 if operator.arguments[4] == _NONE else REPLICATE
    rows = Split("batch", scores.shape[0], (gradient, 0, 0, *(REPLICATE,) * (len(inputs) - 3)), (0,))
    classes = Split("classes", scores.shape[1], (REPLICATE, 1, REPLICATE, *(0,) * weighs, REPLICATE), (1,))
    return tuple(s for s in (rows, classes) if s.size > 1)


RULES = {
    # Samples are independent; a path takes all frames, and any class.
    **kinds("ctc_loss", einsum(".n.,n.,n,n->n,n.."), "alpa_explore"),
    **kinds("ctc_loss_backward", einsum("n,.n.,n.,n,n,n,n..->.n."), "alpa_explore"),
    **kinds("nll_loss_forward nll_loss2d_forward", nll_forward),
    **kinds("nll_loss_backward nll_loss2d_backward", nll_backward),
}
