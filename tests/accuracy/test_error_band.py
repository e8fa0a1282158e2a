"""The band is the mean error of runs of its kind that nothing was fitted to, and says how far the kind was widened."""

from typing import Any

import pytest

from alpa_explore.accuracy.error_band import error_band, is_tight
from alpa_explore.accuracy.likeness import Case, case
from alpa_explore.accuracy.record import Record
from alpa_explore.cluster import Cluster
from tests.accuracy.example import GIB, example_record, run

RECORD = example_record()


def asked(text: str, software: str = "megatron", **of: Any) -> Case:
    return case(Cluster.parse(text, software=software), **{"precision": "bfloat16", **of})


def test_it_is_the_mean_error_of_runs_on_as_many_nodes_of_the_device() -> None:
    one, several = (error_band(asked(text), "seconds", RECORD) for text in ("1x8:h100", "4x8:h100"))
    assert several is not None
    assert (one.fraction, one.bias, one.runs) == (pytest.approx(0.1), pytest.approx(0.1), 6)
    assert (several.fraction, several.bias, several.runs) == (pytest.approx(0.2), pytest.approx(-0.2), 6)
    assert one.words == "± 10 % (6 runs of Megatron-Core in 16 bits on one node of H100)"
    assert (
        one.meaning
        == "± 10 %: mean error of 6 runs of Megatron-Core in 16 bits on one node of H100; on average 10 % too long"
    )
    assert several.meaning.endswith("on several nodes of H100; on average 20 % too short")


def test_runs_that_were_fitted_left_out_or_refused_do_not_count() -> None:
    worse = Record(runs=tuple(r for r in RECORD.runs if r.line >= 14), sources=RECORD.sources)
    assert error_band(asked("1x8:h100"), "seconds", worse) is None


def test_memory_has_a_band_of_its_own_that_says_where_its_runs_are_from() -> None:
    band = error_band(asked("4x8:h100"), "bytes", RECORD)
    assert band.words == "± 25 % (6 runs of Megatron-Core in 16 bits on H100, most of them on one node)"
    assert band.meaning.endswith("on average 25 % too small")


def test_without_runs_on_the_device_it_is_that_of_the_software_on_others() -> None:
    band = error_band(asked("1x8:h200"), "seconds", RECORD)
    assert band.runs == 12
    assert band.kind == "12 runs of Megatron-Core in 16 bits on H100; too few on H200"


def test_runs_on_the_device_count_before_those_of_others_though_they_divide_the_sequence() -> None:
    divided = [run(n, 1.1, 1.0, context=2) for n in range(2, 8)]
    elsewhere = [run(n, 1.5, 1.0, device="b200") for n in range(8, 14)]
    band = error_band(asked("1x8:h100"), "seconds", Record(runs=(*divided, *elsewhere)))
    assert (band.runs, band.fraction) == (6, pytest.approx(0.1))
    assert band.kind.endswith("on H100, most of them with context parallelism")


@pytest.mark.parametrize("software", ["nanotron", "alpa"])
def test_too_few_runs_or_none_give_no_band(software: str) -> None:
    assert error_band(asked("1x8:h100", software), "seconds", RECORD) is None


def test_a_small_error_is_not_written_as_none() -> None:
    exact = Record(runs=tuple(run(n, 1.001, 1.0) for n in range(2, 8)))
    band = error_band(asked("1x8:h100"), "seconds", exact)
    assert band.short == "± <1 %"
    assert "too long" not in band.meaning


def test_runs_that_hardly_compute_say_nothing_of_a_plan_that_does() -> None:
    fast = [run(n, 1.05, 1.0, mfu=0.4) for n in range(2, 8)]
    slow = [run(n, 0.3, 1.0, mfu=0.05) for n in range(8, 14)]
    record = Record(runs=(*fast, *slow))
    band = error_band(asked("1x8:h100", mfu=0.5), "seconds", record)
    assert (band.runs, band.fraction) == (6, pytest.approx(0.05))
    for mfu in (None, 0.1):
        every = error_band(asked("1x8:h100", mfu=mfu), "seconds", record)
        assert every.runs == 12


@pytest.mark.parametrize(
    ("of", "like"),
    [
        ({"token_flops": 2e10, "overhead": 0.05}, True),
        ({"token_flops": 1e6}, False),  # a toy
        ({"token_flops": 1e13}, False),
        ({"overhead": 0.44}, False),  # the host's time, not that of kernels
        ({"experts": True}, False),
        ({"context": True}, False),
        ({"decoder": False}, False),  # convolutions, scans
        ({"precision": "float32"}, False),
    ],
)
def test_no_run_that_is_unlike_makes_a_band(of: dict[str, Any], like: bool) -> None:
    record = Record(runs=tuple(run(n, 1.1, 1.0, token_flops=1e10, overhead=0.02) for n in range(2, 8)))
    assert (error_band(asked("1x8:h100", **of), "seconds", record) is not None) == like


def test_a_band_of_memory_does_not_ask_for_what_limits_time() -> None:
    record = Record(
        runs=tuple(run(n, 1.0, 1.0, overhead=0.02, predicted_bytes=9.0, measured_bytes=10.0) for n in range(2, 8))
    )
    of = asked("1x8:h100", overhead=0.5)
    assert error_band(of, "seconds", record) is None
    band = error_band(of, "bytes", record)
    assert band.fraction == pytest.approx(0.1)
    assert error_band(asked("1x8:h100@megatron", precision="fp8"), "bytes", record) is None


def test_low_precision_of_the_software_decides_on_the_bits() -> None:
    runs = tuple(run(n, 1.2, 1.0, precision="fp8-mx") for n in range(2, 8))
    fp8 = case(Cluster.parse("1x8:h100").in_precision("fp8"), precision="bfloat16")
    band = error_band(fp8, "seconds", Record(runs=runs))
    assert band.kind == "6 runs of Megatron-Core in 8 bits on one node of H100"


def test_what_fits_by_less_than_its_error_is_tight() -> None:
    runs = tuple(run(n, 1.0, 1.0, predicted_bytes=9.0, measured_bytes=10.0) for n in range(2, 8))
    band = error_band(asked("1x8:h100"), "bytes", Record(runs=runs))
    assert band is not None
    room = 80 * GIB
    assert not is_tight(71 * GIB, room, band)
    assert is_tight(73 * GIB, room, band)
    assert not is_tight(78 * GIB, room, None)
    assert is_tight(79.2 * GIB, room, None)  # more than such a device offers


def test_releases_that_differ_for_experts_alone_share_the_runs_of_dense_models() -> None:
    runs = tuple(run(n, 1.1, 1.0, software="megatron-2025", experts=n > 7) for n in range(2, 14))
    band = error_band(asked("1x8:h100"), "seconds", Record(runs=runs))
    assert band.runs == 6
    assert error_band(asked("1x8:h100", experts=True), "seconds", Record(runs=runs)) is None
    assert error_band(asked("1x8:h100", software="mlperf"), "seconds", Record(runs=runs)) is None
