"""Drafts: operators whose tensors have no numbers yet, as the joint graph's nodes are read, with calls in a canonical
form.

Calls that compute nothing are folded into the tensor that they return: detach and alias; views and casts that change
nothing; a view of a view (one view of the first); a transpose of a transpose where the two cancel. Every transpose is
written as `aten.permute.default` and every reshape as `aten.view.default` with explicit sizes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from torch import Tensor, fx

from alpa_explore.graph import Argument, Symbol, leaves
from alpa_explore.graph.operator import permutation


@dataclass(frozen=True, slots=True)
class TracedTensor:
    """A traced tensor: the name of the node that produces it, and the index of the output."""

    node: str
    output: int = 0


DraftArgument: TypeAlias = "Argument | TracedTensor | tuple[DraftArgument, ...]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """An operator before its tensors have numbers."""

    name: str
    kind: str
    arguments: tuple[DraftArgument, ...]
    keywords: tuple[tuple[str, DraftArgument], ...]
    outputs: tuple[TracedTensor, ...]
    backward: bool
    sequence: int | None
    """Autograd's sequence number; a backward operator has that of its forward operator."""
    module: str
    source: str
    in_place: bool = False
    """Whether PyTorch writes the result into the memory of the first argument."""

    @property
    def inputs(self) -> tuple[TracedTensor, ...]:
        """The tensors it reads, in order of appearance, with repeats."""
        return keys((*self.arguments, *(value for _, value in self.keywords)))


@dataclass(slots=True, kw_only=True)
class Drafts:
    """All drafts in traced order, the traced tensors, and the tensor that stands for each node."""

    operators: list[Draft] = field(default_factory=list)
    tensors: dict[TracedTensor, Tensor] = field(default_factory=dict)
    constants: dict[TracedTensor, Tensor] = field(default_factory=dict)
    literals: dict[int, TracedTensor] = field(default_factory=dict)
    """id of a tensor in the model's code -> its key, so that each is drafted once."""
    producer: dict[TracedTensor, Draft] = field(default_factory=dict)
    values: dict[fx.Node, TracedTensor | tuple[TracedTensor | None, ...]] = field(default_factory=dict)

    def key(self, node: fx.Node) -> TracedTensor:
        """The tensor of a node that has a single output."""
        value = self.values[node]
        assert isinstance(value, TracedTensor), f"{node} has several outputs"
        return value

    def add(self, draft: Draft, outputs: Sequence[Tensor]) -> None:
        """Append a draft whose outputs have these shapes and dtypes."""
        self.operators.append(draft)
        for key, tensor in zip(draft.outputs, outputs, strict=True):
            self.tensors[key], self.producer[key] = tensor, draft


def keys(argument: Any) -> tuple[TracedTensor, ...]:
    """The traced tensors inside an argument, in order of appearance."""
    return tuple(part for part in leaves(argument) if isinstance(part, TracedTensor))


SAME_IF_SAME_SHAPE = frozenset(
    """
    aten.view.default aten._unsafe_view.default aten.expand.default aten.slice.Tensor aten.repeat.default
    aten.slice_backward.default aten.squeeze.dim aten.squeeze.dims aten.squeeze.default
    """.split()
)
"""Kinds that return their input when the shape does not change."""
_ALWAYS_SAME = frozenset(
    {"aten.detach.default", "aten.alias.default", "aten.lift_fresh.default", "aten.lift_fresh_copy.default"}
)
"""Kinds that always return their input."""
_VIEW, _PERMUTE = "aten.view.default", "aten.permute.default"

Folded: TypeAlias = "tuple[str, tuple[DraftArgument, ...], TracedTensor | None]"


def fold(
    drafts: Drafts, kind: str, arguments: tuple[DraftArgument, ...], keywords: Mapping[str, DraftArgument], value: Any
) -> Folded:
    """The call in canonical form: (kind, arguments, the tensor that it returns if it computes nothing, else None)."""
    if kind == "aten.cat.default" and isinstance(arguments[0], tuple):
        # Caches for generation start as empty tensors of rank 1, which cat ignores.
        parts = tuple(part for part in arguments[0] if isinstance(part, TracedTensor) and drafts.tensors[part].numel())
        return kind, (parts, *arguments[1:]), parts[0] if len(parts) == 1 else None
    if not arguments or not isinstance(arguments[0], TracedTensor):
        return kind, arguments, None
    source = arguments[0]
    before = drafts.tensors[source]
    if kind in _ALWAYS_SAME:
        return kind, arguments, source
    if kind in SAME_IF_SAME_SHAPE and before.shape == value.shape:
        return kind, arguments, source
    if kind == "aten._to_copy.default":
        dtype = keywords.get("dtype")
        same = before.dtype == value.dtype and (dtype is None or isinstance(dtype, Symbol))
        return kind, arguments, source if same else None
    if kind in ("aten.copy.default", "aten.copy"):
        written = arguments[1]
        assert isinstance(written, TracedTensor)
        after = drafts.tensors[written]
        same = after.shape == value.shape and after.dtype == value.dtype
        return kind, arguments, written if same else None
    if kind in (_VIEW, "aten._unsafe_view.default"):
        inner = drafts.producer.get(source)
        if inner is not None and inner.kind == _VIEW:
            (source, *_) = inner.inputs
            if drafts.tensors[source].shape == value.shape:
                return kind, arguments, source
        return _VIEW, (source, tuple(value.shape)), None
    if kind in ("aten.t.default", "aten.transpose.int", _PERMUTE):
        order = permutation(kind, arguments, before.dim())
        inner = drafts.producer.get(source)
        if inner is not None and inner.kind == _PERMUTE:
            first = inner.arguments[1]
            assert isinstance(first, tuple)
            if tuple(first[place] for place in order) == tuple(range(before.dim())):
                return kind, arguments, inner.inputs[0]
        identity = order == tuple(range(before.dim()))
        return _PERMUTE, (source, order), source if identity else None
    return kind, arguments, None
