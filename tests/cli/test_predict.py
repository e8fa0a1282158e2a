"""`alpa-explore predict`: a table in, predictions out; every fault of a table is told with its line."""

import json
import re
from pathlib import Path

import pytest

from alpa_explore import cli
from tests.layouts.measured import TABLES

HEADER = (
    "# GPUs,global batch,micro batch,hidden size,attention heads,# layers,sequence length,tensor parallelism,"
    "data parallelism,pipeline parallelism,iteration time (ms)"
)
ROW = "2,16,8,1024,16,24,1024,1,1,2,372.160408"
Capture = pytest.CaptureFixture[str]


def table(folder: Path, *lines: str) -> str:
    path = folder / "rows.csv"
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def predict(path: str, *more: str) -> int:
    return cli.main(["predict", path, "--device", "a100-80gb", *more])


@pytest.mark.parametrize(("path", "rows"), [(TABLES[0], 360), (TABLES[1], 28)])
def test_json_holds_every_row_as_it_was_with_both_times(path: Path, rows: int, capsys: Capture) -> None:
    assert predict(str(path), "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert len(found["rows"]) == rows
    for row in found["rows"]:
        assert row["measured_seconds"] == pytest.approx(row["iteration time (ms)"] / 1e3)
        assert row["predicted_seconds"] == pytest.approx(row["measured_seconds"], rel=0.4)
    nodes = "one_node" if path is TABLES[0] else "several_nodes"
    errors = [abs(r["predicted_seconds"] / r["measured_seconds"] - 1) for r in found["rows"]]
    assert found["errors"][f"{nodes}_fraction"] == pytest.approx(sum(errors) / rows)


def test_the_text_ends_with_the_errors(capsys: Capture) -> None:
    assert predict(str(TABLES[1])) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split()[:4] == ["2", "64", "3,072", "30"]
    assert lines[-1].startswith("Mean absolute error of 28 measured rows: ")
    assert "Kendall's tau" in lines[-1]
    groups = [line.split() for line in lines[-6:-2]]
    assert [group[:1] + group[4:6] for group in groups] == [
        ["3,072", "64", "7"],
        ["6,144", "256", "4"],
        ["8,192", "512", "11"],
        ["12,288", "512", "6"],
    ], "a line with the tau of each model and number of GPUs"
    assert all(-1 <= float(group[-1]) <= 1 for group in groups)


def test_a_layout_that_does_not_fit_is_predicted_and_said(tmp_path: Path, capsys: Capture) -> None:
    huge = "8,512,8,12288,96,96,2048,8,1,1,"
    assert predict(table(tmp_path, HEADER, ROW, huge), "--json") == 0
    captured = capsys.readouterr()
    found = json.loads(captured.out)["rows"]
    assert [row["fits_memory"] for row in found] == [True, False]
    assert found[1]["memory_bytes"] > 80 * 2**30
    assert found[1]["predicted_seconds"] > 0
    assert "1 of 2 layouts would not fit in the 80 GiB of a100-80gb; line 3 needs most" in captured.err


def test_files_of_other_programs_are_read(tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "windows.csv"
    lines = [f"{HEADER},note", "", f'{ROW},"two\r\nlines, quoted"', "", ""]
    path.write_bytes(b"\xef\xbb\xbf" + "\r\n".join(lines).encode())
    assert predict(str(path), "--json") == 0
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    assert row["note"] == "two\nlines, quoted"
    assert row["# GPUs"] == 2


def test_nothing_measured_is_predicted_all_the_same(tmp_path: Path, capsys: Capture) -> None:
    columns, values = HEADER.rsplit(",", 1)[0], ROW.rsplit(",", 1)[0]
    assert predict(table(tmp_path, f"note,{columns}", f"first try,{values}"), "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["rows"][0]["measured_seconds"] is None
    assert found["rows"][0]["note"] == "first try"
    assert "errors" not in found


def test_columns_may_stand_in_any_order(tmp_path: Path, capsys: Capture) -> None:
    turned = [",".join(reversed(line.split(","))) for line in (HEADER, ROW)]
    found = []
    for lines in ((HEADER, ROW), turned):
        assert predict(table(tmp_path, *lines), "--json") == 0
        found.append(json.loads(capsys.readouterr().out)["rows"][0]["predicted_seconds"])
    assert found[0] == found[1]


def test_a_device_that_was_not_measured_is_said(tmp_path: Path, capsys: Capture) -> None:
    assert cli.main(["predict", table(tmp_path, HEADER, ROW), "--device", "h100"]) == 0
    assert "no measured iterations" in capsys.readouterr().err


def test_a_device_file_is_a_device(tmp_path: Path, capsys: Capture) -> None:
    rows, slow = table(tmp_path, HEADER, ROW), tmp_path / "slow.json"
    preset = json.loads(Path("alpa_explore/cluster/presets/h100.json").read_text())
    found = []
    for factor in (1, 100):
        preset["device"]["peak_flops"] = {n: p / factor for n, p in preset["device"]["peak_flops"].items()}
        slow.write_text(json.dumps(preset))
        assert cli.main(["predict", rows, "--device", str(slow), "--json"]) == 0
        captured = capsys.readouterr()
        assert "no measured iterations" in captured.err
        found.append(json.loads(captured.out)["rows"][0]["predicted_seconds"])
    assert cli.main(["predict", rows, "--device", "h100", "--json"]) == 0
    assert found[0] == json.loads(capsys.readouterr().out)["rows"][0]["predicted_seconds"]
    assert found[1] > 2 * found[0]


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        (["a,b", "1,2"], "lacks columns: .*'# GPUs'.*Its first line must name"),
        ([HEADER], "is empty"),
        ([], "lacks columns"),
        ([HEADER, ROW, ROW.replace("1024,16,24", "x,16,24")], "Line 3: 'hidden size' must be a whole number.*'x'"),
        ([HEADER, ROW.replace("2,16,8", "2,16,2.5")], "Line 2: 'micro batch' must be a whole number"),
        ([HEADER, ROW.replace("2,16,8", "2,16,nan")], "Line 2: 'micro batch' must be a whole number"),
        ([HEADER, ROW.replace("372.160408", "-3")], "Line 2: 'iteration time .ms.' must be a number above 0"),
        ([HEADER, ROW.replace("372.160408", "soon")], "Line 2: 'iteration time .ms.' must be a number above 0"),
        ([HEADER, "4" + ROW[1:]], "Line 2: Tensor × data × pipeline.*1 × 1 × 2 = 2, not 4"),
        (
            [HEADER, ROW.replace("16,24,", "16,25,")],
            "Line 2: The layers must be a multiple.*Nearest that work: 24 and 26",
        ),
        ([HEADER, ROW.replace("2,16,8", "2,15,8")], "Line 2: The global batch must be a multiple"),
        ([HEADER, ROW + ",7"], "Line 2: every row has a cell for each column: 12 cells, 11 columns"),
        ([HEADER + ",# GPUs", ROW + ",2"], "names a column twice: '# GPUs'"),
        ([HEADER, ROW, '"' + "x" * 200_000], "is not valid CSV: line 3"),
    ],
)
def test_a_fault_of_the_table_names_its_line_and_is_exit_2(
    lines: list[str], told: str, tmp_path: Path, capsys: Capture
) -> None:
    assert predict(table(tmp_path, *lines)) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert re.search(told, captured.err), captured.err


def test_all_faults_of_a_table_are_told_at_once_up_to_ten(tmp_path: Path, capsys: Capture) -> None:
    bad = [
        ROW.replace("1024,16,24", "x,16,0"),
        ROW,
        ROW.replace("372.160408", "soon"),
        "",
        ROW + ",7",
        ROW.replace("16,24,", "16,25,"),
    ]
    assert predict(table(tmp_path, HEADER, *bad)) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    lines = [2, 2, 4, 6, 7]
    assert [int(n) for n in re.findall(r"Line (\d+): ", captured.err)] == lines
    for words in ("'hidden size'", "'# layers' must", "'iteration time .ms.' must", "12 cells", "24 and 26"):
        assert re.search(words, captured.err), words
    assert "and more" not in captured.err
    assert predict(table(tmp_path, HEADER, *[ROW.replace("2,16,8", "2,16,-1")] * 10)) == 2
    assert "and more" not in (ten := capsys.readouterr().err)
    assert ten.count("'micro batch'") == 10
    assert predict(table(tmp_path, HEADER, *[ROW.replace("2,16,8", "2,16,-1")] * 11)) == 2
    assert "and more" in (eleven := capsys.readouterr().err)
    assert eleven.count("'micro batch'") == 10


def test_a_file_that_is_not_there_or_not_text_is_exit_2(tmp_path: Path, capsys: Capture) -> None:
    assert predict(str(tmp_path / "missing.csv")) == 2
    assert "cannot be read" in capsys.readouterr().err
    (tmp_path / "bytes.csv").write_bytes(b"\xff\xfe\x00")
    assert predict(str(tmp_path / "bytes.csv")) == 2
    assert "not UTF-8 text" in capsys.readouterr().err
