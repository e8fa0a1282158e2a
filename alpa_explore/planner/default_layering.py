"""The layers of a graph where the user gives no boundaries.

Their number where none is given: that of the catalogue for a catalogue model; for others the number of repeated blocks,
where there are more than `MOST_LAYERS` the largest of its divisors up to there (equal layers are solved once), and
`MOST_LAYERS` where it has none from `FEWEST_LAYERS` on; `FEWEST_LAYERS` without blocks. Fewer where so many cannot be
balanced.

Except in the paper's runs, a layer has at least `LEAST_SHARE` of the mean FLOPs, where such layers exist. So an
embedding, masks and position tables belong to the layer of the first block.
"""

from __future__ import annotations

from contextlib import suppress
from hashlib import sha256

from alpa_explore.errors import LayeringError
from alpa_explore.graph import TrainingGraph
from alpa_explore.layering import Layering, cluster_operators
from alpa_explore.layering.crossing import crossings_of
from alpa_explore.layering.layers import make_layers
from alpa_explore.layering.repeated import repeated_modules
from alpa_explore.models.catalog import CONFIG_FAMILY, entry, is_reference
from alpa_explore.planner import tuning
from alpa_explore.store.cache import Store


def default_layering(graph: TrainingGraph, delta: float, store: Store | None = None) -> Layering:
    """Layers in the default number; fewer where so many cannot be balanced."""
    known = entry(graph.recipe) if graph.recipe is not None and is_reference(graph.recipe) else None
    if known is not None and known.family != CONFIG_FAMILY:
        most = known.num_layers
    else:
        most = _layers_of_blocks(len(repeated_modules(graph)))
    for layers in range(min(most, sum(1 for o in graph.forward_operators if o.flops > 0)), 1, -1):
        with suppress(LayeringError):
            return clustered(graph, layers, delta, store)
    return cluster_operators(graph, 1, delta=delta)


def clustered(graph: TrainingGraph, num_layers: int, delta: float, store: Store | None = None) -> Layering:
    """Layers in the given number, none of which does next to nothing where that is possible; errors as those of
    `cluster_operators`. The cuts are kept in `store`, by all that they follow from."""
    if store is None:
        return _clustered(graph, num_layers, delta)
    flops = [operator.flops for operator in graph.forward_operators]
    decides = (flops, crossings_of(graph), num_layers, delta, _in_the_paper(graph))
    key = f"layering-{sha256(repr(decides).encode()).hexdigest()}"
    if (stored := store.get(key)) is None:
        layering = _clustered(graph, num_layers, delta)
        figures = {"objective_bytes": layering.objective_bytes, "flops_limit": layering.flops_limit}
        store.put(key, {"cuts": list(layering.cuts), **figures})
        return layering
    return Layering(
        layers=make_layers(graph, stored["cuts"]),
        delta=float(delta),
        objective_bytes=stored["objective_bytes"],
        flops_limit=stored["flops_limit"],
    )


def _clustered(graph: TrainingGraph, num_layers: int, delta: float) -> Layering:
    if not _in_the_paper(graph):
        with suppress(LayeringError):
            return cluster_operators(graph, num_layers, delta=delta, least=tuning.LEAST_SHARE)
    return cluster_operators(graph, num_layers, delta=delta)


def _in_the_paper(graph: TrainingGraph) -> bool:
    return graph.recipe is not None and is_reference(graph.recipe) and entry(graph.recipe).gpus is not None


def _layers_of_blocks(blocks: int) -> int:
    if blocks < tuning.FEWEST_LAYERS:
        return tuning.FEWEST_LAYERS
    few = range(tuning.FEWEST_LAYERS, min(blocks, tuning.MOST_LAYERS) + 1)
    return max((layers for layers in few if blocks % layers == 0), default=tuning.MOST_LAYERS)
