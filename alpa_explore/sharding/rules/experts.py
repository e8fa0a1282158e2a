"""Routed experts as one operator (`tracing.experts`): tokens, experts and inner width can be divided.

    tokens     every device routes its own tokens through all experts, whose gradients are pending sums
    experts    every device has all tokens and some of the experts, whose results are a pending sum
    inner      every device has a part of the inner width of each expert; the results are a pending sum
    exchange   every device has some of the tokens and some of the experts: rows travel to the device that holds their
               expert, and their results back, in two all-to-alls (Lepikhin et al., "GShard", arXiv 2006.16668)

The rows that the forward pass keeps belong to the device that computed them. Their placements differ from split to
split, and they cannot be resharded (`TensorKind.ROUTED`), so the backward pass is divided as the forward pass is.
"""

from typing import NamedTuple, cast

from alpa_explore.graph import Argument, Operator, Tensor
from alpa_explore.graph.counts import ROUTED, packet
from alpa_explore.sharding.reshard import StepKind
from alpa_explore.sharding.rules.factors import Splits, Tensors, kinds, nonempty
from alpa_explore.sharding.spec import PARTIAL, REPLICATE
from alpa_explore.sharding.strategy import Exchange, Split

DIVIDE_EXPERTS = frozenset({"experts", "exchange"})
"""Factors under which devices hold different experts, and one of them may be busier than others."""
_WHOLE, _SUMMED = (REPLICATE,) * 3, (PARTIAL,) * 2


class _Matrices(NamedTuple):
    """Matrices and biases of an operator, the last ones of its inputs."""

    number: int
    """Of both together."""
    experts: int
    inner: int
    """Inner width; 1 where it cannot be divided: gates and ups of concatenated matrices lie apart."""
    inner_dims: tuple[int, ...]
    """For each of them the dim of the inner width."""

    def all(self, placement: int) -> tuple[int, ...]:
        """One placement for all of them."""
        return (placement,) * self.number


def _matrices(operator: Operator, inputs: tuple[Tensor, ...]) -> _Matrices:
    first = ROUTED[packet(operator.kind)].matrices
    given, biases, _, layout, inputs_first = operator.arguments[first : first + 5]
    matrices = len(cast("tuple[Argument, ...]", given))
    down = inputs[first + matrices - 1].shape
    ups = [2 if inputs_first else 1] * (matrices - 1)
    dims = (*ups, 1 if inputs_first else 2)
    if biases:
        dims = (*dims, *(1 for _ in ups), REPLICATE)
    inner = 1 if layout == "concatenated" else down[1 if inputs_first else 2]
    return _Matrices(len(dims), down[0], inner, dims)


def experts(operator: Operator, inputs: Tensors, outputs: Tensors) -> Splits:
    """(tokens, chosen, weights, matrices…, biases…) -> (combined, rows, hidden)."""
    own = _matrices(operator, inputs)
    return nonempty(
        Split("tokens", inputs[0].shape[0], (0, 0, 0, *own.all(REPLICATE)), (0, 0, 0)),
        Split("experts", own.experts, (*_WHOLE, *own.all(0)), (PARTIAL, 1, 1)),
        Split("inner", own.inner, (*_WHOLE, *own.inner_dims), (PARTIAL, REPLICATE, 2)),
        _exchanging(inputs, own, (0, 0, 0, *own.all(0)), (0, 0, 1)),
    )


def experts_backward(operator: Operator, inputs: Tensors, outputs: Tensors) -> Splits:
    """(dy, chosen, weights, rows, hidden, matrices…, biases…) -> (dtokens, dweights, of matrices…, of biases…)."""
    own = _matrices(operator, inputs)
    return nonempty(
        Split("tokens", inputs[0].shape[0], (0, 0, 0, 0, 0, *own.all(REPLICATE)), (0, 0, *own.all(PARTIAL))),
        Split("experts", own.experts, (*_WHOLE, 1, 1, *own.all(0)), (*_SUMMED, *own.all(0))),
        Split("inner", own.inner, (*_WHOLE, REPLICATE, 2, *own.inner_dims), (*_SUMMED, *own.inner_dims)),
        _exchanging(inputs, own, (0, 0, 0, 0, 1, *own.all(0)), (0, 0, *own.all(0))),
    )


def _exchanging(inputs: tuple[Tensor, ...], own: _Matrices, read: tuple[int, ...], made: tuple[int, ...]) -> Split:
    """Rows of the first input to other devices, and as many back."""
    rows = inputs[0].bytes * inputs[1].shape[1]
    exchange = Exchange(StepKind.ALL_TO_ALL, rows, undivided=("inner",), copies=inputs[1].shape[1])
    return Split("exchange", own.experts, read, made, (exchange, exchange), shares_dims_with=("tokens", "experts"))


RULES = kinds("experts", experts, "alpa_explore") | kinds("experts_backward", experts_backward, "alpa_explore")
HEAVY = frozenset(RULES)
