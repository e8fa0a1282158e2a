"""The versions of a layering between which a stage chooses: what its backward pass computes again.

Under "auto" every stage has the candidates of all versions (nothing recomputed, parts of each block, every second
block, all). The pipeline takes the fastest one that fits at the place of the stage, so it pays for recomputation only
where memory is short.
"""

from __future__ import annotations

from collections.abc import Collection

from alpa_explore.arguments import plain_name
from alpa_explore.cluster import Software
from alpa_explore.errors import OptionError
from alpa_explore.graph import TrainingGraph
from alpa_explore.intra_op.stage.layered_graph import LayeredGraph, assign_layers_each
from alpa_explore.intra_op.stage.recomputation import FULL, NAMES, Recomputation
from alpa_explore.sharding.spec_constraint import SpecConstraint

AUTO = ("none", "norms+attention", "half", "full")
"""The kinds of recomputation among which a stage chooses."""


def kinds_of(rematerialization: bool | str | None, num_layers: int) -> tuple[Recomputation | None, ...]:
    """What is recomputed in each version of a plan. 'auto' has a version for each of AUTO; otherwise there is one, None
    where it is as the graph says. OptionError for an unknown name."""
    if rematerialization is None or rematerialization is False:
        return (None,)
    if rematerialization is True:
        rematerialization = FULL
    if not isinstance(rematerialization, str):
        raise OptionError(
            "Rematerialisation is True, False or the name of what is recomputed",
            found=repr(rematerialization),
            remedy=f"Give {', '.join(map(repr, (*NAMES, 'auto')))}, True for 'full', or leave it out.",
        )
    names = AUTO if plain_name(rematerialization) == "auto" else (rematerialization,)
    return tuple(Recomputation.parse(name, num_layers) for name in names)


def layered_versions(
    graph: TrainingGraph,
    layer_of_forward: tuple[int, ...],
    rematerialization: bool | str | None,
    spec_constraints: Collection[SpecConstraint] = (),
    *,
    software: Software | None = None,
) -> list[LayeredGraph]:
    """The versions of a layering, what recomputes most last. Under 'auto' without those that the model has no part for,
    and those that hold and recompute the same as another. OptionError where a kind that is named has nothing to
    recompute."""
    kinds = kinds_of(rematerialization, max(layer_of_forward) + 1)
    versions: list[LayeredGraph] = []
    for layered in assign_layers_each(graph, layer_of_forward, kinds, spec_constraints, software=software):
        if all((layered.recomputed, layered.held) != (other.recomputed, other.held) for other in versions):
            versions.append(layered)
    return versions
