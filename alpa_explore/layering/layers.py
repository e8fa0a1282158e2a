"""Layers: runs of forward operators. A backward operator belongs to the layer of its forward operator."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from alpa_explore.graph import TrainingGraph
from alpa_explore.layering.crossing import crossings_of, produced_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """A run of forward operators; `first` and `last` (inclusive) are positions in `graph.forward_operators`."""

    index: int
    first: int
    last: int
    flops: int
    """Forward FLOPs of one microbatch."""
    cut_bytes: int
    """C of Eq. 6: bytes of the distinct tensors produced in it and read by forward operators outside it."""

    @property
    def operators(self) -> range:
        """Positions of its operators."""
        return range(self.first, self.last + 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Layering:
    """All layers in order; each forward operator is in exactly one."""

    layers: tuple[Layer, ...]

    @property
    def layer_of_forward(self) -> tuple[int, ...]:
        """For each forward operator, by position, the index of its layer."""
        return tuple(layer.index for layer in self.layers for _ in layer.operators)

    @property
    def objective_bytes(self) -> int:
        """The largest C of a layer; of a clustering by Eq. 6 the minimum, G*."""
        return max(layer.cut_bytes for layer in self.layers)

    @property
    def cuts(self) -> tuple[int, ...]:
        """Positions at which layers 1, 2, … begin."""
        return tuple(layer.first for layer in self.layers[1:])


def make_layers(graph: TrainingGraph, cuts: Sequence[int]) -> Layering:
    """The layers that begin at 0 and at each of `cuts` (ascending positions in `graph.forward_operators`)."""
    operators = graph.forward_operators
    flops = [0, *accumulate(o.flops for o in operators)]
    starts, stops = [0, *cuts], [*cuts, len(operators)]
    made = produced_bytes(crossings_of(graph), starts, stops)
    layers = (
        Layer(index=index, first=start, last=stop - 1, flops=flops[stop] - flops[start], cut_bytes=cut_bytes)
        for index, (start, stop, cut_bytes) in enumerate(zip(starts, stops, made, strict=True))
    )
    return Layering(layers=tuple(layers))
