"""The record is stored without loss, small, and read without torch."""

import gzip
import json
import subprocess
import sys

import pytest

from alpa_explore.accuracy.record import Record, record_from_bytes, stored_reasons, stored_record
from alpa_explore.errors import PlanFileError
from benchmarks.figures_fit.record import record_to_bytes
from tests.accuracy.example import example_record, run


def test_a_record_comes_back_and_equal_records_give_equal_bytes() -> None:
    record = example_record()
    packed = record_to_bytes(record)
    again = record_from_bytes(packed)
    assert again.sources == record.sources
    assert [(r.source, r.line, r.refused) for r in again.runs] == [(r.source, r.line, r.refused) for r in record.runs]
    assert again.runs[0].predicted_seconds == pytest.approx(record.runs[0].predicted_seconds, rel=1e-5)
    assert record_to_bytes(again) == packed


def test_a_file_of_another_format_is_refused_with_the_remedy() -> None:
    other = gzip.compress(json.dumps({"format": "other", "version": 1}).encode())
    with pytest.raises(PlanFileError, match=r"benchmarks/validate\.py --store"):
        record_from_bytes(other)


def test_the_stored_record_can_be_read_and_names_the_source_of_every_run() -> None:
    record = stored_record()
    assert isinstance(record, Record)
    assert {r.source for r in record.runs} <= {s.name for s in record.sources}
    assert all(s.licence and s.origin for s in record.sources)


def test_every_stored_reason_says_why_and_is_about_a_source() -> None:
    for reason in stored_reasons():
        assert set(reason) == {"source", "feature", "value", "why"}
        assert reason["why"].endswith((".", ".)"))


def test_bands_need_no_torch() -> None:
    code = (
        "import sys\nfrom alpa_explore.accuracy.error_band import error_band\n"
        "from alpa_explore.accuracy.likeness import case\nfrom alpa_explore.cluster import Cluster\n"
        "error_band(case(Cluster.parse('1x8:h100'), precision='bfloat16'), 'seconds')\n"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_layout_is_written_as_people_write_it() -> None:
    one = run(2, 1.0, 1.0, tensor=2, pipeline=4, virtual=3, data=8, zero_stage=1)
    assert one.layout == "TP 2 · PP 4 · VP 3 · DP 8 · ZeRO-1 · 32 × 1 sample"
    assert run(2, 1.0, 1.0, micro_batch=4, microbatches=None, data=None).layout == "TP 1 · PP 1 · 4 samples"
    assert one.nodes == 1
    assert run(2, 1.0, 1.0, gpus=12).nodes == 2
