"""The figures of a score, on predictions whose errors are known."""

from dataclasses import replace
from pathlib import Path

import pytest

from alpa_explore.accuracy.scores import Fitting
from alpa_explore.cluster import Cluster
from alpa_explore.validation.predict import Prediction
from alpa_explore.validation.predict import prediction as predicted_run
from alpa_explore.validation.run_price import RunPrice
from alpa_explore.validation.runs.machines import Machine
from alpa_explore.validation.runs.rows import MeasuredRow, configuration, read_rows, side
from alpa_explore.validation.score import score, score_group

DATA = Path(__file__).parent / "data"
VTRAIN = DATA / "vtrain"
BASE = next(row for row in read_rows([DATA / "nanotron_playbook_h100.csv"]).measured if row.scored)


def prediction(predicted: float, measured: float | None, **changes: object) -> Prediction:
    fits = bool(changes.pop("fits", True))
    size = float(str(changes.pop("bytes", 1e9)))
    degrees = {name: changes.pop(name) for name in ("tensor", "microbatch") if name in changes}
    fields = {"measured_seconds": measured, "measured_bytes": None, **changes}
    fields["layout"] = replace(BASE.layout, **degrees)  # type: ignore[arg-type]  # as below
    row = replace(BASE, **fields)  # type: ignore[arg-type]  # values of any field
    on = Machine(cluster=Cluster.parse("1x8:h100@nanotron"))
    return predicted_run(row, on, RunPrice(seconds=predicted, bytes=size, fits=fits))


def too_large(given: Prediction) -> Prediction:
    return replace(given, run=replace(given.run, fits=False))


def test_runs_that_failed_are_doubtful_or_faulty_are_not_scored() -> None:
    found = score_group(
        "runs",
        "all",
        [
            prediction(1.0, 1.0),
            prediction(9.0, None, status="failed", fits=False),
            prediction(9.0, 1.0, status="doubtful"),
            prediction(9.0, 1.0, note="outlier population: pp>1"),
            prediction(9.0, None, status="oom"),
        ],
    ).score
    assert found.seconds is not None
    assert (found.runs, found.seconds.runs, found.left_out, found.seconds.mean) == (5, 1, 1, 0.0)
    assert found.fitting == Fitting(fits_and_ran=3, fits_but_failed=1, too_large_but_ran=0, too_large_and_failed=1)


def test_order_and_regret_of_the_layouts_of_one_model_on_one_number_of_devices() -> None:
    runs = [
        prediction(1.0, 2.0, tensor=1, line=2),
        prediction(2.0, 1.6, tensor=2, line=3),
        prediction(3.0, 4.0, tensor=4, line=4),
        prediction(0.5, 9.0, tensor=1, devices=BASE.devices * 2, line=5),
    ]
    found = score_group("runs", "all", runs)
    (layouts,) = found.choices
    assert (layouts.layouts, layouts.predicted_best.line, layouts.best.line) == (3, 2, 3)
    assert layouts.regret == pytest.approx(2.0 / 1.6 - 1)
    assert found.score.tau == pytest.approx(1 / 3)
    over = [too_large(runs[0]), *runs[1:]]
    assert score_group("runs", "all", over).score.regret == 0.0, "what is said not to fit is not picked"
    failed = prediction(0.5, None, tensor=4, status="failed")
    assert score_group("runs", "all", [*runs[:2], failed]).choices[0].failed_before == 1
    assert score_group("runs", "all", [*runs[:2], too_large(failed)]).choices[0].failed_before == 0


def test_layouts_with_other_batches_are_compared_by_token() -> None:
    runs = [prediction(2.0, 2.0, tensor=1, global_batch=512), prediction(1.5, 1.5, tensor=2, global_batch=256)]
    found = score_group("runs", "all", runs)
    assert (found.score.tau, found.choices[0].regret) == (1.0, 0.0)


def test_memory_error_and_noise_of_repetitions() -> None:
    runs = [
        prediction(1.0, 1.0, bytes=11e9, measured_bytes=10e9),
        prediction(1.0, 1.2, bytes=8e9, measured_bytes=10e9),
        prediction(1.0, 1.0, tensor=2, status="failed", bytes=1e9, measured_bytes=10e9),
    ]
    found = score_group("runs", "all", runs)
    assert found.score.bytes_ is not None
    assert (found.score.bytes_.runs, found.score.bytes_.mean) == (2, pytest.approx(0.15))
    assert found.repeats == pytest.approx((1.2,))


def test_groups_of_a_source_are_its_devices_and_precisions_nodes_and_mfu() -> None:
    peak = 8 * Cluster.parse("1x8:h100").device.peak("bfloat16")
    flops = BASE.architecture.flops(BASE.tokens, BASE.sequence) / peak
    runs = [
        prediction(flops * 2, flops * 2, devices=8),
        prediction(flops * 20, flops * 20, devices=64, precision="fp8"),
    ]
    assert [s.group for s in score(runs)] == ["all", "h100 bf16", "h100 fp8", "one node", "several nodes", "MFU ≥ 15 %"]
    assert [s.score.seconds.runs for s in score(runs)] == [2, 1, 1, 1, 1, 1]
    assert score([]) == ()


def test_the_split_halves_the_configurations_and_keeps_repetitions_together() -> None:
    rows = read_rows([VTRAIN / "measured_single_node.csv", DATA / "nanotron_playbook_h100.csv"]).measured
    sides: dict[object, set[str]] = {}
    for row in rows:
        sides.setdefault(configuration(row), set()).add(side(row))
    assert all(len(each) == 1 for each in sides.values())
    assert len(sides) < len(rows), "some are repeated"
    share = sum(each == {"fit"} for each in sides.values()) / len(sides)
    assert 0.4 < share < 0.6
    moved = replace(rows[0], file="other", line=77, measured_seconds=1.0, source="elsewhere", note="again")
    assert side(moved) == side(rows[0])


def test_the_side_of_a_configuration_never_changes() -> None:
    # A fit depends on it: these are the sides at the first fit.
    rows: tuple[MeasuredRow, ...] = read_rows([VTRAIN / "measured_multi_node.csv"]).measured
    assert "".join(side(row)[0] for row in rows) == "hhfhhhhhhhhfhffhhfffhfhffffh"


def test_runs_of_experts_stay_on_their_side_too() -> None:
    """How many experts a token passes through is part of a configuration."""
    rows = [row for row in read_rows([DATA / "megatron_bridge_nemo.csv"]).measured if row.architecture.experts > 1]
    assert [side(row) for row in rows] == ["fit", "fit"]
    decoder = rows[0].architecture.decoder
    other = replace(decoder, experts=replace(decoder.experts, chosen=decoder.experts.chosen + 1))
    changed = replace(rows[0], architecture=replace(rows[0].architecture, decoder=other))
    assert configuration(changed) != configuration(rows[0])
