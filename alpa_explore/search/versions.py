"""Stage costs where each stage may choose which of its layers are rematerialised.

Every version of the layering (no layer, every second, all of them) is profiled by itself, and a stage has the
candidates of all versions: the pipeline takes the fastest that fits where the stage stands, so recomputation is paid
for where memory is short and nowhere else. What the best pipeline holds is the optimum over all versions: a version is
asked again while the best pipeline by the bounds of all of them wants a stage of it that is not proven.

Here also the weights that several layers read (tied weights) are found, which the pipeline needs to know of.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from alpa_explore.cluster import Cluster, LogicalMesh
from alpa_explore.errors import OptionError
from alpa_explore.graph import Phase
from alpa_explore.intra_op.stage.layered_graph import LayeredGraph
from alpa_explore.intra_op.stage.stage_problem import StageProblem
from alpa_explore.pricing.stage_costs import RangeKey, StageCandidate, StageCosts
from alpa_explore.search.profile_stages import Chosen, StageProfile, profile_stages
from alpa_explore.store.cache import Store


def profile_versions(
    versions: Sequence[LayeredGraph], cluster: Cluster, *, chosen: Chosen, store: Store | None, **asked: Any
) -> StageProfile:
    """The stage costs of all `versions` of one layering together; everything else as `profile_stages` has it."""
    rematerialized, tied = tuple(v.rematerialized for v in versions), tied_weights(versions[0])

    def complete(costs: StageCosts) -> StageCosts:
        return replace(costs, versions=rematerialized, tied_weights=tied)

    def wanted(costs: StageCosts) -> Any:
        return chosen(complete(costs))

    if len(versions) == 1:
        profile = profile_stages(versions[0], cluster, chosen=wanted, store=store, **asked)
    else:
        profile = _several(versions, cluster, chosen=wanted, store=_Kept(store), **asked)
    return replace(profile, costs=complete(profile.costs))


def _several(
    versions: Sequence[LayeredGraph], cluster: Cluster, *, chosen: Chosen, store: Store, **asked: Any
) -> StageProfile:
    profiles: dict[int, StageProfile] = {}
    parts: dict[int, StageCosts] = {}
    """The costs of each version, its candidates named."""
    todo, known = list(range(len(versions))), (-1, -1)
    while todo:
        for number in todo:

            def wanted(costs: StageCosts, number: int = number) -> Any:
                return chosen(_together(parts | {number: _named(costs, number)}))

            again = profile_stages(versions[number], cluster, chosen=wanted, store=store, **asked)
            first = profiles.get(number, again)
            profiles[number] = replace(again, cached_solves=first.cached_solves)
            parts[number] = _named(again.costs, number)
        costs = _together(parts)
        best = chosen(costs)
        todo = [n for n, part in parts.items() if any(held in part.bounds.get(cell, ()) for cell, held in best)]
        # Versions that were asked again and learned nothing have no more to say: they ran out of time.
        before, known = known, (sum(map(len, costs.candidates.values())), sum(map(len, costs.bounds.values())))
        if known == before:
            break

    def problem_of(first: int, last: int, mesh: LogicalMesh, version: int = 0) -> StageProblem:
        return profiles[version].problem_of(first, last, mesh)

    found = [profiles[n] for n in range(len(versions))]
    return StageProfile(
        costs=costs,
        choices=_Choices([p.choices for p in found]),
        problem_of=problem_of,
        solves=sum(p.solves for p in found),
        distinct_solves=sum(p.distinct_solves for p in found),
        cached_solves=sum(p.cached_solves for p in found),
        variables=sum(p.variables for p in found),
        constraints=sum(p.constraints for p in found),
        warnings=tuple(dict.fromkeys(w for p in found for w in p.warnings)),
    )


def versions_of(rematerialization: bool | str | None, num_layers: int) -> tuple[Sequence[int] | None, ...]:
    """The layers that are rematerialised in each version of a plan: with 'auto' none, every second, all; else as the
    graph says (None). OptionError for another word."""
    if rematerialization is None or isinstance(rematerialization, bool):
        return (None,)
    if rematerialization != "auto":
        raise OptionError(
            "Rematerialisation is on, off, or chosen for each stage",
            found=repr(rematerialization),
            remedy="Give True, False or 'auto', or leave it out.",
        )
    return tuple(dict.fromkeys(((), tuple(range(0, num_layers, 2)), tuple(range(num_layers)))))


def tied_weights(layered: LayeredGraph) -> tuple[tuple[tuple[int, ...], float], ...]:
    """(layers that make a part of its gradient, bytes of the gradient) of every weight with two such layers or more."""
    graph, found = layered.graph, []
    for position, parameter in enumerate(graph.parameters):
        producers = [graph.tensors[t].producer for t in layered.contributions[position]]
        layers = {
            layered.layer_of[p] for p in producers if p is not None and graph.operators[p].phase is Phase.BACKWARD
        }
        if len(layers) > 1:
            found.append((tuple(sorted(layers)), float(graph.tensors[parameter.gradient].bytes)))
    return tuple(found)


def _named(costs: StageCosts, number: int) -> StageCosts:
    """The costs of one version, whose candidates say that they are of it."""
    return replace(
        costs,
        candidates={
            cell: tuple(replace(c, version=number, solution_key=f"{number}:{c.solution_key}") for c in found)
            for cell, found in costs.candidates.items()
        },
    )


def _together(parts: Mapping[int, StageCosts]) -> StageCosts:
    """The costs of several versions as one."""
    candidates: dict[RangeKey, tuple[StageCandidate, ...]] = {}
    bounds: dict[RangeKey, dict[int, float]] = {}
    for _, costs in sorted(parts.items()):
        for cell, found in costs.candidates.items():
            candidates[cell] = candidates.get(cell, ()) + found
        for cell, least in costs.bounds.items():
            here = bounds.setdefault(cell, {})
            here |= {held: min(seconds, here.get(held, seconds)) for held, seconds in least.items()}
    return replace(next(iter(parts.values())), candidates=candidates, bounds=bounds)


class _Kept:
    """A store in front of another, or of none: a version that is asked again solves nothing twice."""

    def __init__(self, behind: Store | None) -> None:
        self.behind = behind
        self.entries: dict[str, dict[str, Any]] = {}

    def get(self, key: str) -> dict[str, Any] | None:
        """What was put, here or behind."""
        if key not in self.entries and self.behind is not None and (found := self.behind.get(key)) is not None:
            self.entries[key] = found
        return self.entries.get(key)

    def put(self, key: str, value: Mapping[str, Any]) -> None:
        """Here and behind."""
        self.entries[key] = dict(value)
        if self.behind is not None:
            self.behind.put(key, value)


class _Choices(Mapping[str, tuple[int, ...]]):
    """The choices of all versions, by the keys that `_together` gives them."""

    def __init__(self, parts: Sequence[Mapping[str, tuple[int, ...]]]) -> None:
        self._parts = parts

    def __getitem__(self, name: str) -> tuple[int, ...]:
        number, _, key = name.partition(":")
        return self._parts[int(number)][key]

    def __iter__(self) -> Iterator[str]:
        return (f"{number}:{key}" for number, part in enumerate(self._parts) for key in part)

    def __len__(self) -> int:
        return sum(map(len, self._parts))
