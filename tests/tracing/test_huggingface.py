"""Unmodified Hugging Face models, made from a config: captured graphs equal autograd."""

import pytest
import torch
from torch import nn

from alpa_explore.graph.spelled_out import unrecognised_experts_warnings
from alpa_explore.tracing.capture import capture
from tests.tracing.autograd import assert_autograd

transformers = pytest.importorskip("transformers", reason="pip install alpa-explore[hf]")
pytestmark = pytest.mark.slow

SMALL = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 100,
}
GROUPED = {**SMALL, "num_key_value_heads": 2}
LATENT = {
    **SMALL,
    "num_key_value_heads": 4,
    "moe_intermediate_size": 16,
    "n_routed_experts": 8,
    "num_experts_per_tok": 2,
    "n_group": 2,
    "topk_group": 1,
    "first_k_dense_replace": 1,
    "q_lora_rank": 16,
    "kv_lora_rank": 16,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 8,
    "v_head_dim": 8,
}
HYBRID = {
    **GROUPED,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 16,
    "moe_shared_expert_intermediate_size": 16,
    "layers_block_type": ["attention", "moe"],
}
MIXTURES = ("mixtral", "qwen3_moe", "deepseek_v3", "gpt_oss", "nemotron_h")
SPEECH = {
    "d_model": 32,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
    "vocab_size": 100,
    "num_mel_bins": 8,
    "max_source_positions": 32,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 1,
}
WITHOUT_DROPOUT = {"dropout_rate": 0.0, "decoder_start_token_id": 0}
"""Of attention too, which draws other numbers than torch's."""
VISION = {
    "hidden_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "image_size": 32,
    "patch_size": 8,
}


def tokens():
    ids = torch.randint(1, 100, (2, 16))
    return {"input_ids": ids, "labels": ids}


WINDOWED = {
    "gpt_oss": ("GptOssConfig", {"num_local_experts": 4, "num_experts_per_tok": 2}, [5, 0]),
    "gemma2": ("Gemma2Config", {}, [5, 0]),
    "gemma3": ("Gemma3TextConfig", {"layer_types": ["sliding_attention", "full_attention"]}, [5, 0]),
    "mistral": ("MistralConfig", {}, [5, 5]),
    "qwen2": ("Qwen2Config", {"use_sliding_window": True, "max_window_layers": 1}, [0, 5]),
}
"""Models with sliding windows: the class of their config, its options, the window of each of two blocks."""


def images():
    return {"pixel_values": torch.randn(2, 3, 32, 32), "labels": torch.tensor([0, 1])}


def build(name):
    t = transformers
    causal = t.AutoModelForCausalLM.from_config
    makers = {
        "gpt2": lambda: causal(t.GPT2Config(n_embd=32, n_layer=2, n_head=4, vocab_size=100, n_positions=64)),
        "llama": lambda: causal(t.LlamaConfig(**GROUPED)),
        "mixtral": lambda: causal(t.MixtralConfig(**GROUPED, num_local_experts=4)),
        "qwen3_moe": lambda: causal(
            t.Qwen3MoeConfig(**GROUPED, head_dim=8, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=16)
        ),
        "deepseek_v3": lambda: causal(t.DeepseekV3Config(**LATENT)),
        "gpt_oss": lambda: causal(t.GptOssConfig(**GROUPED, head_dim=8, num_local_experts=4, num_experts_per_tok=2)),
        "nemotron_h": lambda: causal(t.NemotronHConfig(**HYBRID)),
        "qwen3": lambda: causal(t.Qwen3Config(**GROUPED, head_dim=8)),
        "mamba": lambda: causal(t.MambaConfig(hidden_size=32, num_hidden_layers=2, vocab_size=100, state_size=4)),
        "bert": lambda: t.BertForMaskedLM(t.BertConfig(**SMALL)),
        "resnet": lambda: t.ResNetForImageClassification(
            t.ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic")
        ),
        "whisper": lambda: t.WhisperForConditionalGeneration(t.WhisperConfig(**SPEECH)),
        "t5": lambda: t.T5ForConditionalGeneration(
            t.T5Config(d_model=32, d_kv=8, d_ff=64, num_layers=1, num_heads=4, vocab_size=100, **WITHOUT_DROPOUT)
        ),
        "vit": lambda: t.ViTForImageClassification(t.ViTConfig(**VISION)),
    }
    return makers[name]()


INPUTS = {
    "bert": lambda: {**tokens(), "attention_mask": torch.ones(2, 16, dtype=torch.long)},
    "resnet": images,
    "vit": images,
    "whisper": lambda: {"input_features": torch.randn(2, 8, 64), "labels": torch.randint(1, 100, (2, 16))},
}
NAMES = ("gpt2", "llama", "bert", *MIXTURES, "qwen3", "mamba", "resnet", "whisper", "t5", "vit")


@pytest.mark.sweep(kept=3, in_turn=True)
@pytest.mark.parametrize("name", NAMES)
def test_a_model_from_a_config_is_captured_and_equals_autograd(name):
    torch.manual_seed(0)
    model, inputs = build(name).train(), INPUTS.get(name, tokens)()
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    for parameter in model.parameters():
        if not torch.isfinite(parameter).all():  # some are left unset until weights are loaded
            nn.init.normal_(parameter, std=0.05)
    graph = capture(model, inputs)
    assert not graph.warnings
    assert_autograd(graph, model, inputs, rtol=1e-4, atol=1e-5)


@pytest.mark.sweep(kept=1, in_turn=True)
@pytest.mark.parametrize("name", ["gpt2", "llama", "t5", "vit"])
def test_parameters_on_the_meta_device_give_the_same_operators(name):
    inputs = INPUTS.get(name, tokens)()
    with torch.device("meta"):
        model = build(name)
    assert capture(model, inputs).operators == capture(build(name), inputs).operators


@pytest.mark.parametrize("use_cache", [True, False])
def test_a_causal_model_gives_its_mask_to_the_kernel_and_shares_heads(use_cache):
    config = transformers.LlamaConfig(**GROUPED, use_cache=use_cache)
    graph = capture(transformers.AutoModelForCausalLM.from_config(config), tokens())
    calls = [o for o in graph.operators if o.kind == "alpa_explore.attention.default"]
    assert [o.arguments[3:5] for o in calls] == [(None, True)] * 2
    assert [graph.tensors[t].shape[1] for t in calls[0].inputs] == [4, 2, 2]


@pytest.mark.sweep(kept=2, in_turn=True)
@pytest.mark.parametrize(("name", "precision"), [("mixtral", "float32"), *((name, "bfloat16") for name in MIXTURES)])
def test_routed_experts_are_one_operator(name, precision):
    graph = capture(build(name), tokens(), precision=precision)
    kinds = [o.kind for o in graph.operators]
    blocks = 1 if name in ("deepseek_v3", "nemotron_h") else 2  # the other is dense
    assert kinds.count("alpa_explore.experts.default") == blocks
    assert kinds.count("alpa_explore.experts_backward.default") == blocks
    assert not [k for k in kinds if "grouped_mm" in k or "sort" in k]


@pytest.mark.parametrize("form", ["eager", "grouped_mm", "batched_mm"])
def test_experts_are_recognised_in_every_form_that_transformers_has(form):
    model = build("mixtral")
    model.set_experts_implementation(form)
    kinds = [o.kind for o in capture(model, tokens()).operators]
    assert kinds.count("alpa_explore.experts.default") == 2


def test_the_gate_of_a_model_is_found_by_calling_it():
    graph = capture(build("gpt_oss"), tokens())
    (one, _) = [o for o in graph.operators if o.kind == "alpa_explore.experts.default"]
    assert one.arguments[5:11] == ("silu", "interleaved", True, 7.0, 1.702, 1.0)


def test_experts_that_do_something_else_are_left_as_the_model_has_them():
    model = build("mixtral")
    for block in model.model.layers:
        block.mlp.experts.act_fn = nn.Tanh()
    graph = capture(model, tokens())
    assert not [o for o in graph.operators if o.kind == "alpa_explore.experts.default"]
    (warning,) = unrecognised_experts_warnings(graph)
    assert "model.layers.0.mlp.experts, model.layers.1.mlp.experts" in warning
    assert not unrecognised_experts_warnings(capture(build("mixtral"), tokens()))


def windowed(name):
    kind, options, _ = WINDOWED[name]
    config = getattr(transformers, kind)(**GROUPED, head_dim=8, sliding_window=5, **options)
    return transformers.AutoModelForCausalLM.from_config(config)


@pytest.mark.sweep(kept=2, in_turn=True)
@pytest.mark.parametrize("name", WINDOWED)
def test_windows_sinks_and_capped_scores_are_options_of_one_operator(name):
    torch.manual_seed(0)
    model, inputs = windowed(name), tokens()
    for parameter in model.parameters():
        if parameter.dim() < 2 or not torch.isfinite(parameter).all():  # sinks too, or their gradients are alike
            nn.init.normal_(parameter, std=0.5)
    graph = capture(model, inputs)
    assert graph.warnings == ()
    calls = [o for o in graph.operators if o.kind == "alpa_explore.attention.default"]
    options = [(*o.arguments, *(None,) * 12)[:12] for o in calls]
    assert [o[3:5] for o in options] == [(None, True)] * 2
    assert [o[9] or 0 for o in options] == WINDOWED[name][2]
    assert [o[10] or 0 for o in options] == [50.0 if name == "gemma2" else 0] * 2
    assert [o[11] is not None for o in options] == [name == "gpt_oss"] * 2
    assert not [t.shape for t in graph.tensors if t.shape[-2:] == (16, 16) and len(t.shape) == 4], "all scores"
    assert_autograd(graph, model, inputs, rtol=1e-4, atol=1e-5)


def test_a_mask_with_padding_stays_a_mask():
    inputs = {**tokens(), "attention_mask": torch.ones(2, 16, dtype=torch.long)}
    inputs["attention_mask"][0, 12:] = 0
    for name in ("mistral", "gpt_oss"):
        model = windowed(name)
        graph = capture(model, inputs)
        calls = [o for o in graph.operators if o.kind == "alpa_explore.attention.default"]
        assert [o.arguments[3] is not None for o in calls] == [True] * 2
        assert_autograd(graph, model, inputs, rtol=1e-4, atol=1e-5)
