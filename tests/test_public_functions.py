"""Every public function that is handed something of another kind says what it takes, by an error of this project."""

import inspect
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import alpa_explore as ax
from alpa_explore.course.ask import Card
from alpa_explore.intra_op.solve import solve
from alpa_explore.models.catalog import build, entry
from alpa_explore.validation.runs.machines import check_overrides, device_name, precision_of, software_name
from tests.intra_op.test_solvers import random_problem
from tests.one_layer import OneLayer
from tests.plans.file.test_versions import OLD

FUNCTIONS = [name for name in ax.__all__ if inspect.isfunction(getattr(ax, name))]
WRONG: dict[str, Any] = {
    "a number": 3.5,
    "an object": object(),
    "a list": [1, "x"],
    "a name": "no such name",
    "a module": nn.Linear(2, 2),
    "a class": nn.Linear,
    "bytes": b"x",
}
ASKED = ("model", "graph", "plan", "cluster", "path", "stage", "name", "target", "program", "kind", "folders", "count")
"""The arguments that are tried: what a function is about."""
# A name that is only kept, what is of the right kind, and a model that nobody has guessed about.
NEVER: set[tuple[str, ...]] = {("capture", "name"), ("capture", "model", "a module"), ("league", "model", "a name")}
NEVER |= {(function, "model", "a module") for function in ("capture_batches", "verify_interpreted")}


@pytest.fixture(scope="module")
def right() -> dict[str, Any]:
    """An argument of the right kind for every parameter that some function must be given."""

    class Model(OneLayer):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(x).pow(2).mean()

    module = Model()
    graph = ax.capture(module, (torch.randn(4, 8),))
    plan = ax.plan(graph, "1x2:v100", num_microbatches=2, num_layers=1, cache=False, scheduler="serial")
    return {
        **{"graph": graph, "plan": plan, "cluster": ax.Cluster.parse("1x2:v100"), "stage": 0, "parts": 2},
        **{"model": graph, "kind": "data-parallel", "num_microbatches": 2, "target": "torchtitan", "name": "addmm"},
        **{"example_inputs": (torch.randn(4, 8),), "program": ax.lower(plan), "state": {}, "microbatches": []},
        **{"folders": ["nowhere"], "path": "nowhere", "count": 1, "module": module},
    }


def test_results_show_themselves_in_a_few_words(right: dict[str, Any]) -> None:
    plan = right["plan"]
    verified = ax.verify_interpreted(
        plan, graph=right["graph"], model=right["module"], example_inputs=right["example_inputs"]
    )
    assert "passed" in repr(verified)
    for shown in (
        plan,
        right["graph"],
        right["program"],
        verified,
        ax.layouts("gpt-tiny", "1x4:v100", scheduler="serial"),
    ):
        assert len(repr(shown)) < 500, shown


def cases() -> list[tuple[str, str, str]]:
    found = []
    for function in FUNCTIONS:
        for parameter in inspect.signature(getattr(ax, function)).parameters:
            if parameter in ASKED and (function, parameter) not in NEVER:
                found += [(function, parameter, wrong) for wrong in WRONG if (function, parameter, wrong) not in NEVER]
    return found


def test_every_public_function_is_tried() -> None:
    assert len(FUNCTIONS) > 25
    assert len({function for function, _, _ in cases()}) > 20


@pytest.mark.parametrize(("function", "parameter", "wrong"), cases())
def test_what_is_of_another_kind_is_refused_with_what_it_takes(
    function: str, parameter: str, wrong: str, right: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    called = getattr(ax, function)
    given = {
        name: right[name]
        for name, declared in inspect.signature(called).parameters.items()
        if declared.default is declared.empty and declared.kind is not declared.VAR_KEYWORD and name != parameter
        if name in right
    }
    if called.__module__ == "alpa_explore.course.ask":  # answers a student with a card that says what is wrong
        assert isinstance(called(**given, **{parameter: WRONG[wrong]}), Card)
        return
    with pytest.raises(ax.AlpaExploreError):
        called(**given, **{parameter: WRONG[wrong]})


MISTYPED: dict[str, tuple[str, Any]] = {
    "model": ("gpt-1.3b", lambda graph: entry("gpt-13b")),
    "model that is built": ("gpt-tiny", lambda graph: build("gtp-tiny", 1)),
    "device": ("v100", lambda graph: ax.Cluster.parse("1x4:v10")),
    "device of a run": ("h100", lambda graph: device_name("H900")),
    "software": ("fsdp", lambda graph: ax.Cluster.parse("1x8:h100@fdsp")),
    "software of a run": ("nanotron", lambda graph: software_name("nanotorn")),
    "software for all runs": ("nanotron", lambda graph: check_overrides(None, "nanotorn")),
    "precision of a run": ("bf16", lambda graph: precision_of("bf17")),
    "family": ("fused_gpt", lambda graph: ax.verify_random(1, families=["fused_gtp"])),
    "solver": ("elimination", lambda graph: solve(random_problem(1), "eliminate")),
    "optimizer": ("adam", lambda graph: ax.capture(nn.Linear(2, 2), (torch.ones(2, 2),), optimizer="adma")),
    "precision": ("float16", lambda graph: ax.capture(nn.Linear(2, 2), (torch.ones(2, 2),), precision="float6")),
    "baseline": ("megatron", lambda graph: ax.baseline(graph, "1x2:v100", "megatrn", num_microbatches=2)),
    "target": ("megatron", lambda graph: ax.export(ax.load_plan(OLD), "megatorn")),
}
"""What is named -> the name that is meant, and a call with another."""


@pytest.mark.parametrize("kind", MISTYPED)
def test_a_mistyped_name_is_an_error_with_the_nearest(kind: str, right: dict[str, Any]) -> None:
    meant, call = MISTYPED[kind]
    with pytest.raises(ax.AlpaExploreError, match=rf"Did you mean .*'{re.escape(meant)}'"):
        call(right["graph"])


def test_names_are_known_in_any_case_and_as_torchs_own() -> None:
    model, inputs = nn.Sequential(nn.Linear(8, 8), nn.Flatten(0), nn.Linear(32, 1), nn.Flatten(0)), (torch.randn(4, 8),)
    for optimizer, precision in (("AdamW", "BF16"), (torch.optim.AdamW, torch.bfloat16), (" ADAMW ", "Bfloat16")):
        graph = ax.capture(model, inputs, loss=lambda made: made.sum(), optimizer=optimizer, precision=precision)
        assert (graph.optimizer, graph.precision) == ("adamw", "bfloat16")
    assert str(ax.Cluster.parse("1X4:V100")) == str(ax.Cluster.parse("1x4:v100"))
    assert ax.PipelineOptions(schedule="GPipe") == ax.PipelineOptions(schedule="gpipe")
    asked = {"num_layers": 1, "cache": False, "scheduler": "serial"}
    given = {"solver": "Auto", "rematerialization": "FULL", "precision": torch.bfloat16}
    plan = ax.plan("mlp-tiny", "1X2:V100", num_microbatches=8, **asked, **given)
    assert plan.options.rematerialization == "full"
    assert plan.model.precision == "bfloat16"
