"""A model of one's own, trained by a plan in several processes, gets the weights that a plain torch loop gives it."""

import itertools
import resource
import statistics

import pytest
import torch
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

import alpa_explore as ax
from alpa_explore.errors import CaptureError, OptionError, RecipeError
from alpa_explore.models.recipe import build_from_recipe
from alpa_explore.runtime.measured import load_measured
from alpa_explore.runtime.training import OwnModel, training
from tests.execution.tasks import slow
from tests.runtime.states import ended
from tests.runtime.test_resumed import Tied, loss, microbatch

B, STEPS, RATE = 3, 4, 1e-2


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    return Tied()


@pytest.fixture(scope="module")
def plan(model):
    graph = ax.capture(model, microbatch(0), loss, name="tied", optimizer="sgd_momentum")
    return ax.baseline(graph, "1x4:cpu", "megatron", tp=2, dp=1, pp=2, num_microbatches=B, num_layers=2, delta=2.0)


def trained(model):
    """By torch alone."""
    copy = Tied()
    copy.load_state_dict(model.state_dict())
    optimizer = torch.optim.SGD(copy.parameters(), lr=RATE, momentum=0.9)
    for step in range(STEPS):
        optimizer.zero_grad()
        for m in range(B):
            tokens, targets = microbatch(step * B + m)
            (loss(copy(tokens), targets) / B).backward()
        optimizer.step()
    return copy.state_dict()


@pytest.mark.distributed
def test_its_saved_weights_are_those_of_a_plain_loop(model, plan, tmp_path) -> None:
    before = {name: value.clone() for name, value in model.state_dict().items()}
    run = ax.launch(
        plan,
        steps=STEPS,
        learning_rate=RATE,
        save=tmp_path / "weights",
        folder=tmp_path / "run",
        model=model,
        loss=loss,
        data=lambda number: microbatch(number),
        device="cpu",
    )
    assert len(ended(run).steps) == STEPS
    dcp_to_torch_save(tmp_path / "weights", tmp_path / "weights.pt")
    saved = torch.load(tmp_path / "weights.pt")
    wanted = trained(model)
    assert len(plan.stages) == 2
    assert saved.keys() == {"embedding.weight", "up.weight", "up.bias", "down.weight", "down.bias"}
    for name, value in saved.items():
        torch.testing.assert_close(value, wanted[name], rtol=1e-5, atol=1e-6, msg=name)
        assert not torch.equal(value, before[name])
        assert torch.equal(model.state_dict()[name], before[name]), "the user's own model is left as it was"


@pytest.mark.distributed
def test_the_time_that_data_take_is_none_of_a_task(model, tmp_path) -> None:
    graph = ax.capture(model, microbatch(0), loss, name="tied")
    alone = ax.plan(graph, "1x1:cpu", num_microbatches=B, num_layers=1, cache=False)

    def late(number):
        slow(number)
        return microbatch(number)

    own = {"model": model, "loss": loss, "data": late, "device": "cpu"}
    ended(ax.launch(alone, steps=1, folder=tmp_path, **own))
    measured = load_measured(tmp_path)
    assert sum(task.measured_seconds for task in measured.tasks) + B * 0.05 <= measured.measured_iteration_seconds


class Wide(torch.nn.Module):
    """Sums of tensors of 40 MiB, which the C library by itself gives back to the system at once."""

    def __init__(self):
        super().__init__()
        self.bias = torch.nn.Parameter(torch.zeros(1024))

    def forward(self, x):
        return (x + self.bias).relu().mean()


@pytest.mark.distributed
def test_a_step_takes_the_memory_that_the_one_before_freed(tmp_path) -> None:
    """A page fault for every page of every tensor took a sixth of a step."""
    model, x, told = Wide(), torch.zeros(10240, 1024), tmp_path / "faults"

    def data(_):
        with told.open("a") as file:
            print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt, file=file)
        return (x,)

    graph = ax.capture(model, (x,), name="wide")
    alone = ax.plan(graph, "1x1:cpu", num_microbatches=1, num_layers=1, cache=False)
    ended(ax.launch(alone, steps=8, folder=tmp_path / "run", model=model, data=data, device="cpu"))
    faults = [int(line) for line in told.read_text().split()]
    of_steps = [after - before for before, after in itertools.pairwise(faults)]
    pages = x.nbytes // resource.getpagesize()
    # The heap may grow by a tensor once more; without memory that is kept, every step has five times as many.
    assert statistics.median(of_steps[2:]) < pages / 20, of_steps


def test_a_model_without_data_is_refused(plan, model, tmp_path) -> None:
    with pytest.raises(OptionError, match="needs data"):
        ax.launch(plan, model=model, folder=tmp_path / "run")
    with pytest.raises(RecipeError, match="made in a notebook"):
        ax.launch(plan, folder=tmp_path / "run")


def test_made_up_microbatches_differ_and_are_the_same_each_time(plan, model) -> None:
    graph = ax.capture(model, microbatch(0), loss)
    own = OwnModel(model=model, example_inputs=microbatch(0), loss=loss)
    (weights, one), (_, two) = (training(graph, plan.model, own, seed=0, allow_import=False) for _ in range(2))
    tokens = graph.inputs[0]
    assert len(weights) == 5
    assert torch.equal(one(3)[tokens], two(3)[tokens])
    assert len({tuple(one(n)[tokens].flatten().tolist()) for n in range(8)}) == 8


def test_a_microbatch_of_another_shape_is_refused(plan, model) -> None:
    graph = ax.capture(model, microbatch(0), loss)
    own = OwnModel(model=model, example_inputs=None, loss=loss, data=[tuple(t[:2] for t in microbatch(0))])
    _, batches = training(graph, plan.model, own, seed=0, allow_import=False)
    with pytest.raises(CaptureError, match="different shape"):
        batches(0)


def test_a_catalogue_recipe_gives_the_same_weights_and_data_each_time() -> None:
    one, two = (build_from_recipe("mlp-tiny", 4, device="cpu", seed=7) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(one.model.parameters(), two.model.parameters(), strict=True))
    assert torch.equal(one.microbatch(5)[0], two.microbatch(5)[0])
    assert not torch.equal(one.microbatch(5)[0], one.microbatch(6)[0])


def test_a_recipe_of_the_users_own_package_gives_model_and_data(tmp_path, monkeypatch) -> None:
    source = """
import torch

def microbatch(number):
    return torch.full((4, 8), float(number)), torch.zeros(4, 1)

def whole():
    return torch.nn.Linear(8, 1), microbatch(0), "mse", microbatch

def model_alone():
    return torch.nn.Linear(8, 1)
"""
    (tmp_path / "my_package.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    made = build_from_recipe("my_package:whole", 4, allow_import=True)
    graph = ax.capture(made.model, made.example_inputs, made.loss, recipe="my_package:whole")
    plan = ax.plan(graph, "1x1:cpu", num_microbatches=1, num_layers=1)
    (one, batches), (two, _) = (training(graph, plan.model, None, seed=1, allow_import=True) for _ in range(2))
    assert all(torch.equal(one[t], two[t]) for t in one)
    assert [float(batches(n)[graph.inputs[0]][0, 0]) for n in (0, 3)] == [0.0, 3.0]
    with pytest.raises(RecipeError, match="does not make a model"):
        build_from_recipe("my_package:model_alone", 4, allow_import=True)
    with pytest.raises(RecipeError, match="--allow-import"):
        training(graph, plan.model, None, seed=1, allow_import=False)
