"""Recurrences. Of LSTM, GRU and RNN samples are independent: a step needs all of the one before, and so no other dim
divides the work without a collective in every step. Of linear scans (RWKV, Mamba) channels are independent, too."""

from alpa_explore.graph import Operator
from alpa_explore.graph.counts import RECURRENCES
from alpa_explore.sharding.rules.factors import Splits, Tensors, along, einsum, from_factors, kinds
from alpa_explore.sharding.spec import REPLICATE

_WEIGHT = 1
"""Its place among the inputs of each of them."""
_SCAN_TERMS = ("nd.", "nd.", "d.", "n..", "n..", "d", "nd.", "d")
"""Samples and channels of x, delta, a, b, c, d, z and bias of a selective scan; the last three may be missing."""


def recurrence(operator: Operator, inputs: Tensors, outputs: Tensors) -> Splits:
    """Samples are the first dim of all but the weight and the bias, which is the only vector."""
    places = [REPLICATE if i == _WEIGHT or len(t.shape) == 1 else 0 for i, t in enumerate(inputs)]
    return along(inputs, outputs, [(places, (0,) * len(outputs), inputs[0].shape[0])])


def selective_scan(operator: Operator, inputs: Tensors, outputs: Tensors) -> Splits:
    """(x, delta, a, b, c, d?, z?, bias?) -> (result, last state)."""
    return from_factors(f"{','.join(_given(operator, 0))}->nd.,nd.", inputs, outputs)


def selective_scan_backward(operator: Operator, inputs: Tensors, outputs: Tensors) -> Splits:
    """(gradient, that of the last state?, then as in the forward pass) -> the gradients of what is given: those of b
    and c are sums over channels, those of a, d and bias over samples."""
    of = _given(operator, 2)
    last = [] if operator.arguments[1] is None else ["nd."]
    return from_factors(f"{','.join(['nd.', *last, *of])}->{','.join(of)}", inputs, outputs)


def _given(operator: Operator, first: int) -> list[str]:
    """The terms of the tensors that are given; they begin at the argument `first`."""
    places = operator.arguments[first : first + len(_SCAN_TERMS)]
    return [term for term, argument in zip(_SCAN_TERMS, places, strict=True) if argument is not None]


HEAVY = frozenset(f"{name}.default" for name in RECURRENCES)
RULES = {
    **dict.fromkeys(sorted(HEAVY), recurrence),
    **kinds("wkv", einsum("d,d,n.d,n.d->n.d"), "alpa_explore"),
    **kinds("wkv_backward", einsum("n.d,d,d,n.d,n.d->d,d,n.d,n.d"), "alpa_explore"),
    **kinds("selective_scan", selective_scan, "alpa_explore"),
    **kinds("selective_scan_backward", selective_scan_backward, "alpa_explore"),
}
