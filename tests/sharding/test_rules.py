"""Every rule is proven by running it: cut the inputs, run the local operator, recombine, compare with the whole.

The operators and their values are those of real training steps: the catalogue's tiny models and small Hugging Face
ones.
"""

import pytest
import torch
from shards import run_sharded

from alpa_explore.cost.model import operator_signature
from alpa_explore.graph import Phase
from alpa_explore.models.catalog import build
from alpa_explore.sharding.rules import RULES, splits_for
from alpa_explore.sharding.spec import PARTIAL
from alpa_explore.sharding.strategy import enumerate_strategies
from alpa_explore.tracing.capture import capture
from alpa_explore.tracing.evaluate import evaluate, initial_values

MESHES = [(2,), (2, 2)]
RANDOM = {"aten.native_dropout.default"}
"""Their pieces are drawn anew: only shapes could be compared."""
UNDEFINED = {"aten.empty_like.default", "aten.new_empty.default", "aten.empty.memory_format"}


def catalogue(name):
    module, inputs = build(name, 4, device="cpu")
    return module, inputs


def hugging_face(name):
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    tokens = torch.randint(0, 64, (4, 16))
    sizes = {"vocab_size": 64, "use_cache": False}
    if name == "gpt2":
        config = transformers.GPT2Config(n_layer=1, n_embd=32, n_head=4, n_positions=16, resid_pdrop=0, embd_pdrop=0,
                                         attn_pdrop=0, **sizes)  # fmt: skip
        model = transformers.GPT2LMHeadModel(config)
    elif name == "llama":
        config = transformers.LlamaConfig(hidden_size=32, intermediate_size=64, num_hidden_layers=1,
                                          num_attention_heads=4, num_key_value_heads=2, **sizes)  # fmt: skip
        model = transformers.LlamaForCausalLM(config)
    else:
        config = transformers.BertConfig(hidden_size=32, intermediate_size=64, num_hidden_layers=1, vocab_size=64,
                                         num_attention_heads=4, max_position_embeddings=16, hidden_dropout_prob=0,
                                         attention_probs_dropout_prob=0)  # fmt: skip
        model = transformers.BertForMaskedLM(config)
    return model, {"input_ids": tokens, "labels": tokens}


MODELS = [
    *(pytest.param(catalogue, n, id=n) for n in ("gpt-tiny", "moe-tiny", "wide-resnet-tiny", "mlp-tiny")),
    *(pytest.param(hugging_face, n, id=n, marks=pytest.mark.slow) for n in ("gpt2", "llama", "bert")),
]


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
        if operator.phase is Phase.UPDATE or operator.kind in RANDOM | UNDEFINED or signature in seen:
            continue
        seen.add(signature)
        coverage = splits_for(operator, graph.tensors)
        assert coverage.how == "rule", f"{operator.kind} has no rule"
        for mesh in MESHES:
            strategies = enumerate_strategies(
                coverage.splits, [graph.tensors[t].shape for t in operator.inputs],
                [graph.tensors[t].shape for t in operator.outputs], mesh, replicable=True,
            )  # fmt: skip
            for strategy in strategies:
                made = run_sharded(operator, graph.tensors, values, strategy, mesh)
                for tensor, value in zip(operator.outputs, made, strict=True):
                    wanted = values[tensor]
                    assert value.dtype == wanted.dtype, f"{operator.kind} {strategy}"
                    torch.testing.assert_close(
                        value, wanted, rtol=2e-3, atol=2e-4 * (1 + float(_size(wanted))), equal_nan=True,
                        msg=lambda m, o=operator, s=strategy: f"{o.name} {o.kind} under {s}: {m}",
                    )  # fmt: skip
                proven += 1
                partial += any(PARTIAL in spec for spec in (*strategy.inputs, *strategy.outputs))
    assert proven > 100
    assert partial > 10


def _size(value):
    if not value.is_floating_point() or value.numel() == 0:
        return 0.0
    finite = value[torch.isfinite(value)]
    return finite.abs().max() if finite.numel() else 0.0


def test_the_registry_names_real_operators():
    from alpa_explore.tracing.aten import overload

    for kind in RULES:
        if not kind.startswith(("optimizer.", "constant.")):
            overload(kind)
