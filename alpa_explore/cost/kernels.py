"""The kernel that one device runs for an operator: its kind, local sizes, FLOPs and bytes. No seconds here.

A matrix product is count × [m, k] × [k, n]; a convolution is one as an implicit product over its output positions.
Attention is count = batch × heads products of queries and keys: m queries, n keys, k the size of a head. Routed experts
are count products of m rows, those of an even load; n and k are those of the up projection. A recurrence is a kernel a
step, which computes one product, m samples, and reads the whole weight again.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from alpa_explore.cluster.precisions import RECIPES
from alpa_explore.cost.tuning import ATTENTION_BLOCK
from alpa_explore.graph import Operator, Phase, Tensor
from alpa_explore.graph.counts import RECURRENCES, ROUTED, attention_options, matrix_shapes, packet
from alpa_explore.sharding.rules.attention import CONTEXT, RING, RING_ZIGZAG, ULYSSES
from alpa_explore.sharding.spec import local_shape
from alpa_explore.sharding.strategy import Strategy
from alpa_explore.units import DTYPE_BYTES

_OF_CUDNN = frozenset({"aten.convolution", "aten.convolution_backward", *RECURRENCES})
Shape = tuple[int, ...]
Sizes = tuple[float, ...]
"""(count, m, n, k)."""
NO_SIZES: Sizes = (0, 0, 0, 0)
ADDING_BIAS_BYTES = (28, 40)
"""Bytes that are moved for each number of the results of routed experts to add the bias of the down projection, and in
the backward pass of that. Grouped products do not add it, as it is weighted by the router: Megatron-Core and NeMo
Automodel (`_apply_bias`) go through the rows of one expert after the other in PyTorch, in float32 as the weights are.
The weighted bias is written (4), it and the result are read and their sum is written (4 + 2 + 4), the sums of all
experts are joined (4 + 4) and rounded (4 + 2). Backward the gradient is cast (2 + 4), rounded again for the result
(4 + 2) and joined (2 + 2), and multiplied by bias and by weight, each product written and summed (2 · (4 + 4 + 4))."""


class KernelKind(enum.StrEnum):
    """What limits a kernel: the figures by which it is priced."""

    PRODUCT = "product"
    UNALIGNED_PRODUCT = "product of unaligned rows"
    """Of plain PyTorch, whose rows are no multiples of 16 bytes in memory."""
    GROUPED_PRODUCT = "grouped product"
    """Products with a weight each, and rows of their own, in one kernel: the experts of a device."""
    ATTENTION = "attention"
    ATTENTION_BACKWARD = "attention backward"
    MASKED_ATTENTION = "attention under a mask"
    MASKED_ATTENTION_BACKWARD = "attention under a mask backward"
    MEMORY = "memory"
    """Pointwise operators, reductions, data movement: memory traffic."""
    UPDATE = "update"
    """The step of an optimizer: memory traffic, of one fused kernel in any software."""


_ATTENTION = {
    KernelKind.ATTENTION,
    KernelKind.ATTENTION_BACKWARD,
    KernelKind.MASKED_ATTENTION,
    KernelKind.MASKED_ATTENTION_BACKWARD,
}
_FILLING = 1 << 30
"""Rows, columns or queries that fill all tiles and processors."""


class KernelName(NamedTuple):
    """How a kernel is found among those that were timed (`cost.measured`)."""

    name: str
    """Of the operator, its arguments and its local shapes."""
    family: str
    """Of all kernels that differ from it in their sizes alone."""
    together: float = 0.0
    """Bytes of the fused kernel that it is part of, which is timed as one; 0 for a kernel by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """The work of one device for one operator."""

    flops: float
    bytes_accessed: float
    dtype: str
    matrix: bool
    """Whether it runs on matrix units."""
    kind: KernelKind = KernelKind.MEMORY
    sizes: tuple[float, ...] = (0.0, 0.0, 0.0, 0.0)
    """(count, m, n, k) of a product or of attention; zeros for other kernels, and where the local sizes are not
    known."""
    steps: float = 1
    """Kernels in sequence that share the FLOPs and bytes evenly, each of the sizes above: the steps of a recurrence.
    Below 1, the share of one kernel of these sizes that the FLOPs and bytes are (`graph.operator.Joined`)."""

    name: KernelName | None = None
    """On a device with timed kernels, where it is one that can be timed."""

    @property
    def is_view(self) -> bool:
        """No bytes and no FLOPs: it takes no time."""
        return self.flops == 0 and self.bytes_accessed == 0


def product_sizes(operator: Operator, inputs: Sequence[Shape], outputs: Sequence[Shape]) -> tuple[int, int, int, int]:
    """(count, m, n, k) of a product or of attention, from the local shapes of its inputs and outputs.

    Zeros for an operator whose sizes do not follow from them.
    """
    name = packet(operator.kind)
    if name in ("aten.mm", "aten.addmm"):
        left, right = inputs[-2:]
        return 1, left[0], right[1], left[1]
    if name in ("aten.bmm", "aten.baddbmm", "aten.matmul"):
        left, right = inputs[-2:]
        return math.prod(left[:-2]), left[-2], right[-1], left[-1]
    if name == "aten.convolution":
        output, weight = outputs[0], inputs[1]
        return 1, output[0] * math.prod(output[2:]), output[1], math.prod(weight[1:])
    if name in ROUTED:
        up = inputs[ROUTED[name].matrices]
        width = inputs[0][1]
        hidden = sum(math.prod(m[1:]) for m in matrix_shapes(name, inputs, operator.arguments)[:-1]) // width
        # The share of hidden that a device has says how many rows it computes: under any division.
        kept = inputs[4] if ROUTED[name].products > 1 else outputs[2]
        return up[0], max(math.prod(kept) // (hidden * up[0]), 1), hidden, width
    if name in RECURRENCES:
        gates, hidden = inputs[1]
        return (1, inputs[0][0], *((hidden, gates) if name.endswith("_backward") else (gates, hidden)))
    if name == "alpa_explore.attention":
        query, key = inputs[:2]
        return math.prod(query[:-2]), query[-2], key[-2], query[-1]
    if name == "alpa_explore.attention_backward":
        query, key = inputs[1:3]
        return math.prod(query[:-2]), query[-2], key[-2], query[-1]
    return 0, 0, 0, 0


def routed_bytes(
    operator: Operator, inputs: Sequence[Tensor], share: float, sizes: Sequence[float]
) -> tuple[float, float]:
    """(bytes of the products of routed experts, bytes that kernels around them move) of a device with this share of
    the work and these `product_sizes`.

    Around the products rows are put in the order of their experts, the activation reads the hidden values and writes
    the inner ones, and results are summed for each token; the backward pass moves the gradients of all that, and
    computes the inner values again. Results that have a bias are read and written once more for each step of adding it
    (`ADDING_BIAS_BYTES`).
    """
    name, shapes = packet(operator.kind), [t.shape for t in inputs]
    *ups, down = matrix_shapes(name, shapes, operator.arguments)
    count, _, hidden, width = sizes
    inner = hidden * math.prod(down[1:]) / sum(math.prod(up[1:]) for up in ups)
    times, element = ROUTED[name].products, DTYPE_BYTES[inputs[ROUTED[name].matrices].dtype]
    rows = operator.flops * share / (2 * times * (hidden + inner) * width)
    tokens = rows / shapes[ROUTED[name].chosen][1]
    products = times * (rows * (2 * width + hidden + inner) + count * (hidden + inner) * width)
    moved = 2 * (rows + tokens) * width + rows * (hidden + inner if times == 1 else 2 * hidden + inner)
    biased = bool(operator.arguments[ROUTED[name].matrices + 1])
    return element * products, element * moved + biased * ADDING_BIAS_BYTES[times - 1] * rows * width


def ring_keys(length: int, context: int) -> int:
    """Keys of a causal kernel that is as fast as the kernels of a ring with blocks of `length` keys.

    The first block of a device is causal: a query sees half of its keys in the mean. In the others half of the queries
    see all keys of the block, or all queries half of the keys, so that each kernel is as wide as a causal one of twice
    the keys.
    """
    return length * (2 * context - 1) // context


def sizes_in_window(operator: Operator, sizes: tuple[int, int, int, int]) -> tuple[int, int, int, int]:
    """The sizes of the kernel of an operator, with the keys that are as many as a window lets a query see: of causal
    attention it sees half of them in the mean, so no more than two windows."""
    window, (count, queries, keys, head) = attention_options(operator.kind, operator.arguments).window, sizes
    return count, queries, min(keys, 2 * window) if window else keys, head


def sizes_in_context(
    sizes: tuple[int, int, int, int], factors: Sequence[str], mesh_shape: Sequence[int]
) -> tuple[int, int, int, int]:
    """The sizes of attention where devices exchange keys, or heads for positions, inside the operator: those of the
    kernels that run, from the sizes of what a device holds."""
    count, queries, keys, head = sizes
    for factor, devices in zip(factors, mesh_shape, strict=True):
        if factor in (RING, RING_ZIGZAG):
            keys = ring_keys(keys, devices)
        elif factor == ULYSSES:
            count, queries, keys = max(count // devices, 1), queries * devices, keys * devices
    return count, queries, keys, head


def kernel_kind(operator: Operator, heavy: bool) -> KernelKind:
    """The kind of the kernel of an operator; `heavy` operators run on matrix units."""
    name = packet(operator.kind)
    masked = operator.unfused is not None and operator.unfused.masked
    if name == "alpa_explore.attention":
        return KernelKind.MASKED_ATTENTION if masked else KernelKind.ATTENTION
    if name == "alpa_explore.attention_backward":
        return KernelKind.MASKED_ATTENTION_BACKWARD if masked else KernelKind.ATTENTION_BACKWARD
    if name in ROUTED:
        return KernelKind.GROUPED_PRODUCT
    if operator.phase is Phase.UPDATE:
        return KernelKind.UPDATE
    if operator.unfused is not None and operator.unfused.unaligned:
        return KernelKind.UNALIGNED_PRODUCT
    return KernelKind.PRODUCT if heavy else KernelKind.MEMORY


def kernel_dtype(operator: Operator, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> str:
    """The dtype in which an operator computes. cuDNN convolves float32 in TF32, and so it computes recurrences, as
    PyTorch allows it by default; of a device without TF32 `Device.computes_in` gives the other dtype."""
    if operator.low is not None:
        return RECIPES[operator.low.recipe].dtype
    dtype = (*outputs, *inputs)[0].dtype
    return "tf32" if dtype == "float32" and packet(operator.kind) in _OF_CUDNN else dtype


def cast_elements(
    operator: Operator, inputs: Sequence[Shape], _: Sequence[Shape], sizes: tuple[int, int, int, int]
) -> float:
    """Elements that a product in a lower precision casts, from its local shapes and `product_sizes`: its operand, in
    full; of experts the operands of both products, or the gradients of their results."""
    if operator.low is None:
        return 0.0
    name = packet(operator.kind)
    if name not in ROUTED:
        return float(math.prod(inputs[operator.low.operand]))
    count, rows, hidden, width = sizes
    if ROUTED[name].products > 1:
        return float(count * rows * (hidden + width))
    down = matrix_shapes(name, inputs, operator.arguments)[-1]
    return float(count * rows * (width + math.prod(down[1:]) // width))


def local_sizes(
    operator: Operator,
    inputs: Sequence[Tensor],
    outputs: Sequence[Tensor],
    strategy: Strategy,
    mesh_shape: tuple[int, ...],
) -> Sizes:
    """`product_sizes` of the shapes that a device computes with under a strategy."""
    sizes = product_sizes(operator, *local_shapes(inputs, outputs, strategy, mesh_shape))
    if CONTEXT & set(strategy.factors):
        sizes = sizes_in_context(sizes, strategy.factors, mesh_shape)
    return sizes_in_window(operator, sizes)


def most_efficient_sizes(whole: Kernel) -> Sizes:
    """Sizes with which a kernel is at least as fast, for its FLOPs, as a device's share of `whole`, however it is
    divided. The depth of a product and the keys of attention are divided or not; all else may fill tiles and
    processors. NO_SIZES for products in batches: a device that has one of them has a single product."""
    count, _, columns, depth = whole.sizes
    if whole.kind in _ATTENTION:
        return count, _FILLING, math.ceil(columns / ATTENTION_BLOCK) * ATTENTION_BLOCK, depth
    single = count == 1 or whole.kind is KernelKind.GROUPED_PRODUCT
    return (1, _FILLING, _FILLING, depth) if single and depth else NO_SIZES


def local_shapes(
    inputs: Sequence[Tensor], outputs: Sequence[Tensor], strategy: Strategy, mesh_shape: tuple[int, ...]
) -> tuple[list[Shape], list[Shape]]:
    """The shapes of inputs and outputs that a device has under a strategy."""
    return (
        [local_shape(spec, t.shape, mesh_shape) for t, spec in zip(inputs, strategy.inputs, strict=True)],
        [local_shape(spec, t.shape, mesh_shape) for t, spec in zip(outputs, strategy.outputs, strict=True)],
    )
