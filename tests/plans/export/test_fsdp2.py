"""Exported PyTorch code runs: its loss, gradients and weights after some steps are those of one process."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import alpa_explore as ax
from alpa_explore.plans.export.fsdp2 import fsdp2
from alpa_explore.plans.plan import Plan
from tests.waiting import limit_seconds

_RANK = Path(__file__).with_name("rank.py")
_INTERLEAVED = ax.PipelineOptions(schedule="interleaved-1f1b", num_stages=2)


def plan_of(model: str, cluster: str, kind: str, **options: Any) -> Plan:
    settings = {"num_microbatches": 4, "num_layers": 4, "precision": "fp32", **options}
    if kind:
        return ax.baseline(model, cluster, kind, **settings)
    return ax.plan(model, cluster, scheduler="serial", **settings)


def namespace(source: str) -> dict[str, Any]:
    found: dict[str, Any] = {"__name__": __name__}
    exec(compile(source, "exported.py", "exec"), found)
    return found


@pytest.mark.slow
def test_modules_are_divided_as_the_specs_of_their_weights_say() -> None:
    exported = fsdp2(plan_of("llama-tiny", "1x4:h100", "megatron", tp=2, pp=2))
    code = namespace(exported.text)
    assert exported.limits == ()
    assert code["BLOCKS"] == [[0, 1], [2, 3]]
    assert code["SEQUENCE_PARALLEL"] is True
    styles = {name: style for name, style in code["TENSOR"].items() if not name.startswith(("h.1", "h.2", "h.3"))}
    assert styles == {
        "tokens": "vocabulary",
        "h.0.attention_norm": "sequence",
        "h.0.attention.q": "columns",
        "h.0.attention.k": "columns",
        "h.0.attention.v": "columns",
        "h.0.attention.projection": "rows",
        "h.0.mlp_norm": "sequence",
        "h.0.mlp.gate": "columns",
        "h.0.mlp.up": "columns",
        "h.0.mlp.down": "rows",
        "final_norm": "sequence",
        "head": "columns",
    }


@pytest.mark.slow
def test_what_cannot_be_divided_stays_whole_and_is_a_limit() -> None:
    exported = fsdp2(plan_of("gpt-tiny", "1x2:v100", "megatron", tp=2, pp=1))
    code = namespace(exported.text)
    assert not [name for name in code["TENSOR"] if "attention" in name]
    assert code["TENSOR"]["h.0.mlp.up"] == "columns"
    assert any("h.0.attention" in limit.what for limit in exported.limits)


def test_a_model_from_outside_the_catalogue_has_functions_to_write() -> None:
    exported = fsdp2(plan_of("mlp-tiny", "1x2:v100", "data-parallel", num_layers=2))
    assert any("The model's own code" in limit.what for limit in exported.limits)
    with pytest.raises(NotImplementedError):
        namespace(exported.text)["make_model"]()


EXPORTED = {
    "pp": ("llama-tiny", "1x2:h100", "megatron", {"tp": 1, "pp": 2}),
    "tp+pp": ("llama-tiny", "1x4:h100", "megatron", {"tp": 2, "pp": 2}),
    "fsdp+tp": ("llama-tiny", "1x4:h100", "fsdp+tp+pp", {"tp": 2, "pp": 1, "rematerialization": "full"}),
    "fsdp+pp": ("llama-tiny", "1x4:h100", "fsdp+tp+pp", {"tp": 1, "pp": 2}),
    "hsdp": ("llama-tiny", "1x4:h100", "hsdp", {"num_microbatches": 2, "replicas": 2}),
    "cp": ("llama-tiny", "1x4:h100", "megatron", {"cp": 2, "dp": 2, "tp": 1, "pp": 1, "num_microbatches": 32}),
    "tied": ("gpt-tiny", "1x4:v100", "megatron", {"tp": 2, "pp": 2}),
    "interleaved": ("llama-tiny", "1x2:h100", "", {"pipeline": _INTERLEAVED}),
}


def written(name: str, folder: Path) -> list[str]:
    """[file of the exported code, number of its ranks]."""
    model, cluster, kind, options = EXPORTED[name]
    plan = plan_of(model, cluster, kind, **options)
    (folder / f"{name}.py").write_text(fsdp2(plan).text)
    return [str(folder / f"{name}.py"), str(plan.cluster.devices)]


def ran(*command: str) -> list[dict[str, Any]]:
    """The lines that it printed."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    limit = limit_seconds()
    done = subprocess.run(command, capture_output=True, text=True, timeout=limit, env=environment, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert all("failed" not in line for line in lines), (lines, done.stderr[-3000:])
    return lines


def assert_equal(found: dict[str, Any]) -> None:
    assert found.pop("missing") == []
    assert set(found) == {"loss", "gradients", "weights"}
    assert max(found.values()) < 1e-5, found


@pytest.mark.sweep(kept=1, in_turn=True)
@pytest.mark.distributed
@pytest.mark.parametrize(
    "names", [("tp+pp", "fsdp+tp"), ("fsdp+pp", "hsdp"), ("cp", "interleaved"), ("tied",)], ids=" ".join
)
def test_loss_gradients_and_weights_are_those_of_one_process(names: tuple[str, ...], tmp_path: Path) -> None:
    words = [word for name in names for word in written(name, tmp_path)]
    for name, found in zip(names, ran(sys.executable, str(_RANK), *words), strict=True):
        print(name)  # the last one is the one that differs
        assert_equal(found)


@pytest.mark.distributed
def test_they_are_under_torchrun_too(tmp_path: Path) -> None:
    exported, ranks = written("pp", tmp_path)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", ranks]
    (found,) = ran(*torchrun, str(_RANK), exported)
    assert_equal(found)
