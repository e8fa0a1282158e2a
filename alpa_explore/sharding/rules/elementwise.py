"""Elementwise operators: every dim of the output is spatial. A pending sum passes through linear ones. Tensors that are
created without input values: every dim along which entries do not depend on their index can be sharded.
"""

from alpa_explore.graph import Operator, Ref
from alpa_explore.sharding.rules.factors import (
    Splits,
    Tensors,
    along,
    each_dim,
    each_plane,
    elementwise,
    kinds,
    pending_sum,
    with_pending_sum,
)
from alpa_explore.sharding.spec import REPLICATE, is_floating


def uniform(operator: Operator, inputs: Tensors, outputs: Tensors) -> Splits:
    """full, zeros, ones, new_zeros, …: each device creates its own shard. An input gives only its dtype; where it has
    the same dim, it is sharded like the output, so that it is not gathered needlessly."""
    rows = [
        (tuple(d if t.shape[d : d + 1] == (size,) else REPLICATE for t in inputs), (d,), size)
        for d, size in enumerate(outputs[0].shape)
    ]
    return along(inputs, outputs, rows)


def whole(operator: Operator, inputs: Tensors, outputs: Tensors) -> Splits:
    """arange, eye, literals: small, and values depend on the index. Every device creates the whole tensor."""
    return ()


RANDOM = tuple(
    """
    aten.native_dropout.default aten.bernoulli.default aten.bernoulli.p aten.rand.default aten.rand_like.default
    aten.randn.default aten.randn_like.default aten.randint.default aten.randint.low aten.exponential.default
    aten.uniform.default aten.normal_functional.default
    """.split()
)
"""Kinds that draw random numbers."""
_CREATION = {
    **kinds("full zeros ones empty.memory_format new_zeros new_ones new_full new_empty", uniform),
    **kinds("arange arange.start arange.start_step eye eye.m scalar_tensor", whole),
    "constant.literal": whole,
    **kinds("tril triu", each_plane),
    **dict.fromkeys(RANDOM, each_dim),
}


def linear(operator: Operator, inputs: Tensors, outputs: Tensors) -> Splits:
    """x + y, −x, c · x with a number c, conversions between floats: a pending sum of all inputs passes through.

    Not through x + 1: every device would add the 1.
    """
    splits = elementwise(inputs, outputs)
    adds_a_number = operator.kind.split(".")[1] in ("add", "sub", "rsub") and len(operator.inputs) < 2
    return splits if adds_a_number else with_pending_sum(splits, inputs, outputs)


def bilinear(operator: Operator, inputs: Tensors, outputs: Tensors) -> Splits:
    """x · y and x / y: linear in x while y is whole.

    A pending sum passes through only where y is a number or a single element. It would be legal for any replicated y,
    but delaying the sum past a large factor saves nothing that the neighbouring operators do not save already, and
    doubles the number of strategies.
    """
    splits = elementwise(inputs, outputs)
    floating = inputs and is_floating(outputs[0].dtype) and is_floating(inputs[0].dtype)
    if not (floating and operator.arguments and isinstance(operator.arguments[0], Ref)):
        return splits
    scaled = len(inputs) == 1 or (inputs[1].elements == 1 and operator.inputs[0] != operator.inputs[1])
    return (*splits, *(pending_sum(inputs, outputs, (0,)) if scaled else ()))


_LINEAR = tuple(
    """
    add.Tensor sub.Tensor neg.default _to_copy.default clone.default mul.Scalar div.Scalar alias.default detach.default
    lift_fresh_copy.default
    """.split()
)
_BILINEAR = ("mul.Tensor", "div.Tensor")
_NONLINEAR = tuple(
    """
    abs.default acos.default add.Scalar addcdiv.default addcmul.default asin.default atan.default atan2.default
    bitwise_and.Scalar bitwise_and.Tensor bitwise_not.default bitwise_or.Scalar bitwise_or.Tensor bitwise_xor.Scalar
    bitwise_xor.Tensor ceil.default clamp.Tensor clamp.default clamp_max.Tensor clamp_max.default clamp_min.Tensor
    clamp_min.default copy.default cos.default cosh.default div.Scalar_mode div.Tensor_mode elu.default
    elu_backward.default empty_like.default eq.Scalar eq.Tensor erf.default erfc.default exp.default exp2.default
    expm1.default fill.Scalar fill.Tensor floor.default floor_divide.default fmod.Scalar fmod.Tensor full_like.default
    ge.Scalar ge.Tensor gelu.default gelu_backward.default gt.Scalar gt.Tensor hardsigmoid.default
    hardsigmoid_backward.default hardswish.default hardswish_backward.default hardtanh.default hardtanh_backward.default
    isinf.default isnan.default le.Scalar le.Tensor leaky_relu.default leaky_relu_backward.default lerp.Scalar
    lerp.Tensor log.default log10.default log1p.default log2.default log_sigmoid_backward.default
    log_sigmoid_forward.default logical_and.default logical_not.default logical_or.default logical_xor.default lt.Scalar
    lt.Tensor masked_fill.Scalar masked_fill.Tensor maximum.default minimum.default mish.default mish_backward.default
    nan_to_num.default native_dropout_backward.default ne.Scalar ne.Tensor ones_like.default pow.Scalar
    pow.Tensor_Scalar pow.Tensor_Tensor reciprocal.default relu.default remainder.Scalar remainder.Tensor round.default
    rsqrt.default rsub.Scalar sgn.default sigmoid.default sigmoid_backward.default sign.default silu.default
    silu_backward.default sin.default sinh.default softplus.default softplus_backward.default sqrt.default
    square.default sub.Scalar tan.default tanh.default tanh_backward.default threshold_backward.default trunc.default
    where.Scalar where.ScalarOther where.ScalarSelf where.self zeros_like.default
    """.split()
)
_LOSSES = "mse_loss smooth_l1_loss huber_loss soft_margin_loss binary_cross_entropy"
"""Of each number: traces split off the mean and the sum."""
_OPTIMIZERS = ("optimizer.adam", "optimizer.adamw", "optimizer.sgd", "optimizer.sgd_momentum")

RULES = {
    **_CREATION,
    **{f"aten.{kind}": linear for kind in _LINEAR},
    **{f"aten.{kind}": bilinear for kind in _BILINEAR},
    **{f"aten.{kind}": each_dim for kind in _NONLINEAR},
    **{f"aten.{loss}{part}.default": each_dim for loss in _LOSSES.split() for part in ("", "_backward")},
    "aten.binary_cross_entropy_with_logits.default": each_dim,
    **dict.fromkeys(_OPTIMIZERS, each_dim),
}
