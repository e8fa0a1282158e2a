"""The operators of this project compute on every attached device what they compute in float64 on the CPU.

On CUDA they call fused kernels (flash attention, RMS norm, grouped products); where there is no GPU the CPU's own way
in 16 bit is tested.
"""

import pytest
import torch

from alpa_explore.tracing.attention import attention, attention_backward
from alpa_explore.tracing.experts.whole import experts, experts_backward
from alpa_explore.tracing.fused.rms_norm import rms_norm, rms_norm_backward

DEVICES = ["cpu", *["cuda"] * torch.cuda.is_available()]
SIXTEEN_BITS = [torch.bfloat16, torch.float16]


def drawn(*shape, scale=1.0):
    return torch.randn(shape, dtype=torch.float64) * scale


def assert_alike(found, expected, dtype):
    """Within some roundings of `dtype`, of the largest entry."""
    assert found.dtype in (dtype, torch.float32)
    assert found.shape == expected.shape
    error = (found.double().cpu() - expected).abs().max() / expected.abs().max()
    assert error < 6 * torch.finfo(dtype).eps, error


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", SIXTEEN_BITS, ids=str)
@pytest.mark.parametrize("causal", [True, False], ids=["causal", "full"])
@pytest.mark.parametrize("heads", [(8, 8), (8, 2)], ids=["all-heads", "grouped-queries"])
@pytest.mark.parametrize("size", [64, 128])
def test_attention(device, dtype, causal, heads, size):
    query, key, value = (drawn(2, h, 96, size).to(dtype) for h in (heads[0], heads[1], heads[1]))
    gradient, scale = drawn(2, heads[0], 96, size).to(dtype), size**-0.5
    wide = [t.double() for t in (query, key, value)]
    expected, sums = attention(*wide, None, causal, scale)
    expected_gradients = attention_backward(gradient.double(), *wide, None, expected, sums, causal, scale)
    there = [t.to(device) for t in (query, key, value)]
    output, found_sums = attention(*there, None, causal, scale)
    assert_alike(output, expected, dtype)
    torch.testing.assert_close(found_sums.double().cpu(), sums, atol=1e-2, rtol=1e-2)
    gradients = attention_backward(gradient.to(device), *there, None, output, found_sums, causal, scale)
    for found, given in zip(gradients, expected_gradients, strict=True):
        assert_alike(found, given, dtype)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", SIXTEEN_BITS, ids=str)
@pytest.mark.parametrize("weighted", [True, False], ids=["weight", "no-weight"])
def test_rms_norm(device, dtype, weighted):
    x, gradient = drawn(4, 33, 256).to(dtype), drawn(4, 33, 256).to(dtype)
    weight = drawn(256).to(dtype) if weighted else None
    wide = None if weight is None else weight.double()
    expected, rstd = rms_norm(x.double(), wide, 1e-5)
    expected_gradients = rms_norm_backward(gradient.double(), x.double(), rstd, wide)
    there = None if weight is None else weight.to(device)
    y, found_rstd = rms_norm(x.to(device), there, 1e-5)
    assert found_rstd.shape == rstd.shape
    assert found_rstd.dtype == torch.float32
    assert_alike(y, expected, dtype)
    for found, given in zip(
        rms_norm_backward(gradient.to(device), x.to(device), found_rstd, there), expected_gradients, strict=True
    ):
        assert_alike(found, given, dtype)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("inputs_first", [True, False], ids=["in-out", "out-in"])
def test_experts(device, inputs_first):
    """Experts of one token up to many, one of them of none."""
    tokens, width, hidden, count, dtype = 61, 32, 64, 4, torch.bfloat16
    chosen = torch.randint(0, count - 1, (tokens, 2))
    weights = torch.rand(tokens, 2, dtype=torch.float64).to(dtype)
    up = drawn(count, width, hidden, scale=width**-0.5).to(dtype)
    gate = drawn(count, width, hidden, scale=width**-0.5).to(dtype)
    down = drawn(count, hidden, width, scale=hidden**-0.5).to(dtype)
    matrices = [m if inputs_first else m.transpose(1, 2).contiguous() for m in (gate, up, down)]
    x, gradient = drawn(tokens, width).to(dtype), drawn(tokens, width).to(dtype)
    options = ("silu", "separate", inputs_first, 0.0, 1.0, 0.0, 0, count, True)

    def both(to):
        given = [to(t) for t in (x, weights, *matrices)]
        there = chosen.to(given[0].device)
        y, rows, inner = experts(given[0], there, given[1], given[2:], [], *options)
        made = experts_backward(to(gradient), there, given[1], rows, inner, given[2:], [], *options)
        return [y, *made]

    expected = both(torch.Tensor.double)
    for found, given in zip(both(lambda t: t.to(device)), expected, strict=True):
        assert_alike(found, given, dtype)
