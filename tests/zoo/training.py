"""One module of the zoo, captured, planned, and trained by its plan."""

from pathlib import Path

import alpa_explore as ax
from alpa_explore.graph import TrainingGraph
from alpa_explore.runtime.reference.one_process import Verification
from alpa_explore.runtime.reports import StepReader
from tests.zoo.modules import Kind

B = 2


def planned(kind: Kind, cluster: str = "1x4:cpu", graph: TrainingGraph | None = None) -> tuple[ax.Plan, TrainingGraph]:
    """Two stages, or one where the module has but one operator."""
    graph = graph or ax.capture(kind.model, kind.inputs(0))
    count = min(2, len(graph.forward_operators))
    pipeline = ax.PipelineOptions(num_stages=count)
    options = {"num_microbatches": B, "num_layers": count, "delta": 8.0, "scheduler": "serial"}
    return ax.plan(graph, cluster, pipeline=pipeline, **options), graph


def verified(kind: Kind) -> Verification:
    """Loss, gradients and weights of its plan, beside those of the module in plain PyTorch."""
    plan, graph = planned(kind)
    return ax.verify_interpreted(plan, model=kind.model, data=kind.inputs, graph=graph)


def launched(kind: Kind, folder: Path, cluster: str = "1x4:cpu", graph: TrainingGraph | None = None) -> Verification:
    """Ranks train as one process does, and go on from a checkpoint as if they had never ended. AssertionError."""
    plan, graph = planned(kind, cluster, graph)
    own = {"model": kind.model, "data": kind.inputs, "device": "cpu"}
    whole = folder / "whole"
    found = ax.verify(plan, graph=graph, steps=3, checkpoint_every=2, folder=whole, **own)
    assert found.passed, found
    losses = [step.loss for step in StepReader(whole, tuple(range(found.ranks)))()]
    first = whole / "checkpoints" / "step-000002"
    again = ax.launch(plan, folder=folder / "again", steps=3, resume=first, checkpoint_every=3, **own).result()
    assert [step.loss for step in again.steps] == losses[2:]
    return found
