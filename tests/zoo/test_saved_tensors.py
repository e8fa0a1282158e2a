"""A plan of plain PyTorch holds what autograd saves, byte for byte.

Each day a tenth of the kinds of modules is tried; the sweep tries all.
"""

import weakref
from dataclasses import dataclass

import pytest
import torch
from torch.utils._pytree import tree_leaves

import alpa_explore as ax
from alpa_explore.cluster import Cluster
from alpa_explore.graph import TensorKind
from alpa_explore.intra_op.stage.layered_graph import assign_layers
from tests.daily import today
from tests.zoo.built import REFUSED, ZOO

ON_GPUS_ALONE = ("rms norm", "lstm", "gru", "gru last of length", "cells in a loop", "slot attention", "mamba", "rwkv")
"""One kernel on a GPU, several on a CPU."""
TRACED_OTHERWISE = (
    "attention with learned biases",
    "encoder with mask input",
    "nn.Transformer",
    "bag of tokens",
    "embedding bags mean max padding",
    "embedding bag weights",
    "falcon_mamba",
    "stft istft",
    "s4d",
)
"""Masks that a CPU's attention casts, and operators that traces of torch decompose."""
NOT_YET = ("orthogonal", "uncertainty weights", "cholesky svd", "real nvp slogdet", "nt-xent by constant mask")
"""Off by the bytes of an index, a constant, or what a decomposition of a matrix saves."""
NO_PLAIN_STEP = (
    "checkpoint",
    "dict list tuple None inputs",
    "autocast nested off",
    "unregistered module",
    "pinn hessian",
)
"""The hooks see other tensors than the module's own steps, or cannot be used."""
LEFT_OUT = {*ON_GPUS_ALONE, *TRACED_OTHERWISE, *NOT_YET, *NO_PLAIN_STEP, *REFUSED}
EXACT = [name for name in ZOO if name not in LEFT_OUT]
TURN = EXACT[today().toordinal() % 10 :: 10]
EAGER = Cluster.parse("1x1:h100@eager").device.software


@dataclass(eq=False)
class Saved:
    """A tensor that a node of autograd saves, for as long as that node is alive."""

    tensor: torch.Tensor


def saved_bytes(model: torch.nn.Module, inputs: object) -> int:
    """Bytes of all storages that autograd keeps when the forward pass ends, without weights, buffers and inputs; what
    it saved for results that nobody uses, as distances of which only the nearest is taken, is freed by then."""
    own = {
        t.untyped_storage().data_ptr()
        for t in (*model.parameters(), *model.buffers(), *tree_leaves(inputs))
        if torch.is_tensor(t)
    }
    packed = []

    def pack(tensor: torch.Tensor) -> Saved:
        saved = Saved(tensor.detach())
        packed.append(weakref.ref(saved))
        return saved

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda saved: saved.tensor):
        loss = model(**inputs) if isinstance(inputs, dict) else model(*inputs)
    assert loss.grad_fn is not None
    alive = [saved.tensor.untyped_storage() for reference in packed if (saved := reference()) is not None]
    return sum({s.data_ptr(): s.nbytes() for s in alive if s.data_ptr() not in own}.values())


def held_bytes(graph: ax.TrainingGraph) -> int:
    """Bytes that a plan on one device holds for a microbatch, without its inputs."""
    layered = assign_layers(graph, (0,) * len(graph.forward_operators), software=EAGER)
    held = [graph.tensors[t] for t in layered.held[0]]
    beside = sum(o.unfused.kept_bytes for o in layered.graph.operators if o.unfused is not None)
    return beside + sum(t.bytes for t in held if t.kind is not TensorKind.INPUT)


def check(name: str) -> None:
    kind = ZOO[name]()
    inputs = kind.inputs(0)
    assert held_bytes(ax.capture(kind.model, inputs)) == saved_bytes(kind.model, inputs)


@pytest.mark.parametrize(
    "name", ["long convolution by fft", "images made larger", "codebook of averages", "reductions by index"]
)
def test_modules_of_every_day_keep_what_autograd_saves(name: str) -> None:
    check(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", TURN)
def test_modules_of_today_keep_what_autograd_saves(name: str) -> None:
    check(name)


@pytest.mark.slow
@pytest.mark.sweep(kept=0)
@pytest.mark.parametrize("name", EXACT)
def test_modules_keep_what_autograd_saves(name: str) -> None:
    check(name)


class Mixture(torch.nn.Module):
    """Experts of transformers, in the form that it takes by default."""

    def __init__(self) -> None:
        super().__init__()
        moe = pytest.importorskip("transformers.models.mixtral.modeling_mixtral")
        config = moe.MixtralConfig(hidden_size=16, intermediate_size=24, num_local_experts=4, num_experts_per_tok=2)
        config._experts_implementation = "grouped_mm"
        self.experts = moe.MixtralExperts(config)
        self.weights = torch.nn.Parameter(torch.rand(64, 2))
        for parameter in self.experts.parameters():
            torch.nn.init.normal_(parameter)

    def forward(self, tokens: torch.Tensor, chosen: torch.Tensor) -> dict[str, torch.Tensor]:
        rows = self.experts(tokens * self.weights.sum(), chosen, self.weights)
        return {"loss": rows.sum(), "rows": rows}


def test_experts_and_what_a_model_returns_beside_its_loss_are_held() -> None:
    model, tokens = Mixture(), torch.randn(64, 16)
    chosen = torch.stack((torch.arange(64) % 4, (torch.arange(64) + 1) % 4), 1)
    saved: dict[int, torch.Tensor] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        saved[tensor.untyped_storage().data_ptr()] = tensor.detach()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        out = model(tokens, chosen)
    given = {t.untyped_storage().data_ptr() for t in (*model.parameters(), tokens, chosen)}
    expected = sum(t.untyped_storage().nbytes() for place, t in saved.items() if place not in given)
    expected += out["rows"].untyped_storage().nbytes()
    graph = ax.capture(model, (tokens, chosen))
    assert sum(t.kind is TensorKind.RETURNED for t in graph.tensors) == 1
    # The ends of groups are 4 bytes an expert, which the plan does not count; one scalar is a sum of weights.
    assert abs(held_bytes(graph) - expected) <= 64
