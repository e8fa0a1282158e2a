"""`alpa-explore validation`: how good the predictions are."""

import json
from pathlib import Path

import pytest

from alpa_explore import cli
from alpa_explore.accuracy import record as record_module
from alpa_explore.accuracy.record import Record
from tests.accuracy.example import example_record

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def _example(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_module, "stored_record", example_record)


def test_it_prints_the_errors_of_every_source(capsys: Capture) -> None:
    assert cli.main(["validation"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("20 measured runs from 3 sources; predictions of made up.")
    first = next(line for line in text.splitlines() if line.startswith("The first"))
    assert "25 %" in first, "memory"
    assert "the predicted best takes" in text


def test_json_has_every_run_and_every_score(capsys: Capture) -> None:
    assert cli.main(["validation", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert list(found) == ["made", "runs", "sources", "choices", "weak_spots", "reasons"]
    assert len(found["runs"]) == 20
    assert found["sources"][1]["regret_fraction"] == pytest.approx(0.1)


def test_the_page_is_written(tmp_path: Path, capsys: Capture) -> None:
    assert cli.main(["validation", "--html", str(tmp_path / "a.html")]) == 0
    assert "How good are these numbers?" in (tmp_path / "a.html").read_text()
    assert "wrote" in capsys.readouterr().err


def test_without_runs_it_says_so(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_module, "stored_record", Record)
    assert cli.main(["validation"]) == 0
    assert capsys.readouterr().out == "No measured runs are stored with this version.\n"
