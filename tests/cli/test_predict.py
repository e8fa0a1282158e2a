"""`alpa-explore predict`: runs in, predictions and scores out; a row that cannot be priced stops no other.

Prices are those of a stand-in; `tests/validation` holds those of the cost model against the measured ones.
"""

import json
from pathlib import Path

import pytest

from alpa_explore import cli
from alpa_explore.validation import run_price
from tests.validation.stand_in import StandIn

DATA = Path(__file__).parents[1] / "validation" / "data"
VTRAIN = Path(__file__).parents[1] / "validation" / "data" / "vtrain" / "measured_multi_node.csv"
NANOTRON, BRIDGE = DATA / "nanotron_playbook_h100.csv", DATA / "megatron_bridge_nemo.csv"
KEYS = (
    *("line", "predicted_seconds", "measured_seconds", "predicted_bytes", "measured_bytes", "fits", "status"),
    *("device", "software", "recompute", "range", "notes", "refused"),
)
Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def _stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_price, "price_run", StandIn())


def predict(*arguments: str | Path) -> int:
    return cli.main(["predict", *map(str, arguments)])


def test_json_has_a_record_for_every_row_and_the_scores_of_every_group(capsys: Capture) -> None:
    assert predict(NANOTRON, "--json") == 0
    captured = capsys.readouterr()
    found = json.loads(captured.out)
    assert list(found) == ["rows", "groups"]
    lines = NANOTRON.read_text().splitlines()
    assert [row["line"] for row in found["rows"]] == list(range(2, len(lines) + 1))
    assert all(tuple(row) == KEYS for row in found["rows"])
    assert {row["status"] for row in found["rows"]} == {"ok", "failed"}
    assert all(row["refused"] is None and row["predicted_seconds"] > 0 for row in found["rows"])
    assert all((row["measured_seconds"] is None) == (row["status"] == "failed") for row in found["rows"])
    whole = found["groups"][0]
    assert (whole["source"], whole["group"], whole["rows"]) == ("nanotron_playbook_h100", "all", len(lines) - 1)
    assert whole["left_out"] >= 3
    assert sum(whole["confusion"].values()) == len(lines) - 1
    assert whole["repeats"] >= 1
    assert "runs: " in captured.err, "progress is not in the output"


def test_refused_rows_keep_their_place_and_say_why(capsys: Capture) -> None:
    assert predict(BRIDGE, "--json") == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    refused = [row for row in rows if row["refused"]]
    assert refused
    assert all(tuple(row) == KEYS and row["predicted_seconds"] is None for row in refused)
    assert all("are not given" in row["refused"] for row in refused)
    assert all(row["measured_seconds"] > 0 for row in refused)
    assert {row["device"] for row in rows if not row["refused"]} >= {"gb200", "b200"}


def test_several_files_are_told_apart(capsys: Capture) -> None:
    assert predict(VTRAIN, BRIDGE, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert {row["file"] for row in found["rows"]} == {"measured_multi_node", "megatron_bridge_nemo"}
    assert {group["source"] for group in found["groups"]} == {"measured_multi_node", "megatron_bridge_nemo"}


@pytest.mark.slow
def test_the_two_sides_of_the_split_are_all_rows(capsys: Capture) -> None:
    lines = {}
    for side in ("fit", "held-out", "all"):
        assert predict(VTRAIN, "--json", "--split", side) == 0
        lines[side] = {row["line"] for row in json.loads(capsys.readouterr().out)["rows"]}
    assert lines["fit"] | lines["held-out"] == lines["all"]
    assert not lines["fit"] & lines["held-out"]
    assert min(map(len, lines.values())) > 5


def test_the_text_has_a_table_a_source_the_worst_rows_and_the_refusals(capsys: Capture) -> None:
    assert predict(NANOTRON, BRIDGE) == 0
    text = capsys.readouterr().out
    for words in (
        "nanotron_playbook_h100\n",
        "mean error",
        "are left out: a fault of the software",
        "of the same configuration differ by",
        "are to fit figures",
        "Farthest off:",
        "Refused: ",
        "a column is missing",
        "layers, hidden, heads and vocab are not given",
    ):
        assert words in text, words


def test_overrides_hold_for_all_rows(capsys: Capture) -> None:
    assert predict(NANOTRON, "--device", "h200", "--software", "torchtitan", "--json") == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert {(row["device"], row["software"]) for row in rows} == {("h200", "torchtitan")}


def test_a_file_of_refused_rows_only_is_said_row_by_row(tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "runs.csv"
    path.write_text("model,layers,hidden\nllama,32,4096\nllama,x,4096\n")
    assert predict(path, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["groups"] == []
    assert [row["line"] for row in found["rows"]] == [2, 3]
    assert "heads, seq" in found["rows"][0]["refused"]
    assert "layers is 'x'" in found["rows"][1]["refused"]
    assert predict(path) == 0
    assert "Refused: 2 rows" in capsys.readouterr().out
