"""An iteration of any number of microbatches, from few of them, against the simulation of all."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alpa_explore.schedules.catalog import INTERLEAVED, SCHEDULES, build_schedule
from alpa_explore.schedules.iteration import iteration_seconds
from alpa_explore.schedules.simulator.simulate import simulate
from alpa_explore.schedules.simulator.times import StageTimes, with_sends


def stage(forward: float, update: float = 0.0) -> StageTimes:
    return StageTimes(
        forward_seconds=forward, backward_input_seconds=2 * forward, backward_weight_seconds=0.0, update_seconds=update
    )


def seconds_of(name: str, times: list[StageTimes], submeshes: int, microbatches: int) -> float:
    counted, seconds, more = iteration_seconds(name, times, submeshes, microbatches)
    return seconds + (microbatches - counted) * more


def simulated(name: str, times: list[StageTimes], submeshes: int, microbatches: int) -> float:
    turns = len(times) // submeshes if name == INTERLEAVED else None
    return simulate(build_schedule(name, submeshes, microbatches, stages_per_submesh=turns), times).makespan_seconds


@given(
    st.sampled_from([(2, 2), (2, 3), (4, 2), (3, 3)]),
    st.integers(2, 7),
    st.tuples(st.sampled_from([1.0, 1.3]), st.sampled_from([1.0, 1.4, 2.5])),
    st.sampled_from([0.0, 0.05, 0.3]),
    st.sampled_from([0.0, 0.4, 1.0]),
)
def test_an_interleaved_pipeline_takes_what_all_of_its_microbatches_take_simulated(
    size: tuple[int, int], rounds: int, ends: tuple[float, float], send: float, waits: float
) -> None:
    stages, chunks = size
    forward = [ends[0], *[1.0] * (stages * chunks - 2), ends[1]]
    times = [stage(f, 0.5 * (1 + i) * (i < stages)) for i, f in enumerate(forward)]
    borders = [0.0, *[send] * (len(forward) - 1), 0.0]
    times = with_sends(times, list(zip(borders[1:], borders, strict=False)), waits)
    found = seconds_of(INTERLEAVED, times, stages, rounds * stages)
    assert found == pytest.approx(simulated(INTERLEAVED, times, stages, rounds * stages), rel=0.011)


@pytest.mark.parametrize("chunks", [2, 3])
def test_like_parts_make_the_bubble_of_an_interleaved_pipeline_shorter(chunks: int) -> None:
    counted, seconds, each = iteration_seconds(INTERLEAVED, [stage(1.0)] * 4 * chunks, 4, 16)
    assert each == pytest.approx(3 * chunks)
    assert seconds + (16 - counted) * each == pytest.approx(16 * 3 * chunks + 3 * 3)


def test_an_interleaved_pipeline_takes_what_lies_between_two_rounds() -> None:
    times = [stage(1.0)] * 8
    low, between, high = (seconds_of(INTERLEAVED, times, 4, count) for count in (4, 6, 8))
    assert between == pytest.approx((low + high) / 2)


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("microbatches", [8, 20, 48])
def test_like_stages_take_what_all_of_their_microbatches_take_simulated(name: str, microbatches: int) -> None:
    thirds = replace(stage(1.0), backward_input_seconds=1.0, backward_weight_seconds=1.0)
    turns = len(build_schedule(name, 4, 8).submesh_of_stage) // 4
    times = [thirds] * 4 * turns
    assert seconds_of(name, times, 4, microbatches) == pytest.approx(simulated(name, times, 4, microbatches))


@given(st.lists(st.sampled_from([1.0, 1.5]), min_size=1, max_size=5), st.integers(1, 20), st.sampled_from([0.0, 4.0]))
def test_1f1b_takes_no_longer_than_its_formula(forward: list[float], microbatches: int, late: float) -> None:
    times = [stage(f, late * place) for place, f in enumerate(forward)]
    found = seconds_of("1f1b", times, len(times), microbatches)
    whole = simulated("1f1b", times, len(times), microbatches)
    assert found >= whole * (1 - 1e-9)
    if len(set(forward)) == 1:
        assert found == pytest.approx(whole)
