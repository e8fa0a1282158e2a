"""The figure of a run in progress, by its data."""

import pytest

from alpa_explore.figures import tuning
from alpa_explore.figures.runs import steps_figure, steps_sentence, steps_table
from alpa_explore.runtime.reports import StepReport


def reports(*seconds: float) -> list[StepReport]:
    return [StepReport(step=k, loss=5.0 - k / 10, seconds=s) for k, s in enumerate(seconds)]


def drawn(plan, steps, predicted_seconds=0.2, total=20):
    return steps_figure(plan, steps=steps, total=total, predicted_seconds=predicted_seconds)


def test_losses_and_seconds_are_drawn_at_their_steps_beside_the_predicted_line(plan) -> None:
    figure = drawn(plan, reports(0.9, 0.3, 0.4))
    loss, measured, predicted = figure.data
    scale = {"ms": 1e-3, "s": 1.0}[figure.layout.yaxis2.title.text]
    assert list(loss.x) == list(measured.x) == [1, 2, 3]
    assert list(loss.y) == [5.0, 4.9, 4.8]
    assert [y * scale for y in measured.y] == pytest.approx([0.9, 0.3, 0.4])
    assert [y * scale for y in predicted.y] == pytest.approx([0.2, 0.2])
    assert list(figure.layout.xaxis.range) == [0.5, 20.5], "the axis has the length of the whole run"
    assert predicted.line.dash == "dash", "colour is not the only sign"


def test_the_sentence_excludes_the_first_step_and_names_the_device_of_the_prediction(plan) -> None:
    sentence = steps_sentence(plan, reports(9.0, 0.4, 0.4), 20, 0.2)
    assert sentence.startswith(
        "3 of 20 steps of gpt-example done: the loss went from 5 to 4.8, and a step takes 400 ms"
    )
    assert "2 × the 200 ms predicted for v100" in sentence
    assert "200 ms are predicted" in steps_sentence(plan, (), 20, 0.2)


@pytest.mark.parametrize(("measured", "kind"), [(0.3, None), (30.0, "log"), (0.001, "log")])
def test_seconds_far_from_their_prediction_are_on_a_logarithmic_axis(plan, measured, kind) -> None:
    assert drawn(plan, reports(measured, measured)).layout.yaxis2.type == kind


def test_a_long_run_is_drawn_in_part_and_listed_in_full(plan) -> None:
    steps = reports(*[0.2] * (3 * tuning.RUN_STEPS))
    figure = drawn(plan, steps, total=len(steps))
    assert len(figure.data[0].x) == tuning.RUN_STEPS
    assert "one of 3" in figure.layout.xaxis.title.text
    rows = steps_table(steps, 0.1)
    assert len(rows) == len(steps)
    assert rows[0] == {"step": 1, "loss": 5.0, "measured_seconds": 0.2, "predicted_seconds": 0.1, "ratio": 2.0}


def test_the_prediction_is_drawn_before_the_first_step(plan) -> None:
    figure = drawn(plan, ())
    assert [len(trace.x) for trace in figure.data] == [0, 0, 2]
