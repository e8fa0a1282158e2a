"""The dual bound: never above the optimum, and no strategy of every best choice is pruned."""

import itertools

import numpy as np
import pytest

from alpa_explore.intra_op.descend import is_legal
from alpa_explore.intra_op.message_bound import prune_by_bound, restricted
from alpa_explore.intra_op.problem import FORBIDDEN, ShardingProblem
from alpa_explore.intra_op.solution import Status
from alpa_explore.intra_op.solve import solve


def random_problem(rng):
    nodes = int(rng.integers(2, 7))
    sizes = rng.integers(1, 5, nodes)
    scale = 10.0 ** rng.integers(-7, 5)
    pairs = [p for p in itertools.combinations(range(nodes), 2) if rng.random() < 0.7]
    pairs += [(b, a) for a, b in pairs if rng.random() < 0.2]

    def costs(*shape):
        # Small whole numbers: ties are common.
        found = rng.integers(0, 6, shape) * scale
        found[rng.random(shape) < 0.1] = FORBIDDEN
        return found.astype(float)

    return ShardingProblem(
        name="random", node_costs=tuple(costs(s) for s in sizes), edges=tuple(pairs),
        edge_costs=tuple(costs(sizes[a], sizes[b]) for a, b in pairs),
    )  # fmt: skip


def test_the_bound_holds_and_a_best_choice_is_kept():
    rng = np.random.default_rng(5)
    closed = pruned_some = 0
    for _ in range(400):
        problem = random_problem(rng)
        every = list(itertools.product(*(range(len(c)) for c in problem.node_costs)))
        legal = [c for c in every if is_legal(problem, c)]
        pruned = prune_by_bound(problem)
        if pruned.best is None or not legal:
            assert all(len(k) == len(c) for k, c in zip(pruned.kept, problem.node_costs, strict=True))
            continue
        least = min(map(problem.evaluate, legal))
        slack = 1e-9 * max(least, 1e-12)
        assert pruned.bound <= least + slack
        assert problem.evaluate(pruned.best) >= least - slack
        if pruned.closed:
            closed += 1
            assert problem.evaluate(pruned.best) == pytest.approx(least, rel=1e-11)
        best = [c for c in legal if problem.evaluate(c) <= least + slack]
        for choice in best:
            assert all(c in k for c, k in zip(choice, pruned.kept, strict=True)), "a best choice was pruned"
        smaller = restricted(problem, pruned.kept)
        pruned_some += smaller.variables < problem.variables
        inside = tuple(int(np.searchsorted(k, c)) for k, c in zip(pruned.kept, best[0], strict=True))
        assert smaller.evaluate(inside) == problem.evaluate(best[0])
    assert closed > 100
    assert pruned_some > 100


def test_with_a_gap_the_answer_is_within_it_and_says_so(monkeypatch):
    monkeypatch.setattr("alpa_explore.intra_op.elimination_order.CHEAP_JOINS", -1.0)
    rng = np.random.default_rng(6)
    stopped = 0
    for _ in range(150):
        problem = random_problem(rng)
        exact = solve(problem)
        near = solve(problem, gap=0.2)
        assert (near.status is Status.INFEASIBLE) == (exact.status is Status.INFEASIBLE)
        if exact.choices:
            assert near.objective <= exact.objective / (1 - 0.2) + 1e-12
            assert near.bound <= exact.objective * (1 + 1e-9)
            stopped += near.status is Status.WITHIN_GAP
    assert stopped > 10
