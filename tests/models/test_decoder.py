"""The decoders against independent definitions: spelled-out attention, transformers."""

import pytest
import torch
import torch.nn.functional as F

from alpa_explore.models.configs import ExpertsConfig
from alpa_explore.models.configs.huggingface import HuggingFaceConfig, compact
from alpa_explore.models.decoder import CLAMPED, SigmoidGate, SoftmaxGate, causal_attention
from alpa_explore.models.transformer import rotary_tables, rotated


def test_gpt_oss_cuts_its_gates():
    torch.manual_seed(0)
    gate, up = 10 * torch.randn(50), 10 * torch.randn(50)
    expected = gate.clamp(max=7) / (1 + (-1.702 * gate.clamp(max=7)).exp()) * (up.clamp(-7, 7) + 1)
    torch.testing.assert_close(CLAMPED.inner(torch.cat((gate, up))), expected)


@pytest.mark.parametrize(("window", "sinks"), [(None, True), (3, False), (3, True), (100, False)])
def test_a_window_hides_older_tokens_and_a_sink_takes_its_share(window, sinks):
    torch.manual_seed(0)
    q, k, v = torch.randn(2, 4, 7, 8), torch.randn(2, 2, 7, 8), torch.randn(2, 2, 7, 8)
    sink = torch.randn(4) if sinks else None
    made = causal_attention(q, k, v, window, sink)
    for head in range(4):
        for place in range(7):
            first = max(0, place + 1 - (window or 7))
            keys, values = k[:, head // 2, first : place + 1], v[:, head // 2, first : place + 1]
            scores = (keys @ q[:, head, place, :, None])[:, :, 0] / 8**0.5
            if sink is not None:
                scores = torch.cat((scores, sink[head].expand(2, 1)), dim=1)
            shares = scores.softmax(1)[:, : place + 1 - first]
            expected = (shares[:, None] @ values)[:, 0]
            torch.testing.assert_close(made[:, head, place], expected, rtol=1e-4, atol=1e-5)


def test_rotary_positions_turn_pairs_of_channels_by_their_angle():
    """Channels i and i + D/2 as a complex number, times e^(i · position · theta^(−2i / D))."""
    torch.manual_seed(0)
    x, theta = torch.randn(2, 3, 7, 8), 50.0
    turned = rotated(x, *rotary_tables(7, 8, theta))
    angles = torch.arange(7.0)[:, None] * theta ** (-torch.arange(4.0) / 4)
    expected = torch.complex(*x.chunk(2, dim=3)) * torch.exp(1j * angles)
    torch.testing.assert_close(torch.complex(*turned.chunk(2, dim=3)), expected)


def test_the_softmax_gate_is_mixtrals():
    torch.manual_seed(0)
    gate = SoftmaxGate(ExpertsConfig(count=8, chosen=2, ffn=4), 16, bias=False)
    x = torch.randn(10, 16)
    chosen, weights = gate(x)
    every = gate.router(x).softmax(1)
    best, expected = every.topk(2, dim=1)
    assert torch.equal(chosen, expected)
    torch.testing.assert_close(weights, best / best.sum(1, keepdim=True))


@pytest.mark.slow
def test_the_sigmoid_gate_is_that_of_deepseek_v3():
    modeling = pytest.importorskip("transformers.models.deepseek_v3.modeling_deepseek_v3")
    configuration = pytest.importorskip("transformers.models.deepseek_v3.configuration_deepseek_v3")
    torch.manual_seed(0)
    sizes = {"n_routed_experts": 16, "num_experts_per_tok": 4, "n_group": 4, "topk_group": 2, "hidden_size": 8}
    theirs = modeling.DeepseekV3TopkRouter(configuration.DeepseekV3Config(**sizes))
    ours = SigmoidGate(ExpertsConfig(count=16, chosen=4, ffn=4, groups=4, chosen_groups=2, scale=2.5), 8)
    ours.correction.normal_(std=0.1)
    with torch.no_grad():
        theirs.weight.copy_(ours.router.weight)
        theirs.e_score_correction_bias.copy_(ours.correction)
    x = torch.randn(50, 8)
    _, their_weights, their_choice = theirs(x)
    choice, weights = ours(x)
    order, their_order = choice.argsort(1), their_choice.argsort(1)
    assert torch.equal(choice.gather(1, order), their_choice.gather(1, their_order))
    torch.testing.assert_close(weights.gather(1, order), their_weights.gather(1, their_order))


def test_latent_attention_gives_keys_of_all_heads_one_part_with_positions():
    from alpa_explore.models import entry
    from alpa_explore.models.decoder import LatentAttention
    from alpa_explore.models.transformer import rotary_tables, rotated

    config = entry("deepseek-tiny").config
    torch.manual_seed(0)
    attention = LatentAttention(config, config.latent)
    x, tables = torch.randn(2, 6, 64), rotary_tables(6, 8, 10_000.0)
    latent, shared = attention.kv_down(x).split((16, 8), dim=2)
    k_turned = rotated(shared[:, None], *tables)[:, 0]
    outputs = []
    for head in range(8):
        q = attention.q_up(attention.q_norm(attention.q_down(x))).unflatten(2, (8, 24))[:, :, head]
        k_plain, v = attention.kv_up(attention.kv_norm(latent)).unflatten(2, (8, 32))[:, :, head].split((16, 16), dim=2)
        q = torch.cat((q[..., :16], rotated(q[:, None, :, 16:], *tables)[:, 0]), dim=2)
        k = torch.cat((k_plain, k_turned), dim=2)
        scores = (q @ k.transpose(1, 2) / 24**0.5).masked_fill(~torch.ones(6, 6, dtype=torch.bool).tril(), -torch.inf)
        outputs.append(scores.softmax(2) @ v)
    expected = F.linear(torch.cat(outputs, dim=2), attention.projection.weight)
    torch.testing.assert_close(attention(x, tables), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("types", "alike"), [(["full_attention"] * 4, 4), (["sliding_attention", "full_attention"] * 2, 0)]
)
def test_a_config_may_list_the_type_of_every_block(types: list[str], alike: int) -> None:
    values = {"model_type": "qwen2", "num_hidden_layers": 4, "layer_types": types, "other": [1, 2]}
    config = HuggingFaceConfig(text=compact(values), sequence=16)
    assert config.periods == alike
    assert config.with_periods(2).values == {**values, "num_hidden_layers": 2, "layer_types": types[:2]}
