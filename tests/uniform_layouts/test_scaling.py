"""The best layout on other clusters: what fits, efficiency, dollars for the prices that are given, cancellation."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest

import alpa_explore as ax
from alpa_explore.errors import ClusterError, OptionError, UnknownNameError
from alpa_explore.uniform_layouts.report import scaling_sentence, scaling_table
from alpa_explore.uniform_layouts.scaling import Scaling, checked_prices, clusters_of, with_prices


@pytest.fixture(scope="module")
def small() -> Scaling:
    """On two, four and ten devices."""
    asked = {"global_batch": 32, "prices": {"h100": 2.0}, "scheduler": "serial"}
    return ax.scaling("llama-tiny", ("h100",), (1, 2, 5), devices_per_node=2, **asked)


@pytest.mark.slow
def test_each_point_has_the_fastest_layout_there(small: Scaling) -> None:
    assert small.whole
    first, second, third = small.points
    there = ax.layouts("llama-tiny", "2x2:h100", global_batch=32, scheduler="serial", cache=False)
    assert there.best is not None
    assert second.best == there.best
    assert second.layouts == len(there.ranked)
    assert first.state == "priced"
    assert third.state == "refused", "32 samples and 4 blocks do not divide over 10 devices"
    assert "10 devices" in third.reason


def test_efficiency_is_that_of_a_device_against_the_fewest(small: Scaling) -> None:
    first, second, _ = small.points
    assert first.best is not None
    assert second.best is not None
    assert first.efficiency == 1.0
    assert second.efficiency == pytest.approx(second.best.tokens_per_second / first.best.tokens_per_second / 2)


def test_dollars_follow_from_the_price_and_are_nowhere_without_one(small: Scaling) -> None:
    first = small.points[0]
    assert first.best is not None
    hours = 1e9 / first.best.tokens_per_second / 3600
    assert first.dollars_per_billion_tokens == pytest.approx(2.0 * 2 * hours)
    free = with_prices(small, {})
    assert all(point.dollars_per_billion_tokens is None for point in free.points)
    assert "dollars" not in scaling_sentence(free)
    assert "dollars_per_billion_tokens" not in scaling_table(free)[0]
    assert "dollars" in scaling_sentence(small)


def test_a_cluster_where_the_model_fits_is_named_before_it_is_known_how_fast(small: Scaling) -> None:
    first, *others = small.points
    bare = {"best": None, "dollars_per_billion_tokens": None, "efficiency": None}
    points = (replace(first, state="fits", **bare), *(replace(p, state="waiting", **bare) for p in others))
    sentence = scaling_sentence(replace(small, points=points))
    assert sentence.startswith(f"llama-tiny fits on {first.cluster}; how fast it is there is not known yet.")
    assert "3 of 3 clusters are not known yet." not in sentence
    assert "Nothing is known" not in sentence


@pytest.mark.slow
def test_what_does_not_fit_says_what_it_lacks_and_is_not_priced_further() -> None:
    seen: list[Scaling] = []
    found = ax.scaling(
        *("llama-3-8b", ("v100",), (1,)),
        devices_per_node=1,
        global_batch=4,
        sequence=2048,
        scheduler="serial",
        cache=False,
        partial=seen.append,
    )
    (point,) = found.points
    assert point.state == "does not fit"
    assert point.missing_bytes > 0
    assert point.best is None
    assert "lacks" in scaling_sentence(found)
    assert [one.points[0].state for one in seen] == ["does not fit"]


@pytest.mark.slow
def test_results_come_one_by_one_and_a_cancelled_call_keeps_them() -> None:
    stop, seen = threading.Event(), []

    def partial(found: Scaling) -> None:
        seen.append([point.state for point in found.points])
        if any(point.state == "priced" for point in found.points):
            stop.set()

    found = ax.scaling(
        *("llama-tiny", ("h100", "h200"), (1,)),
        global_batch=16,
        scheduler="serial",
        cache=False,
        partial=partial,
        cancel=stop,
    )
    assert seen == [["fits", "waiting"], ["fits", "fits"], ["priced", "fits"]]
    assert not found.whole
    assert [point.state for point in found.points] == ["priced", "fits"]
    assert "1 of 2 clusters are not known yet" in scaling_sentence(found)


def test_clusters_are_those_of_each_device_by_nodes() -> None:
    names = [str(cluster) for cluster in clusters_of(("H100", "gb200"), (2, 1))]
    assert names == ["1x8:h100", "2x8:h100", "1x64:gb200", "2x64:gb200"]
    with pytest.raises(UnknownNameError, match="h100"):
        clusters_of(("h1000",), (1,))
    with pytest.raises(OptionError, match="numbers of nodes"):
        clusters_of(("h100",), (0,))
    with pytest.raises(ClusterError):
        clusters_of(("h100",), (1,), devices_per_node=0)


@pytest.mark.parametrize("price", [0, -1.0, float("nan"), float("inf"), "two", True])
def test_a_price_that_is_no_number_above_0_is_refused(price: object) -> None:
    with pytest.raises(OptionError, match=r"price of a device-hour of h100.*Give dollars"):
        checked_prices({"h100": price}, ("h100",))
    with pytest.raises(OptionError, match="not asked for"):
        checked_prices({"b200": 3.0}, ("h100",))
