"""Low precisions of matrix products: their formats, the casts that they need, and which devices have them.

A cast reads an operand in its own dtype and writes it twice, in the two orders in which products of both passes read
it. With a scale for each tensor the second copy is a transpose of the first; MXFP8 has a scale for each 32 entries
along the dim that is summed over, and NVFP4 for 16, so both copies are quantised from the original, and one is
transposed. Current scaling and NVFP4 read the tensor once more before, for its largest entry; delayed scaling takes
that from earlier steps. (OCP Microscaling Formats 1.0; Transformer Engine, "Using FP8 and FP4 with Transformer
Engine".)
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from alpa_explore.arguments import plain_name


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """A low precision of products."""

    label: str
    """Shown to users."""
    dtype: str
    """torch's name."""
    reads: int
    """How often a cast reads each element, in its own dtype."""
    written_bytes: float
    """Bytes that a cast writes for each element: both copies, with their scales."""
    block_format: str = ""
    """The format of `Device.block_formats` that it needs: one with a scale for each block of entries."""

    def cast_bytes(self, element_bytes: int) -> float:
        """Bytes that a cast moves for each element of a tensor."""
        return self.reads * element_bytes + self.written_bytes


RECIPES: Mapping[str, Recipe] = {
    "fp8-delayed": Recipe(label="FP8", dtype="float8_e4m3fn", reads=1, written_bytes=2),
    "fp8-current": Recipe(label="FP8, current scaling", dtype="float8_e4m3fn", reads=2, written_bytes=2),
    "mxfp8": Recipe(
        label="MXFP8", dtype="float8_e4m3fn", reads=1, written_bytes=2 * (1 + 1 / 32), block_format="mxfp8"
    ),
    "nvfp4": Recipe(
        label="NVFP4", dtype="float4_e2m1fn_x2", reads=2, written_bytes=2 * (1 / 2 + 1 / 16), block_format="nvfp4"
    ),
}
"""By name: how scales are found, and what is moved for them."""
BLOCK_FORMATS = tuple(recipe.block_format for recipe in RECIPES.values() if recipe.block_format)
LOW_PRECISIONS: Mapping[str, str] = {
    "fp8": "fp8-delayed",  # as `predict` reads it: the older default of Transformer Engine
    **{name: name for name in RECIPES},
}
"""Names that users give -> recipe."""
LOW_TENSORS = "bfloat16"
"""dtype of weights and activations beside products in a low precision."""
_NEARER = {"nvfp4": ("mxfp8", "fp8-delayed"), "mxfp8": ("fp8-delayed",)}
_WHOLE = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}


def recipe_of(precision: object) -> str:
    """The recipe of a precision by the name that a user gives; empty for one of whole tensors, or none."""
    name = plain_name(precision)
    return LOW_PRECISIONS.get(name, "") if isinstance(name, str) else ""


def tensors_of(precision: str | None) -> str | None:
    """The dtype of tensors of a precision: those of a low one are in bfloat16, all others in itself."""
    return LOW_TENSORS if recipe_of(precision) else precision


def precision_name(recipe: str) -> str:
    """The shortest name that users give for a recipe."""
    return min((name for name, of in LOW_PRECISIONS.items() if of == recipe), key=len)


def runs(recipe: str, peaks: Collection[str], block_formats: Collection[str]) -> bool:
    """Whether a device with peaks for these dtypes and these block formats computes in a recipe."""
    wanted = RECIPES[recipe]
    return wanted.dtype in peaks and (not wanted.block_format or wanted.block_format in block_formats)


def nearest(recipe: str, peaks: Collection[str], block_formats: Collection[str]) -> str:
    """The precision, by the name that users give, that is nearest to a recipe which a device does not have."""
    low = next((near for near in _NEARER.get(recipe, ()) if runs(near, peaks, block_formats)), None)
    return precision_name(low) if low else next(name for dtype, name in _WHOLE.items() if dtype in peaks)
