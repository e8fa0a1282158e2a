"""Predictions become the stored record: every row is in it, predicted or refused, on its side of the split."""

from pathlib import Path

from alpa_explore.accuracy.record import Source, record_from_bytes
from alpa_explore.validation.predict import predict_rows
from alpa_explore.validation.runs.rows import read_rows
from benchmarks.figures_fit.record import record_of, record_to_bytes
from tests.validation.stand_in import StandIn

DATA = sorted((Path(__file__).parent / "data").glob("*.csv"))
NANOTRON = Source(name="nanotron_playbook_h100", label="nanotron", origin="there", licence="Apache-2.0", fitted="half")


def test_the_record_has_every_row_and_only_sources_with_fitted_runs_have_runs_that_are_not_held_out() -> None:
    predictions = predict_rows(read_rows(DATA), pricer=StandIn(), processes=1)
    record = record_from_bytes(record_to_bytes(record_of(predictions, {NANOTRON.name: NANOTRON}, made="a test")))
    assert len(record.runs) == len(predictions.predicted) + len(predictions.refused)
    assert record.sources[0] == NANOTRON
    assert {run.source for run in record.runs if not run.held_out} == {NANOTRON.name}
