"""Where a layered graph is cut into blocks, and which tensors break the chain.

The graph is cut wherever a single forward tensor passes from one operator to the next, as the residual stream does
between the halves of a transformer layer; then each block has edges to adjacent blocks only. Layers need not end there:
a layer that ends between the two products of an MLP divides a block into *fragments*, and a range that ends with that
layer holds a part of the block. Where more than MOST_LAYER_ENDS layers would end in a block the chain is cut there
anyway.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from alpa_explore.graph import Operator, Phase, TensorKind
from alpa_explore.intra_op.composition import tuning
from alpa_explore.intra_op.stage.layered_graph import UPDATE_LAYER, LayeredGraph, move_sums
from alpa_explore.numerics.arrays import Ints

_UPDATE = UPDATE_LAYER, UPDATE_LAYER
"""The place of an operator of the update phase."""


def layers_touching(layered: LayeredGraph) -> dict[int, set[int]]:
    """For each tensor the layers that read, make or hold it."""
    touching = _parts_touching(layered, layered.layer_of)
    # What a layer holds for its backward pass may be stored elsewhere, as the base of a view.
    for layer, tensors in enumerate(layered.held):
        for tensor in tensors:
            touching[tensor].add(layer)
    return touching


def short_skips(layered: LayeredGraph, touching: Mapping[int, set[int]]) -> set[int]:
    """Tensors that are made in a layer and read beyond the next, but so near that a block may hold all of it."""
    tensors = layered.graph.tensors
    return {
        tensor
        for tensor, layers in touching.items()
        if tensors[tensor].producer is not None and 2 <= max(layers) - min(layers) <= tuning.MOST_LAYER_ENDS
    }


def breaking_tensors(
    layered: LayeredGraph, touching: Mapping[int, set[int]], short: Collection[int]
) -> tuple[frozenset[int], frozenset[tuple[int, int]], frozenset[tuple[int, int]]]:
    """Constants; pairs of layers that are not adjacent and share a tensor; the pairs among them that share parameters
    only. The tensors `short` (skips) are left out of all three."""
    graph = layered.graph
    parameter_at = {p.tensor: i for i, p in enumerate(graph.parameters)}
    constants: set[int] = set()
    breaks: set[tuple[int, int]] = set()
    parameter_breaks: set[tuple[int, int]] = set()
    for tensor, layers in touching.items():
        producer = graph.tensors[tensor].producer
        if graph.tensors[tensor].kind is TensorKind.PARAMETER and tensor in parameter_at:
            users = layered.parameter_users[parameter_at[tensor]]
            parameter_breaks |= _distant_pairs(layers | {layered.layer_of[o] for o in users})
        elif producer in layered.tables:
            constants.add(tensor)
        elif _distant_pairs(layers) and tensor not in short:
            constants.add(tensor)
            if producer is not None:
                maker = layered.layer_of[producer]
                breaks |= {(a, b) for a, b in _distant_pairs(layers | {maker}) if a <= maker <= b}
    return frozenset(constants), frozenset(breaks | parameter_breaks), frozenset(parameter_breaks - breaks)


def cut_into_blocks(
    layered: LayeredGraph, constants: frozenset[int]
) -> tuple[LayeredGraph, tuple[int, ...], tuple[int, ...]]:
    """The graph in fragments, and for each fragment its layer and its block."""
    places = _places(layered, constants)
    order = sorted(set(places) - {_UPDATE})
    number = {_UPDATE: UPDATE_LAYER} | {place: i for i, place in enumerate(order)}
    fragment_of = tuple(number[place] for place in places)
    layer_of = tuple(layer for _, layer in order)
    held: list[set[int]] = [set() for _ in order]
    for operator in layered.graph.operators:
        if operator.phase is not Phase.UPDATE:
            stored = {layered.storage[t] for t in (*operator.inputs, *operator.outputs)}
            held[fragment_of[operator.index]] |= stored.intersection(layered.held[layered.layer_of[operator.index]])
    fragments = replace(
        layered, num_layers=len(order), layer_of=fragment_of, held=tuple(tuple(sorted(tensors)) for tensors in held)
    )
    return fragments, layer_of, _with_joined_blocks(fragments, [block for block, _ in order], layer_of, constants)


def skipped_over(fragments: LayeredGraph, block_of: Sequence[int]) -> set[int]:
    """Tensors that are shared by blocks that are not adjacent."""
    return {
        tensor
        for tensor, touching in layers_touching(fragments).items()
        if max(block_of[f] for f in touching) >= min(block_of[f] for f in touching) + 2
    }


def _parts_touching(layered: LayeredGraph, part_of: Iterable[int]) -> dict[int, set[int]]:
    """For each tensor the parts (layers or fragments) whose operators read or make it."""
    touching: dict[int, set[int]] = defaultdict(set)
    for operator, part in zip(layered.graph.operators, part_of, strict=True):
        if operator.phase is not Phase.UPDATE:
            for tensor in (*operator.inputs, *operator.outputs):
                touching[tensor].add(part)
    return touching


def _distant_pairs(parts: set[int]) -> set[tuple[int, int]]:
    """Pairs (a, b), a < b, that are not adjacent."""
    return {(a, b) for a in parts for b in parts if b >= a + 2}


def _places(layered: LayeredGraph, constants: frozenset[int]) -> list[tuple[int, int]]:
    """(block, layer) of every operator; a backward operator has that of its forward operator."""
    graph = layered.graph
    forward = [o for o in graph.operators if o.phase is Phase.FORWARD]
    layer_of = [layered.layer_of[o.index] for o in forward]
    places = [_UPDATE] * len(graph.operators)
    cuts = _cuts(_live_tensors(layered, forward, constants), layer_of)
    for i, operator in enumerate(forward):
        places[operator.index] = bisect_right(cuts, i), layer_of[i]
    for operator in graph.operators:
        if operator.phase is Phase.BACKWARD and operator.forward is not None:
            places[operator.index] = places[operator.forward]
    move_sums(graph, places)
    return places


def _live_tensors(layered: LayeredGraph, forward: Sequence[Operator], constants: frozenset[int]) -> Ints:
    """How many forward tensors are alive across each operator's beginning; views and their base count once."""
    graph = layered.graph
    # Storage -> the operators where it is first made or read, and where it is last read.
    lives: dict[int, tuple[int, int]] = {}
    for i, operator in enumerate(forward):
        for tensor in (*operator.inputs, *operator.outputs):
            base = layered.storage[tensor]
            # A view of a constant, as of a rotary table in every block, is alive in its block only.
            if graph.tensors[base].kind is not TensorKind.PARAMETER and constants.isdisjoint((tensor, base)):
                lives[base] = (lives.get(base, (i, i))[0], i)
    change = np.zeros(len(forward) + 2, dtype=np.int64)
    for start, end in lives.values():
        change[start + 1] += 1
        change[end + 1] -= 1
    return change.cumsum()


def _cuts(live: Ints, layer_of: Sequence[int]) -> list[int]:
    """The forward operators that begin a block, except the first."""
    layer_ends = [i for i in range(1, len(layer_of)) if layer_of[i] != layer_of[i - 1]]
    narrow = [i for i in range(len(layer_of) + 1) if live[i] <= 1]
    cuts = []
    start = 0
    for i in range(1, len(layer_of)):
        if live[i] <= 1:
            # Always at the end of a layer: a single tensor passes between the two stages there.
            if i not in layer_ends and i - start < tuning.SMALLEST_BLOCK:
                continue
        elif i not in layer_ends or _inside_a_block(i, narrow, layer_ends):
            continue
        cuts.append(i)
        start = i
    return cuts


def _inside_a_block(layer_end: int, narrow: Sequence[int], layer_ends: Sequence[int]) -> bool:
    """Whether a block may contain this end of a layer: the chain can be cut before and after it where one tensor
    passes, and few layers end in between."""
    place = bisect_left(narrow, layer_end)
    if place in (0, len(narrow)):
        return False
    ends_between = bisect_left(layer_ends, narrow[place]) - bisect_right(layer_ends, narrow[place - 1])
    return ends_between <= tuning.MOST_LAYER_ENDS


def _with_joined_blocks(
    fragments: LayeredGraph, block_of: Sequence[int], layer_of: Sequence[int], constants: Collection[int]
) -> tuple[int, ...]:
    """For each fragment its block, after blocks that a tensor passes over are joined."""
    graph, fragment_of = fragments.graph, fragments.layer_of
    joined = list(block_of)
    parameter_at = {p.tensor: i for i, p in enumerate(graph.parameters)}
    groups = []
    for tensor, touching in _parts_touching(fragments, fragment_of).items():
        if tensor in parameter_at:
            touching |= {fragment_of[o] for o in fragments.parameter_users[parameter_at[tensor]]}
        producer = graph.tensors[tensor].producer
        if producer in fragments.tables:
            continue
        if tensor in constants:
            # Near the layer that makes it, it is not a constant.
            made = -2 if producer is None else layer_of[fragment_of[producer]]
            touching = {f for f in touching if abs(layer_of[f] - made) <= 1}
        groups.append(sorted(touching))
    changed = True
    while changed:
        changed = False
        for group in groups:
            for a in group:
                for b in group:
                    if joined[b] < joined[a] + 2 or layer_of[b] - layer_of[a] > 1:
                        continue
                    changed = True
                    for low, high in _blocks_to_join(joined, layer_of, a, b):
                        _join(joined, low, high)
    return tuple(joined)


def _blocks_to_join(joined: Sequence[int], layer_of: Sequence[int], a: int, b: int) -> list[tuple[int, int]]:
    """The runs of blocks to join so that those of fragments a and b, of one layer or of two adjacent ones, become
    adjacent."""
    end = max(f for f, layer in enumerate(layer_of) if layer == layer_of[a])
    if layer_of[a] == layer_of[b] or joined[end] == joined[end + 1]:
        return [(joined[a] + 1, joined[b])]
    # The cut between the layers stays.
    return [(joined[a], joined[end]), (joined[end + 1], joined[b])]


def _join(joined: list[int], low: int, high: int) -> None:
    """Blocks low..high become one; blocks are numbered without gaps."""
    for i, block in enumerate(joined):
        joined[i] = block if block <= low else max(low, block - (high - low))
