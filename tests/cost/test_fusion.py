"""Fusion: what a fused kernel reads and writes, and that no group waits for itself."""

import pytest
import torch
from torch import nn

from alpa_explore.cluster import Cluster, logical_mesh
from alpa_explore.cluster.mesh import Submesh
from alpa_explore.cost.fusion import fuse, is_fusible
from alpa_explore.cost.model import CostModel
from alpa_explore.graph import Phase
from alpa_explore.intra_op.stage.layered_graph import assign_layers
from alpa_explore.layering import cluster_operators
from alpa_explore.sharding.spec import local_share
from alpa_explore.tracing.capture import capture


class Chain(nn.Module):
    """A product, three pointwise operators, a product."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(64, 128, bias=False), nn.Linear(128, 32, bias=False)

    def forward(self, x):
        y = self.first(x)
        return (self.second(torch.tanh(y) * 2.0 + 1.0) ** 2).mean()


@pytest.fixture(scope="module")
def graph():
    return capture(Chain(), (torch.zeros(16, 64),))


def fused_forward(graph):
    fused = fuse(graph, [0] * len(graph.operators))
    return [o for o in fused.operators if o.phase is Phase.FORWARD and is_fusible(graph.operators[o.index], graph)]


def test_a_chain_reads_and_writes_once(graph) -> None:
    """tanh is kept for the backward pass and the sum enters a product; what lies between is never stored."""
    tanh, product, total, *_ = fused_forward(graph)
    size = 16 * 128 * 4
    assert [o.kind.split(".")[1] for o in (tanh, product, total)] == ["tanh", "mul", "add"]
    assert (tanh.bytes_accessed, tanh.stored) == (2 * size, True)
    assert (product.bytes_accessed, product.stored) == (0, False)
    assert (total.bytes_accessed, total.stored) == (size, True)
    assert sum(o.launches for o in (tanh, product, total)) == 1


def test_bytes_never_grow_and_products_keep_theirs(graph) -> None:
    fused = fuse(graph, [0] * len(graph.operators))
    for before, after in zip(graph.operators, fused.operators, strict=True):
        assert after.bytes_accessed <= before.bytes_accessed
        if not is_fusible(before, graph):
            assert after == before


def test_a_layer_is_fused_apart_from_the_next(graph) -> None:
    together = fuse(graph, [0] * len(graph.operators))
    apart = fuse(graph, list(range(len(graph.operators))))
    assert sum(o.launches for o in apart.operators) > sum(o.launches for o in together.operators)
    assert all(o.stored for o in apart.operators)


@pytest.mark.slow
@pytest.mark.parametrize("module", ["gpt-tiny", "llama-tiny"])
def test_no_group_depends_on_itself_through_an_operator_outside(module) -> None:
    """Contracting every group must leave an acyclic graph: otherwise its kernel could not run."""
    from alpa_explore.cost.fusion import kernel_groups, producer_behind_views
    from alpa_explore.graph.counts import is_view
    from alpa_explore.planner.microbatch_graph import microbatch_graph

    graph = microbatch_graph(module, 8)
    layered = assign_layers(graph, cluster_operators(graph, 2).layer_of_forward)
    group_of = kernel_groups(graph, layered.layer_of)
    place = [("group", g) if g is not None else ("operator", i) for i, g in enumerate(group_of)]
    computing = [o for o in graph.operators if not is_view(o.kind)]
    after: dict[object, set[object]] = {place[o.index]: set() for o in computing}
    for operator in computing:
        for tensor in operator.inputs:
            producer = producer_behind_views(graph, tensor)
            if producer is not None and place[producer] != place[operator.index]:
                after[place[producer]].add(place[operator.index])
    waiting = {p: sum(p in following for following in after.values()) for p in after}
    ready = [p for p, count in waiting.items() if not count]
    done = 0
    while ready:
        current = ready.pop()
        done += 1
        for following in after[current]:
            waiting[following] -= 1
            if not waiting[following]:
                ready.append(following)
    assert done == len(after), "a cycle"
    assert len(set(map(str, place))) < len(place), "something was fused"


def test_a_gather_moves_the_rows_that_it_writes_however_its_table_is_divided() -> None:
    class Rows(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(4096, 1024)

        def forward(self, index: torch.Tensor) -> torch.Tensor:
            return self.table(index).square().sum()

    graph = capture(Rows(), (torch.zeros(8, 16, dtype=torch.long),), name="rows")
    cluster = Cluster.parse("1x4:h100")
    model = CostModel(cluster.device, logical_mesh(cluster, Submesh(1, 4), (1, 4)).squeezed())
    read = next(o for o in graph.forward_operators if o.kind == "aten.embedding.default")
    written, divided = graph.tensors[read.outputs[0]], set[float]()
    for strategy in model.operator(graph, read.index).strategies:
        share = local_share(strategy.outputs[0], model.mesh.shape)
        moved = model.kernel(read, graph.tensors, strategy).bytes_accessed
        assert moved == pytest.approx(2 * share * written.bytes, rel=0.05)
        divided.add(local_share(strategy.inputs[0], model.mesh.shape))
    assert divided == {0.25, 1.0}


class Resampled(nn.Module):
    """Transforms, a larger image and a solution of equations: each a kernel of a library."""

    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.Conv2d(4, 4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = nn.functional.interpolate(self.mix(x), scale_factor=2, mode="bilinear")
        x = torch.fft.irfft2(torch.fft.rfft2(x) * 2)
        return torch.linalg.inv(x.square() + 9 * torch.eye(x.shape[-1])).square().mean()


def test_kernels_of_libraries_are_not_fused() -> None:
    graph = capture(Resampled(), (torch.randn(8, 4, 6, 6),))
    alone = {o.kind.split(".")[1] for o in graph.operators if o.bytes_accessed and not is_fusible(o, graph)}
    assert {"upsample_bilinear2d_backward", "_fft_r2c", "_fft_c2r", "linalg_inv_ex"} <= alone
    assert not {"mul", "add", "pow"} & alone
