"""Collectives inside operators: rings and permutations, and what computing beside them hides."""

import pytest

from alpa_explore.cluster.group import Group
from alpa_explore.cost.collectives import collective_seconds, exposed_seconds, launched
from alpa_explore.cost.group_collectives import group_seconds
from alpa_explore.sharding.reshard import StepKind


def test_a_ring_sends_every_block_but_its_own_and_a_permutation_once():
    ring = collective_seconds(StepKind.RING, 800.0, 8, 100.0, 0.5)
    assert ring == pytest.approx(7 * (0.5 + 100.0 / 100.0))
    assert launched(StepKind.RING, 8) == 7
    assert collective_seconds(StepKind.PERMUTE, 100.0, 8, 100.0, 0.5) == pytest.approx(0.5 + 1.0)
    assert collective_seconds(StepKind.RING, 800.0, 1, 100.0, 0.5) == 0.0


@pytest.mark.parametrize(("computing", "sending"), [(8.0, 3.5), (8.0, 7.0), (8.0, 14.0), (0.0, 7.0)])
def test_blocks_are_computed_while_others_arrive(computing, sending):
    """Simulated step by step: a block is computed while the next one is sent; the last has none after it."""
    size, ends = 8, 0.0
    for step in range(size):
        ends += max(computing / size, sending / (size - 1) if step < size - 1 else 0.0)
    assert computing + exposed_seconds(sending, computing, size) == pytest.approx(ends)


def test_a_ring_over_nodes_waits_for_the_network_at_every_step():
    figures = {"inside_bandwidth": 400.0, "network_bandwidth": 50.0, "hop_inside_seconds": 0.1, "hop_seconds": 1.0}
    spread = Group(ranks=16, nodes=2, reduction_bandwidth=0.0, wait_seconds=0.0, **figures)
    within = Group(ranks=8, nodes=1, reduction_bandwidth=0.0, wait_seconds=0.0, **figures)
    assert group_seconds(StepKind.RING, 1600.0, spread) == pytest.approx(15 * (1.0 + 100.0 / 50.0))
    assert group_seconds(StepKind.RING, 1600.0, within) == pytest.approx(7 * (0.1 + 200.0 / 400.0))
    assert group_seconds(StepKind.PERMUTE, 1600.0, within) == pytest.approx(0.1 + 4.0)
