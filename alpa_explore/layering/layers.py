"""Layers: runs of forward operators, with boundaries from clustering or given by the user. A backward operator belongs
to the layer of its forward operator.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise, product

from alpa_explore.errors import LayeringError, nearest_names
from alpa_explore.graph import TrainingGraph
from alpa_explore.graph.written import unbroken
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


_WHAT = "The layer boundaries are not valid"


def manual_layers(graph: TrainingGraph, boundaries: Sequence[int | str]) -> Layering:
    """The layering in which a layer begins at position 0 and at each of `boundaries`.

    A boundary is a position in `graph.forward_operators` (17 or "17"), the name of a forward operator, or the path of a
    module ("transformer.h.6", or its end "h.6" if that is unambiguous), meaning its first operator.
    Position 0 may be given and changes nothing. LayeringError: an unknown or ambiguous boundary, a position outside
    the graph, boundaries that do not ascend, one between what reads a written buffer and what writes it.
    """
    places = [_position(graph, boundary) for boundary in boundaries]
    for (earlier, a), (later, b) in pairwise(zip(boundaries, places, strict=True)):
        if b <= a:
            raise LayeringError(
                _WHAT,
                found=f"{later!r} (operator {b}) does not come after {earlier!r} (operator {a})",
                remedy="Give the boundaries in the order of the forward pass, each once.",
            )
    for (name, first, last), place in product(unbroken(graph), places):
        if first < place <= last:
            raise LayeringError(
                _WHAT,
                found=f"a layer that begins at operator {place}, between those that read and write the buffer {name},"
                " on which later losses depend: stages cut there would train another model",
                remedy=f"Begin layers at operator {first} or before, or after operator {last}.",
            )
    return make_layers(graph, [place for place in places if place > 0])


def _position(graph: TrainingGraph, boundary: int | str) -> int:
    if isinstance(boundary, str):
        operators = graph.forward_operators
        named = [place for place, operator in enumerate(operators) if operator.name == boundary]
        if named:
            return named[0]
        modules = _modules(graph, boundary)
        if len(modules) == 1:
            return next(iter(modules.values()))
        if modules:
            raise LayeringError(
                _WHAT,
                found=f"{boundary!r} could be " + " or ".join(repr(path) for path in modules),
                remedy="Give the whole path of the module.",
            )
        if not boundary.isdecimal():
            names = {operator.name for operator in operators} | set(_paths(graph))
            raise LayeringError(
                _WHAT,
                found=f"no forward operator and no module is called {boundary!r}",
                remedy=nearest_names(boundary, names),
            )
        boundary = int(boundary)
    count = len(graph.forward_operators)
    if not 0 <= boundary < count:
        raise LayeringError(
            _WHAT,
            found=f"position {boundary} in a graph of {count} forward operators",
            remedy=f"Give positions from 0 to {count - 1}.",
        )
    return boundary


def _paths(graph: TrainingGraph) -> dict[str, int]:
    """Path of every module that has forward operators, its parents included -> position of its first operator."""
    positions: dict[str, int] = {}
    for place, operator in enumerate(graph.forward_operators):
        parts = operator.module.split(".") if operator.module else []
        for length in range(1, len(parts) + 1):
            positions.setdefault(".".join(parts[:length]), place)
    return positions


def _modules(graph: TrainingGraph, boundary: str) -> dict[str, int]:
    """The modules that `boundary` may mean: the one with exactly that path, else those whose path ends in it."""
    paths = _paths(graph)
    if boundary in paths:
        return {boundary: paths[boundary]}
    return {path: place for path, place in paths.items() if path.endswith("." + boundary)}
