"""A plan file: what is written is read again, byte for byte, and nothing else gets in."""

import json
import os
import resource
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import alpa_explore as ax
from alpa_explore.errors import PlanFileError
from alpa_explore.planner.replan import replan
from alpa_explore.plans.file.document import plan_text, save_plan
from alpa_explore.plans.file.schema import plan_schema
from alpa_explore.plans.file.tuning import MAX_BYTES
from alpa_explore.plans.plan import Plan, load_plan
from alpa_explore.store.cache import SolveCache
from tests.plans.example import example_plan

Change = Callable[[dict[str, Any]], None]


@pytest.fixture(scope="module")
def plan() -> Plan:
    return example_plan()


@pytest.fixture(scope="module")
def document(plan: Plan) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(plan_text(plan))
    return found


def fault_of(path: Path) -> str:
    with pytest.raises(PlanFileError) as caught:
        load_plan(path)
    message = str(caught.value)
    assert caught.value.exit_code == 2
    assert "\n" not in message
    assert len(message) < 500
    return message


@pytest.mark.parametrize("cluster", ["2x4:v100", "1x4:v100", "1x1:a100", "8x8:v100"])
def test_a_plan_that_was_saved_is_read_as_it_was(cluster: str, tmp_path: Path) -> None:
    plan = example_plan(cluster)
    first, second = tmp_path / "a.plan.json", tmp_path / "b.plan.json"
    plan.save(first)
    loaded = ax.load_plan(first)
    assert loaded == plan
    loaded.save(second)
    assert first.read_bytes() == second.read_bytes()


@pytest.mark.parametrize("model", ["mixtral-tiny", "qwen3-moe-tiny"])
def test_a_plan_whose_experts_hide_next_to_nothing_is_read_as_it_was(model: str, tmp_path: Path) -> None:
    """A soft maximum is a thousandth more than the whole there: what is hidden must not be less than nothing."""
    plan = ax.baseline(model, "2x2:h100", "zero-1", num_microbatches=2, num_layers=2, delta=2.0)
    operators = [operator for stage in plan.stages for operator in stage.operators]
    assert any(operator.hidden_once_seconds > 0.0 for operator in operators)
    assert all(operator.hidden_once_seconds >= 0.0 for operator in operators)
    save_plan(plan, tmp_path / "a.plan.json")
    assert load_plan(tmp_path / "a.plan.json").stages == plan.stages


def test_what_is_written_satisfies_the_published_schema(document: dict[str, Any]) -> None:
    jsonschema.Draft202012Validator.check_schema(plan_schema())
    assert list(jsonschema.Draft202012Validator(plan_schema()).iter_errors(document)) == []


def test_the_keys_that_other_tools_rely_on_are_there(document: dict[str, Any]) -> None:
    assert document["format"] == "alpa_explore.plan"
    assert document["version"] == 1
    assert document["cluster"].items() >= {"nodes": 2, "devices_per_node": 4, "device": "v100"}.items()
    assert document["options"].keys() >= {"num_microbatches", "delta", "num_layers", "solver"}
    assert document["layers"][0].keys() >= {"index", "operators", "flops", "cut_bytes"}
    assert document["stages"][0].keys() >= {
        "index",
        "layers",
        "submesh",
        "logical_mesh",
        "devices",
        "latency_seconds",
        "weight_bytes",
        "activation_bytes",
        "workspace_bytes",
        "operators",
    }
    assert document["stages"][0]["operators"][0].keys() >= {"name", "op", "phase", "strategy", "inputs", "output"}
    assert document["predicted"].keys() == {
        "iteration_seconds",
        "t_max_seconds",
        "sum_latency_seconds",
        "bubble_fraction",
        "peak_bytes_per_device",
        "sends_seconds",
        "objective_seconds",
    }
    assert document["t_max_sweep"][0].keys() >= {"t_max_seconds", "iteration_seconds", "pruned"}
    assert document["statistics"].keys() >= {"solves", "distinct_solves", "variables", "constraints", "seconds"}
    assert document["statistics"]["seconds"]["capture"] == 2.5


def test_a_plan_from_a_file_is_planned_again_for_another_number_of_microbatches(plan: Plan, tmp_path: Path) -> None:
    plan.save(tmp_path / "a")
    loaded = load_plan(tmp_path / "a")
    again, expected = replan(loaded, num_microbatches=8), replan(plan, num_microbatches=8)
    assert again.predicted == expected.predicted
    assert [s.layers for s in again.stages] == [s.layers for s in expected.stages]
    assert replan(loaded, num_microbatches=32) == plan


def test_one_line_of_the_file_is_one_operator_candidate_or_figure(plan: Plan) -> None:
    lines = plan_text(plan).splitlines()
    operator = next(line for line in lines if '"adam_0"' in line)
    assert json.loads(operator.strip().rstrip(","))["phase"] == "update"
    assert sum('"t_max_seconds"' in line for line in lines) == len(plan.t_max_sweep) + 1


def test_names_of_any_language_and_any_character_survive(tmp_path: Path) -> None:
    plan = example_plan(mark=' λ 层 "\\\u2028\x00</script>')
    plan.save(tmp_path / "a")
    assert load_plan(tmp_path / "a") == plan


def sparse(folder: Path) -> Path:
    """A file that is too large and takes no space."""
    with (folder / "large").open("wb") as stream:
        stream.truncate(MAX_BYTES + 1)
    return folder / "large"


def pipe(folder: Path) -> Path:
    """To which nobody writes."""
    os.mkfifo(folder / "pipe")
    return folder / "pipe"


class TestWhatIsNotAPlan:
    @pytest.mark.parametrize(
        ("made", "message"),
        [
            (lambda folder: folder / "nothing.plan.json", "There is no plan file"),
            (lambda folder: folder, "is a folder"),
            (lambda folder: Path("/dev/null"), "a pipe or a device"),
            (lambda folder: Path("/dev/zero"), "a pipe or a device"),
            (pipe, "a pipe or a device"),
            (lambda folder: Path("a\0b"), "null byte"),
            (sparse, "too large"),
        ],
    )
    def test_what_is_no_file_that_can_be_read(self, made: Callable[[Path], Path], message: str, tmp_path: Path) -> None:
        assert message in fault_of(made(tmp_path))

    @pytest.mark.parametrize("share", [0.01, 0.3, 0.99])
    def test_a_file_that_is_cut_off(self, share: float, plan: Plan, tmp_path: Path) -> None:
        text = plan_text(plan)
        (tmp_path / "a").write_text(text[: int(share * len(text))])
        assert "truncated" in fault_of(tmp_path / "a")

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            (b"", "the file is empty"),
            (b"PK\x03\x04\xff\xfe", "not UTF-8"),
            (b"hello", "not JSON"),
            (b"[1, 2]", 'no "format"'),
            (b'{"format": "other"}', 'no "format"'),
            (b"[" * 100_000, "nested too deeply"),
            (b'{"format": "alpa_explore.plan"}', "version: None"),
            (b'{"format": "alpa_explore.plan", "version": true}', "version: True"),
            (b'{"format": "alpa_explore.plan", "version": 1, "x": NaN}', "NaN is not a number"),
            (b'{"format": "alpa_explore.plan", "version": 1, "x": "\\ud800"}', "surrogates not allowed"),
            (b'{"format": "alpa_explore.plan", "version": 1, "x": ' + b"9" * 5000 + b"}", "not JSON"),
            (b'{"format": "alpa_explore.plan", "version": 1}', "'model' is missing"),
        ],
    )
    def test_other_content(self, content: bytes, message: str, tmp_path: Path) -> None:
        (tmp_path / "a").write_bytes(content)
        assert message in fault_of(tmp_path / "a")

    def test_a_newer_version_says_how_to_get_it(self, tmp_path: Path) -> None:
        (tmp_path / "a").write_text('{"format": "alpa_explore.plan", "version": 2}')
        assert "newer" in (message := fault_of(tmp_path / "a"))
        assert "pip install --upgrade" in message


def at(*keys: str | int) -> Callable[[dict[str, Any]], Any]:
    def found(d: Any) -> Any:
        for key in keys:
            d = d[key]
        return d

    return found


def put(*keys: str | int, value: Any) -> Change:
    return lambda d: at(*keys[:-1])(d).__setitem__(keys[-1], value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (put("cluster", "nodes", value=2.0), "2.0 must be integer"),
        (put("cluster", "nodes", value=10**9), "must be smaller than or equal to 65536"),
        (put("cluster", "device_figures", "memory_bandwidth", value=0), "0 must be bigger than 0"),
        (put("options", "num_layers", value=5), "6 of them, but options.num_layers is 5"),
        (put("options", "num_microbatches", value=0), "0 must be bigger than or equal to 1"),
        (put("layers", 1, "index", value=0), "layers[1].index"),
        (lambda d: d["layers"][0]["operator_flops"].pop(), "layers[0].operator_flops"),
        (put("stages", 0, "layers", value=[1, 1]), "a run that begins with layer 0 is due"),
        (lambda d: d["stages"].pop(), "they end with layer 4"),
        (put("stages", 1, "devices", value=[0]), "another stage has 0"),
        (put("stages", 0, "operators", 0, "collective_seconds", value=[1.0, 2.0]), "not one for each line of"),
        (put("stages", 0, "devices", value=[9]), "9 is not one of the 8 devices"),
        (put("stages", 0, "devices", value=[0, 1]), "do not agree"),
        (put("stages", 0, "submesh", value=[1, 8]), "no submesh of a cluster"),
        (put("stages", 0, "latency_seconds", value=-1), "-1 must be bigger than or equal to 0"),
        (put("stages", 0, "latency_seconds", value=1e300), "must be smaller than or equal to 1e+30"),
        (put("stages", 2, "operators", 0, "layer", value=0), "is not in the stage"),
        (put("stages", 2, "operators", 0, "output", value="S7R"), "names an axis that logical mesh"),
        (put("stages", 2, "operators", 0, "output", value="<b>"), "stages[2].operators[0].output"),
        (put("stages", 2, "operators", 0, "phase", value="sideways"), "'sideways' must be one of"),
        (lambda d: d["t_max_sweep"].reverse(), "candidates ascend"),
        (put("t_max_sweep", 0, "iteration_seconds", value=1.0), "pruned, and yet"),
        (put("costs", "candidates", 0, 2, value=99), "submesh 99 of"),
        (put("costs", "candidates", 0, 1, value=99), "layers 0 to 99 of 6"),
        (put("costs", "candidates", 0, 3, value=[64]), "does not fill submesh"),
        (lambda d: d["costs"]["candidates"][0].pop(), "costs.candidates[0]"),
        (put("model", "name", value=7), "7 must be string"),
        (put("model", "name", value="x" * 100_000), "must be shorter than or equal to 10000"),
        (lambda d: d.pop("costs"), "'costs' is missing"),
    ],
)
def test_a_plan_that_contradicts_itself_is_refused_and_the_place_is_named(
    change: Change, message: str, document: dict[str, Any], tmp_path: Path
) -> None:
    body = deepcopy(document)
    change(body)
    (tmp_path / "a").write_text(json.dumps(body))
    found = fault_of(tmp_path / "a")
    assert "damaged" in found
    assert message in found


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d["interleaved"].pop(), "7 stages do not come out even on 4 submeshes"),
        (put("interleaved", 5, "devices", value=[0]), "interleaved[5]: submesh and devices are not those of stages[1]"),
        (put("interleaved", 3, "layers", value=[1, 1]), "interleaved[3].layers: 1 to 1, where a run that begins with"),
        (put("interleaved", 2, "logical_mesh", value=[4]), "interleaved[2]: logical mesh [4] and its devices"),
        (put("interleaved", 2, "operators", 0, "layer", value=0), "interleaved[2].operators[0].layer: 0 is not in"),
    ],
)
def test_interleaved_stages_that_are_not_those_of_the_plan_are_refused(
    change: Change, message: str, tmp_path: Path
) -> None:
    options = ax.PipelineOptions(schedule="interleaved-1f1b", num_stages=4)
    plan = replan(example_plan(num_layers=8, num_microbatches=16), pipeline=options)
    body = json.loads(plan_text(plan))
    assert len(body["interleaved"]) == 8
    change(body)
    (tmp_path / "a").write_text(json.dumps(body))
    assert message in fault_of(tmp_path / "a")


class TestSaving:
    @pytest.mark.parametrize(
        ("place", "message"), [("missing/a", "there is no folder"), ("", "is a folder"), ("/dev/full", "No space left")]
    )
    def test_where_nothing_can_be_written_is_said(self, place: str, message: str, plan: Plan, tmp_path: Path) -> None:
        with pytest.raises(PlanFileError, match=message):
            save_plan(plan, tmp_path / place)

    def test_on_a_full_disk_leaves_the_old_file_and_nothing_else(self, plan: Plan, tmp_path: Path) -> None:
        target = tmp_path / "a.plan.json"
        target.write_text("old")
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
        try:
            with pytest.raises(PlanFileError, match="was not written"):
                save_plan(plan, target)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert target.read_text() == "old"
        assert list(tmp_path.iterdir()) == [target]

    def test_keeps_a_link_and_the_permissions_of_what_was_there(self, plan: Plan, tmp_path: Path) -> None:
        target, link = tmp_path / "a", tmp_path / "link"
        target.write_text("old")
        target.chmod(0o640)
        link.symlink_to(target)
        save_plan(plan, link)
        assert link.is_symlink()
        assert target.stat().st_mode & 0o777 == 0o640
        assert load_plan(target) == plan

    def test_a_figure_that_is_not_finite_is_refused(self, plan: Plan, tmp_path: Path) -> None:
        from dataclasses import replace

        broken = replace(plan, predicted=replace(plan.predicted, iteration_seconds=float("inf")))
        with pytest.raises(PlanFileError, match="not a number"):
            save_plan(broken, tmp_path / "a")
        assert list(tmp_path.iterdir()) == []


def test_a_file_keeps_how_many_copies_of_the_model_a_device_runs(plan: Plan, tmp_path: Path) -> None:
    replace(plan, costs=replace(plan.costs, copies=2)).save(tmp_path / "two")
    plan.save(tmp_path / "one")
    assert [ax.load_plan(tmp_path / name).costs.copies for name in ("one", "two")] == [1, 2]


def test_warnings_about_the_run_that_planned_are_not_those_of_the_plan(plan: Plan, tmp_path: Path) -> None:
    """Before, a damaged cache of the one who planned was told to everybody who read the file."""
    cache = SolveCache(tmp_path)
    cache.put("key", {"a": 1})
    (entry,) = tmp_path.glob("*/*.json")
    entry.write_text("no entry")
    assert cache.get("key") is None
    planned = replace(plan, warnings=(*plan.warnings, *cache.warnings, "Worker processes could not be started, so …"))
    assert len(planned.warnings) == len(plan.warnings) + 2
    planned.save(tmp_path / "a.plan.json")
    assert load_plan(tmp_path / "a.plan.json").warnings == plan.warnings
