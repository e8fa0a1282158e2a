"""Tensors that cross a cut: the definition on graphs, and the row changes of C against its definition."""

import random

import pytest

from alpa_explore.layering import crossing_bytes, crossings_of
from alpa_explore.layering.crossing import produced_bytes, produced_changes, received_changes
from tests.layering.reference import cost


def test_only_tensors_that_forward_operators_make_and_read_cross(make_graph):
    graph = make_graph([("a", 1, 10, (-1,)), ("b", 1, 20, (0, -1)), ("c", 1, 1, (1, 0))])
    # op2's output is read by backward operators alone; the weight and the input are read everywhere.
    assert [(c.producer, c.readers, c.bytes) for c in crossings_of(graph)] == [(0, (1, 2), 40), (1, (2,), 80)]


def test_a_tensor_that_an_operator_reads_twice_counts_once(make_graph):
    graph = make_graph([("a", 1, 10, (-1,)), ("b", 1, 1, (0, 0))])
    assert [(c.readers, c.bytes) for c in crossings_of(graph)] == [((1,), 40)]


def test_bytes_after_an_operator_are_those_of_every_tensor_still_to_be_read(make_graph):
    graph = make_graph([("a", 1, 10, (-1,)), ("b", 1, 20, (0,)), ("c", 1, 5, (1,)), ("d", 1, 1, (2, 0))])
    assert crossing_bytes(graph) == (40, 120, 60, 0)


@pytest.mark.parametrize("received", [False, True])
def test_row_changes_add_up_to_the_definition_of_c(random_instance, received):
    rng = random.Random(1)
    for _ in range(60):
        operators = rng.randrange(1, 12)
        _, crossings = random_instance(rng, operators, 9)
        changes = list(received_changes(crossings, operators) if received else produced_changes(crossings))
        row = [0] * operators
        for i in reversed(range(operators)):
            for _, first, stop, size in (c for c in changes if c[0] == i):
                row[first:stop] = [value + size for value in row[first:stop]]
            assert row[i:] == [cost(crossings, i, k, received=received) for k in range(i, operators)]


def test_bytes_produced_by_each_run_equal_the_definition(random_instance):
    rng = random.Random(2)
    for _ in range(60):
        operators = rng.randrange(1, 12)
        _, crossings = random_instance(rng, operators, 9)
        starts = [0, *sorted(rng.sample(range(1, operators), rng.randrange(operators)))]
        stops = [*starts[1:], operators]
        expected = [cost(crossings, a, b - 1) for a, b in zip(starts, stops, strict=True)]
        assert produced_bytes(crossings, starts, stops) == expected
