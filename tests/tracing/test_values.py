"""The proof of capture: the graph, run operator by operator, gives autograd's loss and gradients."""

import pytest
import torch
from torch import nn

from alpa_explore import models
from alpa_explore.graph import Phase, verify
from alpa_explore.tracing.capture import capture
from alpa_explore.tracing.evaluate import evaluate, initial_values
from tests.tracing.autograd import assert_autograd


@pytest.mark.slow
def test_a_captured_graph_is_well_formed_and_gives_the_loss_and_every_gradient_of_autograd(case):
    model, inputs = case.build(), case.inputs()
    graph = capture(model, inputs, loss=case.loss)
    assert verify(graph) is graph
    assert graph.warnings == ()
    assert_autograd(graph, model, inputs, case.loss)


@pytest.mark.sweep(kept=1, in_turn=True)
@pytest.mark.slow
@pytest.mark.parametrize("name", ["gpt-tiny", "moe-tiny", "wide-resnet-tiny", "mlp-tiny"])
def test_catalogue_models_give_autograds_loss_and_gradients(name):
    model, inputs = models.build(name, 2, device="cpu")
    assert_autograd(capture(model, inputs), model, inputs, rtol=1e-4, atol=1e-6)


def test_dropout_draws_the_same_numbers_as_the_model(gpt_with_dropout):
    model, inputs = gpt_with_dropout
    graph = capture(model, inputs)
    assert any("dropout" in o.kind for o in graph.operators)
    assert_autograd(graph, model, inputs)


def test_a_wrong_weight_changes_the_loss_so_that_the_proof_can_fail(gpt):
    model, inputs = gpt
    graph = capture(model, inputs)
    start = initial_values(graph, model, inputs)
    right = evaluate(graph, start)[graph.loss]
    start[graph.parameters[3].tensor] = start[graph.parameters[3].tensor] + 0.1
    assert not torch.equal(evaluate(graph, start)[graph.loss], right)


@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
def test_sixteen_bit_graphs_hold_no_32_bit_tensors_of_size(gpt, precision):
    model, inputs = gpt
    graph = capture(model, inputs, precision=precision)
    assert graph.precision == precision
    assert model.head.weight.dtype is torch.float32
    wide = {t.name for t in graph.tensors if t.dtype == "float32" and t.elements > 1}
    assert wide == {"attention.1", "attention_1.1"}, "log-sum-exp, one number a query"
    values = evaluate(graph, initial_values(graph, model, inputs))
    assert values[graph.loss].item() == pytest.approx(model(*inputs).item(), rel=2e-2)


def test_tensors_written_in_the_code_keep_their_values():
    class WithTensors(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 4)
            self.table = torch.randn(5000, 1, 4)

        def forward(self, x):
            return (self.layer(x) * self.table).mean() * torch.tensor([2.0, 3.0]).sum()

    model, inputs = WithTensors(), (torch.randn(2, 4),)
    graph = capture(model, inputs)
    assert [t.name for t in graph.tensors if t.kind.value == "constant"] == ["table"]
    assert_autograd(graph, model, inputs)


def test_optimizer_steps_are_not_run_operator_by_operator(gpt):
    from alpa_explore.tracing.aten import run_operator

    model, inputs = gpt
    step = next(o for o in capture(model, inputs).operators if o.phase is Phase.UPDATE and o.kind != "aten.add.Tensor")
    with pytest.raises(ValueError, match="keeps state"):
        run_operator(step, {})
