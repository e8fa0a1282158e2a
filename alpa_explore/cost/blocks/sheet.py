"""Collects the kernels and exchanges of a block, forward and backward, as one device runs them.

Traffic is that of fused pointwise kernels, as `cost.fusion` counts it. With tensor parallelism norms and residuals are
divided along the sequence (Megatron): products gather their input and scatter their result.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from alpa_explore.cost.kernels import Kernel, KernelKind
from alpa_explore.cost.work import CONTEXT, EXPERTS, TENSOR, CollectiveCall, PassWork
from alpa_explore.sharding.reshard import StepKind

ELEMENT = 2
"""Bytes of an element of weights and activations."""
DTYPE = "bfloat16"


@dataclass(slots=True)
class _Pass:
    kernels: list[Kernel] = field(default_factory=list)
    calls: list[CollectiveCall] = field(default_factory=list)
    launches: int = 0
    expert_layers: int = 0


@dataclass(slots=True)
class Sheet:
    """The work of one device; sizes given to its methods are local."""

    tensor: int
    """Devices of a tensor-parallel group."""
    forward: _Pass = field(default_factory=_Pass)
    backward: _Pass = field(default_factory=_Pass)
    parameters: float = 0.0
    expert_parameters: float = 0.0
    parameter_tensors: int = 0
    held_bytes: float = 0.0
    workspace_bytes: float = 0.0

    def linear(
        self, m: int, n: int, k: int, *, gathers: bool = False, scatters: bool = False, keeps_dtype: bool = False
    ) -> None:
        """[m, k] × [k, n] and its two products backward; the weight is a parameter. What `gathers` its input from the
        tensor-parallel group scatters the gradient of it, and the other way round."""
        self._product(self.forward, 1, m, n, k, keeps_dtype)
        if gathers:
            self._call(self.forward, StepKind.ALL_GATHER, m * k)
        if scatters:
            self._call(self.forward, StepKind.REDUCE_SCATTER, m * n)
        self._product(self.backward, 1, n, k, m, keeps_dtype)
        if scatters:
            self._call(self.backward, StepKind.ALL_GATHER, m * n)
        self._product(self.backward, 1, m, k, n, keeps_dtype)
        if gathers:
            self._call(self.backward, StepKind.REDUCE_SCATTER, m * k)
        self.parameters += n * k
        self.parameter_tensors += 1
        self.holds(m * k)

    def grouped(self, count: int, m: float, n: int, k: int) -> None:
        """`count` products [m, k] × [k, n] with a weight each, in one kernel; and backward."""
        for work, sizes in ((self.forward, (m, n, k)), (self.backward, (n, k, m)), (self.backward, (m, k, n))):
            rows, columns, depth = sizes
            work.kernels.append(
                Kernel(
                    flops=2.0 * count * m * n * k,
                    bytes_accessed=float(ELEMENT * count * (m * k + k * n + m * n)),
                    dtype=DTYPE,
                    matrix=True,
                    kind=KernelKind.GROUPED_PRODUCT,
                    sizes=(count, rows, columns, depth),
                )
            )
            work.launches += 1
        self.expert_parameters += count * n * k
        self.parameter_tensors += 1
        self.holds(count * m * k)

    def moved(self, forward: float, backward: float, *, held: float = 0.0) -> None:
        """Pointwise work, or movement, of so many elements read and written in a pass; of 0 there is no kernel."""
        for work, elements in ((self.forward, forward), (self.backward, backward)):
            if elements:
                work.kernels.append(
                    Kernel(flops=elements, bytes_accessed=float(ELEMENT * elements), dtype=DTYPE, matrix=False)
                )
                work.launches += 1
        self.holds(held)

    def attention(
        self, count: int, queries: int, keys: int, head: tuple[int, int], *, scores: float, read: float
    ) -> None:
        """Fused attention of `count` (sample, head) pairs of this device; `head` are the sizes of a head of keys and of
        values, `scores` the pairs that it computes, `read` the elements of all its inputs."""
        size, value = head
        written = count * queries * value
        for work, flops, kind, moved in (
            (self.forward, 2.0 * (size + value), KernelKind.ATTENTION, read + written),
            (self.backward, 2.0 * (3 * size + 2 * value), KernelKind.ATTENTION_BACKWARD, 2 * (read + written)),
        ):
            work.kernels.append(
                Kernel(
                    flops=flops * count * scores,
                    bytes_accessed=float(ELEMENT * moved),
                    dtype=DTYPE,
                    matrix=True,
                    kind=kind,
                    sizes=(count, queries, keys, size),
                )
            )
            work.launches += 1
        self.holds(read + written)

    def spelled_out_attention(self, count: int, length: int, head: tuple[int, int], *, read: float) -> None:
        """The same by two products and a softmax: all scores are computed, and stored in 16 bits."""
        size, value = head
        scores = count * length * length
        for work, products in (
            (self.forward, ((length, length, size), (length, value, length))),
            (
                self.backward,
                ((length, length, value), (length, value, length), (length, size, length), (length, size, length)),
            ),
        ):
            for m, n, k in products:
                self._product(work, count, m, n, k, True)
        for work, times in ((self.forward, 2), (self.backward, 3)):
            # A kernel of its own in every software: scale, mask and softmax, with no other traffic.
            moved = float(ELEMENT * times * scores)
            softmax = Kernel(flops=1.0, bytes_accessed=moved, dtype=DTYPE, matrix=False, kind=KernelKind.UPDATE)
            work.kernels.append(softmax)
            work.launches += 1
        self.holds(read + scores)

    def ring(self, elements: float) -> None:
        """Keys and values of the whole sequence pass by, beside the attention that was added last; backward their
        gradients too."""
        for work, times in ((self.forward, 1), (self.backward, 2)):
            self._call(work, StepKind.RING, times * elements, axis=CONTEXT)

    def all_to_all(self, elements: float, copies: int, *, times: int = 1) -> None:
        """Rows go to the devices of their experts, and their gradients back; `copies` rows are of one token."""
        call = CollectiveCall(kind=StepKind.ALL_TO_ALL, bytes=ELEMENT * elements, axis=EXPERTS, copies=copies)
        for work in (self.forward, self.backward):
            work.calls += [call] * times

    def expert_layer(self) -> None:
        """A layer of experts is in both passes."""
        self.forward.expert_layers += 1
        self.backward.expert_layers += 1

    def holds(self, elements: float) -> None:
        """Elements that are kept for the backward pass."""
        self.held_bytes += ELEMENT * elements

    def passes(self) -> tuple[PassWork, PassWork]:
        """Forward and backward."""
        forward, backward = (
            PassWork(
                kernels=tuple(p.kernels), collectives=tuple(p.calls), launches=p.launches, expert_layers=p.expert_layers
            )
            for p in (self.forward, self.backward)
        )
        return forward, backward

    def _product(self, work: _Pass, count: int, m: int, n: int, k: int, keeps_dtype: bool) -> None:
        work.kernels.append(
            Kernel(
                flops=2.0 * count * m * n * k,
                bytes_accessed=float(ELEMENT * count * (m * k + k * n + m * n)),
                dtype=DTYPE,
                matrix=True,
                kind=KernelKind.PRODUCT,
                sizes=(count, m, n, k),
                keeps_dtype=keeps_dtype,
            )
        )
        work.launches += 1

    def _call(self, work: _Pass, kind: StepKind, elements: float, *, axis: int = TENSOR) -> None:
        if axis == TENSOR and self.tensor == 1:
            return
        place = len(work.kernels) - 1
        work.calls.append(CollectiveCall(kind=kind, bytes=float(ELEMENT * elements), axis=axis, beside=place))


def in_sequence(first: PassWork, second: PassWork) -> PassWork:
    """One pass after the other."""
    shift = len(first.kernels)
    later = tuple(replace(c, beside=c.beside + shift) if c.beside >= 0 else c for c in second.collectives)
    return PassWork(
        kernels=first.kernels + second.kernels,
        collectives=first.collectives + later,
        launches=first.launches + second.launches,
        expert_layers=first.expert_layers + second.expert_layers,
    )
