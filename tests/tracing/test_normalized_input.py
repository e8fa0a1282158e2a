"""Batch norm on the input of a model, of which nobody asks the gradient: meta tensors have it nevertheless."""

from __future__ import annotations

import torch
from torch import nn

import alpa_explore as ax
from alpa_explore.tracing.aten import run_on_meta


class OfTable(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.hidden, self.out = nn.BatchNorm1d(16), nn.Linear(16, 16), nn.Linear(16, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(torch.relu(self.hidden(self.norm(x)))).pow(2).mean()


def rows(microbatch: int) -> dict[str, torch.Tensor]:
    return {"x": torch.randn(8, 16, generator=torch.Generator().manual_seed(microbatch))}


def test_ranks_train_a_model_that_normalizes_its_input() -> None:
    model = OfTable()
    graph = ax.capture(model, rows(0))
    backward = next(o for o in graph.operators if o.kind == "aten.native_batch_norm_backward.default")
    assert len(backward.outputs) == 2
    read = {t: graph.tensors[t] for t in backward.inputs}
    _, made = run_on_meta(backward, {t: x.shape for t, x in read.items()}, {t: x.dtype for t, x in read.items()})
    assert [tuple(each.shape) for each in made] == [graph.tensors[t].shape for t in backward.outputs]
    plan = ax.plan(graph, "1x2:cpu", num_microbatches=2, scheduler="serial")
    assert ax.verify_interpreted(plan, model=model, data=rows, graph=graph).passed
