"""Routed experts under the interpreter: every way to divide them gives the gradients of one process."""

import pytest

from alpa_explore.intra_op.regrets import pinned
from alpa_explore.intra_op.solve import solve
from alpa_explore.intra_op.stage.stage_problem import NodeKind
from tests.programs.cases import Case, at_random, optimal

KINDS = ("alpa_explore.experts.default", "alpa_explore.experts_backward.default")


def dividing(*factors):
    """The fastest choice in which the axes divide these factors of all routed experts."""

    def choose(problem):
        graph, only = problem.stage.layered.graph, {}
        for v, node in enumerate(problem.nodes):
            if node.kind is NodeKind.OPERATOR and graph.operators[node.subject].kind in KINDS:
                only[v] = [i for i, s in enumerate(node.priced.strategies) if s.factors == factors]
        assert len(only) == 4
        assert all(only.values())
        priced = problem.at(inverse_b=1 / 8, memory_price=0.0, microbatches_held=1)
        return solve(pinned(priced, only)).choices

    return choose


PRODUCTS = (
    ("tokens",),
    ("experts",),
    ("inner",),
    ("exchange",),
    ("tokens", "experts"),
    ("experts", "tokens"),
    ("experts", "inner"),
    ("inner", "tokens"),
    ("experts", "experts"),
    ("tokens", "exchange"),
    ("exchange", "tokens"),
    ("exchange", "inner"),
    ("exchange", "exchange"),
)


@pytest.mark.parametrize("factors", PRODUCTS, ids="·".join)
def test_every_division_of_the_experts_equals_the_whole(factors):
    mesh = (4,) if len(factors) == 1 else (2, 2)
    case = Case("routed-experts", num_microbatches=2)
    case.assert_equal(case.program([((0, 3), mesh)], dividing(*factors)))


def test_the_best_strategies_equal_the_whole():
    case = Case("routed-experts", num_microbatches=2)
    case.assert_equal(case.program([((0, 1), (2,)), ((2, 3), (2,))], optimal))


@pytest.mark.parametrize("seed", range(3))
def test_random_strategies_equal_the_whole(seed):
    case = Case("routed-experts", num_microbatches=2)
    case.assert_equal(case.program([((0, 3), (2, 2))], at_random(seed)))
