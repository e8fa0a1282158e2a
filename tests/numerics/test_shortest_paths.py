"""Searches from a few specs against those of all pairs."""

import numpy as np
import pytest

from alpa_explore.cluster import Cluster, LogicalMesh, Submesh, logical_mesh
from alpa_explore.cost import tuning
from alpa_explore.cost.collectives import axis_seconds
from alpa_explore.cost.resharding import UNREACHABLE, reshard_table
from alpa_explore.numerics.shortest_paths import Arrivals, all_pairs, first_steps
from alpa_explore.sharding.reshard import StepKind

MEGATRON = Cluster.parse("2x4:h100", software="megatron")
MESHES = [
    LogicalMesh((2, 4), (1e9, 4e9), (1e-5, 2e-6)),
    LogicalMesh((2, 2, 2), (1e9, 2e9, 3e9), (1e-6, 0.0, 2e-6)),
    logical_mesh(MEGATRON, Submesh(2, 4), (2, 2, 2)),
    LogicalMesh((2, 2, 2, 2), (1e9, 2e9, 3e9, 5e9), (1e-6, 2e-6, 3e-6, 4e-6)),
]


@pytest.mark.parametrize("mesh", MESHES)
@pytest.mark.parametrize("shape", [(8, 16), (16,), (2, 6, 4), ()])
@pytest.mark.parametrize("fixed", [False, True])
def test_a_search_from_some_specs_finds_what_the_search_of_all_pairs_does(mesh, shape, fixed, monkeypatch) -> None:
    whole = reshard_table(shape, 2**20, mesh, fixed=fixed)
    assert not whole.has_many
    seconds, completion = whole.seconds, whole.completion(np.arange(len(whole.specs)))
    monkeypatch.setattr(tuning, "MOST_SPECS_OF_ALL_PAIRS", 0)
    searched, some = reshard_table(shape, 2**20, mesh, fixed=fixed), np.arange(0, len(whole.specs), 3)
    assert searched.has_many
    np.testing.assert_allclose(searched.between(some, some), seconds[np.ix_(some, some)], rtol=1e-12, atol=0)
    np.testing.assert_allclose(searched.seconds, seconds, rtol=1e-12, atol=0)
    np.testing.assert_allclose(searched.completion(some), completion[some], rtol=1e-12, atol=0)


@pytest.mark.parametrize("mesh", MESHES[1:3])
def test_figures_of_a_searched_sequence_are_those_of_its_steps(mesh, monkeypatch) -> None:
    monkeypatch.setattr(tuning, "MOST_SPECS_OF_ALL_PAIRS", 0)
    table = reshard_table((8, 16, 4), 2**20, mesh)
    some = np.arange(0, len(table.specs), 4)
    seconds, reduced = table.between(some, some), table.all_reduce_seconds(some, some)
    together, whole = (table.in_buckets(2**18, of_tensors, some, some) for of_tensors in (False, True))
    calls = table.calls(some, some) if mesh.call_seconds else None
    for (i, a), (j, b) in ((p, q) for p in enumerate(some) for q in enumerate(some)):
        if seconds[i, j] >= UNREACHABLE:
            assert together[i, j] >= UNREACHABLE
            continue
        path = table.path(table.specs[a], table.specs[b])
        assert not path or (path[0][0].source, path[-1][0].target) == (table.specs[a], table.specs[b])
        assert sum(s for _, s in path) == pytest.approx(seconds[i, j], rel=1e-12)
        of_bucket = of_whole = 0.0
        for step, _ in path:
            share = max(table.shares[table.index[spec]] for spec in (step.source, step.target))
            of_bucket += axis_seconds(step.kind, 2.0**18, mesh, step.axis) * share * 2**20 / 2**18
            of_whole += axis_seconds(step.kind, share * 2.0**18, mesh, step.axis) * 2**20 / 2**18
        assert together[i, j] == pytest.approx(of_bucket, rel=1e-12)
        assert whole[i, j] == pytest.approx(of_whole, rel=1e-12)
        expected = sum(s for step, s in path if step.kind is StepKind.ALL_REDUCE)
        assert reduced[i, j] == pytest.approx(expected, rel=1e-12)
        if calls is not None:
            launched = sum(mesh.call_seconds[s.axis] for s, _ in path if s.kind is not StepKind.SLICE)
            assert calls[i, j] == pytest.approx(launched, rel=1e-12)


@pytest.mark.parametrize("seed", range(20))
def test_random_graphs_with_free_steps_and_without_paths(seed) -> None:
    draw, count = np.random.default_rng(seed), 12
    single = np.where(draw.random((count, count)) < 0.25, draw.integers(0, 5, (count, count)).astype(float), np.inf)
    np.fill_diagonal(single, np.inf)
    ends = np.array(np.nonzero(np.isfinite(single)))
    sources = draw.permutation(count)[:5]
    seconds, last = Arrivals.of(count, ends, single[*ends]).from_sources(sources)
    np.testing.assert_array_equal(seconds, all_pairs(single)[sources])
    for row, source in enumerate(sources):
        for target in np.flatnonzero(np.isfinite(seconds[row])):
            at, total = int(target), 0.0
            for _ in range(count):
                if at == source:
                    break
                total += single[*ends[:, last[row, at]]]
                at = int(ends[0, last[row, at]])
            assert at == source, "the last steps lead back to the source"
            assert total == seconds[row, target]


def test_first_steps_lead_along_a_shortest_path() -> None:
    generator = np.random.default_rng(0)
    for _ in range(20):
        single = generator.integers(1, 9, (9, 9)).astype(float)
        single[generator.random((9, 9)) < 0.6] = np.inf
        length, first = all_pairs(single), first_steps(single)
        for start, end in np.ndindex(9, 9):
            place, walked = start, 0.0
            while place != end and first[place, end] >= 0:
                walked, place = walked + single[place, first[place, end]], int(first[place, end])
            assert (walked if place == end else np.inf) == length[start, end]
