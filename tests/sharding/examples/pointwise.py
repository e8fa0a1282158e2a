"""Elementwise operators, optimizer steps, created tensors."""

import torch

from tests.sharding.call import Call, integers, mask, positive, real

_UNARY = (
    "abs ceil cos elu erf exp expm1 floor gelu hardtanh isinf isnan leaky_relu log log1p reciprocal relu rsqrt sigmoid",
    "sign silu sin softplus sqrt tanh tan asin acos atan sinh cosh erfc exp2 log2 log10 round trunc sgn nan_to_num",
    "hardswish hardsigmoid mish log_sigmoid_forward square zeros_like ones_like",
)
_BINARY = (
    "atan2.default eq.Tensor ge.Tensor gt.Tensor le.Tensor lt.Tensor ne.Tensor maximum.default minimum.default",
    "fmod.Tensor remainder.Tensor pow.Tensor_Tensor logical_and.default logical_or.default logical_xor.default",
    "copy.default",
)
_SCALAR = (
    "add.Scalar sub.Scalar rsub.Scalar eq.Scalar ge.Scalar gt.Scalar le.Scalar lt.Scalar ne.Scalar fmod.Scalar",
    "remainder.Scalar pow.Tensor_Scalar fill.Scalar clamp.default clamp_min.default clamp_max.default",
)
_BACKWARD = (
    "gelu_backward silu_backward sigmoid_backward tanh_backward hardswish_backward hardsigmoid_backward mish_backward",
)

x, y = positive(4, 8), positive(4, 8)
row, column, scalar = positive(8), positive(4, 1), positive()
i, j, b = integers(20, 4, 8), integers(7, 4, 8) + 1, mask(4, 8)
BOTH, SUM = "dim0 dim1", "dim0 dim1 sum"


def aten(kind, *arguments, factors=BOTH, **keywords):
    return Call(f"aten.{kind}", *arguments, factors=factors, **keywords)


CALLS = (
    *(aten(f"{name}.default", x) for name in " ".join(_UNARY).split()),
    *(aten(name, x, y) for name in " ".join(_BINARY).split()),
    *(aten(name, x, row) for name in ("eq.Tensor", "maximum.default")),
    *(aten(name, x, 0.4) for name in " ".join(_SCALAR).split()),
    *(aten(f"{name}.default", x, y) for name in " ".join(_BACKWARD).split()),
    *(aten(f"bitwise_{name}.Tensor", i, j) for name in ("and", "or", "xor")),
    *(aten(f"bitwise_{name}.Scalar", i, 5) for name in ("and", "or", "xor")),
    aten("bitwise_not.default", b),
    aten("logical_not.default", x),
    aten("floor_divide.default", i, j),
    aten("pow.Scalar", 2.0, x),
    aten("clamp.Tensor", x, row, column),
    aten("clamp_min.Tensor", x, row),
    aten("clamp_max.Tensor", x, column),
    aten("lerp.Scalar", x, y, 0.3),
    aten("lerp.Tensor", x, y, row),
    aten("div.Tensor_mode", x, y, rounding_mode="floor"),
    aten("div.Scalar_mode", x, 0.3, rounding_mode="trunc"),
    aten("masked_fill.Scalar", x, b, -1.0),
    aten("masked_fill.Tensor", x, mask(8), scalar),
    aten("fill.Tensor", x, scalar),
    aten("where.self", b, x, column),
    aten("where.ScalarOther", b, x, 1.0),
    aten("where.ScalarSelf", b, 1.0, x),
    aten("where.Scalar", b, 1.0, 2.0),
    aten("addcmul.default", x, y, row),
    aten("addcdiv.default", x, y, row),
    aten("elu_backward.default", x, 1.0, 1.0, 1.0, False, y),
    aten("hardtanh_backward.default", x, y, 0.0, 0.5),
    aten("leaky_relu_backward.default", x, real(4, 8), 0.1, False),
    aten("log_sigmoid_backward.default", x, y, positive(4, 8)),
    aten("native_dropout_backward.default", x, b, 1.5),
    aten("softplus_backward.default", x, y, 1, 20),
    aten("threshold_backward.default", x, real(4, 8), 0),
    *(aten(f"{loss}_loss.default", x, real(4, 8), 0) for loss in ("mse", "smooth_l1", "huber", "soft_margin")),
    aten("mse_loss_backward.default", scalar, x, real(4, 8), 0),
    aten("soft_margin_loss_backward.default", scalar, x, real(4, 8), 0),
    aten("smooth_l1_loss_backward.default", real(4, 8), x, real(4, 8), 0, 1.0),
    aten("huber_loss_backward.default", real(4, 8), x, real(4, 8), 0, 1.0),
    aten("binary_cross_entropy.default", x, y, None, 0),
    aten("binary_cross_entropy_backward.default", scalar, x, y, None, 0),
    aten("binary_cross_entropy_with_logits.default", x, y, positive(4, 8), row, 0),
    aten("full_like.default", x, 3.0),
    # linear: a pending sum passes
    aten("add.Tensor", x, y, factors=SUM),
    aten("add.Tensor", x, row, factors=SUM, alpha=2),
    aten("add.Tensor", x, x, factors=SUM),
    aten("add.Tensor", x, 1.0),
    aten("add.Tensor", x, i),
    aten("sub.Tensor", column, x, factors=SUM),
    aten("sub.Tensor", 1.0, x),
    aten("neg.default", x, factors=SUM),
    aten("neg.default", i),
    aten("_to_copy.default", x, factors=SUM, dtype=torch.float32),
    aten("_to_copy.default", x, dtype=torch.int64),
    aten("clone.default", x, factors=SUM),
    aten("alias.default", x, factors=SUM),
    aten("detach.default", x, factors=SUM),
    aten("lift_fresh_copy.default", x, factors=SUM),
    aten("mul.Scalar", x, 3.0, factors=SUM),
    aten("div.Scalar", x, 3.0, factors=SUM),
    # linear, but the sum passes only with a number
    aten("mul.Tensor", x, y),
    aten("mul.Tensor", x, row),
    aten("mul.Tensor", x, x),
    aten("mul.Tensor", x, i),
    aten("mul.Tensor", i, j),
    aten("mul.Tensor", x, 2.0, factors=SUM),
    aten("mul.Tensor", x, scalar, factors=SUM),
    aten("mul.Tensor", scalar, scalar, factors=""),
    aten("mul.Tensor", scalar, x),
    aten("div.Tensor", x, column),
    aten("div.Tensor", x, 2.0, factors=SUM),
    aten("div.Tensor", x, scalar, factors=SUM),
    aten("div.Tensor", 2.0, x),
    *(Call(f"optimizer.{name}", x, real(4, 8), factors=BOTH) for name in ("adam", "adamw", "sgd", "sgd_momentum")),
    # created tensors
    aten("full.default", [4, 8], 2.5, dtype=torch.float32),
    aten("zeros.default", [4, 8], dtype=torch.bool),
    aten("ones.default", [8], factors="dim0"),
    aten("ones.default", [], factors=""),
    aten("new_zeros.default", x, [4, 8]),
    aten("new_zeros.default", x, [8, 4, 1], factors="dim0 dim1"),
    aten("new_zeros.default", x, [4, 16], factors="dim0 dim1"),
    aten("new_ones.default", i, [4, 8], dtype=torch.bool),
    aten("new_full.default", scalar, [4, 8], 7.0),
    aten("arange.default", 8, factors=""),
    aten("arange.start", 2, 8, factors=""),
    aten("arange.start_step", 0, 8, 2, factors=""),
    aten("eye.default", 4, factors=""),
    aten("eye.m", 4, 8, factors="", dtype=torch.float32),
    aten("scalar_tensor.default", 2.0, factors="", dtype=torch.float32),
    Call("constant.literal", [1, 2], [2], factors="", dtype=torch.int64),
    aten("tril.default", real(8, 4, 4), factors="dim0"),
    aten("triu.default", real(4, 4), 1, factors=""),
)
UNDEFINED = (aten("empty.memory_format", [4, 8]), aten("empty_like.default", x), aten("new_empty.default", x, [4, 8]))
RANDOM = (
    aten("native_dropout.default", positive(8, 16), 0.25, True),
    aten("bernoulli.default", x),
    aten("bernoulli.p", x, 0.5),
    aten("rand.default", [4, 8]),
    aten("rand_like.default", x),
    aten("randn.default", [4, 8]),
    aten("randn_like.default", x),
    aten("randint.default", 1000000, [4, 8]),
    aten("randint.low", -1000000, 1000000, [4, 8]),
    aten("exponential.default", x),
    aten("uniform.default", x, -1.0, 1.0),
    aten("normal_functional.default", x),
)
