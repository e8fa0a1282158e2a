"""`alpa-explore baselines`: a line for each, also for what has no plan."""

import json
from pathlib import Path

import pytest

from alpa_explore import cli

ASK = ("baselines", "gpt-tiny", "--cluster", "1x2:v100", "--layers", "2")
Capture = pytest.CaptureFixture[str]


@pytest.mark.slow
def test_every_baseline_stands_beside_the_automatic_plan(tmp_path: Path, capsys: Capture) -> None:
    page = tmp_path / "a.html"
    assert cli.main([*ASK, "--json", "--html", str(page)]) == 0
    said = capsys.readouterr()
    found = json.loads(said.out)
    assert "Plotly.newPlot" in page.read_text()
    assert f"wrote {page}" in said.err
    rows = found["plans"]
    assert [row["plan"] for row in found["refused"]] == ["hsdp"], "two devices cannot be replicas and shards"
    assert rows[0]["plan"] == "automatic"
    assert [row["plan"].split(" ")[0] for row in rows[1:]] == [
        "data-parallel",
        "zero-1",
        "zero-2",
        "zero-3",
        "megatron",
        "fsdp+tp+pp",
        "gpipe-equal-layers",
        "intra-only",
        "inter-only",
        "equal-operators",
    ]
    for row in rows[:-1]:
        assert row["times_first"] >= 1 - 1e-9
        assert row["iteration_seconds"] > 0


@pytest.mark.slow
def test_what_has_no_plan_is_told_below_the_table(capsys: Capture) -> None:
    assert cli.main([*ASK, "--kind", "megatron", "--kind", "intra-only", "--tp", "3"]) == 0
    captured = capsys.readouterr()
    lines = captured.out.splitlines()
    assert lines[0].split()[:2] == ["plan", "T"]
    assert [line.split()[0] for line in lines[1:3]] == ["automatic", "intra-only"]
    assert lines[-1].startswith("megatron: The baseline megatron is not possible on 1x2:v100")
    assert "pricing megatron" in captured.err


@pytest.mark.slow
def test_another_precision_is_asked_of_the_plan_and_of_its_baselines(capsys: Capture) -> None:
    found = {}
    for precision in ("float16", "float32"):
        assert cli.main([*ASK, "--kind", "data-parallel", "--precision", precision, "--json"]) == 0
        found[precision] = [row["iteration_seconds"] for row in json.loads(capsys.readouterr().out)["plans"]]
    assert all(half < whole for half, whole in zip(found["float16"], found["float32"], strict=True))


@pytest.mark.slow
def test_the_batch_the_software_and_what_is_recomputed_are_those_that_are_asked_for(capsys: Capture) -> None:
    found = {}
    for batch, more in ((16, ()), (32, ()), (16, ("--remat", "full")), (16, ("--software", "eager"))):
        ask = [*ASK, "-B", "8", "--kind", "data-parallel", "--no-cache", "--json", "--global-batch", str(batch), *more]
        assert cli.main(ask) == 0
        found[batch, more] = [row["iteration_seconds"] for row in json.loads(capsys.readouterr().out)["plans"]]
    plain = found.pop((16, ()))
    for question, seconds in found.items():
        assert all(other != mine for other, mine in zip(seconds, plain, strict=True)), question


def test_commands_that_price_an_iteration_take_the_same_options(capsys: Capture) -> None:
    for command in ("plan", "baselines", "layouts", "scale"):
        with pytest.raises(SystemExit):
            cli.main([command, "--help"])
        told = capsys.readouterr().out
        for option in (
            "--hf",
            "--sequence",
            "--software",
            "--global-batch",
            "--precision",
            "--no-cache",
            "--json",
            "--html",
        ):
            assert option in told, (command, option)
