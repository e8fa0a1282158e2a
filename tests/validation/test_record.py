"""Predictions become the stored record: every row is in it, predicted or refused, on its side of the split."""

from pathlib import Path

import pytest

from alpa_explore.accuracy.record import Source, record_from_bytes, record_to_bytes
from alpa_explore.accuracy.scores import score as stored_score
from alpa_explore.validation.predict import predict_rows
from alpa_explore.validation.runs.rows import read_rows
from alpa_explore.validation.score import score
from benchmarks.figures_fit.record import record_of
from tests.validation.stand_in import StandIn

DATA = sorted((Path(__file__).parent / "data").glob("*.csv"))
NANOTRON = Source(name="nanotron_playbook_h100", label="nanotron", origin="there", licence="Apache-2.0", fitted="half")


def test_the_record_has_every_row_and_the_scores_agree_with_those_of_predict() -> None:
    predictions = predict_rows(read_rows(DATA), pricer=StandIn(), processes=1)
    record = record_from_bytes(record_to_bytes(record_of(predictions, {NANOTRON.name: NANOTRON}, made="a test")))
    assert len(record.runs) == len(predictions.predicted) + len(predictions.refused)
    assert record.sources[0] == NANOTRON
    for group in (g for g in score(predictions.predicted) if g.group == "all"):
        own = stored_score(record.of(group.source))
        if group.mean_error is None:
            assert own.seconds is None
            continue
        assert (own.seconds.runs, own.seconds.mean) == (group.scored, pytest.approx(group.mean_error, abs=1e-4))
        assert own.fitting.fits_and_ran == group.confusion.fits_ran
        assert own.fitting.too_large_and_failed == group.confusion.over_failed
        assert (own.regret is None) == (group.regret is None)
        if own.regret is not None and group.regret is not None:
            assert abs(own.regret - group.regret) < 1e-3
        if own.bytes_ is not None and group.memory_error is not None:
            assert abs(own.bytes_.mean - group.memory_error) < 1e-4


def test_only_sources_with_fitted_runs_have_runs_that_are_not_held_out() -> None:
    predictions = predict_rows(read_rows(DATA), pricer=StandIn(), processes=1)
    record = record_of(predictions, {NANOTRON.name: NANOTRON}, made="a test")
    fitted = {run.source for run in record.runs if not run.held_out}
    assert fitted == {NANOTRON.name}
