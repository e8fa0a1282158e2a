"""Graphs of models from Hugging Face configs."""

import json

import pytest

from alpa_explore.models.catalog import entry
from alpa_explore.planner.interface import plan
from alpa_explore.plans.rebuild import capture_again
from alpa_explore.tracing.catalogue import catalogue_graph

pytest.importorskip("transformers", reason="pip install alpa-explore[hf]")
SIZES = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 4, "vocab_size": 64}


@pytest.mark.slow
def test_blocks_of_a_config_are_unrolled_as_a_whole_capture_has_them(tmp_path, monkeypatch):
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"model_type": "llama", "num_hidden_layers": 7, "num_key_value_heads": 2, **SIZES}))
    known = entry(str(path), 16)
    unrolled = catalogue_graph(known, 2)
    monkeypatch.setattr("alpa_explore.tracing.catalogue.unrolled", lambda *_: None)
    assert catalogue_graph(known, 2) == unrolled
    assert sum(unrolled.tensors[p.tensor].elements for p in unrolled.parameters) == known.parameter_count


@pytest.mark.slow
def test_a_plan_holds_the_config_and_captures_the_same_model_again(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(
        json.dumps(
            {"model_type": "mixtral", "num_hidden_layers": 1, "num_key_value_heads": 2, "num_local_experts": 4, **SIZES}
        )
    )
    made = plan(
        str(path),
        "1x2:a100",
        num_microbatches=4,
        global_batch=8,
        sequence=16,
        precision="fp32",
        num_layers=1,
        cache=False,
    )
    path.unlink()
    assert made.model.tokens == 2 * 16
    assert made.model.precision == "float32"
    assert any(o.op.startswith("alpa_explore.experts") for stage in made.stages for o in stage.operators)
    assert capture_again(made.model).content_key == made.model.content_key
