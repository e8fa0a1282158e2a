"""Scores of the example, counted by hand."""

import pytest

from alpa_explore.accuracy.choices import choices
from alpa_explore.accuracy.record import Record
from alpa_explore.accuracy.scores import kendall_tau, score
from alpa_explore.accuracy.weak_spots import weak_spots
from tests.accuracy.example import example_record, run

RECORD = example_record()


def test_errors_are_over_the_runs_that_count() -> None:
    first = score(RECORD.of("first"))
    assert first.seconds.runs == 13, "not the one that is left out"
    assert first.seconds.mean == pytest.approx((6 * 0.1 + 6 * 0.2 + 4) / 13)
    assert first.seconds.bias == pytest.approx((6 * 0.1 - 6 * 0.2 + 4) / 13)
    assert (first.bytes_.runs, first.bytes_.mean) == (6, pytest.approx(0.25))
    assert (first.runs, first.refused, first.left_out) == (14, 0, 1)


def test_a_refused_run_has_no_error_and_no_verdict() -> None:
    third = score(RECORD.of("third"))
    assert (third.runs, third.refused) == (1, 1)
    assert third.seconds is third.bytes_ is third.tau is third.regret is None
    assert (third.fitting.fits_and_ran, third.fitting.too_large_but_ran) == (0, 0)


def test_what_was_said_to_fit_is_set_against_what_ran() -> None:
    fitting = score(RECORD.of("second")).fitting
    assert (fitting.fits_and_ran, fitting.fits_but_failed) == (3, 1)
    assert (fitting.too_large_but_ran, fitting.too_large_and_failed) == (0, 1)


def test_the_choice_is_the_predicted_best_against_the_best() -> None:
    (choice,) = choices(RECORD.of("second"))
    assert (choice.predicted_best.line, choice.best.line) == (2, 3)
    assert choice.regret == pytest.approx(0.1)
    assert choice.median_regret == pytest.approx(0.1), "2.0, 2.2, 4.4: the one in the middle"
    assert choice.failed_before == 1, "line 5 was said to fit and to be faster"
    assert score(RECORD.of("second")).tau == pytest.approx(1 / 3)


def test_a_layout_that_is_said_not_to_fit_is_not_chosen() -> None:
    runs = [run(2, 1.0, 9.0, tensor=2, fits=False), run(3, 2.0, 3.0, tensor=4), run(4, 3.0, 2.0, tensor=8)]
    (choice,) = choices(runs)
    assert (choice.predicted_best.line, choice.best.line, choice.regret) == (3, 4, 0.5)


def test_a_layout_that_ran_twice_has_the_mean_of_its_times_and_is_one_layout() -> None:
    runs = [run(2, 1.0, 2.0, tensor=2), run(3, 1.0, 4.0, tensor=2), run(4, 2.0, 2.0, tensor=4)]
    (choice,) = choices(runs)
    assert (choice.layouts, choice.best.line, choice.regret) == (2, 4, 0.5)
    assert choices(runs[:2]) == []


def test_other_batches_are_compared_by_the_time_of_a_sample() -> None:
    runs = [run(2, 4.0, 4.0, tensor=2, global_batch=512), run(3, 3.0, 3.0, tensor=4, global_batch=256)]
    (choice,) = choices(runs)
    assert choice.best.line == choice.predicted_best.line == 2


def test_kendall_tau_counts_ties_as_neither() -> None:
    assert kendall_tau([1, 2, 3], [1, 2, 3]) == 1
    assert kendall_tau([1, 2, 3], [3, 2, 1]) == -1
    assert kendall_tau([1, 1], [1, 2]) is None
    assert kendall_tau([1, 1, 2], [1, 2, 3]) == pytest.approx(2 / 6**0.5)


def test_a_weak_spot_is_a_kind_of_runs_well_above_the_error_of_its_source() -> None:
    good = [run(n, 1.05, 1.0) for n in range(2, 22)]
    bad = [run(n, 2.0, 1.0, pipeline=4) for n in range(22, 28)]
    reason = {"source": "first", "feature": "pipeline stages", "value": "4", "why": "Bubbles."}
    spots = weak_spots([*good, *bad], [reason])
    (spot,) = [s for s in spots if s.feature == "pipeline stages"]
    assert (spot.value, spot.errors.runs, spot.errors.mean, spot.why) == ("4", 6, pytest.approx(1.0), "Bubbles.")
    assert all(s.errors.mean > s.of_source.mean for s in spots)
    assert weak_spots(good) == []
    assert weak_spots(Record().runs) == []
