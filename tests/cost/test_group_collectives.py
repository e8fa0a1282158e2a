"""Collectives among nodes: the formulas fit the published bandwidths of 1 to 64 nodes of 8 H100 (data/README.md)."""

from __future__ import annotations

import csv
from functools import cache
from pathlib import Path

import pytest

from alpa_explore.calibration.link_fit import GroupRow, bus_seconds, fit_links
from alpa_explore.calibration.pattern_search import Fit
from alpa_explore.cluster import Cluster
from alpa_explore.cluster.group import device_group
from alpa_explore.cost.group_collectives import group_seconds
from alpa_explore.sharding.reshard import StepKind

FILE = Path(__file__).parent / "data" / "playbook_collectives_h100.csv"
KINDS = {
    "AllReduce": StepKind.ALL_REDUCE,
    "AllGather": StepKind.ALL_GATHER,
    "ReduceScatter": StepKind.REDUCE_SCATTER,
}
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


@pytest.mark.parametrize("kind", list(KINDS.values()))
def test_a_larger_message_and_more_nodes_take_longer(kind: StepKind) -> None:
    groups = [device_group(Cluster.parse(f"{nodes}x8:h100"), 8 * nodes, 1) for nodes in (1, 2, 4, 8, 16)]
    for size in (1e3, 1e6, 2.7e8):
        times = [group_seconds(kind, size, group) for group in groups]
        assert times == sorted(times)
        assert all(group_seconds(kind, 2 * size, group) >= t for group, t in zip(groups, times, strict=True))
