"""A model whose sequences are in zig-zag order from its inputs on equals the model as it was captured."""

from collections import Counter

import pytest
import torch
from torch import nn
from torch.nn import functional

from alpa_explore.baselines.roles import Role
from alpa_explore.errors import OptionError
from alpa_explore.graph import Phase, TensorKind
from alpa_explore.programs.check import check
from alpa_explore.sharding.reshard import StepKind
from alpa_explore.sharding.zigzag import in_zigzag_order
from alpa_explore.tracing.capture import capture
from alpa_explore.tracing.evaluate import evaluate
from tests.programs.cases import Case, following

MODEL = "tied llama of 1"


@pytest.mark.slow
@pytest.mark.parametrize(("name", "ordered"), [(MODEL, 4), ("with-sinks", 4), ("mixtral-tiny", 4)])
def test_inputs_and_tables_of_positions_are_ordered_once(name, ordered) -> None:
    case = Case(name, samples=2, parts=2)
    made = [o for o in case.graph.operators if o.kind == "alpa_explore.zigzag.default"]
    assert len(made) == ordered, "tokens, labels, cosines, sines"
    assert all(o.phase is Phase.FORWARD and case.graph.tensors[o.inputs[0]].producer is None for o in made)
    natural, zigzag = (evaluate(graph, case.state) for graph in (case.captured, case.graph))
    torch.testing.assert_close(zigzag[case.graph.loss], natural[case.captured.loss])
    for parameter in case.captured.parameters:
        torch.testing.assert_close(zigzag[parameter.gradient], natural[parameter.gradient], msg=parameter.name)


@pytest.mark.parametrize(("parts", "devices"), [(2, 2), (4, 4), (4, 2)])
@pytest.mark.parametrize("name", [MODEL, "with-sinks"])
def test_a_ring_in_that_order_changes_no_places(name, parts, devices) -> None:
    case = Case(name, samples=1, context="ring-zigzag", parts=parts)
    choose = following(Role.CONTEXT)
    program = case.program([((0, 3), (devices,))], choose)
    check(program)
    case.assert_equal(program)
    problem = case.problem(0, 3, (devices,))
    exchanged = Counter()
    for node, choice in zip(problem.nodes, choose(problem), strict=True):
        if node.priced is not None and "attention" in case.graph.operators[node.subject].kind:
            strategy = node.priced.strategies[choice]
            assert (strategy.factors, strategy.work_share) == (("ring-zigzag",), 1 / devices)
            exchanged.update(e.kind for of_axis in strategy.exchanges for e in of_axis)
    assert set(exchanged) == {StepKind.RING}


class WithoutTheRest(nn.Module):
    """Attention whose heads are split behind their last entry, as where rotary positions turn all of a head."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.heads, self.out = nn.Embedding(32, 16), nn.Linear(16, 16), nn.Linear(16, 32)

    def forward(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        heads = self.heads(self.tokens(tokens)).unflatten(-1, (2, 8)).transpose(1, 2)
        turned = torch.cat((heads[..., :8].sin(), heads[..., 8:]), dim=-1)
        mixed = functional.scaled_dot_product_attention(turned, turned, heads, is_causal=True)
        scores = self.out(mixed.transpose(1, 2).flatten(2))
        return functional.cross_entropy(scores.flatten(0, 1), targets.flatten())


def test_tensors_without_entries_have_no_order() -> None:
    torch.manual_seed(0)
    module, tokens = WithoutTheRest(), torch.randint(32, (2, 16))
    captured = capture(module, (tokens, tokens.roll(-1, 1)))
    assert any(tensor.elements == 0 for tensor in captured.tensors)
    ordered = in_zigzag_order(captured, 2)
    named = dict(module.named_parameters())
    state = {p.tensor: named[p.name].detach() for p in captured.parameters}
    inputs = [t.index for t in captured.tensors if t.kind is TensorKind.INPUT]
    state |= dict(zip(inputs, (tokens, tokens.roll(-1, 1)), strict=True))
    natural, zigzag = (evaluate(graph, state) for graph in (captured, ordered))
    torch.testing.assert_close(zigzag[ordered.loss], natural[captured.loss])


@pytest.mark.parametrize(
    ("name", "parts", "found"),
    [
        ("gpt of 1", 2, "no fused attention"),
        ("fused gpt of 1", 2, "positions"),
        (MODEL, 3, "16 positions for 3 devices"),
        (MODEL, 16, "16 positions for 16 devices"),  # one chunk each
    ],
)
def test_what_depends_on_positions_otherwise_is_refused(name, parts, found) -> None:
    with pytest.raises(OptionError, match=found):
        in_zigzag_order(Case(name, samples=1).captured, parts)
