"""Stage costs where each stage chooses what its backward pass computes again.

Every version of the layering (nothing recomputed, parts of each block, every second block, all) has candidates of its
own, and a stage has those of all versions. The pipeline takes the fastest one that fits at the place of the stage, so
it pays for recomputation only where memory is short. The lower bound of a stage is the least over the versions that are
still open.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from alpa_explore.arguments import plain_name
from alpa_explore.cluster import LogicalMesh, Software
from alpa_explore.errors import OptionError
from alpa_explore.graph import TrainingGraph
from alpa_explore.intra_op.stage.layered_graph import LayeredGraph, assign_layers
from alpa_explore.intra_op.stage.recomputation import FULL, NAMES, Recomputation
from alpa_explore.intra_op.stage.stage_problem import StageProblem
from alpa_explore.pricing.stage_costs import RangeKey, Screened, StageCandidate, StageCosts
from alpa_explore.search.eager.eager_pricing import EagerPricing
from alpa_explore.search.pipeline_query import HeldStage
from alpa_explore.search.stage_profile import StageProfile
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
    for kind in kinds:
        try:
            layered = assign_layers(graph, layer_of_forward, kind, spec_constraints, software=software)
        except OptionError:
            if len(kinds) == 1:
                raise
            continue
        if all((layered.recomputed, layered.held) != (other.recomputed, other.held) for other in versions):
            versions.append(layered)
    return versions


class VersionPricing:
    """The stage costs of several versions of one layering together."""

    def __init__(self, versions: Sequence[EagerPricing]) -> None:
        self.versions = versions

    def costs(self) -> StageCosts:
        """The candidates of all versions, each with the number of its version."""
        return self._together([version.costs() for version in self.versions])

    def known_costs(self) -> StageCosts:
        """Those that are known when the search is cancelled."""
        return self._together([version.known_costs() for version in self.versions])

    def _together(self, parts: Sequence[StageCosts]) -> StageCosts:
        candidates: dict[RangeKey, tuple[StageCandidate, ...]] = {}
        bounds: dict[RangeKey, dict[int, float]] = {}
        screened: dict[RangeKey, Screened] = {}
        for number, costs in enumerate(parts):
            for cell, of_version in costs.candidates.items():
                named = (replace(c, version=number, solution_key=f"{number}:{c.solution_key}") for c in of_version)
                candidates[cell] = (*candidates.get(cell, ()), *named)
            for cell, of_held in costs.bounds.items():
                least = bounds.setdefault(cell, {})
                least |= {held: min(seconds, least.get(held, seconds)) for held, seconds in of_held.items()}
            for cell, bound in costs.screened.items():
                screened[cell] = screened.get(cell, bound).weakest(bound)
        recomputations = tuple(version.layered.recomputation for version in self.versions)
        return replace(parts[0], candidates=candidates, bounds=bounds, versions=recomputations, screened=screened)

    def begin(self) -> None:
        """Candidates of all stages that are not screened, in every version."""
        for version in self.versions:
            version.begin()

    def price(self, open_stages: Sequence[HeldStage]) -> None:
        """Price these stages in every version in which they are open."""
        for version in self.versions:
            version.price(open_stages)

    def price_without_memory(self, open_stages: Sequence[HeldStage]) -> bool:
        """The same without the searches within memory; whether any version had anything else."""
        priced = [version.price_without_memory(open_stages) for version in self.versions]
        return any(priced)

    def finish_composition(self) -> None:
        """Finish the composition of all meshes, in every version."""
        for version in self.versions:
            version.finish_composition()

    def bounded(self) -> dict[RangeKey, Screened]:
        """The stages that some version has on meshes that it bounded only."""
        bounded: dict[RangeKey, Screened] = {}
        for version in self.versions:
            for cell, bound in version.bounded().items():
                bounded[cell] = bounded.get(cell, bound).weakest(bound)
        return bounded

    def profile(self, costs: StageCosts) -> StageProfile:
        """The result for the planner."""
        profiles = [version.profile(costs) for version in self.versions]

        def problem_of(first: int, last: int, mesh: LogicalMesh, version: int = 0) -> StageProblem:
            return profiles[version].problem_of(first, last, mesh)

        return StageProfile(
            costs=costs,
            choices=_Choices([p.choices for p in profiles]),
            problem_of=problem_of,
            solves=sum(p.solves for p in profiles),
            distinct_solves=sum(p.distinct_solves for p in profiles),
            cached_solves=sum(p.cached_solves for p in profiles),
            variables=sum(p.variables for p in profiles),
            constraints=sum(p.constraints for p in profiles),
            warnings=tuple(dict.fromkeys(w for p in profiles for w in p.warnings)),
        )


class _Choices(Mapping[str, tuple[int, ...]]):
    """The choices of all versions, by `VERSION:KEY` as in the candidates."""

    def __init__(self, versions: Sequence[Mapping[str, tuple[int, ...]]]) -> None:
        self._versions = versions

    def __getitem__(self, name: str) -> tuple[int, ...]:
        number, _, key = name.partition(":")
        return self._versions[int(number)][key]

    def __iter__(self) -> Iterator[str]:
        return (f"{number}:{key}" for number, choices in enumerate(self._versions) for key in choices)

    def __len__(self) -> int:
        return sum(map(len, self._versions))
