"""A plan in the words of layouts, layouts as baselines, and measured runs beside them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

import alpa_explore as ax
from alpa_explore.accuracy.measured_run import MeasuredRun
from alpa_explore.accuracy.record import Record
from alpa_explore.baselines.layout import BASELINE, Layout
from alpa_explore.cluster import Cluster
from alpa_explore.plans.plan import Plan
from alpa_explore.plans.report import text
from alpa_explore.plans.report.parallelism import AxisUse
from alpa_explore.uniform_layouts.beside_plan import plan_beside, plan_layout
from alpa_explore.uniform_layouts.measured import measured_beside
from alpa_explore.uniform_layouts.ranking import Layouts
from alpa_explore.uniform_layouts.report import layouts_sentence, measured_sentence, plan_sentence


@pytest.fixture(scope="module")
def layouts() -> Layouts:
    return ax.layouts("llama-tiny", "1x4:h100", global_batch=16, scheduler="serial")


def made(layouts: Layouts, layout: Layout) -> Plan:
    """The plan of a layout."""
    from alpa_explore.planner.microbatch_graph import microbatch_graph

    return ax.baseline(
        microbatch_graph("llama-tiny", layout.microbatches, global_batch=layouts.global_batch),
        layouts.cluster,
        BASELINE,
        num_microbatches=layout.microbatches,
        rematerialization=layout.rematerialization,
        **layout.degrees(),
    )


@pytest.mark.sweep(kept=3)
@pytest.mark.slow
@pytest.mark.parametrize(
    "layout",
    [
        Layout(tensor=2, pipeline=2, microbatch=2, microbatches=8),
        Layout(tensor=2, pipeline=2, microbatch=2, microbatches=8, chunks=2),
        Layout(data=4, microbatch=2, microbatches=2, zero_stage=3),
        Layout(data=4, microbatch=2, microbatches=2, zero_stage=1),
        Layout(tensor=2, data=2, microbatch=2, microbatches=4, zero_stage=1, recompute="full"),
    ],
)
def test_a_layout_opened_as_a_plan_is_recognised_as_that_layout(layouts: Layouts, layout: Layout) -> None:
    plan = made(layouts, layout)
    found, words = plan_layout(plan)
    assert found == layout
    assert words == layout.words
    beside = plan_beside(layouts, plan)
    assert beside.priced is not None
    assert beside.priced.layout == layout
    assert beside.gain is not None
    assert layout.words in plan_sentence(beside)


@pytest.mark.slow
def test_the_plan_of_a_layout_with_experts_is_recognised_as_it() -> None:
    plan = ax.baseline("qwen3-moe-tiny", "1x4:h100", BASELINE, num_microbatches=4, tp=2, ep=2, pp=1)
    shared = {"expert": 2, "expert_tensor": 2}
    assert plan_layout(plan)[0] == Layout(tensor=2, data=2, microbatch=8, microbatches=4, zero_stage=1, **shared)


@pytest.mark.slow
def test_a_plan_of_another_batch_or_cluster_is_not_compared(layouts: Layouts) -> None:
    plan = made(layouts, Layout(data=4, microbatch=2, microbatches=2, zero_stage=3))
    other = replace(layouts, global_batch=32)
    assert plan_beside(other, plan).gain is None
    assert "its global batch is 16, theirs 32" in layouts_sentence(other, plan_beside(other, plan))
    elsewhere = replace(layouts, cluster=Cluster.parse("2x4:h100"))
    assert "it is for 1x4:h100" in plan_sentence(plan_beside(elsewhere, plan))


@pytest.mark.slow
def test_where_a_layout_is_faster_with_other_microbatches_it_is_said(layouts: Layouts) -> None:
    plan = made(layouts, Layout(tensor=2, pipeline=2, microbatch=2, microbatches=8))
    beside, best = plan_beside(layouts, plan), layouts.best
    assert best is not None
    assert beside.gain is not None
    assert beside.gain < 0
    at_once = best.layout.microbatch * best.layout.data
    assert at_once != 2
    sentence = plan_sentence(beside)
    assert sentence.endswith(f"less, with {at_once} samples in a microbatch where the plan was given 2.")
    one = replace(best, layout=Layout(tensor=4, microbatch=1, microbatches=16))
    assert "with 1 sample in" in plan_sentence(replace(beside, best=one))
    same = replace(beside, samples=at_once)
    assert plan_sentence(same).endswith("less.")


@pytest.mark.slow
def test_a_plan_that_is_the_best_layout_is_not_slower_than_itself(layouts: Layouts) -> None:
    best = layouts.best
    assert best is not None
    beside = replace(plan_beside(layouts, made(layouts, best.layout)), seconds=1.05 * best.seconds)
    assert plan_sentence(beside).endswith("; it is the best uniform layout.")


SIZES = "4 layers, hidden 64, 8 heads (4 of keys), vocabulary 256"


def run(layouts: Layouts, **changes: object) -> MeasuredRun:
    common: dict[str, object] = {
        "source": "table",
        "line": 2,
        "device": "h100",
        "software": "megatron",
        "gpus": 4,
        "model": "tiny",
        "sizes": SIZES,
        "sequence": layouts.sequence,
        "global_batch": 16,
        "micro_batch": 1,
        "tensor": 2,
        "pipeline": 1,
        "virtual": 1,
        "data": 2,
        "zero_stage": 1,
        "precision": "bf16",
        "measured_seconds": 0.5,
    }
    return MeasuredRun(**(common | changes))  # type: ignore[arg-type]  # the fields of a run by name


def test_measured_runs_of_the_same_kind_are_laid_over(layouts: Layouts) -> None:
    same = run(layouts)
    twice = run(layouts, line=3, global_batch=32, measured_seconds=0.8, tensor=1, data=4)
    others = [
        run(layouts, device="b200"),
        run(layouts, gpus=8),
        run(layouts, sequence=64),
        run(layouts, precision="fp8"),
        run(layouts, sizes="another model"),
        run(layouts, status="oom"),
        run(layouts, global_batch=80, data=4, tensor=1),
    ]
    found = measured_beside(layouts, Record(runs=(same, twice, *others)))
    assert [one.run for one in found] == [twice, same], "the fastest first, for the batch of the layouts"
    assert found[0].seconds == pytest.approx(0.4)
    for one in found:
        assert one.priced is not None
        assert (one.priced.layout.tensor, one.priced.layout.recompute) == (one.run.tensor, "none")
    assert "scaled to this batch" in measured_sentence(found, layouts)


def test_measured_runs_are_those_of_the_sizes_of_a_config_file_too(tmp_path: Path) -> None:
    """Its name is a class of transformers, which no catalogue has."""
    path = tmp_path / "config.json"
    sizes = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 256}
    more = {"intermediate_size": 128, "max_position_embeddings": 32, "num_key_value_heads": 4}
    path.write_text(json.dumps({"model_type": "qwen2", **sizes, **more}))
    found = ax.layouts(str(path), "1x1:h100", global_batch=4, scheduler="serial", cache=False)
    same = run(found, sizes="2 layers, hidden 64, 4 heads, vocabulary 256", gpus=1, tensor=1, data=1)
    assert [one.run for one in measured_beside(found, Record(runs=(same,)))] == [same]
    assert measured_beside(found, Record(runs=(replace(same, sizes="another model"),))) == ()


def test_a_degree_that_the_record_lacks_is_what_the_others_leave(layouts: Layouts) -> None:
    (one,) = measured_beside(layouts, Record(runs=(run(layouts, tensor=1, data=2),)))
    assert one.priced is None, "context parallelism of 2, which is not enumerated for so short a sequence"


def test_a_plan_is_named_as_people_write_layouts(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = ax.plan("mlp-tiny", "1x4:v100", num_microbatches=4, num_layers=2, scheduler="serial", cache=False)

    def words(*uses: AxisUse) -> str:
        """Of three stages with these uses of their axes."""
        stages = [replace(plan.stages[0], index=index) for index in range(len(uses))]
        several = SimpleNamespace(**{name: getattr(plan, name) for name in ("terms", "model")}, stages=stages)
        several.representatives = lambda: range(len(uses))
        monkeypatch.setattr(text, "axis_uses", lambda number: (uses[number],))
        return text.plan_words(several)

    data, tensor, context = (AxisUse(axis=0, size=2, kind=kind, share=1.0) for kind in ("data", "tensor", "context"))
    samples = plan.model.samples
    assert words(replace(data, zero=1)).startswith(f"DP 2 · ZeRO-1 · microbatch {samples // 2} · ")
    assert words(data, data).startswith("PP 2 · DP 2 · microbatch")
    assert words(replace(tensor, share=0.9)).startswith(f"mostly TP 2 · microbatch {samples} · ")
    assert words(tensor, tensor, data).startswith(f"PP 3 (stages 0–1: TP 2; stage 2: DP 2) · {samples} samples a micro")
    assert words(tensor, context, data).startswith("PP 3, stages sharded in 3 ways")
