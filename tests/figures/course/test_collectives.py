"""The ring and the message sizes, held against the cost model."""

from itertools import pairwise

import pytest

from alpa_explore.cluster.device import Link
from alpa_explore.cost.collectives import collective_seconds
from alpa_explore.figures.course.planning.message_sizes import half_bytes, message_sizes_figure
from alpa_explore.figures.course.planning.ring import ring_figure, ring_states
from alpa_explore.sharding.reshard import StepKind

LINK = Link(bandwidth=100e9, latency_seconds=5e-6)


@pytest.mark.parametrize("devices", [2, 3, 4, 8])
def test_the_first_half_is_a_reduce_scatter_and_the_second_an_all_gather(devices: int) -> None:
    states = ring_states(devices)
    assert len(states) == 2 * (devices - 1) + 1
    everyone = frozenset(range(devices))
    middle, last = states[devices - 1], states[-1]
    assert sorted(row.index(everyone) for row in middle.summed) == list(range(devices)), "one finished chunk each"
    assert all(row.count(everyone) == 1 for row in middle.summed)
    assert all(chunk == everyone for row in last.summed for chunk in row)
    assert [state.phase for state in states[1:]] == ["reduce-scatter"] * (devices - 1) + ["all-gather"] * (devices - 1)


def test_in_every_step_each_device_receives_one_chunk() -> None:
    for before, after in pairwise(ring_states(5)):
        changed = [
            sum(a != b for a, b in zip(x, y, strict=True)) for x, y in zip(before.summed, after.summed, strict=True)
        ]
        assert changed == [1] * 5


def test_no_value_is_added_twice() -> None:
    for before, after in pairwise(ring_states(6)):
        for row, new in zip(before.summed, after.summed, strict=True):
            assert all(old <= now for old, now in zip(row, new, strict=True))


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_bars_of_the_ring_end_at_the_seconds_of_the_cost_model(theme: str) -> None:
    size, devices = 2**26, 4
    ring = ring_figure(devices, size, LINK.bandwidth, LINK.latency_seconds)
    (steps,) = ring.controls
    assert (steps.values, steps.plays) == (tuple(range(7)), True)
    figure = ring.state({"state": 6}, theme=theme)
    bars = [trace for trace in figure.data if trace.type == "bar"]
    total = sum(bar.y[-1] for bar in bars)
    seconds = collective_seconds(StepKind.ALL_REDUCE, size, devices, LINK.bandwidth, LINK.latency_seconds)
    assert total * 1e-3 == pytest.approx(seconds)  # the axis is in ms
    assert total * 1e-3 == pytest.approx(figure.layout.yaxis2.range[1] * 1e-3 / 1.05), "the axis has room for it"


def test_the_chunk_in_motion_is_where_the_last_step_put_it() -> None:
    ring = ring_figure(4, 2**20, LINK.bandwidth, LINK.latency_seconds)
    for state, (_, figure) in list(zip(ring_states(4), ring.states(), strict=True))[1:]:
        cells, moving = figure.data[0], figure.data[1]
        texts = dict(zip(zip(cells.x, cells.y, strict=True), cells.text, strict=True))
        arrived = [texts[place] for place in zip(moving.x, moving.y, strict=True)]
        assert arrived == ["Σ" if state.steps >= 3 else str(state.steps + 1)] * 4


def test_half_of_the_bandwidth_is_reached_at_the_marked_size() -> None:
    for devices in (2, 8, 64):
        size = half_bytes(devices, LINK)
        whole = collective_seconds(StepKind.ALL_REDUCE, size, devices, LINK.bandwidth, LINK.latency_seconds)
        moving = collective_seconds(StepKind.ALL_REDUCE, size, devices, LINK.bandwidth, 0.0)
        assert moving / whole == pytest.approx(0.5)


def test_the_slider_of_message_sizes_shows_one_number_of_devices_at_a_time() -> None:
    figure = message_sizes_figure({"inside": LINK, "between": Link(bandwidth=1e9, latency_seconds=2e-5)}, (2, 8))
    (slider,) = figure.controls
    assert slider.texts == ("2", "8")
    for place, p in enumerate((2, 8)):
        times = next(trace for trace in figure.state({"state": place}).data if trace.name == "inside")
        priced = [collective_seconds(StepKind.ALL_REDUCE, n, p, LINK.bandwidth, LINK.latency_seconds) for n in times.x]
        assert list(times.y) == pytest.approx(priced)
