"""A model in the middle of training, and checkpoints of it that no process had to train for."""

import json

import torch

import alpa_explore as ax
from alpa_explore.programs.execution.execute import RankExecutor, cut
from alpa_explore.programs.execution.optimizer_step import PieceOptimizer
from alpa_explore.runtime.checkpoints.description import model_digest
from alpa_explore.runtime.checkpoints.keeper import CheckpointKeeper
from alpa_explore.runtime.checkpoints.layout import model_tensors, optimizer_tensors, optimizers_of, shares
from alpa_explore.runtime.checkpoints.stored import StoredState
from alpa_explore.runtime.ranks.checkpoint import StateWriter, boxes_of, restore_optimizers

STEPS = 3


def mlp_plan(kind="gpipe-equal-layers", cluster="1x2:cpu", num_microbatches=2, **more):
    options = {"num_layers": 4, "delta": 1.0, "precision": "float32"} | more
    return ax.baseline("mlp-tiny", cluster, kind, num_microbatches=num_microbatches, **options)


class Trained:
    """A model after some optimizer steps by made-up gradients: the whole tensors that a checkpoint must hold."""

    def __init__(self, graph, state):
        self.graph, self.state = graph, dict(state)
        generator = torch.Generator().manual_seed(1)
        self.gradients = [
            [torch.randn(graph.tensors[p.tensor].shape, generator=generator) for p in graph.parameters]
            for _ in range(STEPS)
        ]
        self.start = dict(state)
        self.wanted = {graph.tensors[t].name: value for t, value in state.items()}
        for place, parameter in enumerate(graph.parameters):
            kind, name = graph.operators[parameter.update].kind, graph.tensors[parameter.tensor].name
            optimizer = self.optimizer(kind, place, tuple((0, n) for n in graph.tensors[parameter.tensor].shape))
            self.state[parameter.tensor] = self.wanted[name] = self.last
            self.wanted |= {f"optimizer.state.{name}.{key}": value for key, value in optimizer.state.items()}

    def optimizer(self, kind, place, box):
        """The optimizer of a box after the steps."""
        weight = cut(self.start[self.graph.parameters[place].tensor], box)
        optimizer = PieceOptimizer(kind, weight, 1e-2)
        for of_step in self.gradients:
            self.last = optimizer.step(cut(of_step[place], box))
        return optimizer

    def ranks(self, program):
        """The ranks of a program in this state."""
        for rank in program.ranks:
            executor = RankExecutor(program, rank, None, self.state, learning_rate=1e-2, seed=0)
            for stage, step in optimizers_of(program, rank):
                executor.optimizers[stage, step.parameter] = self.optimizer(step.kind, step.parameter, step.box)
            yield executor


def facts(program, **more):
    graph = program.graph
    return {
        "model": "of a test",
        "model_digest": model_digest(model_tensors(program)),
        "plan_digest": "",
        "seed": 0,
        "learning_rate": 1e-2,
        "optimizer": sorted({graph.operators[p.update].kind for p in graph.parameters}),
        "samples_per_iteration": 4,
        "stream_samples": 4,
        **more,
    }


def written(folder, program, executors, steps=(STEPS,), **more):
    """The last checkpoint of a run in `folder` whose ranks have this state."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "run.json").write_text(json.dumps({"checkpoints": facts(program, **more)}))
    share, reports = shares(program), []
    for place, executor in enumerate(executors):
        writer = StateWriter(folder, place, executor, share[executor.rank])
        reports += [(executor.rank, {"event": "checkpoint", **writer.state(step)}) for step in steps]
    keeper = CheckpointKeeper(folder, program.ranks, lambda: json.loads(json.dumps(reports)))
    keeper.poll()
    return keeper.kept[-1].folder


def restored(folder, program):
    """The ranks of a program, which go on from a checkpoint."""
    stored = StoredState(folder)
    stored.check_model(model_tensors(program), optimizer_tensors(program))
    for rank in program.ranks:
        executor = RankExecutor(program, rank, None, boxes_of(stored, program), learning_rate=1e-2, seed=0)
        restore_optimizers(stored, executor)
        yield executor


def assert_holds(folder, wanted):
    stored = StoredState(folder)
    assert set(stored.tensors) == set(wanted)
    for name, value in wanted.items():
        found = stored.whole(name)
        assert found.dtype == value.dtype, name
        assert torch.equal(found, value), name
