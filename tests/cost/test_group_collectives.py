"""Collectives among nodes: the formulas fit the published bandwidths of 1 to 64 nodes of 8 H100 (data/README.md)."""

import csv
import math
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alpa_explore.calibration.least_squares import Fit
from alpa_explore.cluster.group import Group, Span
from alpa_explore.cost.group_collectives import group_seconds
from alpa_explore.sharding.reshard import StepKind
from tests.cost.link_fit import GroupRow, bus_seconds, fit_links

FILE = Path(__file__).parent / "data" / "playbook_collectives_h100.csv"
KINDS = {"AllReduce": StepKind.ALL_REDUCE, "AllGather": StepKind.ALL_GATHER, "ReduceScatter": StepKind.REDUCE_SCATTER}
HOP_INSIDE = 2e-6
NVLINK = 450e9
"""Bytes per second of an H100 in one direction."""


@cache
def published() -> list[dict[str, str]]:
    with FILE.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def rows(column: str) -> list[GroupRow]:
    """The file's rows, read as bus bandwidths."""
    found = []
    for row in published():
        kind, ranks, size = KINDS[row["collective"]], int(row["gpus"]), float(row["bytes"])
        seconds = bus_seconds(kind, size, ranks, 1e9 * float(row[column]))
        found.append(GroupRow(kind=kind, bytes=size, ranks=ranks, nodes=int(row["nodes"]), seconds=seconds))
    return found


@cache
def fitted(column: str, *, declines: bool) -> Fit:
    return fit_links(rows(column), hop_inside_seconds=HOP_INSIDE, declines=declines)


def test_the_best_of_the_network_is_told_within_eight_percent() -> None:
    fit = fitted("upper_gb_s", declines=False)
    assert fit.points == 21
    assert fit.mean_error < 0.08
    assert fit.worst_error < 0.25
    # What is fitted is physical.
    assert 0.5 * NVLINK < fit.figures["inside_bandwidth"] < NVLINK
    assert 1.3 < fit.figures["reduction_bandwidth"] / fit.figures["inside_bandwidth"] < 2
    assert fit.figures["network_bandwidth"] < 8 * 50e9, "eight network cards of 400 Gbit/s"


def test_the_mean_of_a_shared_network_needs_a_decline_with_nodes() -> None:
    with_decline, without = (fitted("bandwidth_gb_s", declines=declines) for declines in (True, False))
    assert with_decline.mean_error < 0.11
    assert with_decline.mean_error < 0.7 * without.mean_error
    assert 0.2 < with_decline.figures["network_decline"] < 0.8


def test_as_algorithm_bandwidths_the_figures_would_be_impossible() -> None:
    one_node = next(r for r in published() if r["collective"] == "AllReduce" and r["nodes"] == "1")
    bus = 1e9 * float(one_node["bandwidth_gb_s"])
    assert bus < 480e9, "what NVLink SHARP reaches at most (github.com/NVIDIA/nccl-tests/issues/212)"
    assert 2 * 7 / 8 * bus > 480e9 * 1.5, "read as an algorithm bandwidth it would be far above"


FIGURE = st.floats(0.5, 2.0)


@given(
    st.tuples(st.integers(1, 3), st.integers(1, 4), st.integers(1, 3)).filter(lambda shape: math.prod(shape) > 1),
    st.lists(FIGURE, min_size=7, max_size=7),
    st.booleans(),
)
def test_a_collective_takes_what_its_steps_and_its_bytes_take_counted_one_by_one(
    shape: tuple[int, int, int], figures: list[float], switches: bool
) -> None:
    """In pods of nodes of devices; the formulas of the module's docstring, counted over ranks and pairs of ranks."""
    pods, nodes, each = shape
    in_node, net, out, hop_in, hop_net, hop_out, wait = figures
    ranks = range(math.prod(shape))
    p, n, size = len(ranks), pods * nodes, 3.0
    unit = [(rank // each, rank // (each * nodes)) for rank in ranks]  # (node, pod)
    group = Group(
        ranks=p,
        nodes=n,
        inside_bandwidth=in_node,
        reduction_bandwidth=1.5 * in_node if switches else 0.0,
        network_bandwidth=net,
        hop_inside_seconds=hop_in,
        hop_seconds=hop_net,
        wait_seconds=wait,
        outer=(Span(units=pods, bandwidth=out, hop_seconds=hop_out),) if pods > 1 else (),
    )

    def hop(a: int, b: int) -> float:
        return hop_out if unit[a][1] != unit[b][1] else hop_net if unit[a][0] != unit[b][0] else hop_in

    steps = sum(hop(rank, (rank + 1) % p) for rank in ranks) - (hop_in if n == 1 else 0.0)  # a ring has p − 1 steps
    rates = [in_node, *([net] if n > 1 else []), *([out] if pods > 1 else [])]
    ring = steps + (p - 1) / p * size / min(rates)
    waited = wait * math.log2(p)
    assert group_seconds(StepKind.ALL_GATHER, size, group) == pytest.approx(waited + ring)
    assert group_seconds(StepKind.REDUCE_SCATTER, size, group) == pytest.approx(waited + ring)

    # All-to-all: every pair exchanges 1/p; what leaves a node, or a pod, shares its link.
    sent = size / p
    loads = [sent * sum(unit[0][0] == unit[other][0] for other in ranks[1:]) / in_node]
    if n > 1:
        loads.append(sent * sum(unit[a][0] == 0 != unit[b][0] for a in ranks for b in ranks) / net)
    if pods > 1:
        loads.append(sent * sum(unit[a][1] == 0 != unit[b][1] for a in ranks for b in ranks) / out)
    if n > 1:
        assert group_seconds(StepKind.ALL_TO_ALL, size, group) == pytest.approx(waited + steps + max(loads))

    # All-reduce: both halves of the ring, or the switches of a node and a tree above it.
    reduced = 2 * (each - 1) / each * size / (group.reduction_bandwidth or in_node)
    if n == 1:
        expected = reduced if switches else 2 * ring
    else:
        climb = 2 * math.log2(nodes) * hop_net + 2 * math.log2(pods) * hop_out
        over = [2 * (n - 1) / n * size / net, *([2 * (pods - 1) / pods * size / out] if pods > 1 else [])]
        expected = min(2 * ring, max(reduced, climb + max(over)))
    assert group_seconds(StepKind.ALL_REDUCE, size, group) == pytest.approx(waited + expected)


def test_a_bus_bandwidth_counts_what_a_ring_sends() -> None:
    """Of 8 GB among 4 ranks three quarters, and twice that for an all-reduce, as nccl-tests prints it."""
    assert bus_seconds(StepKind.ALL_GATHER, 8e9, 4, 1e9) == pytest.approx(6.0)
    assert bus_seconds(StepKind.ALL_REDUCE, 8e9, 4, 1e9) == pytest.approx(12.0)
