"""The layers of a graph where the user gives no boundaries.

Their number where none is given: that of the paper's run for a model of the paper, and of the tiny models that of the
catalogue. For others it follows from the number of repeated blocks, so that pipelines can be balanced: with 18 layers
no pipeline of 4, 8 or 16 stages is, whatever the blocks. `numbers_of_layers` weighs, for each number L,

- by how much the longest of S stages is longer than with whole blocks, for the S of common pipelines and those that
  divide the devices of the cluster: S counts the chunks of an interleaved schedule, too;
- whether L divides the blocks, and four divides L: equal layers are solved once, and an interleaved schedule needs
  equal chunks on every submesh;
- planning time, which grows with L.

The first number with which the FLOPs can be balanced is taken: each of few blocks is a layer, and without blocks there
are at most `FEWEST_LAYERS`.

Except in the paper's runs, a layer has at least `LEAST_SHARE` of the mean FLOPs, where such layers exist. So an
embedding, masks and position tables belong to the layer of the first block.
"""

import math
from contextlib import suppress
from hashlib import sha256

from alpa_explore.errors import LayeringError
from alpa_explore.graph import TrainingGraph
from alpa_explore.graph.written import unbroken
from alpa_explore.layering import Layering, cluster_operators
from alpa_explore.layering.balance import flops_limit
from alpa_explore.layering.blocks import repeated_modules
from alpa_explore.layering.crossing import crossings_of
from alpa_explore.layering.layers import make_layers
from alpa_explore.models.catalog import entry, is_reference
from alpa_explore.planner import tuning
from alpa_explore.store.cache import Store


def default_layering(graph: TrainingGraph, delta: float, store: Store | None = None, *, devices: int = 1) -> Layering:
    """Layers in the default number for a cluster of so many devices; another where so many cannot be balanced."""
    known = entry(graph.recipe).num_layers if graph.recipe is not None and is_reference(graph.recipe) else None
    flops = [operator.flops for operator in graph.forward_operators]
    most = sum(1 for each in flops if each > 0)
    if known is None and most:
        most = min(most, flops_limit(sum(flops), 1, delta) // max(flops))  # more layers cannot hold the largest
    for layers in _descending(known) if known is not None else numbers_of_layers(len(repeated_modules(graph)), devices):
        if 1 < layers <= most:
            with suppress(LayeringError):
                return clustered(graph, layers, delta, store)
    return cluster_operators(graph, 1, delta=delta)


def numbers_of_layers(blocks: int, devices: int = 1) -> tuple[int, ...]:
    """Numbers of layers for so many repeated blocks on so many devices, those that suit best first."""
    if blocks < tuning.FEWEST_LAYERS:
        return _descending(tuning.FEWEST_LAYERS)
    stages = {s for s in range(2, min(blocks, tuning.MOST_STAGES) + 1) if s & (s - 1) == 0 or devices % s == 0}

    def unsuited(layers: int) -> float:
        longer = sum(
            min(1.0, tuning.USUAL_STAGES / s) * max(0.0, _longest(layers, s) - _longest(blocks, s)) for s in stages
        )
        if blocks % layers:
            return longer + layers * tuning.UNEQUAL_LAYER
        return longer + layers * (tuning.ODD_LAYER if layers % tuning.TAKES_TURNS else tuning.EQUAL_LAYER)

    counts = sorted(range(tuning.FEWEST_LAYERS, min(blocks, tuning.MOST_LAYERS) + 1), key=unsuited)
    best = (blocks,) if blocks <= tuning.FEW_BLOCKS else ()
    return tuple(dict.fromkeys((*best, *counts, *_descending(tuning.FEWEST_LAYERS - 1))))


def _longest(parts: int, stages: int) -> float:
    """The longest of so many stages of equal parts, each of them whole, as a multiple of their mean."""
    return math.ceil(parts / stages) * stages / parts


def _descending(most: int) -> tuple[int, ...]:
    return tuple(range(most, 1, -1))


def clustered(graph: TrainingGraph, num_layers: int, delta: float, store: Store | None = None) -> Layering:
    """Layers in the given number, none of which does next to nothing where that is possible; errors as those of
    `cluster_operators`. The cuts are kept in `store`, by all that they follow from."""
    if store is None:
        return _clustered(graph, num_layers, delta)
    flops = [operator.flops for operator in graph.forward_operators]
    decides = (flops, crossings_of(graph), unbroken(graph), num_layers, delta, _in_the_paper(graph))
    key = f"layering-{sha256(repr(decides).encode()).hexdigest()}"
    if (stored := store.get(key)) is None:
        layering = _clustered(graph, num_layers, delta)
        store.put(key, {"cuts": list(layering.cuts)})
        return layering
    return make_layers(graph, stored["cuts"])


def _clustered(graph: TrainingGraph, num_layers: int, delta: float) -> Layering:
    if not _in_the_paper(graph):
        with suppress(LayeringError):
            return cluster_operators(graph, num_layers, delta=delta, least=tuning.LEAST_SHARE)
    return cluster_operators(graph, num_layers, delta=delta)


def _in_the_paper(graph: TrainingGraph) -> bool:
    return graph.recipe is not None and is_reference(graph.recipe) and entry(graph.recipe).gpus is not None
