"""What software "compiled" holds is what torch.compile's own partitioner saves for the backward pass."""

import pytest
import torch
import torch._inductor.lowering
from torch import nn
from torch._functorch.aot_autograd import aot_export_joint_simple
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._inductor.decomposition import select_decomp_table
from torch.nn import functional

import alpa_explore as ax
from alpa_explore.cluster import Cluster
from alpa_explore.intra_op.stage.layered_graph import assign_layers

WIDTH, ROWS = 64, 32


class Norm(nn.Module):
    """RMS norm as models spell it out, in float32."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        wide = x.to(torch.float32)
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
        return self.weight * wide.to(x.dtype)


class Gated(nn.Module):
    """Two residual blocks of a norm and a gated feed-forward part."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList(Norm(WIDTH) for _ in range(2))
        self.gates, self.ups = (nn.ModuleList(nn.Linear(WIDTH, 128, bias=False) for _ in range(2)) for _ in range(2))
        self.downs = nn.ModuleList(nn.Linear(128, WIDTH, bias=False) for _ in range(2))

    def forward(self, x):
        for norm, gate, up, down in zip(self.norms, self.gates, self.ups, self.downs, strict=True):
            y = norm(x)
            x = x + down(functional.silu(gate(y)) * up(y))
        return x


class NormedHeads(nn.Module):
    """A norm of each head, as before the product of queries and keys."""

    def __init__(self) -> None:
        super().__init__()
        self.project, self.norm, self.out = nn.Linear(WIDTH, WIDTH), Norm(16), nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        heads = self.norm(self.project(x).view(-1, 4, 16))
        return self.out(heads.reshape(-1, WIDTH))


KINDS = {
    "norms in float32": Gated,
    "norms of heads": NormedHeads,
    "layer norm and GELU": lambda: nn.Sequential(
        nn.Linear(WIDTH, WIDTH), nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 256), nn.GELU(), nn.Linear(256, WIDTH)
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_bytes_held_are_those_that_the_partitioner_saves(kind: str) -> None:
    model = KINDS[kind]().to(torch.bfloat16)
    x = torch.randn(ROWS, WIDTH, dtype=torch.bfloat16)
    graph = ax.capture(model, (x,), loss=_loss)
    software = Cluster.parse("1x1:h100@compiled").software
    layered = assign_layers(graph, (0,) * len(graph.forward_operators), software=software)
    held = sum(layered.graph.tensors[t].bytes for t in layered.held[0])
    assert held == pytest.approx(saved_bytes(model, x), rel=0.03)


def _loss(y: torch.Tensor) -> torch.Tensor:
    return y.float().sum()


def saved_bytes(model: nn.Module, x: torch.Tensor) -> int:
    """Bytes of what the partitioner passes from the forward to the backward pass, without parameters."""
    parameters = dict(model.named_parameters())

    def step(*tensors: torch.Tensor) -> tuple[torch.Tensor]:
        named = dict(zip(parameters, tensors, strict=False))
        return (_loss(torch.func.functional_call(model, named, (tensors[-1],))),)

    arguments = [*(p.detach().clone().requires_grad_() for p in parameters.values()), x]
    joint = aot_export_joint_simple(step, arguments, trace_joint=True, decompositions=select_decomp_table())
    forward, _ = min_cut_rematerialization_partition(
        joint, arguments, num_fwd_outputs=1, compiler="inductor", static_lifetime_input_indices=range(len(parameters))
    )
    (output,) = (node for node in forward.graph.nodes if node.op == "output")
    inputs = [node for node in forward.graph.nodes if node.op == "placeholder"]
    saved = [node for node in output.args[0][1:] if node not in inputs[: len(parameters)]]
    return sum(node.meta["val"].numel() * node.meta["val"].element_size() for node in saved)
