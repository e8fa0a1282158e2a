"""Regrets: equal to brute force, whether they come from the tables of an elimination or from solves."""

import numpy as np
import pytest

from alpa_explore.intra_op.elimination.elimination_order import Limits
from alpa_explore.intra_op.problem.solution import Status
from alpa_explore.intra_op.solve import solve
from alpa_explore.questions.what_if import pinned, strategy_regrets
from tests.intra_op.bounds.test_message_bound import random_problem
from tests.intra_op.problems import legal_choices


@pytest.mark.parametrize("narrow", [True, False])
def test_every_strategy_costs_what_brute_force_finds(narrow, monkeypatch):
    if not narrow:
        monkeypatch.setattr(Limits, "allow", lambda self, order: False)
    rng = np.random.default_rng(21)
    infeasible = impossible = 0
    for _ in range(150 if narrow else 30):
        problem = random_problem(rng)
        costs = {choices: problem.evaluate(choices) for choices in legal_choices(problem)}
        node_regrets = [strategy_regrets(problem, v) for v in range(len(problem.node_costs))]
        if not costs:
            infeasible += 1
            assert all(np.isinf(r).all() for r in node_regrets)
            continue
        least = min(costs.values())
        for v, of_node in enumerate(node_regrets):
            for k, regret in enumerate(of_node):
                costs_with_it = [cost for choices, cost in costs.items() if choices[v] == k]
                impossible += not costs_with_it
                expected = min(costs_with_it) - least if costs_with_it else np.inf
                assert regret == pytest.approx(expected, rel=1e-9, abs=1e-9 * max(least, 1e-12))
    assert impossible > 10
    assert infeasible > 0


def test_a_pinned_node_holds_an_allowed_strategy():
    rng = np.random.default_rng(22)
    for _ in range(60):
        problem = random_problem(rng)
        v = int(rng.integers(len(problem.node_costs)))
        k = int(rng.integers(len(problem.node_costs[v])))
        solution = solve(pinned(problem, {v: [k]}))
        assert solution.status is Status.INFEASIBLE or solution.choices[v] == k
