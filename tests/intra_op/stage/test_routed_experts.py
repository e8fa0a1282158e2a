"""A block of routed experts alone: the solver's choice is the cheapest of all, whichever factors it divides."""

import pytest
import torch
from torch import nn

from alpa_explore.cluster import Cluster, LogicalMesh
from alpa_explore.cost.model import CostModel
from alpa_explore.intra_op.problem.sharding_problem import FORBIDDEN
from alpa_explore.intra_op.solve import solve
from alpa_explore.intra_op.stage.build_problem import build_stage_problem
from alpa_explore.intra_op.stage.layered_graph import assign_layers
from alpa_explore.intra_op.stage.stage_graph import slice_stages
from alpa_explore.models.routed_experts import Gate, routed_experts
from alpa_explore.tracing.capture import capture


class Block(nn.Module):
    """Two matrices an expert; the loss is a sum."""

    def __init__(self, experts, width, inner):
        super().__init__()
        self.up = nn.Parameter(torch.empty(experts, width, inner))
        self.down = nn.Parameter(torch.empty(experts, inner, width))

    def forward(self, tokens, chosen, weights):
        return routed_experts(tokens, chosen, weights, (self.up, self.down), gate=Gate("relu", "plain")).sum()


def problem_of(tokens, experts, width, inner, memory_price=0.0):
    """The sharding problem of a block on two devices."""
    with torch.device("meta"):
        given = (torch.empty(tokens, width), torch.empty(tokens, 2, dtype=torch.long), torch.empty(tokens, 2))
        graph = capture(Block(experts, width, inner), given)
    layered = assign_layers(graph, [0] * len(graph.forward_operators))
    mesh = LogicalMesh((2,), (1e11,), (1e-6,))
    stage = build_stage_problem(slice_stages(layered)(0, 0), CostModel(Cluster.parse("1x2:v100").device, mesh))
    return stage.at(inverse_b=1.0, memory_price=memory_price, microbatches_held=1)


def cheaper(problem, limit):
    """Whether some choice costs less than `limit`: every one is tried, node by node, until its part costs as much."""
    count = len(problem.node_costs)
    least_after = [sum(float(c.min()) for c in problem.node_costs[v:]) for v in range(count + 1)]
    before = [[] for _ in range(count)]
    for (a, b), costs in zip(problem.edges, problem.edge_costs, strict=True):
        before[max(a, b)].append((min(a, b), costs if a < b else costs.T))

    def extend(chosen, cost):
        v = len(chosen)
        if v == count:
            return True
        for k, own in enumerate(problem.node_costs[v]):
            total = cost + own + sum(costs[chosen[u], k] for u, costs in before[v])
            if total < FORBIDDEN and total + least_after[v + 1] < limit and extend([*chosen, k], total):
                return True
        return False

    return extend([], 0.0)


SIZES = {
    # tokens, experts, width, inner, price of memory (seconds a byte)
    "many tokens, small experts": (8192, 4, 64, 64, 0.0),
    "few tokens, large experts": (16, 8, 512, 2048, 0.0),
    "memory is dear": (2048, 8, 128, 512, 1e-10),
    "one expert for each device": (512, 2, 256, 1024, 0.0),
}


@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
def test_no_choice_is_cheaper_than_the_solvers(sizes):
    problem = problem_of(*sizes)
    found = solve(problem).objective
    assert not cheaper(problem, found * (1 - 1e-9))
    assert cheaper(problem, found * (1 + 1e-9))
