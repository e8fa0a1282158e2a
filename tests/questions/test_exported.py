"""A layout that was exported, read back and priced again: that of the plan, or what it lost is named."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

import alpa_explore as ax
from alpa_explore import units
from alpa_explore.errors import OptionError
from alpa_explore.plans.export.degrees import TOLERANCE, plan_degrees
from alpa_explore.questions.exported import export, priced_again
from tests.plans.export.test_targets import plan_of

SAME = ("data", "zero-1", "zero-2", "fsdp", "hsdp", "megatron", "fsdp+tp+pp", "context", "latent", "interleaved")


@pytest.mark.sweep(kept=4)
@pytest.mark.parametrize("name", SAME)
def test_a_layout_of_one_kind_costs_what_the_plan_costs(name: str) -> None:
    plan = plan_of(name)
    again = priced_again(plan)
    assert again.limit(plan) is None
    assert again.seconds == pytest.approx(plan.predicted.iteration_seconds, rel=1e-3)
    assert again.bytes == pytest.approx(plan.predicted.peak_bytes_per_device, rel=1e-3)


def test_a_layout_of_one_stage_is_priced_again_where_no_layers_are_as_equal_as_its_blocks(tmp_path: Path) -> None:
    """Its head has more FLOPs than all blocks."""
    sizes = {"hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 128}
    sizes |= {"vocab_size": 8192, "num_hidden_layers": 4, "max_position_embeddings": 64}
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"model_type": "llama", **sizes}))
    plan = ax.baseline(str(path), "1x2:h100", "megatron", tp=1, dp=2, pp=1, num_microbatches=2)
    assert len(plan.layers) == 4
    again = priced_again(plan)
    assert (again.reason, again.limit(plan)) == ("", None)


def test_the_file_says_what_the_layout_takes_or_that_it_was_not_priced(tmp_path) -> None:
    plan = plan_of("zero-1")
    text = " ".join(export(plan, "megatron").text.replace("#", "").split())
    assert f"priced again, takes {units.seconds(plan.predicted.iteration_seconds)}" in text
    path = tmp_path / "plan.json"
    plan.save(path)
    assert export(ax.load_plan(path), "megatron").text == export(plan, "megatron").text
    unpriced = [limit.instead for limit in export(plan_of("v"), "megatron").limits if limit.what.startswith("Its ")]
    assert "no baseline is this layout: the schedule zb-v" in unpriced[0]
    with pytest.raises(OptionError, match="megatron"):
        export(plan, "megatorn")


def test_what_differs_by_more_than_is_allowed_is_named() -> None:
    plan = plan_of("zero-1")
    again = priced_again(plan)
    for share, named in ((0.9 * TOLERANCE, False), (-0.9 * TOLERANCE, False), (1.2 * TOLERANCE, True)):
        for changed in (
            replace(again, seconds=again.seconds * (1 + share)),
            replace(again, bytes=again.bytes * (1 + share)),
        ):
            limit = changed.limit(plan)
            assert (limit is not None) is named
            assert limit is None or "+3.6 %" in str(limit)
            assert (limit in plan_degrees(plan, changed).limits) is (limit is not None)


def test_a_layout_that_does_not_fit_is_named() -> None:
    plan = plan_of("zero-1")
    room = int(plan.predicted.peak_bytes_per_device) - 1
    again = priced_again(replace(plan, cluster=plan.cluster.with_changes(memory_bytes=room)))
    assert not again.fits
    assert str(again.limit(plan)).startswith("That it fits in memory: by the same prices this layout needs ")
