"""No operator of these Hugging Face models is replicated for want of a rule or discovered splits."""

import pytest
import torch

from alpa_explore.sharding.splits import coverage
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
