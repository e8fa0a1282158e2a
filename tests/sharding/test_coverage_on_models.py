"""No operator of these Hugging Face models is replicated for want of a rule or discovered splits."""

from __future__ import annotations

import pytest
import torch

from alpa_explore.sharding.coverage import coverage
from alpa_explore.tracing.capture import capture

pytest.importorskip("transformers", reason="pip install alpa-explore[hf]")
from tests.tracing.test_huggingface import INPUTS, NAMES, build, tokens

pytestmark = pytest.mark.slow


@pytest.mark.sweep(kept=2, in_turn=True)
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", NAMES)
def test_no_operator_is_left_replicated(name: str, precision: str) -> None:
    torch.manual_seed(0)
    graph = capture(build(name).train(), INPUTS.get(name, tokens)(), precision=precision)
    assert {r.kind: r.reason for r in coverage(graph) if r.how == "replicated"} == {}


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_every_operator_of_llama_has_a_rule(attention: str) -> None:
    """Rotary positions, grouped keys, RMS norms, the gated MLP and the shifted loss: nothing is left to discovery."""
    import transformers

    config = transformers.LlamaConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=4,
        num_key_value_heads=2,
        attn_implementation=attention,
    )
    example = torch.empty(2, 16, dtype=torch.int64, device="meta")
    with torch.device("meta"):
        model = transformers.LlamaForCausalLM(config)
    graph = capture(model.train(), {"input_ids": example, "labels": example})
    assert {r.how for r in coverage(graph)} == {"rule"}
