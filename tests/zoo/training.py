"""One module of the zoo, captured, planned, and trained by its plan."""

from __future__ import annotations

from pathlib import Path

import alpa_explore as ax
from alpa_explore.graph import TrainingGraph
from alpa_explore.runtime.reference.one_process import Verification
from tests.zoo.modules import Kind

B = 2


def planned(kind: Kind, cluster: str = "1x4:cpu") -> tuple[ax.Plan, TrainingGraph]:
    """Two stages, or one where the module has but one operator."""
    graph = ax.capture(kind.model, kind.inputs(0))
    count = min(2, len(graph.forward_operators))
    pipeline = ax.PipelineOptions(num_stages=count)
    options = {"num_microbatches": B, "num_layers": count, "delta": 8.0, "scheduler": "serial"}
    return ax.plan(graph, cluster, pipeline=pipeline, **options), graph


def verified(kind: Kind) -> Verification:
    """Loss, gradients and weights of its plan, beside those of the module in plain PyTorch."""
    plan, graph = planned(kind)
    return ax.verify_interpreted(plan, model=kind.model, data=kind.inputs, graph=graph)


def launched(kind: Kind, folder: Path) -> None:
    """Ranks train as one process does, and go on from a checkpoint as if they had never ended. AssertionError."""
    plan, graph = planned(kind)
    own = {"model": kind.model, "data": kind.inputs, "device": "cpu"}
    found = ax.verify(plan, graph=graph, **own)
    assert found.passed, found
    whole = ax.launch(plan, folder=folder / "whole", steps=4, checkpoint_every=2, **own).result()
    first = folder / "whole" / "checkpoints" / "step-000002"
    again = ax.launch(plan, folder=folder / "again", steps=4, resume=first, checkpoint_every=4, **own).result()
    assert [step.loss for step in again.steps] == [step.loss for step in whole.steps][2:]
