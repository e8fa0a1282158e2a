"""The fit of figures to measured runs: figures that were made up are found again from times that they make."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from alpa_explore.baselines.block_work import DecoderWork
from alpa_explore.baselines.layout import Layout
from alpa_explore.cluster import Cluster, Software
from alpa_explore.cluster.presets import load_preset
from alpa_explore.cluster.software_profiles import software_names
from alpa_explore.cost.kernels import Kernel, KernelKind
from alpa_explore.cost.work import PartWork, PassWork, Recomputed
from alpa_explore.validation.predict import predict_rows
from alpa_explore.validation.run_price import price_run
from alpa_explore.validation.runs.machines import Machine, machine
from alpa_explore.validation.runs.rows import MeasuredRow, Rows, read_rows
from benchmarks.figures_fit.figures import DEVICES, Figure, Place, all_figures, at_start
from benchmarks.figures_fit.predicted import PredictedRuns
from benchmarks.figures_fit.run_fit import FiguresFit, fit_figures
from benchmarks.figures_fit.stored import overlaid, stored_values, write_figures
from benchmarks.figures_fit.works import RunWork, has_preset_rates, works_of

DATA = Path(__file__).parents[1] / "validation" / "data"
FIGURES = all_figures()
BY_NAME = {figure.name: figure for figure in FIGURES}


def product(m: int, n: int, k: int) -> Kernel:
    return Kernel(
        flops=2.0 * m * n * k,
        bytes_accessed=2.0 * (m * k + k * n + m * n),
        dtype="bfloat16",
        matrix=True,
        kind=KernelKind.PRODUCT,
        sizes=(1, m, n, k),
    )


def part(tokens: int, hidden: int) -> PartWork:
    pointwise = Kernel(flops=1.0, bytes_accessed=40.0 * tokens * hidden, dtype="bfloat16", matrix=False)
    forward = PassWork(kernels=(product(tokens, 8 * hidden, hidden), pointwise), launches=2)
    backward = PassWork(kernels=(*forward.kernels, *forward.kernels), launches=4)
    return PartWork(
        forward=forward,
        backward=backward,
        recomputed={
            kind: Recomputed(again=again, held_bytes=held, workspace_bytes=1e6)
            for kind, again, held in (("none", PassWork(), 1e6), ("selective", PassWork(), 1e6), ("full", forward, 1e5))
        },
        parameters=8.0 * hidden**2,
        parameter_tensors=4,
    )


def made_up(row: MeasuredRow, device: str, software: str, tokens: int, hidden: int, microbatches: int) -> RunWork:
    whole = part(tokens, hidden)
    work = DecoderWork(
        embedding=whole,
        blocks=(whole,),
        head=whole,
        tied_parameters=0.0,
        dtype="bfloat16",
        boundary_bytes=2.0 * tokens * hidden,
    )
    cluster = Cluster.parse(f"1x1:{device}", software=software)
    return RunWork(
        row=row,
        machine=Machine(cluster=cluster),
        work=work,
        layout=Layout(microbatches=microbatches),
        parts=((1, 24, 1),),
    )


@pytest.fixture(scope="module")
def runs() -> list[RunWork]:
    row = read_rows([DATA / "llm_foundry_mpt_a100_h100.csv"]).measured[0]
    return [
        made_up(row, device, "megatron", tokens, hidden, microbatches)
        for device in ("a100-80gb", "h100")
        for tokens in (1024, 8192)
        for hidden in (256, 1024, 8192)
        for microbatches in (2, 32)
    ]


def chosen(*names: str) -> tuple[Figure, ...]:
    return tuple(BY_NAME[name] for name in names)


def fit(figures: Sequence[Figure], runs: list[RunWork], true: dict[str, float]) -> FiguresFit:
    predicted = PredictedRuns(figures, runs)
    return fit_figures(predicted, predicted.seconds(true), np.full(len(runs), 0.02), at_start(tuple(figures)))


def test_runs_on_a_variant_of_a_preset_are_not_fitted_to() -> None:
    named = [("H100-80GB", ""), ("H200-141GB", ""), ("GH200-96GB", ""), ("GB200", ""), ("H100-SXM5-700W", "")]
    variants = [("H100-96GB-HBM2e-500W", ""), ("A800-80GB", ""), ("H100", "without EP overlap")]
    for machines, told in ((named, True), (variants, False)):
        for gpu_type, note in machines:
            assert has_preset_rates(machine(gpu_type, "megatron", 16, 8, note=note)) is told, gpu_type


def test_made_up_figures_are_found_again(runs: list[RunWork]) -> None:
    true = {
        "a100.matmul_efficiency": 0.7,
        "h100.matmul_efficiency": 0.6,
        "h100.memory_efficiency": 0.7,
        "megatron.microbatch_seconds": 4e-3,
        "megatron.iteration_seconds": 5e-2,
    }
    found = fit(chosen(*true), runs, true)
    assert found.errors[-1] < 1e-2 * found.errors[0]
    assert {f.figure.name: f.value for f in found.fitted} == pytest.approx(true, rel=0.02)
    assert not any(f.remark for f in found.fitted)


def test_a_figure_stops_at_its_bound_and_one_that_no_run_tells_stays_at_its_start(runs: list[RunWork]) -> None:
    true = {
        "h100.matmul_efficiency": 0.4,
        "b200.matmul_efficiency": 0.6,
        "fsdp.iteration_seconds": 0.1,
        "megatron.send_seconds": 1e-3,
        "megatron.microbatch_seconds": 1e-3,
    }
    found = fit(chosen(*true), runs, true)
    remarks = {f.figure.name: f.remark for f in found.fitted}
    assert remarks["h100.matmul_efficiency"] == "at its bound"
    assert found.values["h100.matmul_efficiency"] == pytest.approx(0.5)
    assert remarks["b200.matmul_efficiency"] == remarks["fsdp.iteration_seconds"] == "no run depends on it"
    assert found.values["b200.matmul_efficiency"] == BY_NAME["b200.matmul_efficiency"].start
    assert found.values["fsdp.iteration_seconds"] == 1e-2
    assert found.values["megatron.send_seconds"] == pytest.approx(1e-4), "there is no pipeline"


def test_only_the_figures_that_move_are_fitted(runs: list[RunWork]) -> None:
    true = {"h100.matmul_efficiency": 0.6, "megatron.microbatch_seconds": 4e-3}
    figures = chosen(*true)
    predicted = PredictedRuns(figures, runs)
    start = at_start(tuple(figures))
    spreads = np.full(len(runs), 0.02)
    held = fit_figures(
        predicted, predicted.seconds(true), spreads, start, moves=lambda f: f.field != "matmul_efficiency"
    )
    assert held.values["h100.matmul_efficiency"] == start["h100.matmul_efficiency"]
    assert held.values["megatron.microbatch_seconds"] != start["megatron.microbatch_seconds"]


def test_earlier_releases_share_all_figures_but_those_of_experts() -> None:
    shared = {f.field for f in FIGURES if f.scope == "megatron" and f.concerns("h100", "megatron-2025")}
    own = {f.field for f in FIGURES if f.scope == "megatron-2025"}
    assert own == {"grouped_factor", "expert_host_seconds", "expert_rack_host_seconds", "expert_overlap"}
    assert own | shared == {f.field for f in FIGURES if f.scope == "megatron"}
    assert not own & shared
    assert all(f.of_experts for f in FIGURES if f.field in own)


def test_runs_of_one_device_do_not_decide_on_another(runs: list[RunWork]) -> None:
    true = {"a100.matmul_efficiency": 0.7, "h100.matmul_efficiency": 0.6}
    found = fit(chosen(*true), [run for run in runs if run.machine.cluster.device.name == "h100"], true)
    assert found.values["h100.matmul_efficiency"] == pytest.approx(0.6, rel=0.01)
    assert found.values["a100.matmul_efficiency"] == BY_NAME["a100.matmul_efficiency"].start


def test_every_figure_lives_where_it_says_and_means_something() -> None:
    assert len(BY_NAME) == len(FIGURES)
    for figure in FIGURES:
        assert 0 < figure.low <= figure.start <= figure.high, figure.name
        assert figure.meaning
        if figure.place is Place.SOFTWARE:
            assert figure.scope in software_names()
            assert figure.field in Software.__dataclass_fields__
    values = {f.name: f.low * 1.01 for f in FIGURES}
    for name in DEVICES:
        device, inside, _ = load_preset(name)
        mine = [f for f in FIGURES if f.concerns(name, "megatron")]
        changed, link = overlaid(FIGURES, values, replace(device, software=Cluster.parse("1x1:h100").software), inside)
        assert link.bandwidth != inside.bandwidth
        assert changed.kernels is not None
        assert {f.place for f in mine} >= {Place.DEVICE, Place.KERNELS, Place.INSIDE_NODE, Place.SOFTWARE}
        assert set(changed.kernels.shares) <= set(changed.peak_flops)


@pytest.mark.slow
def test_the_work_of_a_run_is_captured_once_and_predicts_what_predictions_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = next(r for r in read_rows([DATA / "dgxc_nemo_h100_gb200.csv"]).measured if r.model == "Nemotron-15B")
    (first,), refused = works_of([row], processes=1, cache=tmp_path)
    assert not refused
    monkeypatch.setattr("alpa_explore.validation.run_price.captured_graph", None)
    (again,), _ = works_of([row], processes=1, cache=tmp_path)
    assert again == first
    monkeypatch.undo()
    (seconds,) = PredictedRuns((), [first]).seconds({})
    (prediction,) = predict_rows(Rows(measured=(row,), refused=()), pricer=price_run, processes=1).predicted
    assert seconds == pytest.approx(prediction.price.seconds, rel=1e-6)


def test_values_are_written_into_files_that_keep_everything_else(tmp_path: Path) -> None:
    figures = chosen("b300.matmul_efficiency", "b300.low_precision_share", "megatron.exposed_share")
    presets, profiles = tmp_path / "presets", tmp_path / "profiles"
    for folder, package in ((presets, "presets"), (profiles, "software_profiles")):
        folder.mkdir()
        for path in (Path(load_preset.__wrapped__.__code__.co_filename).parents[1] / package).glob("*.json"):
            (folder / path.name).write_bytes(path.read_bytes())
    before = json.loads((presets / "gb300.json").read_text())
    values = {"b300.matmul_efficiency": 0.612345, "b300.low_precision_share": 0.5, "megatron.exposed_share": 0.25}
    written = write_figures(figures, values, presets, profiles)
    assert {path.name for path in written} == {
        *("b300.json", "gb300.json"),
        *("megatron.json", "megatron-2025.json", "megatron-hybridep.json", "torchtitan.json", "compiled.json"),
    }
    after = json.loads((presets / "gb300.json").read_text())
    assert after["device"].pop("matmul_efficiency") == 0.6123
    assert set(after["kernels"].pop("shares").values()) == {0.5}
    del before["device"]["matmul_efficiency"], before["kernels"]["shares"]
    assert after == before
    assert json.loads((profiles / "megatron.json").read_text())["figures"]["tensor_overlap"] == 0.75
    assert write_figures(figures, values, presets, profiles) == ()


def test_stored_values_are_within_their_bounds() -> None:
    values = stored_values(FIGURES)
    assert all(f.low <= values[f.name] <= f.high for f in FIGURES)
