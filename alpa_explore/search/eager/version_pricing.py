"""Stage costs where each stage chooses which of its layers are rematerialised.

Every version of the layering (no layer rematerialised, every second, all) has candidates of its own, and a stage has
those of all versions. The pipeline takes the fastest one that fits at the place of the stage, so it pays for
recomputation only where memory is short. The lower bound of a stage is the least over the versions that are still open.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from alpa_explore.cluster import LogicalMesh
from alpa_explore.errors import OptionError
from alpa_explore.intra_op.stage.stage_problem import StageProblem
from alpa_explore.pricing.stage_costs import RangeKey, StageCandidate, StageCosts
from alpa_explore.search.eager.eager_pricing import EagerPricing
from alpa_explore.search.pipeline_query import HeldStage
from alpa_explore.search.stage_profile import StageProfile


def rematerialized_layers(rematerialization: bool | str | None, num_layers: int) -> tuple[Sequence[int] | None, ...]:
    """The layers that are rematerialised in each version of a plan. 'auto' has three versions: none, every second, all;
    otherwise there is one, as the graph says (None). OptionError for any other string."""
    if rematerialization is None or isinstance(rematerialization, bool):
        return (None,)
    if rematerialization != "auto":
        raise OptionError(
            "Rematerialisation is on, off, or chosen for each stage",
            found=repr(rematerialization),
            remedy="Give True, False or 'auto', or leave it out.",
        )
    return tuple(dict.fromkeys(((), tuple(range(0, num_layers, 2)), tuple(range(num_layers)))))


class VersionPricing:
    """The stage costs of several versions of one layering together."""

    def __init__(self, versions: Sequence[EagerPricing]) -> None:
        self.versions = versions

    def costs(self) -> StageCosts:
        """The candidates of all versions, each with the number of its version."""
        candidates: dict[RangeKey, tuple[StageCandidate, ...]] = {}
        bounds: dict[RangeKey, dict[int, float]] = {}
        parts = [version.costs() for version in self.versions]
        for number, costs in enumerate(parts):
            for cell, of_version in costs.candidates.items():
                named = (replace(c, version=number, solution_key=f"{number}:{c.solution_key}") for c in of_version)
                candidates[cell] = (*candidates.get(cell, ()), *named)
            for cell, of_held in costs.bounds.items():
                least = bounds.setdefault(cell, {})
                least |= {held: min(seconds, least.get(held, seconds)) for held, seconds in of_held.items()}
        rematerialized = tuple(version.layered.rematerialized for version in self.versions)
        return replace(parts[0], candidates=candidates, bounds=bounds, versions=rematerialized)

    def price(self, open_stages: Sequence[HeldStage]) -> None:
        """Price these stages in every version in which they are open."""
        for version in self.versions:
            version.price(open_stages)

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
