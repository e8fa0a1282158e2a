"""The latency table is what choosing candidate by candidate gives, at every place and every B."""

import itertools
from dataclasses import replace

import numpy as np

from alpa_explore.cluster import Cluster, logical_meshes, submeshes
from alpa_explore.pricing.stage_costs import StageCandidate, StageCosts


def random_costs(seed):
    rng = np.random.default_rng(seed)
    cluster = Cluster.parse("1x4:v100")
    pieces = submeshes(cluster)
    layers = int(rng.integers(1, 5))
    candidates = {}
    for first in range(layers):
        for last in range(first, layers):
            for place, piece in enumerate(pieces):
                meshes = logical_meshes(cluster, piece)
                candidates[first, last, place] = tuple(
                    StageCandidate(
                        logical_mesh=meshes[0],
                        microbatch_seconds=float(rng.uniform(1, 2)),
                        iteration_seconds=float(rng.uniform(0, 2)),
                        weight_bytes=float(rng.integers(0, 50)),
                        activation_bytes=float(rng.integers(0, 30)),
                        workspace_bytes=float(rng.integers(0, 30)),
                        solution_key=f"{n}",
                        paced_seconds=float(rng.uniform(2, 3)),
                    )
                    for n in range(int(rng.integers(0, 4)))
                )
    return StageCosts(num_layers=layers, submeshes=pieces, device_memory_bytes=100, candidates=candidates)


def test_every_kind_of_nodes_has_the_table_that_it_has_alone():
    """Of two kinds whose devices differ in memory: the table of each is that of a cluster of its kind."""
    for seed in range(20):
        costs, memories, b = random_costs(seed), (100, 60), 3
        kinds = [(number, piece) for number in (0, 1) for piece in costs.submeshes]
        both = replace(
            costs,
            submeshes=tuple(replace(piece, kind=number) for number, piece in kinds),
            memory_of_kinds=memories,
            candidates={
                (first, last, number * len(costs.submeshes) + piece): tuple(
                    replace(c, logical_mesh=replace(c.logical_mesh, kind=number)) for c in found
                )
                for number in (0, 1)
                for (first, last, piece), found in costs.candidates.items()
            },
        )
        table = both.latency_table(b)
        for number, memory in enumerate(memories):
            alone = replace(costs, device_memory_bytes=memory)
            own = slice(number * len(costs.submeshes), (number + 1) * len(costs.submeshes))
            np.testing.assert_array_equal(table[:, :, own], alone.latency_table(b))
            for (first, last, piece), held in itertools.product(costs.candidates, (1, 3)):
                found = both.choose((first, last, piece + own.start), held, b)
                expected = alone.choose((first, last, piece), held, b)
                assert (found and found.solution_key) == (expected and expected.solution_key)


def test_the_table_holds_the_fastest_candidate_that_fits_at_each_place():
    filled = empty = 0
    for seed in range(40):
        costs = random_costs(seed)
        for b in (1, 2, 7):
            table = costs.latency_table(b)
            for (first, last, piece), place in itertools.product(costs.candidates, range(1, costs.num_layers + 1)):
                best = costs.choose((first, last, piece), min(place, b), b)
                expected = np.inf if best is None else best.latency_seconds(b)
                assert table[first, last + 1, piece, place - 1] == expected
                filled += best is not None
                empty += best is None
            assert np.isinf(table[np.tril(np.ones(table.shape[:2], bool), 0)]).all()
    assert filled > 500
    assert empty > 500


def test_a_device_that_runs_two_stages_in_turn_holds_weights_and_activations_of_both_and_one_workspace():
    mesh = logical_meshes(Cluster.parse("1x2:v100"), submeshes(Cluster.parse("1x2:v100"))[0])[0]
    candidate = StageCandidate(
        logical_mesh=mesh,
        microbatch_seconds=1.0,
        iteration_seconds=0.0,
        weight_bytes=10.0,
        activation_bytes=4.0,
        workspace_bytes=5.0,
        solution_key="",
    )
    assert candidate.peak_bytes(3) == 10 + 3 * 4 + 5
    assert candidate.peak_bytes(3, turns=2) == 2 * (10 + 3 * 4) + 5
