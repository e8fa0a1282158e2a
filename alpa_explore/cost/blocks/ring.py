"""Context parallelism of a block whose work was read from a captured graph of a shorter sequence."""

from __future__ import annotations

from dataclasses import replace

from alpa_explore.cost.kernels import KernelKind, ring_keys
from alpa_explore.cost.work import CONTEXT, CollectiveCall, PartWork, PassWork
from alpa_explore.sharding.reshard import StepKind

_ATTENTION = (KernelKind.ATTENTION, KernelKind.ATTENTION_BACKWARD)


def in_ring(part: PartWork, context: int, elements: float) -> PartWork:
    """A block captured with 1 / `context` of the positions, its attention over all of them.

    Keys and values of the whole sequence, so many `elements`, pass by every device beside its attention; backward
    their gradients too. A device of a causal ring in zig-zag order computes `context` blocks of the captured size.
    """
    return replace(
        part,
        forward=_passing(part.forward, context, elements),
        backward=_passing(part.backward, context, 2 * elements),
        again=_passing(part.again, context, elements),
    )


def _passing(work: PassWork, context: int, elements: float) -> PassWork:
    kernels, calls = [], list(work.collectives)
    for place, kernel in enumerate(work.kernels):
        if kernel.kind in _ATTENTION:
            size = 2.0 * elements  # of two bytes
            calls.append(CollectiveCall(kind=StepKind.RING, bytes=size, axis=CONTEXT, beside=place))
            count, queries, keys, head = kernel.sizes
            kernel = replace(
                kernel,
                flops=kernel.flops * context,
                bytes_accessed=kernel.bytes_accessed * context,
                sizes=(count, queries, ring_keys(int(keys), context), head),
            )
        kernels.append(kernel)
    return replace(work, kernels=tuple(kernels), collectives=tuple(calls))
