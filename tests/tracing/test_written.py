"""What a forward pass writes into buffers is part of the graph; what a run cannot write is named, and refused where
losses depend on it."""

import pytest
import torch
from torch import nn

import alpa_explore as ax
from alpa_explore.errors import CaptureError, LayeringError, OptionError
from alpa_explore.graph.document import dump_graph, load_graph
from alpa_explore.graph.written import carried, unbroken, unwritten, written_warnings
from alpa_explore.layering import cluster_operators, manual_layers
from alpa_explore.runtime.launch import describe_run, request_of
from alpa_explore.tracing.capture import capture
from alpa_explore.tracing.evaluate import evaluate, initial_values
from tests.one_layer import OneLayer

X = torch.linspace(-1, 1, 32).reshape(4, 8)


def in_place(module: nn.Module, new: torch.Tensor) -> None:
    with torch.no_grad():
        module.mean.mul_(0.9).add_(new, alpha=0.1)


def by_data(module: nn.Module, new: torch.Tensor) -> None:
    module.mean.data.mul_(0.9).add_(new.data, alpha=0.1)


def by_copy(module: nn.Module, new: torch.Tensor) -> None:
    module.mean.copy_(0.9 * module.mean + 0.1 * new)


def by_part(module: nn.Module, new: torch.Tensor) -> None:
    module.mean[:4] = new[:4]


def by_view(module: nn.Module, new: torch.Tensor) -> None:
    module.mean.view(2, 4)[0].add_(new[:4])


def replaced(module: nn.Module, new: torch.Tensor) -> None:
    module.mean = 0.9 * module.mean + 0.1 * new


class Averaged(nn.Module):
    """Keeps a moving average of what its first layer makes, and a number of steps."""

    def __init__(self, write, *, reads: bool = True, blocks: int = 1) -> None:
        super().__init__()
        self.write, self.reads, self.last = write, reads, nn.Linear(8, 4)
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(blocks))
        for layer in self.layers:
            layer.register_buffer("mean", torch.zeros(8))
            layer.register_buffer("steps", torch.zeros((), dtype=torch.int64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            y = layer(x)
            layer.steps += 1
            self.write(layer, y.detach().mean(0))
            x = torch.tanh(y - layer.mean if self.reads else y)
        return self.last(x).square().sum()


def names(graph) -> list[str]:
    return [one.name for one in graph.written]


@pytest.mark.parametrize("reads", [True, False])
@pytest.mark.parametrize("write", [in_place, by_data, by_copy, by_part, by_view, replaced])
def test_whatever_way_a_buffer_is_written_its_new_value_is_part_of_the_graph(write, reads: bool) -> None:
    model = Averaged(write, reads=reads)
    graph = capture(model, (X,))
    assert names(graph) == ["layers.0.mean", "layers.0.steps"]
    assert (unwritten(graph), written_warnings(graph)) == ((), ())
    assert carried(graph, names(graph)) == (("layers.0.mean",) if reads else ())
    assert not model.layers[0].mean.any(), "capture leaves the model as it was"
    assert load_graph(dump_graph(graph)).written == graph.written
    results = evaluate(graph, initial_values(graph, model, (X,)))
    model(X)
    for one, buffer in zip(graph.written, (model.layers[0].mean, model.layers[0].steps), strict=True):
        torch.testing.assert_close(results[one.value], buffer)


def test_of_many_equal_blocks_all_are_written() -> None:
    model = Averaged(in_place, blocks=12)
    graph = capture(model, (X,))
    assert names(graph) == [f"layers.{i}.{name}" for i in range(12) for name in ("mean", "steps")]
    assert carried(graph, names(graph)) == tuple(f"layers.{i}.mean" for i in range(12))
    results = evaluate(graph, initial_values(graph, model, (X,)))
    model(X)
    for one in graph.written:
        torch.testing.assert_close(results[one.value], model.get_buffer(one.name))


class Normalised(nn.Module):
    def __init__(self, *, also_read: bool) -> None:
        super().__init__()
        self.layer, self.norm, self.also_read = nn.Linear(8, 8), nn.BatchNorm1d(8), also_read

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(self.layer(x))
        return (y * self.norm.running_var if self.also_read else y).square().sum()


def test_running_statistics_are_written_in_training_mode_and_read_in_eval_mode() -> None:
    graph = capture(Normalised(also_read=False).train(), (X,))
    assert names(graph) == ["norm.running_mean", "norm.running_var", "norm.num_batches_tracked"]
    assert carried(graph, names(graph)) == (), "the loss reads the statistics of the batch"
    also_read = capture(Normalised(also_read=True).train(), (X,))
    assert "norm.running_var" in carried(also_read, names(also_read))
    assert names(capture(Normalised(also_read=False).eval(), (X,))) == []


@pytest.mark.parametrize("spectral_norm", [nn.utils.spectral_norm, nn.utils.parametrizations.spectral_norm])
def test_the_vectors_of_a_spectral_norm_are_what_losses_depend_on(spectral_norm) -> None:
    graph = capture(spectral_norm(nn.Linear(8, 4)), (X,), loss=lambda y: y.square().sum())
    assert len(names(graph)) == 2
    assert unwritten(graph) == ()
    assert carried(graph, names(graph))


class Discriminator(nn.Module):
    """Computes real and made samples by the same layers, each of which writes what the next use of it reads."""

    def __init__(self) -> None:
        super().__init__()
        norm = nn.utils.spectral_norm
        self.layers = nn.Sequential(norm(nn.Linear(8, 8)), nn.ReLU(), norm(nn.Linear(8, 1)))

    def forward(self, real: torch.Tensor, made: torch.Tensor) -> torch.Tensor:
        return (1 - self.layers(real)).relu().mean() + (1 + self.layers(made)).relu().mean()


def test_what_reads_and_what_writes_a_buffer_is_in_one_stage() -> None:
    torch.manual_seed(0)
    model = Discriminator()
    inputs = {"real": torch.randn(4, 8), "made": torch.randn(4, 8)}
    graph = capture(model, inputs)
    runs = unbroken(graph)
    assert [name for name, _, _ in runs] == ["layers.0.weight_u", "layers.2.weight_u"], "v follows from u"
    (cut,) = cluster_operators(graph, 2, delta=2.0).cuts
    assert not [run for run in runs if run[1] < cut <= run[2]]
    plan = ax.plan(graph, "1x2:cpu", num_microbatches=2, num_layers=2, delta=2.0, scheduler="serial")
    assert len(plan.stages) == 2
    assert ax.verify_interpreted(plan, model=model, example_inputs=inputs, graph=graph).passed
    with pytest.raises(LayeringError, match=r"4 layers keeps together what writes a buffer.*layers\.0\.weight_u"):
        ax.plan(graph, "1x2:cpu", num_microbatches=2, num_layers=4, delta=1.0, scheduler="serial")
    within = runs[0][1] + 1
    with pytest.raises(LayeringError, match=rf"begins at operator {within}, between .* buffer layers\.0\.weight_u"):
        manual_layers(graph, [within])


def test_layers_may_begin_between_uses_of_a_buffer_that_no_loss_reads() -> None:
    model = nn.Sequential(norm := nn.BatchNorm1d(8), nn.Linear(8, 8), norm)
    assert unbroken(capture(model, (X,), loss=lambda y: y.square().sum())) == ()


class Clipped(OneLayer):
    """Clips its own weight."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.layer.weight.data.clamp_(-0.1, 0.1)
        return self.layer(x).square().sum()


def test_a_trained_weight_that_the_forward_pass_writes_is_refused_and_a_frozen_one_written() -> None:
    with pytest.raises(CaptureError, match=r"layer\.weight"):
        capture(Clipped(8, 4), (X,))
    frozen = Clipped(8, 4)
    frozen.layer.weight.requires_grad_(False)
    graph = capture(frozen, (X,))
    assert (names(graph), unwritten(graph)) == (["layer.weight"], ())


def grows(module: nn.Module, new: torch.Tensor) -> None:
    module.mean = torch.cat([module.mean, new])


def takes_the_input(module: nn.Module, new: torch.Tensor) -> None:
    module.last.copy_(module.given)


class Cached(nn.Module):
    """Writes what a run cannot carry from microbatch to microbatch."""

    def __init__(self, write) -> None:
        super().__init__()
        self.write, self.layer = write, nn.Linear(8, 8)
        self.register_buffer("mean", torch.zeros(8))
        self.register_buffer("last", torch.zeros(4, 8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y, self.given = self.layer(x) + self.last + self.mean.mean(), x
        self.write(self, y.detach().mean(0))
        return y.square().sum()


@pytest.mark.parametrize(("write", "name"), [(grows, "mean"), (takes_the_input, "last")])
def test_a_run_is_refused_by_name_where_it_cannot_write_unless_the_buffers_are_to_stay(write, name: str) -> None:
    model = Cached(write)
    graph = capture(model, (X,))
    assert unwritten(graph) == (name,)
    plan = ax.baseline(graph, "1x2:cpu", "data-parallel", num_microbatches=2, num_layers=1)
    assert any("--frozen-buffers" in warning for warning in plan.warnings)
    own = {"model": model, "example_inputs": (X,), "device": "cpu"}
    with pytest.raises(OptionError, match=rf"{name}.*frozen_buffers=True"):
        describe_run(request_of(plan, **own))
    assert describe_run(request_of(plan, frozen_buffers=True, **own))["ranks"] == (0, 1)


class Remembering(nn.Module):
    """Keeps something in an attribute, in one of several ways."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.layer, self.way, self.calls = nn.Linear(8, 8), way, 0
        self.last = None if way == "none yet" else torch.zeros(8)
        self.table: dict[str, torch.Tensor] = {}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.layer(x)
        if self.way in ("tensor", "none yet"):
            y = y if self.last is None else y + self.last
            self.last = y.detach().mean(0)
        elif self.way == "in a dict":
            y = y + self.table.get("last", 0.0)
            self.table["last"] = y.detach().mean(0)
        elif self.way == "number":
            self.calls += 1
            y = y * (1 + self.calls)
        elif self.way == "for others":
            self.last = y.detach()
        return y.square().sum()


@pytest.mark.parametrize(
    ("way", "name"),
    [("tensor", "last"), ("none yet", "last"), ("in a dict", "table"), ("number", "calls"), ("for others", "")],
)
def test_state_in_attributes_on_which_the_next_call_depends_is_named(way: str, name: str) -> None:
    model = Remembering(way)
    warnings = [w for w in capture(model, (X,)).warnings if "attributes of modules" in w]
    assert [f"({name})" in w for w in warnings] == [True] * bool(name)
    assert (model.calls, model.table) == (0, {}), "capture leaves the model as it was"
