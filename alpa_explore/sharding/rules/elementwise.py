"""Elementwise operators: every dim of the output is spatial. Linear ones let a pending sum through."""

from __future__ import annotations

from alpa_explore.graph import Operator, Tensor
from alpa_explore.sharding.rules.factors import Splits, elementwise, is_floating, pending_sum


def nonlinear(operator: Operator, inputs: tuple[Tensor, ...], outputs: tuple[Tensor, ...]) -> Splits:
    """f(x), f(x, y), …: no pending sum passes."""
    return elementwise(inputs, outputs)


def linear(operator: Operator, inputs: tuple[Tensor, ...], outputs: tuple[Tensor, ...]) -> Splits:
    """x + y, −x, c · x with a number c, conversions between floats: a sum of addends of all inputs.

    A number or a missing operand (x + 1) is not an addend: then only the number of addends would be wrong, so it stops
    the sum.
    """
    splits = elementwise(inputs, outputs)
    passes = all(is_floating(t) for t in (*inputs, *outputs)) and not _adds_a_number(operator)
    return (*splits, *(pending_sum(inputs, outputs) if passes else ()))


def bilinear(operator: Operator, inputs: tuple[Tensor, ...], outputs: tuple[Tensor, ...]) -> Splits:
    """x · y and x / y: linear in x while y is whole.

    The sum passes only where y is a number or a single element: it would be legal for any whole y, but a pending sum
    that waits beside a large factor saves nothing that the operators before and after do not, and doubles the
    choices.
    """
    splits = elementwise(inputs, outputs)
    if not inputs or not is_floating(outputs[0]) or not is_floating(inputs[0]) or not _first_is_tensor(operator):
        return splits
    scaled = len(inputs) == 1 or (inputs[1].elements == 1 and operator.inputs[0] != operator.inputs[1])
    return (*splits, *(pending_sum(inputs, outputs, (0,)) if scaled else ()))


def _adds_a_number(operator: Operator) -> bool:
    return operator.kind.split(".")[1] in ("add", "sub", "rsub") and len(operator.inputs) < 2


def _first_is_tensor(operator: Operator) -> bool:
    return bool(operator.arguments) and type(operator.arguments[0]).__name__ == "Ref"


_LINEAR = ("add.Tensor", "sub.Tensor", "neg.default", "_to_copy.default", "clone.default", "mul.Scalar", "div.Scalar",
           "alias.default", "detach.default", "lift_fresh_copy.default")  # fmt: skip
_BILINEAR = ("mul.Tensor", "div.Tensor")
_NONLINEAR = (
    "abs.default", "add.Scalar", "sub.Scalar", "rsub.Scalar", "bitwise_and.Tensor", "bitwise_not.default",
    "bitwise_or.Tensor", "bitwise_xor.Tensor", "ceil.default", "clamp.default", "clamp_min.default",
    "clamp_max.default", "cos.default", "elu.default", "elu_backward.default", "eq.Scalar", "eq.Tensor", "erf.default",
    "exp.default", "expm1.default", "floor.default", "floor_divide.default", "ge.Scalar", "ge.Tensor", "gelu.default",
    "gelu_backward.default", "gt.Scalar", "gt.Tensor", "hardtanh.default", "hardtanh_backward.default",
    "isinf.default", "isnan.default", "le.Scalar", "le.Tensor", "leaky_relu.default", "leaky_relu_backward.default",
    "log.default", "log1p.default", "log_sigmoid_forward.default", "logical_and.default", "logical_not.default",
    "logical_or.default", "lt.Scalar", "lt.Tensor", "masked_fill.Scalar", "masked_fill.Tensor", "maximum.default",
    "minimum.default", "native_dropout_backward.default", "ne.Scalar", "ne.Tensor", "pow.Scalar",
    "pow.Tensor_Scalar", "pow.Tensor_Tensor", "reciprocal.default", "relu.default", "remainder.Scalar",
    "remainder.Tensor", "rsqrt.default", "sigmoid.default", "sigmoid_backward.default", "sign.default",
    "silu.default", "silu_backward.default", "sin.default", "softplus.default", "softplus_backward.default",
    "sqrt.default", "tanh.default", "tanh_backward.default", "threshold_backward.default", "where.self",
    "where.ScalarOther", "where.ScalarSelf", "zeros_like.default", "ones_like.default", "full_like.default",
    "empty_like.default", "fill.Scalar", "addcmul.default", "addcdiv.default",
)  # fmt: skip
_OPTIMIZERS = ("optimizer.adam", "optimizer.adamw", "optimizer.sgd", "optimizer.sgd_momentum")

RULES = {
    **{f"aten.{kind}": linear for kind in _LINEAR},
    **{f"aten.{kind}": bilinear for kind in _BILINEAR},
    **{f"aten.{kind}": nonlinear for kind in _NONLINEAR},
    **dict.fromkeys(_OPTIMIZERS, nonlinear),
}
