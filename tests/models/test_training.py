"""The tiny models train, in float32 and float16, and their modules compute what their names promise."""

import dataclasses

import pytest
import torch
import torch.nn.functional as F

from alpa_explore.models import build, entry, names
from alpa_explore.models.configs import DecoderConfig
from alpa_explore.models.decoder import DecoderAttention, RMSNorm
from alpa_explore.models.factory import make_inputs, make_module
from alpa_explore.models.moe import ExpertLayer, top2_gating
from alpa_explore.models.transformer import CausalSelfAttention, causal_mask, rotary_tables

TINY = [n for n in names() if n.endswith("-tiny")]


@pytest.mark.sweep(kept=4, in_turn=True)
@pytest.mark.parametrize("name", TINY)
def test_the_loss_falls_and_every_parameter_gets_a_gradient(name):
    module, inputs = build(name, 8, device="cpu")
    rate = 0.5 if name == "dit-tiny" else 0.05  # what it predicts is noise: it learns little of it at first
    optimizer = torch.optim.SGD(module.parameters(), lr=rate)
    losses = []
    for step in range(8):
        loss = module(*inputs)
        optimizer.zero_grad()
        loss.backward()
        if step == 0:
            for parameter_name, parameter in module.named_parameters():
                assert parameter.grad is not None, parameter_name
                assert parameter.grad.isfinite().all(), parameter_name
                assert parameter.grad.abs().sum() > 0, parameter_name
        optimizer.step()
        losses.append(loss.item())
    assert loss.shape == ()
    assert losses[-1] < losses[0] - 0.02


@pytest.mark.parametrize("name", ["gpt-tiny", "llama-tiny", "moe-tiny"])
def test_float16_gives_the_loss_of_float32_and_finite_gradients(name):
    module, inputs = build(name, 8, device="cpu")
    expected = module(*inputs).item()
    loss = module.half()(*inputs)
    loss.backward()
    assert loss.dtype is torch.float32
    assert loss.item() == pytest.approx(expected, abs=0.01)
    assert all(p.grad.isfinite().all() for p in module.parameters())


@pytest.mark.parametrize("name", TINY)
def test_a_seed_fixes_weights_and_inputs_and_leaves_the_global_generator_alone(name):
    before = torch.random.get_rng_state()
    first, first_inputs = build(name, 2, device="cpu", seed=3)
    again, again_inputs = build(name, 2, device="cpu", seed=3)
    other, _ = build(name, 2, device="cpu", seed=4)
    assert torch.equal(before, torch.random.get_rng_state())
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), again.parameters(), strict=True))
    assert all(torch.equal(a, b) for a, b in zip(first_inputs, again_inputs, strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(first.parameters(), other.parameters(), strict=True))


# Routed experts read which tokens chose them, and the meta device has no values.
@pytest.mark.parametrize(
    "name", [n for n in TINY if not isinstance(entry(n).config, DecoderConfig) or entry(n).config.experts is None]
)
def test_a_module_on_the_meta_device_computes_shapes(name):
    module, inputs = build(name, 4)
    assert module(*inputs).shape == ()
    assert all(i.is_meta for i in inputs)


def test_the_mean_loss_of_untrained_models_is_that_of_guessing():
    module, inputs = build("gpt-tiny", 8, device="cpu")
    assert module(*inputs).item() == pytest.approx(torch.tensor(256.0).log().item(), abs=0.1)


def test_attention_equals_that_of_torch_and_is_causal():
    torch.manual_seed(0)
    attention = CausalSelfAttention(32, 4)
    x = torch.randn(2, 8, 32)
    out = attention(x, causal_mask(8))
    q, k, v = attention.qkv(x).view(2, 8, 4, 24).transpose(1, 2).split(8, dim=3)
    theirs = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(2, 8, 32)
    assert torch.allclose(out, attention.projection(theirs), atol=1e-6)
    changed = torch.cat((x[:, :5], torch.randn(2, 3, 32)), dim=1)
    assert torch.allclose(out[:, :5], attention(changed, causal_mask(8))[:, :5], atol=1e-6)


def test_a_sequence_shorter_than_the_longest_is_accepted():
    for name in ("gpt-tiny", "llama-tiny", "moe-tiny"):
        module, (tokens, targets) = build(name, 8, device="cpu")
        assert module(tokens[:, :16], targets[:, :16]).isfinite()


def test_grouped_query_attention_is_attention_with_repeated_keys_and_turned_queries():
    torch.manual_seed(0)
    config = DecoderConfig(hidden=32, layers=1, heads=4, kv_heads=2, vocabulary=8, sequence=6, ffn=8)
    attention = DecoderAttention(config, window=None)
    x = torch.randn(2, 6, 32)
    cosines, sines = rotary_tables(6, 8, 10_000.0)
    out = attention(x, (cosines, sines))

    def turned(flat: torch.Tensor) -> torch.Tensor:
        """(B, S, heads · D) -> (B, heads, S, D), channel i + 4 the imaginary part of channel i."""
        pairs = flat.unflatten(2, (-1, 2, 4)).transpose(3, 4).contiguous()
        angles = torch.arange(6)[:, None] * 10_000.0 ** (-torch.arange(4) / 4)
        spun = torch.view_as_complex(pairs) * torch.polar(torch.ones(6, 4), angles.float())[:, None]
        return torch.view_as_real(spun).transpose(3, 4).flatten(3).transpose(1, 2)

    q, k = turned(attention.q(x)), turned(attention.k(x)).repeat_interleave(2, dim=1)
    v = attention.v(x).unflatten(2, (2, 8)).transpose(1, 2).repeat_interleave(2, dim=1)
    scores = q @ k.transpose(2, 3) / 8**0.5 + causal_mask(6)
    expected = attention.projection((scores.softmax(dim=3) @ v).transpose(1, 2).flatten(2))
    assert torch.allclose(out, expected, atol=1e-5)


def test_rms_norm_is_that_of_torch():
    x = torch.randn(3, 5, 16)
    norm = RMSNorm(16)
    assert torch.allclose(norm(x), F.rms_norm(x, (16,), norm.weight, eps=1e-5), atol=1e-6)
    assert norm.bfloat16()(x.bfloat16()).dtype is torch.bfloat16


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
def test_fused_projections_compute_what_single_ones_do(kv_heads):
    config = DecoderConfig(hidden=32, layers=2, heads=4, kv_heads=kv_heads, vocabulary=64, sequence=16, ffn=48)
    single = make_module(config, "cpu", 0)
    fused = make_module(dataclasses.replace(config, fused_projections=True), "cpu", 1)
    weights = single.state_dict()
    for block in ("h.0.", "h.1."):
        # The rows of a group: its heads of queries, then one of keys, then one of values.
        groups = [
            weights.pop(f"{block}attention.{name}.weight").unflatten(0, (kv_heads, -1)) for name in ("q", "k", "v")
        ]
        weights[f"{block}attention.qkv.weight"] = torch.cat(groups, dim=1).flatten(0, 1)
        pairs = [weights.pop(f"{block}mlp.{name}.weight") for name in ("gate", "up")]
        weights[f"{block}mlp.gate_up.weight"] = torch.stack(pairs, dim=1).flatten(0, 1)
    fused.load_state_dict(weights)
    inputs = make_inputs(config, 2, "cpu", 0)
    assert fused(*inputs).item() == pytest.approx(single(*inputs).item(), abs=1e-6)


def test_fused_gpt_with_the_papers_settings_is_gpt():
    config = entry("gpt-tiny").config
    paper, inputs = build("gpt-tiny", 2, device="cpu")
    fused = make_module(dataclasses.replace(config, attention="fused"), "cpu", 0)
    # Its weight holds all queries of a head beside its keys and values, as GPT's does, so the weights can be copied.
    renamed = {"embedding.tokens.weight": "tokens.weight", "embedding.positions": "positions"}
    weights = {renamed.get(n, n.replace(".mlp.", ".")): w for n, w in paper.state_dict().items()}
    fused.load_state_dict(weights)
    assert fused(*inputs).item() == pytest.approx(paper(*inputs).item(), abs=1e-3), "GELU by tanh differs a little"


def test_gating_keeps_the_capacity_and_fills_each_slot_once():
    torch.manual_seed(0)
    gates = torch.randn(3, 64, 8).mul(2).softmax(dim=2)
    capacity = 16
    combine, _ = top2_gating(gates, capacity)
    assert combine.shape == (3, 64, 8, capacity)
    dispatched = combine > 0
    assert dispatched.sum(dim=1).max() == 1, "a slot holds one token at most"
    assert dispatched.sum(dim=(2, 3)).max() <= 2, "a token goes to two experts at most"
    assert dispatched.any(dim=3).sum(dim=1).max() <= capacity
    # A token that keeps both its experts weighs them by their gates, scaled to 1.
    both = dispatched.sum(dim=(2, 3)) == 2
    assert both.any()
    assert not both.all(), "some tokens should find an expert full"
    top = gates.topk(2, dim=2).values
    expected = (top / top.sum(dim=2, keepdim=True))[both].sort(dim=1).values
    weights = combine.sum(dim=3)[both].topk(2, dim=1).values.sort(dim=1).values
    assert torch.allclose(weights, expected, atol=1e-6)


def test_first_choices_get_slots_before_second_choices():
    # Tokens 0 and 1 both choose expert 0 first and expert 1 second; token 2 chooses expert 1 first. One slot per
    # expert.
    gates = torch.tensor([[[0.6, 0.4, 0.0], [0.6, 0.4, 0.0], [0.1, 0.6, 0.3]]])
    combine, _ = top2_gating(gates, 1)
    assert (combine[0, :, :, 0] > 0).tolist() == [[True, False, False], [False, False, False], [False, True, True]]


def test_the_auxiliary_loss_is_one_when_the_load_is_even_and_more_when_it_is_not():
    even = torch.eye(4).repeat(4, 1).unsqueeze(0) * 0.1 + 0.9 / 4
    assert top2_gating(even, 8)[1].item() == pytest.approx(1.0, abs=1e-5)
    crowded = torch.eye(4)[:1].repeat(16, 1).unsqueeze(0) * 0.9 + 0.1 / 4
    assert top2_gating(crowded, 8)[1].item() > 3


def test_the_batched_products_of_the_expert_layer_are_gshards_einsums():
    config = entry("moe-tiny").config
    torch.manual_seed(0)
    layer = ExpertLayer(config)
    x = torch.randn(4, 32, config.hidden)
    out, _ = layer(x)
    tokens = x.reshape(-1, 64, config.hidden)
    combine, _ = top2_gating(torch.einsum("gsm,me->gse", tokens, layer.wg).softmax(dim=2), 2 * 64 // config.experts)
    slots = torch.einsum("gsec,gsm->egcm", (combine > 0).float(), tokens)
    inner = torch.einsum("egcm,emf->egcf", slots, layer.wi).relu()
    expected = torch.einsum("gsec,gecm->gsm", combine, torch.einsum("egcf,efm->gecm", inner, layer.wo))
    assert torch.allclose(out, expected.reshape(x.shape), atol=1e-6)


def test_wide_resnet_halves_its_images_once_a_stage():
    module, (images, _) = build("wide-resnet-250m", 1)
    x = module.conv(images)
    shapes = [tuple(x.shape)]
    x = F.max_pool2d(x, 3, 2, 1)
    for stage in module.stages:
        x = stage(x)
        shapes.append(tuple(x.shape))
    assert shapes == [(1, 160, 112, 112), (1, 640, 56, 56), (1, 1280, 28, 28), (1, 2560, 14, 14), (1, 5120, 7, 7)]
    inner = module.stages[0][0].conv2.weight
    assert inner.shape == (320, 160, 3, 3)  # width_factor 2 widens the inner convolution only
