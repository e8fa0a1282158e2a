"""Drafts: operators whose tensors have no numbers yet, as the joint graph's nodes are read."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from torch import Tensor, fx

from alpa_explore.graph import Argument, leaves


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
