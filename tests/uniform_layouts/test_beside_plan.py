"""A layout that is faster than a plan is named, and a plan that starts from a layout is never slower than it."""

from __future__ import annotations

import argparse
import io
import json
from dataclasses import replace
from typing import Any

import pytest

import alpa_explore as ax
from alpa_explore.cli import main
from alpa_explore.cli.planning.from_layout import with_layout
from alpa_explore.cli.progress_line import ProgressLine
from alpa_explore.cluster import Cluster
from alpa_explore.planner.request import PlanRequest
from alpa_explore.planner.resources import Running
from alpa_explore.uniform_layouts.beside_plan import best_layout, faster_layout, plan_beside, plan_of_layout
from alpa_explore.uniform_layouts.report import layouts_sentence

MODEL, CLUSTER, B, BATCH = "llama-tiny", "1x4:h100", 4, 64
PLAN = ["plan", MODEL, "--cluster", CLUSTER, "-B", str(B), "--global-batch", str(BATCH), "--precision", "bf16"]


@pytest.fixture(scope="module")
def plan() -> ax.Plan:
    return ax.plan(MODEL, CLUSTER, num_microbatches=B, global_batch=BATCH, scheduler="serial", precision="bf16")


@pytest.fixture(scope="module")
def layouts() -> Any:
    return ax.layouts(MODEL, CLUSTER, global_batch=BATCH, precision="bf16", scheduler="serial")


def at(plan: ax.Plan, seconds: float) -> ax.Plan:
    """The plan, as if an iteration took so long."""
    return replace(plan, predicted=replace(plan.predicted, iteration_seconds=seconds))


@pytest.mark.slow
def test_a_plan_is_not_compared_with_layouts_of_another_precision(plan: ax.Plan, layouts: Any) -> None:
    assert plan_beside(layouts, plan).gain is not None
    of_fp8 = replace(layouts, precision="fp8", cluster=layouts.cluster.in_precision("fp8"))
    lower = plan_beside(of_fp8, plan)
    assert lower.gain is None
    assert "it computes in bfloat16, the layouts in fp8" in layouts_sentence(of_fp8, lower)
    assert plan_beside(replace(layouts, precision="fp16"), plan).incomparable


@pytest.mark.slow
def test_the_fastest_layout_that_is_alike_is_named_where_it_is_faster(plan: ax.Plan, layouts: Any) -> None:
    alike = [p for p in layouts.fitting if p.layout.microbatches == B and p.layout.recompute == "none"]
    best = alike[0]
    assert best.words in faster_layout(at(plan, 1.007 * best.seconds), MODEL, precision="bf16")
    assert faster_layout(at(plan, 1.003 * best.seconds), MODEL, precision="bf16") == ""
    constrained = replace(plan.options, pipeline=ax.PipelineOptions(schedule="1f1b", num_stages=2))
    slow = replace(at(plan, 1.0), options=constrained)
    assert faster_layout(slow, MODEL, precision="bf16") == "", "a layout does not follow the constraint"
    assert faster_layout(at(plan, 1.0), "mlp-tiny") == "", "a model without layouts"
    assert faster_layout(at(plan, 1.0), f"{MODEL}@48") == "", "works that are not known"


@pytest.mark.slow
def test_a_plan_that_starts_from_a_layout_is_no_slower_than_it(
    plan: ax.Plan, layouts: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = Cluster.parse(CLUSTER)
    asked = PlanRequest(model=MODEL, cluster=cluster, num_microbatches=B, global_batch=BATCH, precision="bf16")
    best = best_layout(asked, Running())
    assert best == next(p for p in layouts.fitting if p.layout.microbatches == B)
    of_layout = plan_of_layout(best, asked)
    for words, other in ((["best"], of_layout), (["tp=4", "dp=1"], None)):
        assert main([*PLAN, "--json", "--from-layout", *words]) == 0
        written = capsys.readouterr()
        found = json.loads(written.out)
        seconds = [plan.predicted.iteration_seconds, *([other.predicted.iteration_seconds] if other else [])]
        assert found["predicted"]["iteration_seconds"] == min(seconds)
        kept = min(seconds) < seconds[0]
        assert bool(found["options"]["baseline"]) == kept
        assert ("the layout is kept" if kept else "no less than the plan") in written.err


@pytest.mark.slow
def test_no_one_is_told_to_start_from_the_layout_that_was_just_tried(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("alpa_explore.uniform_layouts.beside_plan.faster_layout", lambda *_, **__: "try this")
    asked = [*PLAN, "--global-batch", "32", "--layers", "2"]
    for words, told in (([], True), (["--from-layout", "tp=4", "dp=1"], True), (["--from-layout", "best"], False)):
        assert main([*asked, *words]) == 0
        written = capsys.readouterr()
        assert ("try this" in written.out + written.err) == told


def test_degrees_without_a_number_of_microbatches_name_no_layout() -> None:
    """As with -B auto, where no plan fits."""
    request = PlanRequest(model=MODEL, cluster=Cluster.parse(CLUSTER), num_microbatches="auto", global_batch=BATCH)
    options, said = argparse.Namespace(from_layout=["tp=4", "dp=1"], paper=None), io.StringIO()
    assert with_layout(None, options, request, Running(), ProgressLine(said)) is None
    assert "the layout tp=4 dp=1 has no number of microbatches" in said.getvalue()
