"""Resharding costs against closed forms, an independent search, and real tensors."""

import heapq
import itertools

import numpy as np
import pytest

from alpa_explore.cluster import Cluster, LogicalMesh, Submesh, logical_mesh
from alpa_explore.cost.collectives import collective_seconds
from alpa_explore.cost.resharding import UNREACHABLE, reshard_table
from alpa_explore.sharding.reshard import StepKind, steps_between, steps_from
from alpa_explore.sharding.spec import PARTIAL, REPLICATE, legal_specs, local_share

MESH = LogicalMesh((2, 4), (1e9, 4e9), (1e-5, 2e-6))


def test_an_all_reduce_costs_a_reduce_scatter_and_an_all_gather():
    parts = [collective_seconds(k, 1e6, 8, 1e9, 1e-6) for k in (StepKind.REDUCE_SCATTER, StepKind.ALL_GATHER)]
    assert collective_seconds(StepKind.ALL_REDUCE, 1e6, 8, 1e9, 1e-6) == pytest.approx(sum(parts))
    assert parts[0] == pytest.approx(7 * (1e-6 + 1e6 / 8 / 1e9))


def test_common_reshardings_take_the_expected_collectives():
    table = reshard_table((8, 64, 64), 8 * 64 * 64 * 4, MESH)

    def kinds(source, target):
        return [s.kind for s, _ in table.path(source, target)]

    assert kinds((PARTIAL, 2), (REPLICATE, 2)) == [StepKind.ALL_REDUCE]
    assert kinds((PARTIAL, 2), (1, 2)) == [StepKind.REDUCE_SCATTER]
    assert kinds((0, 2), (1, 2)) == [StepKind.ALL_TO_ALL]
    assert kinds((0, 2), (REPLICATE, 2)) == [StepKind.ALL_GATHER]
    assert kinds((REPLICATE, REPLICATE), (0, 1)) == [StepKind.SLICE, StepKind.SLICE]
    assert table.path((0, 1), (0, 1)) == ()


def test_nothing_becomes_partial():
    table = reshard_table((8, 8), 256, MESH)
    partial = [i for i, s in enumerate(table.specs) if PARTIAL in s]
    whole = [i for i, s in enumerate(table.specs) if PARTIAL not in s]
    assert (table.seconds[np.ix_(whole, partial)] == UNREACHABLE).all()
    assert (table.seconds[np.ix_(partial, whole)] < UNREACHABLE).all()


@pytest.mark.sweep(kept=5, in_turn=True)
@pytest.mark.slow
@pytest.mark.parametrize("shape", [(8, 64, 64), (8, 6), (16,), (2, 2, 2, 8), ()])
@pytest.mark.parametrize(
    "mesh", [MESH, LogicalMesh((4,), (1e9,), (1e-5,)), LogicalMesh((2, 2, 2), (1e9,) * 3, (1e-6,) * 3)]
)
def test_the_table_equals_dijkstra_and_its_paths_add_up(shape, mesh):
    total = 4 * int(np.prod(shape))
    table = reshard_table(shape, total, mesh)
    for source in table.specs:
        best = {source: 0.0}
        queue = [(0.0, source)]
        while queue:
            cost, spec = heapq.heappop(queue)
            if cost > best[spec]:
                continue
            for step in steps_from(spec, len(shape), table.specs):
                larger = step.target if step.kind is StepKind.ALL_GATHER else spec
                after = cost + collective_seconds(
                    step.kind,
                    total * local_share(larger, mesh.shape),
                    mesh.shape[step.axis],
                    mesh.bandwidth[step.axis],
                    mesh.latency_seconds[step.axis],
                )
                if after < best.get(step.target, np.inf):
                    best[step.target] = after
                    heapq.heappush(queue, (after, step.target))
        for target in table.specs:
            seconds = table.seconds[table.index[source], table.index[target]]
            assert seconds == pytest.approx(best.get(target, UNREACHABLE), rel=1e-12)
            if seconds < UNREACHABLE:
                assert sum(c for _, c in table.path(source, target)) == pytest.approx(seconds, rel=1e-12, abs=1e-18)


def _pieces(value, spec, mesh_shape, rng):
    """{coordinate: local array} of `value` under `spec`; pending sums become random addends."""
    shards = {(): value}
    for axis, placement in enumerate(spec):
        after = {}
        for coordinate, piece in shards.items():
            size = mesh_shape[axis]
            if placement >= 0:
                parts = np.split(piece, size, axis=placement)
            elif placement == PARTIAL:
                parts = [rng.normal(size=piece.shape) for _ in range(size - 1)]
                parts.append(piece - sum(parts))
            else:
                parts = [piece] * size
            after.update({(*coordinate, i): part for i, part in enumerate(parts)})
        shards = after
    return shards


@pytest.mark.parametrize("mesh_shape", [(2,), (2, 2), (2, 4)])
def test_every_step_turns_the_shards_of_one_spec_into_those_of_the_other(mesh_shape):
    """Runs each collective on real shards: the data move as the algebra of specs states."""
    rng = np.random.default_rng(0)
    value = rng.normal(size=(8, 8, 3))
    for step in steps_between(legal_specs(value.shape, mesh_shape, partial=True), value.ndim):
        local = _pieces(value, step.source, mesh_shape, rng)
        moved = _run(step, local, mesh_shape)
        if PARTIAL in step.target:
            continue  # addends are random; the other axis' step is checked on its own
        expected = _pieces(value, step.target, mesh_shape, rng)
        for coordinate in expected:
            np.testing.assert_allclose(moved[coordinate], expected[coordinate], atol=1e-9)


def _run(step, local, mesh_shape):
    axis, size = step.axis, mesh_shape[step.axis]
    placement, target = step.source[axis], step.target[axis]
    result = {}
    for coordinate in itertools.product(*map(range, mesh_shape)):
        group = [local[(*coordinate[:axis], i, *coordinate[axis + 1 :])] for i in range(size)]
        mine = coordinate[axis]
        match step.kind:
            case StepKind.ALL_GATHER:
                result[coordinate] = np.concatenate(group, axis=placement)
            case StepKind.ALL_REDUCE:
                result[coordinate] = sum(group)
            case StepKind.REDUCE_SCATTER:
                result[coordinate] = np.split(sum(group), size, axis=target)[mine]
            case StepKind.SLICE:
                result[coordinate] = np.split(group[mine], size, axis=target)[mine]
            case StepKind.ALL_TO_ALL:
                result[coordinate] = np.concatenate(
                    [np.split(g, size, axis=target)[mine] for g in group], axis=placement
                )
    return result


def test_a_logical_mesh_of_one_device_has_one_spec():
    mesh = logical_mesh(Cluster.parse("1x1:v100"), Submesh(1, 1), (1, 1)).squeezed()
    table = reshard_table((8, 8), 256, mesh)
    assert table.specs == ((),)
    assert table.seconds.tolist() == [[0.0]]


@pytest.mark.parametrize("mesh", [(4,), (2, 2)])
def test_a_figure_along_the_cheapest_sequence_is_that_of_its_steps(mesh):
    cluster = Cluster.parse("2x2:h100", software="megatron")
    machines = logical_mesh(cluster, Submesh(2, 2), mesh).squeezed()
    table = reshard_table((8, 16, 32), 2**26, machines)
    every = np.arange(len(table.specs))
    summed, calls = table.all_reduce_seconds(every, every), table.calls(every, every)
    kinds = set()
    for (source, i), (target, j) in itertools.product(table.index.items(), repeat=2):
        if table.seconds[i, j] >= UNREACHABLE:
            continue
        path = table.path(source, target)
        kinds |= {step.kind for step, _ in path}
        reduces = sum(seconds for step, seconds in path if step.kind is StepKind.ALL_REDUCE)
        assert summed[i, j] == pytest.approx(reduces, rel=1e-12)
        launched = [machines.call_seconds[step.axis] for step, _ in path if step.kind is not StepKind.SLICE]
        assert calls[i, j] == pytest.approx(sum(launched), rel=1e-12)
    assert kinds == set(StepKind) - {StepKind.RING, StepKind.PERMUTE}, "these are inside operators alone"
