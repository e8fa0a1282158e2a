"""Captured graphs: phases, forward operators, source lines, parameters, counts; the model is not changed."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
import torch
from torch import nn

from alpa_explore.graph import Phase, TensorKind
from alpa_explore.models.catalog import entry
from alpa_explore.tracing.capture import capture
from alpa_explore.tracing.catalogue import catalogue_graph
from tests.one_layer import OneLayer


def named(graph, name):
    return next(o for o in graph.operators if o.name == name)


def test_a_backward_operator_lies_in_the_module_of_its_forward_operator(gpt):
    model, inputs = gpt
    graph = capture(model, inputs)
    for operator in graph.operators:
        if operator.kind == "aten.gelu_backward.default":
            assert graph.operators[operator.forward].kind == "aten.gelu.default"
        if operator.phase is Phase.BACKWARD:
            assert operator.module == graph.operators[operator.forward].module
    modules = {o.module for o in graph.operators if o.kind == "aten.gelu_backward.default"}
    assert modules == {"mlp.0.2", "mlp.1.2"}


def test_a_sum_of_gradients_follows_the_producer_of_the_tensor_it_accumulates(gpt):
    model, inputs = gpt
    graph = capture(model, inputs)
    sums = [o for o in graph.operators if o.phase is Phase.BACKWARD and o.kind == "aten.add.Tensor"]
    residuals = [o for o in graph.forward_operators if o.kind == "aten.add.Tensor" and not o.module.endswith("out")]
    followed = [graph.operators[o.forward] for o in sums]
    # x after the embeddings and after each residual addition is read twice, but the last one only once.
    x_additions = [o for o in residuals if graph.tensors[o.outputs[0]].shape == (2, 8, 16)]
    assert [o.index for o in followed] == [o.index for o in x_additions[-2::-1]]


def test_products_of_attention_keep_heads_as_a_dim_and_their_forward_operators(spelled_out_gpt):
    model, inputs = spelled_out_gpt
    graph = capture(model, inputs)
    products = [o for o in graph.operators if o.kind == "aten.matmul.default"]
    assert len(products) == 2 * (2 + 4)
    assert all(len(graph.tensors[o.outputs[0]].shape) == 4 for o in products)
    for operator in products:
        if operator.phase is Phase.BACKWARD:
            assert graph.operators[operator.forward].kind == "aten.matmul.default"


def test_the_sum_of_a_tied_weights_gradients_belongs_to_the_update(gpt):
    model, inputs = gpt
    graph = capture(model, inputs)
    tied = next(p for p in graph.parameters if p.name == "tokens.weight")
    total = graph.operators[graph.tensors[tied.gradient].producer]
    assert total.kind == "aten.add.Tensor"
    assert total.phase is Phase.UPDATE
    assert graph.tensors[tied.gradient].kind is TensorKind.GRADIENT
    makers = {graph.operators[graph.tensors[t].producer].kind for t in total.inputs}
    assert makers == {"aten.mm.default", "aten.embedding_dense_backward.default"}
    assert "head.weight" not in {p.name for p in graph.parameters}
    assert graph.parameter_count == sum(p.numel() for p in model.parameters())


def test_forward_operators_have_their_source_line(gpt):
    model, inputs = gpt
    sources = {o.source.split(":")[0] for o in capture(model, inputs).forward_operators}
    assert sources == {"conftest.py"}


def test_counts_of_a_small_model_equal_those_computed_by_hand():
    graph = capture(nn.Linear(4, 3, bias=False), (torch.randn(2, 4), torch.randn(2, 3)), loss="mse", optimizer="sgd")
    products = [o for o in graph.operators if o.kind == "aten.mm.default"]
    assert [o.flops for o in products] == [2 * 2 * 4 * 3] * 2  # forward, and the weight's gradient
    assert products[0].bytes_accessed == 4 * (2 * 4 + 4 * 3 + 2 * 3)
    update = graph.operators[graph.parameters[0].update]
    assert (update.kind, update.flops, update.bytes_accessed) == ("optimizer.sgd", 2 * 12, 4 * 12 * 3)


@pytest.mark.parametrize(
    ("optimizer", "precision", "state"),
    [("adam", None, 8), ("adamw", "float16", 12), ("sgd", None, 0), ("sgd", "bfloat16", 4), ("sgd_momentum", None, 4)],
)
def test_optimizer_state_has_an_fp32_master_copy_for_16_bit_weights(gpt, optimizer, precision, state):
    model, inputs = gpt
    graph = capture(model, inputs, optimizer=optimizer, precision=precision)
    assert {p.state_bytes_per_element for p in graph.parameters} == {state}
    assert graph.optimizer == optimizer


def test_capture_does_not_change_the_model(conv_net):
    before = {name: (id(t), t._version) for name, t in conv_net.state_dict(keep_vars=True).items()}
    inputs = (torch.randn(4, 3, 8, 8), torch.randint(5, (4,)))
    random_state = torch.get_rng_state()
    capture(conv_net, inputs, loss="cross_entropy")
    assert torch.equal(random_state, torch.get_rng_state())
    assert {name: (id(t), t._version) for name, t in conv_net.state_dict(keep_vars=True).items()} == before
    assert all(p.grad is None for p in conv_net.parameters())
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in conv_net.modules())


def test_a_failed_capture_does_not_change_the_model():
    class Reads(OneLayer):
        def forward(self, x):
            return self.layer(x).sum() * float(x.sum())

    model = Reads(4, 4)
    before = dict(model.named_parameters())
    with pytest.raises(Exception, match="cannot be traced"):
        capture(model, torch.randn(2, 4))
    assert all(p is before[name] for name, p in model.named_parameters())
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


@pytest.mark.slow
def test_meta_fake_and_real_parameters_give_the_same_graph(gpt):
    from torch._subclasses import FakeTensorMode

    model, inputs = gpt
    real = capture(model, inputs)
    with torch.device("meta"):
        meta_model = type(model)()
    with FakeTensorMode():
        fake_model = type(model)()
    meta_inputs = tuple(t.to("meta") for t in inputs)
    assert capture(meta_model, meta_inputs).operators == real.operators
    assert capture(fake_model, meta_inputs).operators == real.operators


def test_frozen_and_unused_parameters_are_frozen_weights():
    class Partly(nn.Module):
        def __init__(self):
            super().__init__()
            self.frozen, self.used, self.unused = (nn.Linear(4, 4) for _ in range(3))
            self.frozen.requires_grad_(False)

        def forward(self, x):
            return self.used(self.frozen(x)).sum()

    graph = capture(Partly(), torch.randn(2, 4))
    kinds = {t.name: t.kind for t in graph.tensors if t.producer is None}
    assert kinds["frozen.weight"] is TensorKind.FROZEN
    assert kinds["unused.weight"] is TensorKind.FROZEN
    assert {p.name for p in graph.parameters} == {"used.weight", "used.bias"}
    (warning,) = graph.warnings
    assert "unused.weight" in warning


def test_samples_and_tokens_come_from_the_example_inputs(gpt, conv_net):
    model, inputs = gpt
    graph = capture(model, inputs)
    assert (graph.samples, graph.tokens) == (2, 16)
    images = (torch.randn(4, 3, 8, 8), torch.randint(5, (4,)))
    graph = capture(conv_net, images, loss="cross_entropy")
    assert (graph.samples, graph.tokens) == (4, 4)


def test_eval_mode_is_captured_with_a_warning(gpt_with_dropout):
    model, inputs = gpt_with_dropout
    graph = capture(model.eval(), inputs)
    assert not any("dropout" in o.kind for o in graph.operators)
    assert "eval mode" in graph.warnings[0]


def test_a_model_written_for_a_gpu_is_captured_without_one():
    class OnGpu(OneLayer):
        def forward(self, x):
            return (self.layer(x.to("cuda")) + torch.arange(4, device="cuda")).sum()

    assert capture(OnGpu(4, 4), torch.randn(2, 4)).parameter_count == 20


@pytest.mark.slow
def test_capture_is_the_same_every_time(gpt):
    model, inputs = gpt
    assert capture(model, inputs) == capture(model, inputs)


@pytest.mark.slow
def test_a_39_billion_parameter_model_is_captured_in_seconds_without_its_memory():
    import resource
    import time

    class Block(nn.Module):
        def __init__(self, hidden):
            super().__init__()
            self.norm, self.inner, self.outer = (
                nn.LayerNorm(hidden),
                nn.Linear(hidden, 4 * hidden),
                nn.Linear(4 * hidden, hidden),
            )

        def forward(self, x):
            return x + self.outer(torch.relu(self.inner(self.norm(x))))

    with torch.device("meta"):
        model = nn.Sequential(*(Block(8192) for _ in range(73)))
        inputs = (torch.empty(1, 1024, 8192), torch.empty(1, 1024, 8192))
    before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    graph = capture(model, inputs, loss="mse", precision="float16")
    assert graph.parameter_count > 39e9
    assert time.process_time() - start < 30
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 500_000  # KiB


@pytest.mark.slow
def test_captures_at_once_give_the_same_graph() -> None:
    together = Barrier(2)

    def captured(name: str) -> object:
        together.wait()
        return catalogue_graph(entry(name), 4)

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(captured, ["gpt-tiny", "gpt-tiny"])
    assert first == second
