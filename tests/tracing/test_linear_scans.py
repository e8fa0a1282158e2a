"""RWKV's time mix and Mamba's selective scan are one operator each; loss and gradients are those of the loop."""

import functools

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from alpa_explore.graph.counts import LINEAR_SCANS, packet
from alpa_explore.graph.document import dump_graph, load_graph
from alpa_explore.sharding.splits import splits_for
from alpa_explore.tracing.capture import capture
from alpa_explore.tracing.joint_graph.calls.linear_scans import whole_linear_scans
from tests.tracing.autograd import assert_autograd

SAMPLES, STEPS, CHANNELS, STATES = 2, 5, 3, 4
OF = torch.ops.alpa_explore


def drawn(*shape):
    return torch.randn(shape, dtype=torch.float64, requires_grad=True)


def time_mix(decay, first, key, value):
    """By the definition: a mean over all steps so far, without a state."""
    made = []
    for now in range(key.shape[1]):
        before = torch.arange(now - 1, -1, -1).view(1, now, 1)
        weights = torch.cat([key[:, :now] + decay * before, key[:, now : now + 1] + first], 1).softmax(1)
        made.append((weights * value[:, : now + 1]).sum(1))
    return torch.stack(made, 1)


def scanned(x, delta, a, b, c, d=None, z=None, bias=None, softplus=True):
    """By the definition, step by step."""
    size = delta if bias is None else delta + bias.unsqueeze(1)
    size = F.softplus(size) if softplus else size
    state, made = torch.zeros(*x.shape[:2], a.shape[1], dtype=x.dtype), []
    for t in range(x.shape[2]):
        now = size[:, :, t, None]
        state = torch.exp(now * a) * state + now * x[:, :, t, None] * b[:, None, :, t]
        made.append((state * c[:, None, :, t]).sum(2))
    made = torch.stack(made, 2)
    made = made if d is None else made + x * d.unsqueeze(1)
    return (made if z is None else made * F.silu(z)), state


def of_time_mix():
    torch.manual_seed(0)
    decay = (-torch.rand(CHANNELS, dtype=torch.float64)).requires_grad_()
    return decay, drawn(CHANNELS), drawn(SAMPLES, STEPS, CHANNELS), drawn(SAMPLES, STEPS, CHANNELS)


def of_scan(optional=True):
    torch.manual_seed(0)
    steps = [drawn(SAMPLES, CHANNELS, STEPS) for _ in range(3)]
    a = (-torch.rand(CHANNELS, STATES, dtype=torch.float64)).requires_grad_()
    more = (drawn(CHANNELS), steps[2], drawn(CHANNELS)) if optional else (None, None, None)
    return *steps[:2], a, drawn(SAMPLES, STATES, STEPS), drawn(SAMPLES, STATES, STEPS), *more, optional


@pytest.mark.slow
def test_the_time_mix_is_that_of_its_definition():
    arguments = of_time_mix()
    torch.testing.assert_close(OF.wkv(*arguments), time_mix(*arguments))
    assert torch.autograd.gradcheck(OF.wkv, arguments)
    torch.library.opcheck(OF.wkv.default, arguments)


def test_keys_of_any_size_do_not_overflow():
    decay, first, key, value = (t.detach().float() for t in of_time_mix())
    key = (key * 300).requires_grad_()
    expected = time_mix(*(t.double() for t in (decay, first, key, value)))
    made = OF.wkv(decay, first, key, value)
    torch.testing.assert_close(made.double(), expected, rtol=1e-4, atol=1e-4)
    (gradient,) = torch.autograd.grad(made.sum(), key)
    assert torch.isfinite(gradient).all()


@pytest.mark.slow
@pytest.mark.parametrize("optional", [True, False])
def test_the_selective_scan_is_that_of_its_definition(optional):
    arguments = of_scan(optional)
    for made, expected in zip(OF.selective_scan(*arguments), scanned(*arguments), strict=True):
        torch.testing.assert_close(made, expected)
    assert torch.autograd.gradcheck(lambda *a: OF.selective_scan(*a), arguments)
    assert torch.autograd.gradcheck(lambda *a: OF.selective_scan(*a)[1], arguments)  # the last state alone
    torch.library.opcheck(OF.selective_scan.default, arguments)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gradients_in_other_precisions_have_their_dtype_and_are_near(dtype):
    for function, reference, arguments in ((OF.wkv, time_mix, of_time_mix()), (OF.selective_scan, scanned, of_scan())):
        low = [t.detach().to(dtype).requires_grad_() if isinstance(t, torch.Tensor) else t for t in arguments]
        exact = [t.detach().double().requires_grad_() if isinstance(t, torch.Tensor) else t for t in low]
        results = [f(*given) for f, given in ((function, low), (reference, exact))]
        made, expected = (r[0] if isinstance(r, tuple) else r for r in results)
        assert made.dtype == dtype
        leaves = [[t for t in given if isinstance(t, torch.Tensor)] for given in (low, exact)]
        found = torch.autograd.grad(made.sum(), leaves[0])
        assert [g.dtype for g in found] == [dtype] * len(leaves[0])
        close = {"rtol": 1e-4, "atol": 1e-5} if dtype == torch.float32 else {"rtol": 5e-2, "atol": 5e-2}
        for gradient, exactly in zip(found, torch.autograd.grad(expected.sum(), leaves[1]), strict=True):
            torch.testing.assert_close(gradient.double(), exactly, **close)


def test_their_work_is_that_of_one_kernel_in_proportion_to_the_sequence():
    class Both(nn.Module):
        def __init__(self):
            super().__init__()
            self.decay, self.a = nn.Parameter(torch.randn(8)), nn.Parameter(torch.randn(8, STATES))

        def forward(self, x, b):
            mixed = OF.wkv(self.decay, self.decay, x, x).transpose(1, 2)
            return OF.selective_scan(mixed, mixed, self.a, b, b, None, None, None, True)[0].sum()

    for steps in (16, 32):
        graph = capture(Both(), (torch.randn(4, steps, 8), torch.randn(4, STATES, steps)))
        found = {packet(o.kind).removeprefix("alpa_explore."): o for o in graph.operators}
        elements = 4 * 8 * steps
        assert found["wkv"].flops == 23 * elements
        assert found["wkv_backward"].flops == 53 * elements
        assert found["selective_scan"].flops == 7 * elements * STATES
        assert found["selective_scan_backward"].flops == 20 * elements * STATES
        assert found["wkv"].bytes_accessed == 4 * (2 * elements + 8)  # x once, though it is key and value; decay once
        assert {found[name].launches for name in found} == {1}


CONFIGS = {
    "rwkv": {"hidden_size": 16, "attention_hidden_size": 16, "intermediate_size": 32},
    "mamba": {"hidden_size": 16, "state_size": 4},
    "falcon_mamba": {"hidden_size": 16, "state_size": 4},
}
KINDS = {"rwkv": "wkv", "mamba": "selective_scan", "falcon_mamba": "selective_scan"}


def of_hugging_face(name, positions=6, samples=4):
    """A model of two blocks with its inputs."""
    transformers = pytest.importorskip("transformers", reason="pip install alpa-explore[hf]")
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(name, num_hidden_layers=2, vocab_size=50, **CONFIGS[name])
    model = transformers.AutoModelForCausalLM.from_config(config).train()
    for parameter in model.parameters():
        if not torch.isfinite(parameter).all():  # some are left unset until weights are loaded
            nn.init.normal_(parameter, std=0.05)
    tokens = torch.randint(1, 50, (samples, positions))
    return model, {"input_ids": tokens, "labels": tokens}


@pytest.mark.slow
@pytest.mark.parametrize("name", CONFIGS)
def test_models_of_transformers_have_one_operator_a_block_whatever_the_length(name):
    model, inputs = of_hugging_face(name)
    graph = capture(model, inputs)
    kind = f"alpa_explore.{KINDS[name]}"
    kinds = [packet(o.kind) for o in graph.operators]
    assert sorted(k for k in kinds if k in LINEAR_SCANS) == [kind] * 2 + [f"{kind}_backward"] * 2
    assert len(kinds) == len(capture(*of_hugging_face(name, positions=24)).operators) < 450
    assert not graph.warnings
    assert {splits_for(o, graph.tensors).how for o in graph.operators} == {"rule"}
    assert load_graph(dump_graph(graph)) == graph
    assert_autograd(graph, model, inputs, rtol=1e-4, atol=1e-6)


@pytest.mark.sweep(kept=1, in_turn=True)
@pytest.mark.slow
@pytest.mark.parametrize("name", ["mamba", "rwkv"])
def test_a_function_that_computes_something_else_stays_a_loop(name, monkeypatch):
    model, inputs = of_hugging_face(name, positions=20)
    module = __import__(type(model).__module__, fromlist=["models"])
    place = {"rwkv": "rwkv_linear_attention_cpu", "mamba": "mamba_selective_scan"}[name]
    found = getattr(module, place)

    def twice(*args, **given):
        made = found(*args, **given)
        return (2 * made[0], *made[1:]) if isinstance(made, tuple) else 2 * made

    def needs_more(*args, other, **given):
        return found(*args, **given)

    for function in (twice, functools.partial(needs_more, other=1)):
        monkeypatch.setattr(module, place, function)
        graph = capture(model, inputs)
        assert bool({packet(o.kind) for o in graph.operators} & set(LINEAR_SCANS)) == (function is not twice)
        loops = ["A loop of Python is unrolled"] * (function is twice)
        assert [w.partition(" (")[0] for w in graph.warnings] == loops


def test_a_time_mix_that_keeps_its_state_is_that_of_transformers():
    module = pytest.importorskip("transformers.models.rwkv.modeling_rwkv")
    arguments = [t.detach().float() for t in of_time_mix()]
    expected, state = module.rwkv_linear_attention_cpu(*arguments, return_state=True)
    with whole_linear_scans():
        made, kept = module.rwkv_linear_attention_cpu(*arguments, return_state=True)
        whole, none = module.rwkv_linear_attention_cpu(*arguments)
    torch.testing.assert_close((made, *kept), (expected, *state), rtol=0, atol=0)
    torch.testing.assert_close(whole, expected)
    assert none is None


@pytest.mark.parametrize("name", ["mamba", "falcon_mamba", "jamba", "zamba"])
@pytest.mark.parametrize("whole", [True, False])
def test_every_model_with_a_selective_scan_has_the_same(name, whole):
    module = pytest.importorskip(f"transformers.models.{name}.modeling_{name}")
    x, delta, a, b, c, d, z, bias, _ = (t.detach().float() if isinstance(t, torch.Tensor) else t for t in of_scan())
    options = {"delta_softplus": True, "return_last_state": whole}
    expected, found = module.mamba_selective_scan(x, delta, a, b, c, d, z, bias, **options), module.mamba_selective_scan
    with whole_linear_scans():
        assert module.mamba_selective_scan is not found
        made = module.mamba_selective_scan(x, delta, a, b, c, d, z, bias, **options)
    assert module.mamba_selective_scan is found
    torch.testing.assert_close(made, expected)
