"""A run beside its prediction: the data of the figure, the tables, and the command that shows both."""

import json
from dataclasses import asdict

import pytest

from alpa_explore import cli
from alpa_explore.figures.runs import ranks_table, run_figure, run_sentence, run_table
from alpa_explore.runtime.measured import FILE, Measured, MeasuredRank, MeasuredTask


def task(name, predicted, measured, collective=0.0, waited=0.0):
    return MeasuredTask(
        task=name,
        stage=int(name[0]),
        action=name[1],
        microbatch=int(name[2]),
        predicted_seconds=predicted,
        measured_seconds=measured,
        predicted_collective_seconds=predicted / 4,
        measured_collective_seconds=collective,
        predicted_send_seconds=0.0,
        measured_receive_seconds=waited,
    )


@pytest.fixture
def measured() -> Measured:
    return Measured(
        model="tiny <b>",
        schedule="1f1b",
        device="cpu",
        predicted_iteration_seconds=0.5,
        measured_iteration_seconds=0.6,
        tasks=(
            task("0F0", 0.1, 0.2, 0.05),
            task("1F0", 0.1, 0.1, waited=0.3),
            task("0F1", 0.1, 0.4, 0.15),
            task("0B0", 0.2, 0.1),
        ),
        ranks=(MeasuredRank(rank=0, submesh=0, predicted_peak_bytes=2.0**20, measured_peak_bytes=2.0**21),),
    )


def test_the_table_has_means_over_microbatches_and_the_ratio(measured) -> None:
    rows = {row["tasks"]: row for row in run_table(measured)}
    assert list(rows) == ["0F", "0B", "1F"]
    assert rows["0F"]["count"] == 2
    assert rows["0F"]["measured_seconds"] == pytest.approx(0.3)
    assert rows["0F"]["ratio"] == pytest.approx(3.0)
    assert rows["1F"]["measured_receive_seconds"] == 0.3
    assert ranks_table(measured)[0]["measured_peak_bytes"] == 2.0**21


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_bars_of_a_task_add_up_to_its_predicted_and_measured_seconds(measured, theme) -> None:
    figure = run_figure(measured, theme=theme)
    predicted, predicted_collectives, computing, collectives, waiting, *memory = figure.data
    scale = {"ms": 1e-3, "s": 1.0}[figure.layout.yaxis.title.text]
    place = list(computing.x).index("0F")
    assert (predicted.y[place] + predicted_collectives.y[place]) * scale == pytest.approx(0.1)
    assert (computing.y[place] + collectives.y[place]) * scale == pytest.approx(0.3)
    assert waiting.y[list(waiting.x).index("1F")] * scale == pytest.approx(0.3)
    assert {predicted.offsetgroup, predicted_collectives.offsetgroup} == {"predicted"}
    assert collectives.marker.pattern.shape == "x", "colour is not the only sign"
    assert [bar.y[0] for bar in memory] == [1.0, 2.0]
    assert "1.2 ×" in figure.layout.title.text
    assert "<b>" not in figure.layout.title.text


def test_the_command_prints_and_draws_a_run(measured, tmp_path, capsys) -> None:
    (tmp_path / FILE).write_text(json.dumps(asdict(measured)))
    page = tmp_path / "run.html"
    assert cli.main(["compare-run", str(tmp_path), "--html", str(page)]) == 0
    out = capsys.readouterr().out
    assert out.startswith(run_sentence(measured))
    assert "measured receive" in out
    assert "Plotly.newPlot" in page.read_text()
    assert cli.main(["compare-run", str(tmp_path), "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["kinds"]) == 3
    assert cli.main(["compare-run", str(tmp_path), "--tasks"]) == 0
    assert "0F1" in capsys.readouterr().out
