"""`torch.autocast` in a model is traced as written, on a machine without the device that it names."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch._subclasses import FakeTensorMode
from torch.nn import functional as F

import alpa_explore as ax
from alpa_explore.errors import CaptureError
from alpa_explore.tracing import autocast as kernels
from alpa_explore.tracing.autocast import autocast_as_written
from alpa_explore.tracing.evaluate import evaluate, initial_values
from tests.tracing.conftest import TinyGPT

BF16, FP16, FP32 = torch.bfloat16, torch.float16, torch.float32


class Linear(nn.Module):
    """A product, and what a region makes of its dtype."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)
        self.seen: list[torch.dtype] = []


def seen_by(forward: Any) -> list[torch.dtype]:
    """The dtypes that a forward pass of `Linear` notes while it is captured."""
    seen: list[torch.dtype] = []

    class Model(Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return forward(self, x, seen.append)

    graph = ax.capture(Model(), (torch.randn(4, 8),))
    products = {graph.tensors[op.outputs[0]].dtype for op in graph.forward_operators if op.kind == "aten.addmm.default"}
    assert products == {str(dtype).removeprefix("torch.") for dtype in seen}
    return seen


@pytest.mark.parametrize("dtype", [BF16, FP16])
@pytest.mark.parametrize("device", ["cuda", "cpu", "xpu"])
def test_a_region_of_any_device_computes_products_in_its_dtype(device, dtype):
    def forward(model, x, note):
        with torch.autocast(device, dtype=dtype):
            y = model.layer(x)
            assert torch.is_autocast_enabled(device)
        note(y.dtype)
        return y.float().sum()

    assert seen_by(forward)[-1] == dtype


def test_a_region_without_a_dtype_has_that_of_its_device():
    def forward(model, x, note):
        with torch.autocast("cuda"):
            y = model.layer(x)
        with torch.cuda.amp.autocast():
            z = model.layer(x)
        with torch.autocast("cpu"):
            w = model.layer(x)
        for made in (y, z, w):
            note(made.dtype)
        return (y + z).float().sum() + w.float().sum()

    with pytest.warns(FutureWarning, match="autocast"):
        assert seen_by(forward)[-3:] == [FP16, FP16, BF16]


@pytest.mark.parametrize("inner", ["cuda", "cpu"])
def test_the_innermost_region_says_what_is_cast(inner):
    def forward(model, x, note):
        with torch.autocast("cuda", dtype=FP16):
            first = model.layer(x)
            with torch.autocast(inner, enabled=False):
                assert not torch.is_autocast_enabled("cuda")
                second = model.layer(first.float())
            third = model.layer(second)
        fourth = model.layer(third.float())
        for made in (first, second, third, fourth):
            note(made.dtype)
        return fourth.sum()

    assert seen_by(forward)[-4:] == [FP16, FP32, FP16, FP32]


def test_a_decorator_is_a_region_also_where_torch_disabled_it_for_lack_of_a_device():
    class Decorated(Linear):
        @torch.autocast("cuda", dtype=BF16)
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(x).float().sum()

    class Disabled(Linear):
        @torch.autocast(device_type="cuda", enabled=False)
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(x).sum()

    for model, dtype in ((Decorated(), "bfloat16"), (Disabled(), "float32")):
        graph = ax.capture(model, (torch.randn(4, 8),))
        (product,) = [op for op in graph.forward_operators if op.kind == "aten.addmm.default"]
        assert graph.tensors[product.outputs[0]].dtype == dtype


@pytest.mark.skipif(torch.cuda.is_available(), reason="torch then knows whether the region is enabled")
def test_a_region_of_which_nobody_knows_whether_it_is_enabled_is_refused():
    class Kept(Linear):
        def __init__(self) -> None:
            super().__init__()
            self.region = torch.autocast("cuda", dtype=BF16)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with self.region:
                return self.layer(x).sum()

    with pytest.raises(CaptureError, match=r"enabled is not known.*bfloat16.*precision='bf16'"):
        ax.capture(Kept(), (torch.randn(4, 8),))


def test_a_capture_inside_a_region_is_refused_on_every_machine():
    with torch.autocast("cpu", dtype=BF16), pytest.raises(CaptureError, match=r"around the capture.*model's forward"):
        ax.capture(TinyGPT(), (torch.zeros(2, 8).long(), torch.zeros(2, 8).long()))


def test_what_torch_refuses_on_a_gpu_is_refused():
    class Unsafe(Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with torch.autocast("cuda", dtype=FP16):
                return F.binary_cross_entropy(self.layer(x).sigmoid(), x.sigmoid())

    with pytest.raises(CaptureError, match="binary_cross_entropy_with_logits"):
        ax.capture(Unsafe(), (torch.randn(4, 8),))


class InRegion(nn.Module):
    """A model, computed in a region."""

    def __init__(self, model: nn.Module, device: str) -> None:
        super().__init__()
        self.model, self.device = model, device

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        with torch.autocast(self.device, dtype=BF16):
            return self.model(*inputs)


class Recurrent(nn.Module):
    """Recurrent layers, a convolution, norms and a softmax."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.gru, self.mix = nn.LSTM(8, 8), nn.GRU(8, 8), nn.Conv1d(8, 4, 1)
        self.norm = nn.RMSNorm(8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(self.gru(self.lstm(x)[0])[0])
        return torch.softmax(self.mix(y.permute(1, 2, 0)), 1).pow(2).mean()


@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_loss_and_gradients_are_those_of_the_module_in_its_region(device):
    torch.manual_seed(0)
    tokens = torch.randint(0, 23, (4, 8))
    for inner, inputs in ((TinyGPT(), (tokens, tokens.roll(1))), (Recurrent(), (torch.randn(5, 2, 8),))):
        model = InRegion(inner, device)
        with autocast_as_written():
            expected = model(*inputs)
        expected.backward()
        graph = ax.capture(model, inputs)
        assert {"bfloat16", "float32"} <= {tensor.dtype for tensor in graph.tensors}
        results = evaluate(graph, initial_values(graph, model, inputs))
        # As close as two orders of sums in bfloat16; in float32 they would differ by 1e-3 of the loss.
        torch.testing.assert_close(results[graph.loss], expected.detach(), rtol=2e-3, atol=1e-4)
        weights = dict(model.named_parameters())
        for parameter in graph.parameters:
            weight = weights[graph.tensors[parameter.tensor].name]
            assert parameter.gradient is not None
            difference = (results[parameter.gradient] - weight.grad).norm() / weight.grad.norm()
            assert difference < 0.05, (graph.tensors[parameter.tensor].name, float(difference))


def test_after_a_capture_autocast_is_torchs_own():
    ax.capture(InRegion(TinyGPT(), "cuda"), (torch.zeros(2, 8).long(), torch.zeros(2, 8).long()))
    with torch.autocast("cpu", dtype=BF16):
        assert torch.softmax(torch.ones(2, 2) @ torch.ones(2, 2), -1).dtype == BF16  # float32 by the rules of a GPU
    assert not any(torch.is_autocast_enabled(device) for device in ("cpu", "cuda"))


def test_the_rules_are_those_of_torchs_header():
    header = (Path(torch.__file__).parent / "include/ATen/autocast_mode.h").read_text()
    lists = {
        "LOWER_PRECISION_FP": kernels.LOWER,
        "FP32": kernels.FULL,
        "FP32_SET_OPT_DTYPE": kernels.FULL_RESULT,
        "PROMOTE": kernels.WIDEST,
    }
    for name, ours in lists.items():
        (body,) = re.findall(rf"#define AT_FORALL_{name}\(_\)\s*\\\n((?:.*\\\n)*.*\n)", header)
        theirs = [".".join(part.split(", ")) for part in re.findall(r"_\(([\w, ]+)\)", body)]
        assert sorted(ours) == sorted(theirs), name
    (body,) = re.findall(r"#define AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE\(_\)((?:.*\\\n)*)", header)
    assert sorted(kernels.FULL_APPENDED) == sorted(re.findall(r'"([\w.]+)"', body))


# Without calls that need a kernel of a GPU even on fake tensors (dot, interpolate).
CALLS = {
    "matmul": lambda x, low: low @ x,
    "einsum": lambda x, low: torch.einsum("ij,jk->ik", x, low),
    "softmax": lambda x, low: low.softmax(-1),
    "softmax in a dtype": lambda x, low: torch.softmax(low, -1, dtype=FP16),
    "layer_norm": lambda x, low: F.layer_norm(low, (4,)),
    "exp": lambda x, low: low.exp(),
    "pow": lambda x, low: low**2,
    "sum": lambda x, low: low.sum(0),
    "norm": lambda x, low: low.norm(),
    "norm of rows": lambda x, low: low.norm(2, -1),
    "mse_loss": lambda x, low: F.mse_loss(low, low),
    "cross_entropy": lambda x, low: F.cross_entropy(low, torch.zeros(4, dtype=torch.long, device=low.device)),
    "addcmul": lambda x, low: torch.addcmul(low, low, x),
    "add": lambda x, low: low + x,
    "relu": lambda x, low: low.relu(),
    "cat": lambda x, low: torch.cat((low, x)),
    "double": lambda x, low: x.double() @ x.double(),
    "integers": lambda x, low: torch.ones(4, 4, dtype=torch.long, device=x.device).sum(),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_call_has_the_dtype_that_torch_gives_it_on_a_gpu(name):
    call = CALLS[name]
    with FakeTensorMode():  # on fake tensors torch runs its own kernels of a GPU, without one
        given = torch.randn(4, 4, device="cuda")
        before = torch.is_autocast_enabled("cuda"), torch.get_autocast_dtype("cuda")
        torch.set_autocast_enabled("cuda", True)
        torch.set_autocast_dtype("cuda", BF16)
        try:
            expected = call(given, given.to(BF16)).dtype
        finally:
            torch.set_autocast_enabled("cuda", before[0])
            torch.set_autocast_dtype("cuda", before[1])
    x = torch.rand(4, 4)
    with autocast_as_written(), torch.autocast("cuda", dtype=BF16):
        assert call(x, x.to(BF16)).dtype == expected
