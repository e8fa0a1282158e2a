"""RMS norm is captured as one operator, forward and backward, and computes what torch computes."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.functional import rms_norm as imported_by_name

from alpa_explore.cost.fusion import is_fusible
from alpa_explore.graph import Phase
from alpa_explore.graph.document import dump_graph, load_graph
from alpa_explore.models import build
from alpa_explore.tracing.batches import capture_batches
from alpa_explore.tracing.capture import capture
from tests.tracing.autograd import assert_autograd

FORWARD, BACKWARD = "alpa_explore.rms_norm.default", "alpa_explore.rms_norm_backward.default"


class Normalised(nn.Module):
    """A norm over the dims `shape` of a linear layer's outputs, called with these options."""

    def __init__(self, shape=(4,), *, weight=True, call=F.rms_norm, eps=1e-5, dtype=torch.float32, device="cpu"):
        super().__init__()
        self.linear = nn.Linear(4, 4, dtype=dtype, device=device)
        self.weight = nn.Parameter(torch.rand(shape, dtype=dtype, device=device)) if weight else None
        self.shape, self.call, self.eps = shape, call, eps

    def forward(self, x, y):
        return (self.call(self.linear(x), self.shape, self.weight, self.eps) - y).float().square().mean()


def inputs(dtype=torch.float32, device="cpu"):
    return torch.randn(2, 3, 4, dtype=dtype, device=device), torch.randn(2, 3, 4, dtype=dtype, device=device)


def operators(graph, kind):
    return [o for o in graph.operators if o.kind == kind]


def assert_equals_autograd(model, given):
    graph = capture(model, given)
    assert [len(operators(graph, kind)) for kind in (FORWARD, BACKWARD)] == [1, 1]
    assert_autograd(graph, model, given)
    return graph


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"shape": (3, 4)},
        {"shape": (2, 3, 4)},
        {"weight": False},
        {"shape": (3, 4), "weight": False},
        {"eps": None},
        {"call": imported_by_name},
        {"call": torch.rms_norm},
        {"dtype": torch.float64},
        {"dtype": torch.bfloat16, "eps": None},
    ],
    ids=range(10),
)
def test_one_operator_equals_torch_for_every_form_of_call(options):
    torch.manual_seed(0)
    assert_equals_autograd(Normalised(**options), inputs(options.get("dtype", torch.float32)))


def test_torchs_own_module_reaches_it_and_its_function_is_its_own_again():
    before = F.rms_norm
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.RMSNorm(4))
    graph = capture(model, inputs(), loss="mse")
    assert operators(graph, FORWARD)[0].module == "1"
    assert F.rms_norm is before


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_same_numbers_as_torch_and_one_of_float32_for_each_row(dtype):
    x, _ = inputs(dtype)
    weight = torch.rand(4, dtype=dtype)
    y, rstd = torch.ops.alpa_explore.rms_norm(x, weight, 1e-5)
    torch.testing.assert_close(y, F.rms_norm(x, (4,), weight, 1e-5), rtol=0, atol=0)
    theirs = torch.ops.aten._fused_rms_norm(x, [4], weight, 1e-5)[1]
    assert (rstd.shape, rstd.dtype) == ((2, 3, 1), torch.float32)
    torch.testing.assert_close(rstd, theirs)


def test_a_weight_of_another_dtype_gets_a_gradient_of_its_own():
    x, weight = inputs(torch.bfloat16)[0], torch.rand(4)
    y, rstd = torch.ops.alpa_explore.rms_norm(x, weight, 1e-5)
    dx, dweight = torch.ops.alpa_explore.rms_norm_backward(y, x, rstd, weight)
    assert (y.dtype, dx.dtype, dweight.dtype) == (torch.bfloat16, torch.bfloat16, torch.float32)


def test_a_model_on_the_meta_device_gives_the_same_graph():
    on = [capture(Normalised(device=d), inputs(device=d)) for d in ("cpu", "meta")]
    assert on[0] == on[1]


def test_flops_and_bytes_are_those_of_a_fused_kernel():
    graph = capture(Normalised(dtype=torch.bfloat16), inputs(torch.bfloat16))
    (forward,), (backward,) = operators(graph, FORWARD), operators(graph, BACKWARD)
    x, weight, rstd = 2 * 2 * 3 * 4, 2 * 4, 4 * 2 * 3
    assert (forward.flops, forward.bytes_accessed) == (2 * 3 * 4, 2 * x + weight + rstd)
    assert (backward.flops, backward.bytes_accessed) == (2 * 3 * 4, 3 * x + rstd + 2 * weight)
    assert is_fusible(forward, graph)
    assert is_fusible(backward, graph)


def test_shapes_that_do_not_belong_together_are_an_error_of_torch():
    with pytest.raises(Exception, match=r"normalized_shape|shape"):
        capture(Normalised((5,)), inputs())


@pytest.mark.slow
def test_llamas_norms_know_their_backward_operators_and_are_stored_and_resized():
    model, given = build("llama-tiny", 2)
    graph = capture(model, given)
    forward, backward = operators(graph, FORWARD), operators(graph, BACKWARD)
    assert [o.forward for o in backward] == [o.index for o in forward][::-1]
    assert all(o.phase is Phase.BACKWARD for o in backward)
    assert not [o.kind for o in graph.operators if "rsqrt" in o.kind]
    assert load_graph(dump_graph(graph)) == graph
    batches = capture_batches(model, given)
    assert batches.at_batch(6) == capture(model, build("llama-tiny", 6)[1])
