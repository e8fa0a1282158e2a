"""Windows, sinks and capped scores of attention as one operator, against torch's spelled-out computation."""

import pytest
import torch

from alpa_explore.graph.counts import attention_flops
from alpa_explore.models import build
from alpa_explore.tracing.capture import capture
from tests.tracing.autograd import assert_autograd


def spelled_out(q, k, v, window, softcap, sink):
    """With a softmax over all scores and the sinks."""
    k, v = (t.repeat_interleave(q.shape[1] // t.shape[1], 1) for t in (k, v))
    scores = q @ k.mT * 0.4
    if softcap:
        scores = softcap * torch.tanh(scores / softcap)
    row, column = torch.arange(q.shape[2])[:, None], torch.arange(k.shape[2])
    hidden = (column > row) | ((column <= row - window) if window else False)
    scores = scores.masked_fill(hidden, -torch.inf)
    if sink is not None:
        scores = torch.cat((scores, sink[:, None, None].expand(*scores.shape[:3], 1)), -1)
    return scores.softmax(-1)[..., : k.shape[2]] @ v


@pytest.mark.parametrize("with_sink", [False, True])
@pytest.mark.parametrize("softcap", [0.0, 0.7])
@pytest.mark.parametrize("window", [0, 1, 3, 6, 9])
def test_output_and_gradients_equal_torchs(window, softcap, with_sink):
    torch.manual_seed(0)
    shapes = ((2, 4, 6, 3), (2, 2, 6, 3), (2, 2, 6, 5), (4,))
    leaves = [torch.randn(s, dtype=torch.float64, requires_grad=True) for s in shapes[: 3 + with_sink]]
    sink = leaves[3] if with_sink else None
    call = torch.ops.alpa_explore.attention
    output, _ = call(*leaves[:3], None, True, 0.4, window=window, softcap=softcap, sink=sink)
    expected = spelled_out(*leaves[:3], window, softcap, sink)
    torch.testing.assert_close(output, expected)
    gradient = torch.randn_like(output)
    made, right = (torch.autograd.grad(y, leaves, gradient) for y in (output, expected))
    for one, other in zip(made, right, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("window", [1, 4, 11, 16, 40])
def test_flops_of_a_window_are_those_of_the_keys_that_queries_see(window):
    rows = 16
    seen = sum(min(row + 1, window) for row in range(rows))
    query, value = (1, 2, rows, 8), (1, 1, rows, 8)
    # Taken as an area, in which an entry on an edge counts half: of two edges one is counted, the other is not.
    pairs = seen - min(window, rows) / 2
    assert attention_flops(query, value, causal=True, window=window) == 4 * 2 * 8 * pairs
    assert attention_flops(query, value, causal=True, window=window, backward=True) == 10 * 2 * 8 * pairs


@pytest.mark.slow
def test_the_catalogues_gpt_oss_has_no_tensor_of_all_scores():
    torch.manual_seed(0)
    model, inputs = build("gpt-oss-tiny", 2, device="cpu")
    for block in model.h:
        torch.nn.init.normal_(block.attention.sinks)
    graph = capture(model, inputs)
    calls = [o for o in graph.operators if o.kind == "alpa_explore.attention.default"]
    assert [o.arguments[9] for o in calls] == [8, 0, 8, 0]
    assert not [t for t in graph.tensors if t.shape[-2:] == (32, 32) and len(t.shape) == 4]
    assert_autograd(graph, model, inputs, rtol=1e-4, atol=1e-5)
