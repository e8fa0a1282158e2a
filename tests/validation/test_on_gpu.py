"""Runs measured on one H100 are predicted from the microbenchmarks of that GPU, which know nothing of them."""

from dataclasses import replace
from pathlib import Path

import pytest

from alpa_explore.validation.predict import predict_rows
from alpa_explore.validation.run_price import price_run
from alpa_explore.validation.runs.rows import read_rows

DATA = Path(__file__).parent / "data" / "on_gpu"
TOKENS = 8192
"""Of a microbatch that keeps the GPU busier than the host."""
ERROR = 0.085


@pytest.mark.slow
def test_a_calibrated_gpu_predicts_its_own_runs() -> None:
    rows = read_rows([DATA / "rows.csv"])
    chosen = [row for row in rows.measured if row.sequence * row.layout.microbatch == TOKENS and row.sequence != 2048]
    assert {row.framework for row in chosen} == {"eager", "compiled"}
    found = predict_rows(
        replace(rows, measured=tuple(chosen)), pricer=price_run, device=str(DATA / "device.json"), processes=1
    )
    for row, predicted in zip(chosen, found.predicted, strict=True):
        assert predicted.price.seconds == pytest.approx(row.measured_seconds, rel=ERROR), row.line
        if row.framework == "eager":
            assert predicted.price.bytes == pytest.approx(row.measured_bytes, rel=0.02), row.line
