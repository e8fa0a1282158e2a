"""`alpa-explore compare-solvers`: the table as text, JSON and a page; bad input is one line and exit code 2."""

import json
from pathlib import Path

import pytest

from alpa_explore import cli
from alpa_explore.cli.compare_solvers import parse_mesh

Capture = pytest.CaptureFixture[str]
TINY = ("compare-solvers", "mlp-tiny", "--mesh", "4x2")


@pytest.mark.slow
def test_the_table_names_every_formulation_and_explains_the_bias(capsys: Capture) -> None:
    assert cli.main(TINY) == 0
    captured = capsys.readouterr()
    lines = captured.out.splitlines()
    assert lines[0].startswith("mlp-tiny, layer 1 of 3, on logical mesh 4×2 of 1x8:v100, B = 8: ")
    assert [line.split()[0] for line in lines[4:8]] == ["enumerated", "auto", "factor", "independent"]
    assert "all-data-parallel bias" in lines[-1]
    assert "solving: factor" in captured.err


@pytest.mark.slow
def test_json_has_units_in_its_keys_and_the_page_is_written(capsys: Capture, tmp_path: Path) -> None:
    page = tmp_path / "solvers.html"
    more = ("--layers", "0-1", "--solvers", "factor,auto", "--json", "--html", str(page), "--num-layers", "2")
    assert cli.main([*TINY, *more, "--device", "a100", "-B", "4", "--time-limit", "60"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["mesh"] == [4, 2]
    assert found["layers"] == [0, 1]
    assert found["device"] == "a100-80gb"
    assert found["optimum_proven"] is True
    rows = {row["solver"]: row for row in found["solvers"]}
    assert set(rows) == {"factor", "auto"}
    assert rows["auto"]["gap"] == 0
    assert 0 <= rows["factor"]["gap"] <= 0.05
    assert rows["factor"]["objective_seconds"] >= found["optimum_seconds"] * (1 - 1e-9)
    assert page.read_text().startswith("<!doctype html>")


@pytest.mark.parametrize(
    ("text", "shape", "cluster"),
    [
        ("16x8", (16, 8), "16x8:v100"),
        ("8×4×4", (8, 4, 4), "16x8:v100"),
        ("(4, 2)", (4, 2), "1x8:v100"),
        ("1x2", (1, 2), "1x2:v100"),
    ],
)
def test_a_mesh_becomes_the_cluster_that_holds_it(text: str, shape: tuple[int, ...], cluster: str) -> None:
    found, mesh = parse_mesh(text, "v100")
    assert mesh.shape == shape
    assert str(found) == cluster
