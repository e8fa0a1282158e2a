"""Attention is captured as one operator, forward and backward, and computes what torch computes."""

import itertools

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.functional import scaled_dot_product_attention as imported_by_name

from alpa_explore.graph import Phase
from alpa_explore.graph.document import dump_graph, load_graph
from alpa_explore.tracing.batches import capture_batches
from alpa_explore.tracing.capture import capture
from tests.tracing.autograd import assert_autograd

FORWARD, BACKWARD = "alpa_explore.attention.default", "alpa_explore.attention_backward.default"


class Mixer(nn.Module):
    """Attention among learned queries, keys and values, called with these options."""

    def __init__(self, q, k, v=None, call=F.scaled_dot_product_attention, device="cpu", **options):
        super().__init__()
        shapes = {"q": q, "k": k, "v": k if v is None else v}
        for name, shape in shapes.items():
            setattr(self, name, nn.Parameter(torch.randn(*shape, device=device)))
        self.call, self.options = call, options

    def forward(self, x):
        return (self.call(self.q * x, self.k, self.v, **self.options) * torch.arange(1.0, 5.0)).square().mean()


def operators(graph, kind):
    return [o for o in graph.operators if o.kind == kind]


def assert_equals_autograd(model):
    inputs = (torch.tensor(1.5),)
    graph = capture(model, inputs)
    assert [len(operators(graph, kind)) for kind in (FORWARD, BACKWARD)] == [1, 1]
    assert_autograd(graph, model, inputs)
    return graph


SHAPES = (
    ((2, 4, 6, 4), (2, 4, 6, 4), {}),
    ((2, 4, 6, 4), (2, 4, 6, 4), {"is_causal": True}),
    ((2, 4, 6, 4), (2, 4, 9, 4), {"is_causal": True, "scale": 0.2}),
    ((2, 4, 9, 4), (2, 4, 6, 4), {"is_causal": True}),
    ((2, 4, 6, 4), (2, 2, 6, 4), {"is_causal": True, "enable_gqa": True}),
    ((2, 4, 6, 4), (2, 1, 6, 4), {"enable_gqa": True}),
    ((4, 6, 4), (4, 6, 4), {"is_causal": True}),
    ((6, 4), (9, 4), {}),
    ((2, 4, 6, 4), (4, 6, 4), {}),
    ((2, 4, 6, 4), (2, 4, 6, 4), {"attn_mask": torch.rand(6, 6) > 0.5}),
    ((2, 4, 6, 4), (2, 4, 9, 4), {"attn_mask": torch.rand(2, 1, 1, 9) > 0.5}),
    ((2, 4, 6, 4), (2, 4, 9, 4), {"attn_mask": torch.randn(4, 6, 9)}),
    ((4, 6, 4), (4, 9, 4), {"attn_mask": torch.randn(4, 6, 9)}),
)


@pytest.mark.parametrize(("q", "k", "options"), SHAPES, ids=range(len(SHAPES)))
def test_one_operator_equals_torch_for_every_form_of_call(q, k, options):
    torch.manual_seed(0)
    assert_equals_autograd(Mixer(q, k, **options))


def test_values_may_have_another_size_than_keys():
    graph = assert_equals_autograd(Mixer((2, 2, 6, 3), (2, 2, 6, 3), (2, 2, 6, 4)))
    assert operators(graph, FORWARD)[0].flops == 2 * (2 * 2 * 6 * 6) * (3 + 4)


def test_a_query_that_sees_no_key_gives_zeros_as_in_torch():
    mask = torch.ones(6, 6).bool()
    mask[2] = False
    assert_equals_autograd(Mixer((2, 2, 6, 4), (2, 2, 6, 4), attn_mask=mask))


def test_a_function_imported_by_name_is_the_same_function():
    assert_equals_autograd(Mixer((2, 2, 6, 4), (2, 2, 6, 4), call=imported_by_name))


def test_torchs_own_modules_reach_it():
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    graph = capture(layer, (torch.randn(2, 5, 8), torch.randn(2, 5, 8)), loss="mse")
    assert operators(graph, FORWARD)[0].module == "self_attn"


def test_after_a_capture_torchs_function_is_its_own_again():
    before = F.scaled_dot_product_attention
    capture(Mixer((2, 2, 6, 4), (2, 2, 6, 4)), (torch.tensor(1.0),))
    assert F.scaled_dot_product_attention is before


def test_a_model_on_the_meta_device_gives_the_same_graph():
    on = [capture(Mixer((2, 2, 6, 4), (2, 2, 6, 4), device=d), (torch.tensor(1.0),)) for d in ("cpu", "meta")]
    assert on[0] == on[1]


def test_no_tensor_holds_all_scores():
    graph = capture(Mixer((2, 4, 6, 4), (2, 4, 7, 4), is_causal=True), (torch.tensor(1.0),))
    assert {t.shape for t in graph.tensors if len(t.shape) == 4} == {(2, 4, 6, 4), (2, 4, 7, 4)}


@pytest.mark.slow
def test_the_backward_operator_knows_its_forward_operator(gpt):
    model, inputs = gpt
    graph = capture(model, inputs)
    assert not [o.name for o in graph.operators if "softmax" in o.kind and "log" not in o.kind]
    forward, backward = operators(graph, FORWARD), operators(graph, BACKWARD)
    assert [o.module for o in forward] == ["attention.0", "attention.1"]
    assert [o.forward for o in backward] == [o.index for o in forward][::-1]
    assert all(o.phase is Phase.BACKWARD for o in backward)
    output, logsumexp = (graph.tensors[t] for t in forward[0].outputs)
    assert (output.shape, logsumexp.shape, logsumexp.dtype) == ((2, 2, 8, 8), (2, 2, 8), "float32")


def test_the_output_needs_no_copy_before_the_projection(gpt):
    model, inputs = gpt
    graph = capture(model, inputs)
    copies = [o for o in operators(graph, "aten.clone.default") if "dropout" not in o.module]
    assert copies == []


def test_flops_and_bytes_are_those_of_a_fused_kernel():
    b, h, s, d = 2, 3, 8, 4
    graph = capture(Mixer((b, h, s, d), (b, h, s, d)), (torch.tensor(1.0),))
    (forward,), (backward,) = operators(graph, FORWARD), operators(graph, BACKWARD)
    assert (forward.flops, backward.flops) == (4 * b * h * s * s * d, 10 * b * h * s * s * d)
    tensor, logsumexp = 4 * b * h * s * d, 4 * b * h * s
    assert forward.bytes_accessed == 4 * tensor + logsumexp
    assert backward.bytes_accessed == 8 * tensor + logsumexp
    causal = capture(Mixer((b, h, s, d), (b, h, s, d), is_causal=True), (torch.tensor(1.0),))
    assert [2 * o.flops for o in causal.operators if "attention" in o.kind] == [forward.flops, backward.flops]


def test_dropout_drops_that_share_of_the_softmax_in_both_passes():
    torch.manual_seed(0)
    q, k, gradient = (torch.randn(1, 2, 64, 8, dtype=torch.float64) for _ in range(3))
    v = torch.eye(64, dtype=torch.float64).expand(1, 2, 64, 64)  # so that the output is the softmax after dropout
    seed = torch.tensor(0.3, dtype=torch.float64)
    whole, _ = torch.ops.alpa_explore.attention(q, k, v, None, False, 0.5)
    dropped, _ = torch.ops.alpa_explore.attention(q, k, v, None, False, 0.5, 0.25, seed)
    kept = dropped != 0
    assert kept.double().mean().item() == pytest.approx(0.75, abs=0.02)
    torch.testing.assert_close(dropped, kept * whole / 0.75)
    other, _ = torch.ops.alpa_explore.attention(q, k, v, None, False, 0.5, 0.25, seed / 2)
    assert ((other != 0) == kept).double().mean().item() == pytest.approx(0.75**2 + 0.25**2, abs=0.02)
    leaves = [t.clone().requires_grad_() for t in (q, k, v)]
    output, _ = torch.ops.alpa_explore.attention(*leaves, None, False, 0.5, 0.25, seed)
    made = torch.autograd.grad(output.sum(-1), leaves, gradient[..., 0])
    shares = torch.softmax(leaves[0] @ leaves[1].mT * 0.5, -1) * kept / 0.75
    for ours, theirs in zip(
        made, torch.autograd.grad((shares @ leaves[2]).sum(-1), leaves, gradient[..., 0]), strict=True
    ):
        torch.testing.assert_close(ours, theirs)


def test_dropout_draws_one_seed_for_both_passes():
    graph = capture(Mixer((2, 2, 6, 4), (2, 2, 6, 4), dropout_p=0.5), (torch.tensor(1.0),))
    (forward,), (backward,), (seed,) = (operators(graph, kind) for kind in (FORWARD, BACKWARD, "aten.rand.default"))
    assert seed.outputs[0] in forward.inputs
    assert seed.outputs[0] in backward.inputs


def test_a_mask_that_is_learned_stays_spelled_out():
    graph = capture(Mixer((2, 2, 6, 4), (2, 2, 6, 4), attn_mask=nn.Parameter(torch.randn(6, 6))), (torch.tensor(1.0),))
    assert not operators(graph, FORWARD)
    assert operators(graph, "aten.matmul.default")


def test_shapes_that_do_not_belong_together_are_an_error_of_torch():
    with pytest.raises(Exception, match=r"attention|size|shape"):
        capture(Mixer((2, 3, 6, 4), (2, 2, 6, 4)), (torch.tensor(1.0),))


@pytest.mark.slow
def test_graphs_with_attention_are_stored_and_resized(gpt):
    model, inputs = gpt
    graph = capture(model, inputs)
    assert load_graph(dump_graph(graph)) == graph
    batches = capture_batches(model, inputs)
    for samples in (2, 6, 10):
        tokens = torch.zeros(samples, 8, dtype=torch.long)
        assert batches.at_batch(samples) == capture(model, (tokens, tokens))
    assert batches.captures < 5


def test_a_shard_of_causal_queries_says_which_is_its_first():
    attend = torch.ops.alpa_explore.attention
    q, k, v = (torch.randn(1, 2, 8, 4) for _ in range(3))
    whole = attend(q, k, v, None, True, 0.5)
    halves = [
        torch.ops.alpa_explore.attention(q[:, :, f : f + 4], k, v, None, True, 0.5, first=[0, 0, f]) for f in (0, 4)
    ]
    for complete, parts in zip(whole, itertools.zip_longest(*halves), strict=True):
        torch.testing.assert_close(torch.cat(parts, 2), complete)


@pytest.mark.parametrize("order", [(0, 2, 1, 3), (0, 1, 2, 3), (2, 0, 1, 3)])
def test_its_output_lies_in_memory_as_that_of_torch(order: tuple[int, ...]) -> None:
    shape = torch.randn(2, 3, 5, 8).permute(order).shape
    query = torch.randn(shape).permute([order.index(dim) for dim in range(4)])
    expected = F.scaled_dot_product_attention(query, query, query)
    for device in ("cpu", "meta"):
        (found, _) = torch.ops.alpa_explore.attention(
            query.to(device), query.to(device), query.to(device), None, False, 8**-0.5
        )
        assert found.stride() == expected.stride()
