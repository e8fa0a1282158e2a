"""The rules proven on the operators and values of real training steps: the catalogue's tiny models and small Hugging
Face ones. Every operator of these must have a rule."""

import pytest
import torch

from alpa_explore.graph.operator import operator_signature
from alpa_explore.models import catalog
from alpa_explore.sharding.rules import experts
from alpa_explore.sharding.spec import PARTIAL
from alpa_explore.sharding.splits import splits_for
from alpa_explore.sharding.strategy import enumerate_strategies
from alpa_explore.tracing.capture import capture
from alpa_explore.tracing.evaluate import evaluate, initial_values
from tests.sharding.executor import assert_equal, run_sharded

MESHES = ((2,), (2, 2))
NOT_COMPARED = {"aten.empty_like.default", "aten.new_empty.default", "aten.empty.memory_format"}
"""Their values are not defined."""
IN_OWN_ORDER = set(experts.RULES)
"""Each device keeps its rows in an order of its own for the backward pass: proven in test_experts, both together."""


def catalogue(name):
    return catalog.build(name, 4, device="cpu")


def hugging_face(name):
    """Without dropout, as it is evaluated."""
    pytest.importorskip("transformers", reason="pip install alpa-explore[hf]")
    from tests.tracing.test_huggingface import INPUTS, build, tokens

    torch.manual_seed(0)
    return build(name).eval(), INPUTS.get(name, tokens)()


MODELS = [
    *(pytest.param(catalogue, n, id=n) for n in ("gpt-tiny", "llama-tiny", "moe-tiny", "wide-resnet-tiny", "mlp-tiny")),
    *(pytest.param(hugging_face, n, id=n, marks=pytest.mark.slow) for n in ("gpt2", "llama", "bert", "mixtral")),
]


@pytest.mark.sweep(kept=1, in_turn=True)
@pytest.mark.slow
@pytest.mark.parametrize(("make", "name"), MODELS)
def test_every_strategy_of_every_operator_computes_the_whole(make, name):
    torch.manual_seed(1)
    model, inputs = make(name)
    graph = capture(model, inputs)
    values = evaluate(graph, initial_values(graph, model, inputs))
    seen = set()
    proven = partial = 0
    for operator in graph.operators:
        signature = operator_signature(operator, graph.tensors)
        skipped = NOT_COMPARED | IN_OWN_ORDER
        if operator.kind in skipped or signature in seen or operator.kind.startswith("optimizer."):
            continue
        seen.add(signature)
        coverage = splits_for(operator, graph.tensors)
        assert coverage.how == "rule", f"{operator.kind} has no rule"
        shapes = [[graph.tensors[t].shape for t in which] for which in (operator.inputs, operator.outputs)]
        for mesh in MESHES:
            for strategy in enumerate_strategies(coverage.splits, *shapes, mesh, replicable=True):
                made = run_sharded(operator, graph.tensors, values, strategy, mesh)
                for tensor, value in zip(operator.outputs, made, strict=True):
                    assert_equal(value, values[tensor], f"{operator.name} {operator.kind} as {strategy.name}")
                proven += 1
                partial += any(PARTIAL in spec for spec in (*strategy.inputs, *strategy.outputs))
    assert proven > 100
    assert partial > 10
