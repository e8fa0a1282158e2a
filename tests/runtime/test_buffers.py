"""A run writes the buffers that the forward pass writes: microbatch by microbatch, on all ranks, from checkpoint to
checkpoint, as the module does in plain PyTorch."""

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import alpa_explore as ax
from alpa_explore.cli import main
from alpa_explore.errors import OptionError
from alpa_explore.layering import dp
from alpa_explore.planner import default_layering
from alpa_explore.programs.lowering.lower import lower
from alpa_explore.runtime.checkpoints.stored import StoredState
from alpa_explore.runtime.launch import describe_run, request_of

B = 3


def data(number: int) -> tuple[torch.Tensor]:
    return (torch.randn(4, 8, generator=torch.Generator().manual_seed(number)),)


class Block(nn.Module):
    """Every kind of buffer that is written: statistics, an average, a counter, one that only keeps the last value,
    one that is replaced after the backward pass is to read it."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.norm = nn.Linear(8, 8), nn.BatchNorm1d(8)
        self.register_buffer("mean", torch.zeros(8))
        self.register_buffer("scale", torch.ones(8))
        self.register_buffer("most", torch.zeros(()))
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(self.layer(x))
        with torch.no_grad():
            self.mean.mul_(0.9).add_(y.mean(0), alpha=0.1)
            self.steps += 1
            self.most.copy_(y.abs().max())
        y = torch.tanh(y * self.scale - self.mean)
        self.scale = 0.9 * self.scale + 0.1 * y.detach().abs().mean(0)
        return y


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks, self.last = nn.Sequential(Block(), Block()), nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.blocks(x)).square().mean()


def planned(stages: int, cluster: str, *, rematerialization: bool = False) -> tuple[nn.Module, ax.Plan]:
    torch.manual_seed(0)
    model = Model()
    graph = ax.capture(model, data(0), rematerialization=rematerialization)
    options = {"num_microbatches": B, "num_layers": 2, "delta": 4.0, "scheduler": "serial"}
    return model, ax.plan(graph, cluster, pipeline=ax.PipelineOptions(num_stages=stages), **options)


@pytest.mark.parametrize("rematerialization", [False, True])
@pytest.mark.parametrize(("stages", "cluster"), [(1, "1x4:cpu"), (2, "1x2:cpu"), (2, "1x4:cpu")])
def test_buffers_after_each_step_are_those_of_the_module(stages: int, cluster: str, rematerialization: bool) -> None:
    model, plan = planned(stages, cluster, rematerialization=rematerialization)
    checked = ax.verify_interpreted(plan, model=model, data=data)
    assert checked.passed, checked.worst
    assert checked.written == ()
    buffers = {name for name, _ in model.named_buffers()}
    for what, count in (("buffer", 2), ("module buffer", 1)):
        found = [difference.name for difference in checked.differences if difference.what == what]
        assert sorted(found) == sorted([*buffers] * count)


@pytest.mark.parametrize("schedule", ["gpipe", "zb-h1", "dualpipe"])
def test_where_copies_of_the_model_share_the_microbatches_a_run_is_refused(schedule: str) -> None:
    model, plan = planned(2, "1x2:cpu")
    plan = ax.replan(plan, num_microbatches=4) if schedule == "dualpipe" else plan
    frozen = lower(plan, schedule).frozen
    request = request_of(plan, model=model, data=data, device="cpu", schedule=schedule)
    if schedule != "dualpipe":
        assert frozen == ()
        assert ax.verify_interpreted(plan, model=model, data=data, schedule=schedule).passed
        return
    assert set(frozen) == {name for name, _ in model.named_buffers()}
    with pytest.raises(OptionError, match=r"blocks\.0\.mean.*two copies of the model.*schedule 1f1b"):
        describe_run(request)


class Shared(nn.Module):
    """The last layer writes what the first one reads."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(4))
        self.register_buffer("mean", torch.zeros(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x - self.mean
        for layer in self.layers:
            x = torch.tanh(layer(x))
        with torch.no_grad():
            self.mean.mul_(0.9).add_(x.mean(0), alpha=0.1)
        return x.square().mean()


@pytest.fixture
def torn_apart(monkeypatch) -> None:
    """Plans as earlier versions made them: what reads and what writes a buffer may be in two stages."""
    for module in (dp, default_layering):
        monkeypatch.setattr(module, "unbroken", lambda graph: ())


@pytest.mark.usefixtures("torn_apart")
def test_where_one_stage_writes_what_another_reads_a_run_is_refused_by_name() -> None:
    model = Shared()
    graph = ax.capture(model, data(0))
    own = {"model": model, "data": data}
    for stages in (1, 2):
        pipeline = ax.PipelineOptions(num_stages=stages)
        plan = ax.plan(
            graph, "1x2:cpu", num_microbatches=B, num_layers=2, delta=4.0, pipeline=pipeline, scheduler="serial"
        )
        checked = ax.verify_interpreted(plan, **own)
        if stages == 1:
            assert checked.passed
            assert checked.written == ()
        else:
            assert checked.written == ("mean",)
            with pytest.raises(OptionError, match=r"mean.*one stage writes them.*fewer stages"):
                describe_run(request_of(plan, device="cpu", **own))


def test_a_resumed_run_goes_on_with_its_buffers(tmp_path) -> None:
    model, plan = planned(2, "1x2:cpu")
    own = {"model": model, "data": data, "device": "cpu"}
    whole = ax.launch(plan, folder=tmp_path / "whole", steps=4, checkpoint_every=2, **own).result()
    first = tmp_path / "whole" / "checkpoints" / "step-000002"
    again = ax.launch(plan, folder=tmp_path / "again", steps=4, resume=first, checkpoint_every=4, **own).result()
    assert [step.loss for step in again.steps] == [step.loss for step in whole.steps][2:]
    ends = [StoredState(tmp_path / name / "checkpoints" / "step-000004") for name in ("whole", "again")]
    for name, buffer in model.named_buffers():
        a, b = (end.whole(name) for end in ends)
        assert torch.equal(a, b)
        assert not torch.equal(a, buffer), f"{name} is what the module began with"
        if name.endswith(("steps", "num_batches_tracked")):
            assert int(a) == 4 * B


@pytest.mark.usefixtures("torn_apart")
def test_the_command_line_names_the_buffers_that_a_run_leaves(tmp_path, capsys) -> None:
    graph = ax.capture(Shared(), data(0), recipe=f"{__name__}:recipe")
    pipeline = ax.PipelineOptions(num_stages=2)
    options = {"num_microbatches": B, "num_layers": 2, "delta": 4.0, "scheduler": "serial"}
    ax.plan(graph, "1x2:cpu", pipeline=pipeline, **options).save(tmp_path / "plan.json")
    command = [
        "launch",
        str(tmp_path / "plan.json"),
        "--steps",
        "1",
        "--allow-import",
        "--folder",
        str(tmp_path / "run"),
    ]
    assert main(command) == 2
    assert "--frozen-buffers" in capsys.readouterr().err
    command[-1] += "-2"
    assert main([*command, "--frozen-buffers"]) == 0
    assert "1 buffer (mean), which this run leaves at their first values" in capsys.readouterr().err


def recipe() -> tuple[nn.Module, tuple[torch.Tensor]]:
    return Shared(), data(0)


def test_a_verified_run_stays_in_a_folder_that_is_given(tmp_path) -> None:
    model, plan = planned(1, "1x2:cpu")
    own = {"model": model, "data": data, "device": "cpu", "steps": 1}
    with pytest.raises(OptionError, match="record=False"):
        ax.verify(plan, record=False, **own)
    checked = ax.verify(plan, folder=tmp_path / "run", **own)
    assert checked.passed
    assert checked.written == ()
    assert {d.what for d in checked.differences} >= {"buffer", "module buffer"}
    assert (tmp_path / "run" / "run.json").exists()


class Checkpointed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.norm = nn.Linear(8, 8), nn.BatchNorm1d(8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return checkpoint(lambda y: self.norm(self.layer(y)), x, use_reentrant=False).tanh().square().mean()


def test_what_torch_writes_again_when_it_recomputes_a_run_writes_once_and_says_so() -> None:
    model = Checkpointed()
    graph = ax.capture(model, data(0))
    plan = ax.plan(graph, "1x2:cpu", num_microbatches=B, num_layers=1, scheduler="serial")
    assert any("writes 3 buffers (norm.running_mean" in w and "a run only once" in w for w in plan.warnings)
    checked = ax.verify_interpreted(plan, model=model, data=data)
    assert checked.passed, checked.worst
    assert len([d for d in checked.differences if d.what == "module buffer"]) == 3
