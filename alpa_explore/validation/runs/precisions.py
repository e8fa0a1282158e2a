"""The precision of a run by the names that sources use: dtype of tensors, and dtype in which matrix products run."""

from __future__ import annotations

from dataclasses import dataclass, replace

from alpa_explore.cluster.precisions import RECIPES
from alpa_explore.errors import UnknownNameError, nearest_names
from alpa_explore.validation.runs.nearest import near_precision


@dataclass(frozen=True, slots=True, kw_only=True)
class Precision:
    """Names of torch dtypes."""

    tensors: str
    """Of weights and activations."""
    note: str = ""
    """That this is the nearest to a name that is not known."""
    recipe: str | None = None
    """In which linear layers of blocks run, of `precisions.RECIPES`; attention and everything else keep `tensors`."""

    @property
    def products(self) -> str:
        """dtype in which matrix products of linear layers run."""
        return self.tensors if self.recipe is None else RECIPES[self.recipe].dtype


_KNOWN = {
    "bf16": Precision(tensors="bfloat16"),
    "fp16": Precision(tensors="float16"),
    "fp32": Precision(tensors="float32"),
    "tf32": Precision(tensors="float32"),
    "fp16/bf16": Precision(tensors="float16"),  # either; the times are the same
    "fp8": Precision(tensors="bfloat16", recipe="fp8-delayed"),  # the older default of Transformer Engine
    "fp8-cs": Precision(tensors="bfloat16", recipe="fp8-current"),
    "fp8-ds": Precision(tensors="bfloat16", recipe="fp8-delayed"),
    "fp8-mx": Precision(tensors="bfloat16", recipe="mxfp8"),
    "mxfp8": Precision(tensors="bfloat16", recipe="mxfp8"),
    "nvfp4": Precision(tensors="bfloat16", recipe="nvfp4"),
}


def precision_of(name: str) -> Precision:
    """The precision of a source's name, in any case; of one that is not known the nearest, with a note.
    UnknownNameError where none is near."""
    known = _KNOWN.get(name.strip().lower())
    if known is None and (near := near_precision(name)) is not None:
        return replace(_KNOWN[near.name], note=near.note)
    if known is None:
        raise UnknownNameError("Unknown precision", found=repr(name), remedy=nearest_names(name, _KNOWN))
    return known
