"""The text form of a graph."""

import torch
from torch import nn

from alpa_explore.graph.text import to_text
from alpa_explore.tracing.capture import capture

EXPECTED = """\
graph Linear: 9 operators, 12 parameters, 2 samples, 2 tokens, float32, sgd
inputs
  input: float32[2, 4]
  target: float32[2, 3]
parameters
  weight: float32[3, 4] gradient mm_1
forward
  t: float32[4, 3] = aten.permute.default(weight, [1, 0])
  mm: float32[2, 3] = aten.mm.default(input, t)  # 48 FLOP
"""


def small():
    torch.manual_seed(0)
    return capture(nn.Linear(4, 3, bias=False), (torch.randn(2, 4), torch.randn(2, 3)), loss="mse", optimizer="sgd")


def test_the_text_starts_with_inputs_and_parameters_and_lists_one_operator_a_line():
    text = to_text(small())
    lines = text.splitlines()
    assert lines[1:8] == EXPECTED.splitlines()[1:8]
    assert EXPECTED.splitlines()[8] in lines
    assert len([line for line in lines if " = " in line]) == len(small().operators)
    assert lines[-1].startswith("loss ")


def test_sources_appear_only_on_request():
    graph = small()
    assert "at test_text.py:" not in to_text(graph)
    assert "at test_text.py:" in to_text(graph, sources=True)


def test_a_backward_operator_names_its_forward_operator():
    assert "mm_1: float32[3, 4] = aten.mm.default" in to_text(small())
    line = next(line for line in to_text(small()).splitlines() if line.strip().startswith("mm_1:"))
    assert "of mm" in line
