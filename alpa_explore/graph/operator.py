"""An operator of the training graph: one ATen call (or one parameter's optimizer step) and its phase.

Its signature has no names: operators of equal signature have equal strategies and costs.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from alpa_explore.graph.tensor import Tensor


class Phase(enum.Enum):
    """When an operator runs. Set by the tracer, never guessed from a name."""

    FORWARD = "forward"
    BACKWARD = "backward"
    UPDATE = "update"


@dataclass(frozen=True, slots=True)
class Ref:
    """A tensor among an operator's arguments, by its index in `TrainingGraph.tensors`."""

    tensor: int


@dataclass(frozen=True, slots=True)
class Symbol:
    """A torch constant that plain Python cannot hold: Symbol('dtype', 'float32'), Symbol('device', 'cpu'), …"""

    kind: str
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LowPrecision:
    """How software computes a product in a lower precision than the dtype of its tensors."""

    recipe: str
    """Of `cluster.precisions.RECIPES`."""
    operand: int
    """The input that is cast for it: an activation in the forward pass, a gradient in the backward pass."""
    share: float
    """Its share of that cast: 1 over the products that read the cast tensor."""


@dataclass(frozen=True, slots=True)
class Joined:
    """A product that runs as part of one with others, which read the same tensor."""

    place: int
    """The size in which the whole product is larger: 1, 2 or 3 for m, n or k of [m, k] × [k, n]."""
    share: float
    """Of the whole product in its FLOPs and time, above 0 and below 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FusedKernel:
    """The kernel that torch.compile makes of several operators."""

    name: str
    """A digest of its operators, their arguments and shapes."""
    bytes: int
    """That it reads and writes, whole."""
    operators: tuple[int, ...] = field(compare=False, repr=False)
    """In order, with the views before and between them."""
    inputs: tuple[int, ...] = field(compare=False, repr=False)
    """The tensors that it reads."""
    outputs: tuple[int, ...] = field(compare=False, repr=False)
    """The tensors that it writes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unfused:
    """How an operator of the graph runs where software has no fused kernel for it. Bytes are of the whole operator, and
    divided as its work is."""

    slowdown: float = 1.0
    """Arithmetic time of its own kernel over that of the fused one."""
    moved_bytes: int = 0
    """Read and written by kernels beside its own."""
    kept_bytes: int = 0
    """Kept for the backward pass beside tensors of the graph."""
    workspaces: tuple[int, ...] = ()
    """Places among its inputs and outputs of the tensors in whose sizes it needs memory while it runs; in that of an
    output until the first kernel has read it."""
    unaligned: bool = False
    """Whether it is a product of rows that are no multiples of 16 bytes in memory (`KernelFigures.unaligned_share`)."""
    in_float32: bool = False
    """Whether it is attention as products of all scores in float32."""
    masked: bool = False
    """Whether it is attention by the kernel that a device has for masks (`KernelFigures.masked_attention`)."""


Argument: TypeAlias = "bool | int | float | str | Ref | Symbol | tuple[Argument, ...] | None"


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """One operator; `index` is its place in `TrainingGraph.operators` (a topological order).

    `inputs` are the tensors of `arguments` and `keywords` in the order in which they appear there (with repeats);
    `outputs` has one entry for each tensor the call returns (operators with several outputs have no getitem nodes).
    `forward` is, for a backward operator, the index of the forward operator that it belongs to.
    """

    index: int
    name: str
    kind: str
    """'aten.mm.default', 'optimizer.adam', …"""
    phase: Phase
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    arguments: tuple[Argument, ...]
    keywords: tuple[tuple[str, Argument], ...] = ()
    flops: int = 0
    """Of the whole operator, multiplications and additions counted separately; 0 for views and pure data movement."""
    bytes_accessed: int = 0
    """Bytes read and written by a kernel of this operator; 0 for views."""
    launches: int = 1
    """Kernels that the host launches for it: 0 for an operator that runs inside the kernel of another one."""
    in_place: bool = False
    """Whether PyTorch writes the result into the memory of the first input."""
    stored: bool = True
    """False where no output is written to memory: all readers run in the same kernel."""
    fused: FusedKernel | None = None
    """Of software that compiles: the kernel that it is part of."""
    unfused: Unfused | None = None
    """Where software has no such kernel; its price alone, never its result, depends on it."""
    joined: Joined | None = None
    """Where software computes it as part of a larger product; its price alone, never its result, depends on it."""
    low: LowPrecision | None = None
    """Where software computes it in a lower precision; its price alone, never its result, depends on it."""
    forward: int | None = None
    discovered: object = field(default=None, repr=False)
    """`sharding.strategy.Coverage` of an operator without a rule; None before that pass, and with a rule."""
    module: str = ""
    """Path of the nn.Module that called it, e.g. 'transformer.h.3.mlp'."""
    source: str = ""
    """'file.py:123', the line of the model's code that called it; empty if unknown."""

    @property
    def values(self) -> tuple[Argument, ...]:
        """All arguments, those with keywords last."""
        return (*self.arguments, *(value for _, value in self.keywords))

    def mapped(self, change: Callable[[Any], Any]) -> Operator:
        """The same with every part of its arguments changed."""
        keywords = tuple((name, mapped(value, change)) for name, value in self.keywords)
        return replace(self, arguments=mapped(self.arguments, change), keywords=keywords)

    def renumbered(self, number: Mapping[int, int]) -> Operator:
        """The same with other numbers of its tensors."""
        refs = self.mapped(lambda part: Ref(number[part.tensor]) if isinstance(part, Ref) else part)
        inputs, outputs = (tuple(number[tensor] for tensor in side) for side in (self.inputs, self.outputs))
        return replace(refs, inputs=inputs, outputs=outputs)


def leaves(argument: object) -> Iterator[Any]:
    """The parts of an argument that are no tuples, in order of appearance."""
    if isinstance(argument, tuple):
        for part in argument:
            yield from leaves(part)
    else:
        yield argument


def mapped(argument: Any, change: Callable[[Any], Any]) -> Any:
    """An argument with every part that is no tuple changed."""
    return tuple(mapped(part, change) for part in argument) if isinstance(argument, tuple) else change(argument)


def tensor_refs(argument: Argument) -> tuple[int, ...]:
    """The tensor indices inside an argument, in order of appearance."""
    return tuple(part.tensor for part in leaves(argument) if isinstance(part, Ref))


def permutation(kind: str, arguments: Sequence[Any], rank: int) -> tuple[int, ...]:
    """The dims of a call of t, transpose or permute in the form of permute."""
    if kind == "aten.permute.default":
        return tuple(dim % rank for dim in arguments[1])
    order = list(range(rank))
    if rank > 1:
        first, second = (0, 1) if kind == "aten.t.default" else (dim % rank for dim in arguments[1:3])
        order[first], order[second] = order[second], order[first]
    return tuple(order)


def operator_signature(operator: Operator, tensors: Sequence[Tensor] | Mapping[int, Tensor]) -> tuple[object, ...]:
    """Everything that strategies and their costs depend on; no names and no tensor numbers."""
    places = {t: i for i, t in enumerate(dict.fromkeys(operator.inputs))}

    def strip(part: object) -> object:
        """With the number of a tensor replaced by its position among the operator's own inputs."""
        if isinstance(part, Ref):
            return ("tensor", places[part.tensor])
        # 1, 1.0 and True are equal in Python but not to an operator.
        return (type(part).__name__, part if not (isinstance(part, float) and math.isnan(part)) else "nan")

    return (
        operator.kind,
        mapped(operator.arguments, strip),
        tuple((name, mapped(value, strip)) for name, value in operator.keywords),
        tuple((tensors[t].shape, tensors[t].dtype) for t in operator.inputs),
        tuple((tensors[t].shape, tensors[t].dtype) for t in operator.outputs),
        operator.flops,
        operator.bytes_accessed,
        operator.launches,
        operator.stored,
        operator.fused,
        operator.unfused,
        operator.low,
        operator.joined,
        operator.discovered,
    )
