"""`alpa-explore layouts` and `alpa-explore scale`: tables, JSON, exit codes, bad input."""

import json
from pathlib import Path

import pytest

from alpa_explore import cli

LAYOUTS = ("layouts", "llama-tiny", "--cluster", "1x2:h100", "--global-batch", "4", "--no-cache")
SCALE = ("scale", "llama-tiny", "--devices", "h100", "--nodes", "1", "--global-batch", "8", "--no-cache")
Capture = pytest.CaptureFixture[str]


@pytest.mark.slow
def test_layouts_are_ranked_and_json_has_all(capsys: Capture, tmp_path: Path) -> None:
    page = tmp_path / "layouts.html"
    assert cli.main([*LAYOUTS, "--json", "--html", str(page)]) == 0
    found = json.loads(capsys.readouterr().out)
    rows = found["layouts"]
    times = [row["iteration_seconds"] for row in rows if row["fits"]]
    assert times == sorted(times)
    assert [row["rank"] for row in rows] == list(range(1, len(rows) + 1))
    assert (found["global_batch"], found["cluster"], found["plan"]) == (4, "1x2:h100", None)
    assert "Plotly" in page.read_text()


@pytest.mark.slow
def test_the_table_has_the_fastest_that_fit(capsys: Capture) -> None:
    assert cli.main([*LAYOUTS, "--top", "3"]) == 0
    out = capsys.readouterr().out
    assert "uniform layouts of llama-tiny on 1x2:h100 fit" in out
    assert len([line for line in out.splitlines() if "· microbatch " in line]) == 3 + 1


@pytest.mark.slow
def test_scale_has_a_row_for_each_cluster_and_dollars_where_a_price_is_given(capsys: Capture) -> None:
    assert cli.main([*SCALE, "--price", "h100=2.5", "--json"]) == 0
    (point,) = json.loads(capsys.readouterr().out)["points"]
    assert (point["place"], point["nodes"], point["state"]) == ("1x8:h100", 1, "fits")
    hours = 1e9 / point["tokens_per_second"] / 3600
    assert point["dollars_per_billion_tokens"] == pytest.approx(2.5 * 8 * hours, rel=0.01)


@pytest.mark.slow
def test_layouts_and_a_plan_of_a_config_file_are_shown(tmp_path: Path, capsys: Capture) -> None:
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "vocab_size": 128}
    config = sizes | {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64}
    (tmp_path / "config.json").write_text(json.dumps(config | {"model_type": "llama"}))
    asked = ["--hf", str(tmp_path / "config.json"), "--cluster", "1x2:h100", "--global-batch", "8"]
    assert cli.main(["layouts", *asked]) == 0
    assert "· microbatch " in capsys.readouterr().out
    assert cli.main(["plan", *asked, "-B", "2", "--layers", "2", "--scheduler", "serial"]) == 0
    assert "on 1x2:h100" in capsys.readouterr().out
