"""How an operator runs on one shard: what the proof of a rule runs, and what an interpreter or a runtime will run.

Most operators run as they are on their local pieces. The rest differ in one of three ways, described here without
torch: size arguments take the local extent; an addend that must count once is zero on all but the first device of an
axis; and a few operators need a sum over the devices of an axis in their middle (`Recipe`).
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, replace

from alpa_explore.graph import Argument, Operator, Tensor
from alpa_explore.sharding.spec import PARTIAL, local_shape
from alpa_explore.sharding.strategy import Strategy


class Recipe(enum.Enum):
    """What happens on a device."""

    CALL = "call the operator on the local pieces"
    MASKED_LOOKUP = "look up the indices that fall into the own rows, zeros for the others"
    MASKED_SCATTER = "add the gradients of the indices that fall into the own rows"
    GLOBAL_BATCH_NORM = "sum x and x² over the axes, then normalise the own samples"
    GLOBAL_BATCH_NORM_BACKWARD = "sum dy and dy·x̂ over the axes, then the gradient of the own samples"
    GLOBAL_NLL = "sum the losses of the own rows, sum the weights over the axes, divide a mean by them"


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalCall:
    """One device's share of an operator."""

    operator: Operator
    """The same operator with local size arguments."""
    recipe: Recipe
    axes: tuple[int, ...] = ()
    """Mesh axes over which the recipe sums."""
    zeroed: tuple[int, ...] = ()
    """Positions in `operator.inputs` that count as zero on this device."""
    first_row: int = 0
    """Masked recipes: the first row of the table that lies on this device."""
    rows: int = 0


_SIZES = {
    "aten.view.default": 1, "aten._unsafe_view.default": 1, "aten.reshape.default": 1, "aten.expand.default": 1,
    "aten.full.default": 0, "aten.zeros.default": 0, "aten.ones.default": 0, "aten.empty.memory_format": 0,
    "aten.new_zeros.default": 1, "aten.new_ones.default": 1, "aten.new_full.default": 1, "aten.new_empty.default": 1,
    "aten.select_backward.default": 1, "aten.slice_backward.default": 1,
}  # fmt: skip
"""Kind -> position of the argument that is the shape of the output."""
_BIASED = {"aten.addmm.default": 0, "aten.baddbmm.default": 0, "aten.convolution.default": 2}
"""Kind -> position among the inputs of an addend that a K split must count once."""


def localize(
    operator: Operator, tensors: Sequence[Tensor], strategy: Strategy, mesh_shape: Sequence[int],
    coordinate: Sequence[int],
) -> LocalCall:  # fmt: skip
    """What the device at `coordinate` of the mesh runs under `strategy`."""
    outputs = [
        local_shape(spec, tensors[t].shape, mesh_shape)
        for spec, t in zip(strategy.outputs, operator.outputs, strict=True)
    ]
    inputs = [
        local_shape(spec, tensors[t].shape, mesh_shape)
        for spec, t in zip(strategy.inputs, operator.inputs, strict=True)
    ]
    kind, arguments = operator.kind, operator.arguments
    if kind in _SIZES:
        arguments = _with(arguments, _SIZES[kind], outputs[0])
    synced = tuple(axis for axis, sent in enumerate(strategy.sync_bytes) if sent)
    if kind == "aten.embedding.default":
        rows = inputs[0][0]
        first = _block(strategy.inputs[0], 0, mesh_shape, coordinate) * rows
        return LocalCall(operator=operator, recipe=Recipe.MASKED_LOOKUP, first_row=first, rows=rows)
    if kind == "aten.embedding_dense_backward.default":
        rows = outputs[0][0]
        first = _block(strategy.outputs[0], 0, mesh_shape, coordinate) * rows
        return LocalCall(operator=operator, recipe=Recipe.MASKED_SCATTER, first_row=first, rows=rows)
    if kind == "aten.convolution_backward.default" and arguments[3] is not None:
        arguments = _with(arguments, 3, (inputs[2][0],))
    if kind in ("aten.native_group_norm.default", "aten.native_group_norm_backward.default"):
        # Both calls end with N, C, H·W, groups and one more argument.
        arguments = _with(arguments, len(arguments) - 5, inputs[0][0])
    recipe = Recipe.CALL
    if synced:
        recipe = {
            "aten.nll_loss_forward.default": Recipe.GLOBAL_NLL,
            "aten.native_batch_norm_backward.default": Recipe.GLOBAL_BATCH_NORM_BACKWARD,
        }.get(kind, Recipe.GLOBAL_BATCH_NORM)
    zeroed: tuple[int, ...] = ()
    bias = _BIASED.get(kind)
    if bias is not None and bias < len(operator.inputs):
        summed = [axis for axis, p in enumerate(strategy.outputs[0]) if p == PARTIAL]
        if any(coordinate[axis] for axis in summed):
            zeroed = (bias,)
    return LocalCall(operator=replace(operator, arguments=arguments), recipe=recipe, axes=synced, zeroed=zeroed)


def _with(arguments: tuple[Argument, ...], place: int, value: Argument) -> tuple[Argument, ...]:
    return (*arguments[:place], value, *arguments[place + 1 :])


def _block(spec: Sequence[int], dim: int, mesh_shape: Sequence[int], coordinate: Sequence[int]) -> int:
    """Number of the block of `dim` at `coordinate`: the axes that cut it are digits, the first the largest."""
    block = 0
    for axis, placement in enumerate(spec):
        if placement == dim:
            block = block * mesh_shape[axis] + coordinate[axis]
    return block
