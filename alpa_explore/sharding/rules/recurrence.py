"""Recurrences of LSTM, GRU and RNN: samples are independent. A step needs all of the one before, and so no other dim
divides the work without a collective in every step."""

from __future__ import annotations

from alpa_explore.graph import Operator, Tensor
from alpa_explore.graph.counts import RECURRENCES
from alpa_explore.sharding.rules.factors import Splits, along
from alpa_explore.sharding.spec import REPLICATE

_WEIGHT = 1
"""Its place among the inputs of each of them."""


def recurrence(operator: Operator, inputs: tuple[Tensor, ...], outputs: tuple[Tensor, ...]) -> Splits:
    """Samples are the first dim of all but the weight and the bias, which is the only vector."""
    places = [REPLICATE if i == _WEIGHT or len(t.shape) == 1 else 0 for i, t in enumerate(inputs)]
    return along(inputs, outputs, [(places, (0,) * len(outputs), inputs[0].shape[0])])


HEAVY = frozenset(f"{name}.default" for name in RECURRENCES)
RULES = dict.fromkeys(sorted(HEAVY), recurrence)
