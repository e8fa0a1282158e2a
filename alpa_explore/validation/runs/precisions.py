"""The precision of a run by the names that sources use: dtype of tensors, and dtype in which matrix products run."""

from __future__ import annotations

from dataclasses import dataclass

from alpa_explore.errors import UnknownNameError, nearest_names

_FP8 = "float8_e4m3fn"
_FP4 = "float4_e2m1fn_x2"


@dataclass(frozen=True, slots=True, kw_only=True)
class Precision:
    """Names of torch dtypes."""

    tensors: str
    """Of weights and activations."""
    products: str
    """In which matrix products of linear layers run; attention and everything else keep `tensors`."""


_KNOWN = {
    "bf16": Precision(tensors="bfloat16", products="bfloat16"),
    "fp16": Precision(tensors="float16", products="float16"),
    "fp32": Precision(tensors="float32", products="float32"),
    "tf32": Precision(tensors="float32", products="float32"),
    "fp16/bf16": Precision(tensors="float16", products="float16"),  # either; the times are the same
    "fp8": Precision(tensors="bfloat16", products=_FP8),
    "fp8-cs": Precision(tensors="bfloat16", products=_FP8),  # current scaling
    "fp8-ds": Precision(tensors="bfloat16", products=_FP8),  # delayed scaling
    "fp8-mx": Precision(tensors="bfloat16", products=_FP8),  # a scale for each block of 32
    "mxfp8": Precision(tensors="bfloat16", products=_FP8),
    "nvfp4": Precision(tensors="bfloat16", products=_FP4),
}


def precision_of(name: str) -> Precision:
    """The precision of a source's name, in any case. UnknownNameError offers the nearest names."""
    known = _KNOWN.get(name.strip().lower())
    if known is None:
        raise UnknownNameError("Unknown precision", found=repr(name), remedy=nearest_names(name, _KNOWN))
    return known
