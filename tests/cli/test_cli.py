"""The command line: what it prints where, its exit codes, and what it does with bad input."""

import json
import os
import re
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from alpa_explore import cli
from alpa_explore.cluster import Cluster
from alpa_explore.errors import CancelledError, InfeasiblePlanError, OptionError
from alpa_explore.execution.progress import Progress
from alpa_explore.inter_op.options import PipelineOptions
from alpa_explore.intra_op.solve import SOLVERS
from alpa_explore.models.catalog import names
from alpa_explore.planner import interface
from alpa_explore.planner.request import PlanRequest
from alpa_explore.planner.resources import Running
from alpa_explore.plans.plan import Plan, load_plan
from alpa_explore.sharding.rules import RULES
from alpa_explore.sharding.spec_constraint import constraints_of
from tests.plans.example import example_plan
from tests.waiting import until

PLAN = ("plan", "gpt-tiny", "--cluster", "2x4:v100")
FIRST = Progress(pass_name="sharding", done=0, total=2, elapsed_seconds=0.0)
Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def example() -> Plan:
    return example_plan()


@pytest.fixture
def asked(example: Plan, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the planner was asked; it answers with the example."""
    found: dict[str, Any] = {}

    def plan(request: PlanRequest, running: Running) -> Plan:
        found.update(request=request, running=running)
        assert running.progress is not None
        running.progress(FIRST)
        running.progress(Progress(pass_name="sharding", done=2, total=2, elapsed_seconds=3.0))
        return example

    monkeypatch.setattr(interface, "planned", plan)
    return found


@pytest.fixture
def file(example: Plan, tmp_path: Path) -> str:
    example.save(tmp_path / "a.plan.json")
    return str(tmp_path / "a.plan.json")


def fail_with(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    def plan(*_: object, **__: object) -> Plan:
        raise error

    monkeypatch.setattr(interface, "planned", plan)


class TestPlan:
    def test_results_go_to_stdout_and_progress_to_stderr(self, asked: dict[str, Any], capsys: Capture) -> None:
        assert cli.main(PLAN) == 0
        captured = capsys.readouterr()
        assert captured.out.startswith("gpt-example (944 M parameters, float16) on 2x4:v100")
        assert "sharding 31.2 s" in captured.out
        assert captured.err.splitlines() == [
            "planning gpt-tiny on 2x4:v100, B = 8 microbatches of 8 samples",
            "sharding: 0 of 2 (0 %), 0.0 s, time left not known yet",
            "sharding: 2 of 2 (100 %), 3.0 s",
        ]

    def test_the_optimizer_states_reach_the_planner(self, asked: dict[str, Any], capsys: Capture) -> None:
        assert cli.main([*PLAN, "--optimizer-states", "8-bit"]) == 0
        cluster = Cluster.parse("2x4:v100")
        assert asked["request"].cluster.software == replace(cluster.software, states="8-bit")
        with pytest.raises(SystemExit):
            cli.main([*PLAN, "--optimizer-states", "4-bit"])
        assert "invalid choice: '4-bit'" in capsys.readouterr().err

    def test_options_reach_the_planner(self, asked: dict[str, Any]) -> None:
        more = "-B 16 --delta 0.25 --layers 3 --solver cbc --scheduler serial --precision float32 --no-remat --no-cache"
        more += " --cut 1 --cut 2 --stages 3 --stage-submesh=-1=1x2 --schedule gpipe --communication"
        more += " --submeshes power-of-two --imbalance 0.5 --pin mm=S0R --forbid mm_1=RR --forbid mm_1=RS1 --zigzag 2"
        assert cli.main([*PLAN, *more.split()]) == 0
        pipeline = PipelineOptions(
            cuts=(1, 2),
            num_stages=3,
            stage_submeshes=((-1, 1, 2),),
            schedule="gpipe",
            communication=True,
            submesh_space="power-of-two",
            imbalance_tolerance=0.5,
        )
        assert asked["request"] == PlanRequest(
            model="gpt-tiny",
            cluster=Cluster.parse("2x4:v100"),
            num_microbatches=16,
            global_batch=64,
            delta=0.25,
            num_layers=3,
            solver="cbc",
            precision="float32",
            rematerialization=False,
            pipeline=pipeline,
            zigzag=2,
            spec_constraints=constraints_of({"mm": "S0R"}, {"mm_1": ["RR", "RS1"]}),
        )
        assert (asked["running"].scheduler, asked["running"].cache) == ("serial", False)

    @pytest.mark.parametrize("command", ["plan", "solve"])
    def test_the_help_names_every_solver(self, capsys: Capture, command: str) -> None:
        with pytest.raises(SystemExit):
            cli.main([command, "--help"])
        text = " ".join(capsys.readouterr().out.split()).replace("- ", "-")  # lines are broken at hyphens, too
        listed = text.split("--solver NAME ")[-1].split("--")[0]
        assert [name for name in SOLVERS if not re.search(rf"(?<![\w-]){name}(?![\w-])", listed)] == []

    def test_defaults_are_the_catalogues(self, asked: dict[str, Any]) -> None:
        assert cli.main(["plan", "gpt-1.3b", "--cluster", "1x4:v100"]) == 0
        cluster = Cluster.parse("1x4:v100")
        assert asked["request"] == PlanRequest(
            model="gpt-1.3b", cluster=cluster, num_microbatches=128, global_batch=1024
        )
        assert (asked["running"].scheduler, asked["running"].cache) == (None, True)

    def test_json_is_the_summary(self, asked: dict[str, Any], capsys: Capture, example: Plan) -> None:
        assert cli.main([*PLAN, "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert found["predicted"]["iteration_seconds"] == example.predicted.iteration_seconds
        assert found["statistics"]["seconds"]["sharding"] == 31.25

    @pytest.mark.slow
    def test_files_are_written(self, asked: dict[str, Any], tmp_path: Path, example: Plan, capsys: Capture) -> None:
        plan_file, page = tmp_path / "a.plan.json", tmp_path / "a.html"
        assert cli.main([*PLAN, "-o", str(plan_file), "--html", str(page)]) == 0
        assert load_plan(plan_file) == example
        assert page.read_text().startswith("<!doctype html>")
        assert f"wrote {plan_file}" in capsys.readouterr().err

    def test_no_plan_that_fits_is_exit_1(self, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
        error = InfeasiblePlanError("No plan fits in memory", found="stage 0 needs\n20 GiB", remedy="It fits on 2x8.")
        fail_with(error, monkeypatch)
        assert cli.main(PLAN) == 1
        assert capsys.readouterr().err.splitlines()[-1] == (
            "alpa-explore: No plan fits in memory: stage 0 needs 20 GiB. It fits on 2x8."
        )

    @pytest.mark.parametrize(
        ("error", "code", "said"),
        [
            (OptionError("w", found="f", remedy="r."), 2, "w: f. r."),
            (ZeroDivisionError("oh"), 70, "ZeroDivisionError: oh"),
            (CancelledError("Cancelled", found="a test", remedy="Start again."), 1, "Start again."),
        ],
    )
    def test_an_error_of_the_planner_has_its_exit_code(
        self, error: Exception, code: int, said: str, monkeypatch: pytest.MonkeyPatch, capsys: Capture
    ) -> None:
        fail_with(error, monkeypatch)
        assert cli.main(PLAN) == code
        err = capsys.readouterr().err
        assert said in err
        assert (code == 70) == ("please report" in err) == ("Traceback" in err)

    def test_ctrl_c_cancels_and_ends_with_130(self, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
        def plan(_: PlanRequest, running: Running) -> Plan:
            assert running.progress is not None
            assert running.cancel is not None
            running.progress(FIRST)
            signal.raise_signal(signal.SIGINT)
            until(running.cancel.is_set, "the work is cancelled")
            raise CancelledError("The work was cancelled", found="1 of 2 tasks", remedy="Start again.")

        monkeypatch.setattr(interface, "planned", plan)
        before = signal.getsignal(signal.SIGINT)
        assert cli.main(PLAN) == 130
        assert signal.getsignal(signal.SIGINT) is before
        err = capsys.readouterr().err
        assert "stopping" in err
        assert "1 of 2 tasks" in err
        assert "Traceback" not in err

    def test_ctrl_c_gives_and_writes_the_best_plan_so_far(
        self, monkeypatch: pytest.MonkeyPatch, capsys: Capture, tmp_path: Path
    ) -> None:
        best = example_plan()

        def plan(_: PlanRequest, running: Running) -> Plan:
            assert running.progress is not None
            assert running.cancel is not None
            running.progress(FIRST)
            signal.raise_signal(signal.SIGINT)
            until(running.cancel.is_set, "the work is cancelled")
            error = CancelledError("The work was cancelled", found="1 of 2 tasks", remedy="Start again.")
            error.known = best
            raise error

        monkeypatch.setattr(interface, "planned", plan)
        assert cli.main([*PLAN, "-o", str(tmp_path / "a.plan.json")]) == 130
        said = capsys.readouterr()
        assert "the best plan so far, which is not proven to be the best:" in said.err
        assert best.model.name in said.out
        assert load_plan(tmp_path / "a.plan.json").predicted == best.predicted

    @pytest.mark.parametrize("captured", [True, False])
    def test_a_second_ctrl_c_and_one_while_the_model_is_captured_stop_at_once(
        self, captured: bool, monkeypatch: pytest.MonkeyPatch, capsys: Capture
    ) -> None:
        def plan(_: PlanRequest, running: Running) -> Plan:
            assert running.progress is not None
            if captured:
                running.progress(FIRST)
                signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)
            raise AssertionError("not stopped")

        monkeypatch.setattr(interface, "planned", plan)
        before = signal.getsignal(signal.SIGINT)
        assert cli.main(PLAN) == 130
        assert signal.getsignal(signal.SIGINT) is before
        assert capsys.readouterr().err.splitlines()[-1] == "alpa-explore: stopped"


class TestShow:
    def test_prints_the_summary(self, file: str, capsys: Capture) -> None:
        assert cli.main(["show", file]) == 0
        captured = capsys.readouterr()
        assert "4 stages (2 on 1 device, 1 on 4 devices, 1 on 2 devices)" in captured.out
        assert captured.err == ""
        assert cli.main(["show", file, "--json"]) == 0
        assert len(json.loads(capsys.readouterr().out)["stages"]) == 4

    def test_a_stage_is_a_table_of_its_operators(self, file: str, capsys: Capture) -> None:
        assert cli.main(["show", file, "--stage", "2"]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert len(lines) == 1 + 171
        columns = "operator op phase layer strategy inputs outputs compute communication"
        assert lines[0].split() == columns.split()
        assert "S0RR" in lines[1]
        assert cli.main(["show", file, "--stage", "2", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)[0]["outputs"] == ["S0RR"]

    @pytest.mark.slow
    def test_html(self, file: str, tmp_path: Path) -> None:
        assert cli.main(["show", file, "--html", str(tmp_path / "a.html")]) == 0
        assert (tmp_path / "a.html").stat().st_size > 4e6


def test_models_lists_the_catalogue(capsys: Capture) -> None:
    assert cli.main(["models", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in rows] == list(names())
    assert all(row["parameters"] > 0 and row["source"] for row in rows)
    assert cli.main(["models"]) == 0
    assert "gpt-1.3b" in capsys.readouterr().out


def test_clusters_lists_each_device_once_with_its_sources(capsys: Capture) -> None:
    assert cli.main(["clusters", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert len({row["device"] for row in rows}) == len(rows)
    assert all(row["source"] and row["inside_node"]["source"] and row["between_nodes"]["source"] for row in rows)
    a100 = next(row for row in rows if row["device"] == "a100-80gb")
    assert "a100" in a100["aliases"]
    assert cli.main(["clusters"]) == 0
    assert "Sources" in capsys.readouterr().out


class TestCoverage:
    def test_prints_a_line_for_each_kind_of_operator(self, capsys: Capture) -> None:
        assert cli.main(["coverage", "mlp-tiny"]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert re.fullmatch(r"mlp-tiny: (\d+) operators, \1 rule, 0 discovered, 0 replicated", lines[0])
        assert lines[2].split() == ["operator", "covered", "by", "count", "of", "all", "FLOPs", "divided", "by"]
        assert any(line.startswith("aten.mm.default ") and "m, k, n" in line for line in lines)

    def test_json(self, capsys: Capture) -> None:
        assert cli.main(["coverage", "MLP-tiny", "--json"]) == 0
        rows = json.loads(capsys.readouterr().out)
        assert set(rows[0]) == {"kind", "how", "count", "flops", "flops_share", "factors", "reason"}
        assert sum(row["flops_share"] for row in rows) == pytest.approx(1)

    def test_an_operator_that_cannot_be_divided_says_why(
        self, capsys: Capture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delitem(RULES, "aten.relu.default")  # type: ignore[arg-type]  # a dict
        monkeypatch.delitem(RULES, "optimizer.adam")  # type: ignore[arg-type]  # a dict
        assert cli.main(["coverage", "mlp-tiny"]) == 0
        out = capsys.readouterr().out
        assert re.search(r"aten.relu.default +discovered .* dim0, dim1\n", out)
        assert re.search(r"optimizer.adam +replicated .* torch has no operator of this name\n", out)


class TestLab:
    @pytest.fixture
    def started(self, monkeypatch: pytest.MonkeyPatch) -> list[str]:
        found: list[str] = []
        monkeypatch.setattr(os, "execv", lambda _program, command: found.extend(command))
        return found

    def test_opens_the_tour_on_this_machine_only(self, started: list[str]) -> None:
        cli.main(["lab"])
        assert started[:3] == [sys.executable, "-m", "jupyterlab"]
        assert "--ServerApp.ip=127.0.0.1" in started
        assert "--LabApp.default_url=/lab/tree/00_tour.ipynb" in started
        config = next(a.partition("=")[2] for a in started if a.startswith("--config="))
        assert "NeverCheckForUpdate" in Path(config).read_text()

    def test_opens_a_notebook_of_the_users(self, started: list[str], tmp_path: Path) -> None:
        (tmp_path / "my own.ipynb").write_text("{}")
        cli.main(["lab", str(tmp_path / "my own.ipynb"), "--no-browser", "--port", "8901"])
        assert f"--ServerApp.root_dir={tmp_path}" in started
        assert "--LabApp.default_url=/lab/tree/my%20own.ipynb" in started
        assert {"--no-browser", "--ServerApp.port=8901"} <= set(started)

    def test_opens_a_folder(self, started: list[str], tmp_path: Path) -> None:
        cli.main(["lab", str(tmp_path)])
        assert f"--ServerApp.root_dir={tmp_path}" in started
        assert not any("default_url" in a for a in started)

    def test_opens_the_current_folder_where_the_tour_is_not_installed(
        self, started: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(cli.lab, "PACKAGE", tmp_path / "site-packages" / "alpa_explore")
        monkeypatch.chdir(tmp_path)
        cli.main(["lab"])
        assert f"--ServerApp.root_dir={tmp_path}" in started


def run_in_a_process(code: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, **options)


@pytest.mark.distributed
def test_lists_and_plan_files_are_shown_without_torch_and_plotly(file: str) -> None:
    code = (
        "import sys; from alpa_explore.cli import main\n"
        f"assert main(['models']) == main(['clusters']) == main(['show', {file!r}]) == 0\n"
        "assert not {'torch', 'plotly', 'distributed', 'highspy'} & set(sys.modules), sorted(sys.modules)"
    )
    result = run_in_a_process(code)
    assert result.returncode == 0, result.stderr


@pytest.mark.distributed
def test_a_reader_that_has_seen_enough_is_no_error(file: str) -> None:
    command = f"{sys.executable} -m alpa_explore.cli show {file} --stage 2 --json | head -n 1"
    result = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, check=False)
    assert result.stderr == ""
    assert result.stdout == "[\n"


@pytest.mark.distributed
def test_a_terminal_without_unicode_shows_question_marks(file: str) -> None:
    environment = os.environ | {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    result = run_in_a_process(
        f"import sys; from alpa_explore.cli import main; sys.exit(main(['show', {file!r}]))", env=environment
    )
    assert result.returncode == 0, result.stderr
    assert "T = ?t + (B?1)?t_max" in result.stdout


@pytest.mark.slow
def test_a_real_model_is_planned_and_its_file_shown(tmp_path: Path, capsys: Capture) -> None:
    target = str(tmp_path / "a.plan.json")
    arguments = ["plan", "mlp-tiny", "--cluster", "1x2:v100", "-B", "8", "--layers", "2", "--scheduler", "serial"]
    assert cli.main([*arguments, "-o", target, "--html", str(tmp_path / "a.html")]) == 0
    printed = capsys.readouterr().out
    assert cli.main(["show", target]) == 0
    assert capsys.readouterr().out == printed


def test_auto_prints_every_number_of_microbatches_and_plans_the_best(capsys):
    words = ["plan", "mlp-tiny", "--cluster", "1x2:v100", "-B", "auto", "--global-batch", "8", "--scheduler", "serial"]
    assert cli.main([*words, "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    rows = summary["microbatches"]
    assert [row["num_microbatches"] for row in rows] == [1, 2, 4, 8]
    assert [row["microbatch_samples"] for row in rows] == [8, 4, 2, 1]
    (chosen,) = [row for row in rows if row["chosen"]]
    seconds = [row["iteration_seconds"] or row["least_seconds"] for row in rows]
    assert chosen["iteration_seconds"] == min(seconds), "no B that was not planned can be faster"
    assert summary["options"]["num_microbatches"] == chosen["num_microbatches"]
    assert cli.main(words) == 0
    assert "the most of the 4 B that divide a global batch of 8" in capsys.readouterr().out


def test_show_microbatches_prints_what_other_numbers_would_do(capsys, tmp_path):
    path = str(tmp_path / "a.plan.json")
    assert cli.main(["plan", "mlp-tiny", "--cluster", "1x2:v100", "-B", "4", "--scheduler", "serial", "-o", path]) == 0
    capsys.readouterr()
    assert cli.main(["show", path, "--microbatches", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["num_microbatches"] for row in rows if row["chosen"]] == [4]
    assert {row["microbatch_samples"] for row in rows} == {16}
    assert cli.main(["show", path, "--microbatches"]) == 0
    assert "activations held" in capsys.readouterr().out
