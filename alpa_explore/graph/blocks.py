"""The blocks of a model: modules in a list named h, layers or blocks, by their numbers."""

import re
from collections.abc import Mapping

from alpa_explore.graph.counts import ROUTED, packet
from alpa_explore.graph.graph import TrainingGraph
from alpa_explore.graph.operator import Phase

_BLOCK = re.compile(r"(?:^|\.)(?:h|layers?|blocks?)\.(\d+)(?:\.|$)")


def block_numbers(graph: TrainingGraph) -> list[int | None]:
    """The number of the block of each forward operator; None outside of blocks."""
    return [block_number(o.module) for o in graph.forward_operators]


def block_starts(graph: TrainingGraph) -> tuple[int, ...]:
    """Positions of the first forward operators of the blocks of a model; none where they are not numbered from 0."""
    numbers = block_numbers(graph)
    found = sorted({n for n in numbers if n is not None})
    return tuple(map(numbers.index, found)) if found == list(range(len(found))) else ()


def head_operators(graph: TrainingGraph) -> frozenset[int]:
    """The forward operators behind the last numbered block: those of the head and the loss; none without blocks."""
    last = max((i for i, number in enumerate(block_numbers(graph)) if number is not None), default=None)
    return frozenset() if last is None else frozenset(o.index for o in graph.forward_operators[last + 1 :])


def exchanged_elements(graph: TrainingGraph) -> Mapping[int, float]:
    """Position in `graph.parameters` -> elements that are exchanged at once with those of this weight, where replicas
    gather weights block by block, or sum their gradients so: of a block those of all experts, or all others. Blocks of
    unlike sizes count as their mean; empty where the model has no numbered blocks."""
    blocks: set[int] = set()
    elements = {False: 0.0, True: 0.0}
    routed = [_is_routed(graph, position) for position in range(len(graph.parameters))]
    for position, parameter in enumerate(graph.parameters):
        if (number := block_number(parameter.name)) is not None:
            blocks.add(number)
            elements[routed[position]] += graph.tensors[parameter.tensor].elements
    if not blocks:
        return {}
    of_block = {kind: total / len(blocks) for kind, total in elements.items()}
    return {position: of_block[kind] for position, kind in enumerate(routed) if of_block[kind]}


def _is_routed(graph: TrainingGraph, position: int) -> bool:
    readers = (graph.operators[o] for o in graph.readers.get(graph.parameters[position].tensor, ()))
    return any(o.phase is Phase.FORWARD and packet(o.kind) in ROUTED for o in readers)


def block_number(name: str) -> int | None:
    """The number of the block of a module or a parameter; None outside of blocks."""
    match = _BLOCK.search(name)
    return int(match[1]) if match else None
