import numpy as np
import pytest

from alpa_explore.intra_op.composition.contraction.contract import optimum
from alpa_explore.intra_op.composition.contraction.dominance import undominated
from alpa_explore.intra_op.elimination.elimination_order import Limits, elimination_order
from alpa_explore.intra_op.problem.sharding_problem import FORBIDDEN, ShardingProblem
from alpa_explore.intra_op.reduction.factor_graph import Contradiction, FactorGraph
from alpa_explore.intra_op.reduction.simplify import components, decompose, simplify
from tests.intra_op.problems import drawn


def problem_of(sizes: list[int], edges: list[tuple[int, int]], seed: int = 0) -> ShardingProblem:
    rng = np.random.default_rng(seed)
    return drawn(sizes, edges, lambda *shape: rng.random(shape), "test")


def complete(count: int) -> list[tuple[int, int]]:
    return [(a, b) for a in range(count) for b in range(a + 1, count)]


def test_a_tree_and_a_cycle_leave_no_core() -> None:
    for edges in ([(0, 1), (1, 2), (1, 3), (3, 4)], [(0, 1), (1, 2), (2, 3), (3, 4), (4, 0)]):
        problem = problem_of([3, 4, 2, 3, 4], edges)
        simplified = simplify(problem)
        assert simplified.nodes == ()
        assert problem.evaluate(simplified.restore(())) == pytest.approx(simplified.constant)


def test_parallel_edges_in_both_directions_become_one_edge() -> None:
    problem = problem_of([3, 4, 5, 6], [*complete(4), (1, 0), (0, 1), (3, 2)])
    core = simplify(problem).core
    assert len(core.edges) == 6
    first = problem.edge_costs[0] + problem.edge_costs[6].T + problem.edge_costs[7]
    assert core.edge_costs[core.edges.index((0, 1))] == pytest.approx(first)


def test_a_node_with_one_strategy_is_folded_into_all_its_neighbours() -> None:
    problem = problem_of([1, 3, 3, 3, 3], complete(5))
    simplified = simplify(problem)
    assert simplified.nodes == (1, 2, 3, 4)
    assert simplified.constant == pytest.approx(problem.node_costs[0][0])


def test_a_strategy_without_a_legal_partner_is_dropped_and_so_is_what_depended_on_it() -> None:
    base = problem_of([2, 2, 2, 2], complete(4))
    matrices = list(base.edge_costs)
    # Strategy 0 of node 1 needs strategy 0 of node 0, which is forbidden on the edge to node 2.
    matrices[0] = np.array([[0.0, FORBIDDEN], [FORBIDDEN, 0.0]])
    matrices[1] = np.array([[FORBIDDEN, FORBIDDEN], [0.0, 0.0]])
    problem = ShardingProblem(name="t", node_costs=base.node_costs, edges=base.edges, edge_costs=tuple(matrices))
    simplified = simplify(problem)
    # Nodes 0 and 1 have one strategy left each; the rest has too few neighbours to stay.
    assert simplified.nodes == ()
    assert simplified.restore(())[:2] == (1, 1)


def test_a_problem_without_a_legal_choice_is_a_contradiction() -> None:
    problem = ShardingProblem(
        name="t", node_costs=(np.zeros(2), np.zeros(2)), edges=((0, 1),), edge_costs=(np.full((2, 2), FORBIDDEN),)
    )
    with pytest.raises(Contradiction):
        simplify(problem)


def test_of_equal_strategies_the_first_stays() -> None:
    table = np.array([[1.0, 2.0], [1.0, 2.0], [2.0, np.inf], [0.0, 5.0]])
    assert undominated(np.array([3.0, 3.0, 3.0, 3.0]), [table]).tolist() == [0, 3]


def test_a_strategy_that_is_forbidden_less_often_is_not_dominated_by_a_cheaper_one() -> None:
    table = np.array([[0.0, np.inf], [5.0, 5.0]])
    assert undominated(np.zeros(2), [table]).tolist() == [0, 1]
    assert undominated(np.array([np.inf, 0.0]), [table]).tolist() == [1]
    assert undominated(np.zeros(2), [np.full((2, 3), np.inf)]).tolist() == []


def test_eliminating_a_node_gives_the_minimum_over_its_strategies() -> None:
    problem = problem_of([4, 3, 2], [(0, 1), (2, 0)])
    graph = FactorGraph(problem)
    assert set(graph.eliminate(0)) == {1, 2}
    ab, ca = problem.edge_costs
    full = problem.node_costs[0][:, None, None] + ab[:, :, None] + ca.T[:, None, :]
    assert (graph.tables[1][2] == graph.tables[2][1].T).all()
    assert graph.tables[1][2] == pytest.approx(full.min(axis=0))


def test_components_have_their_own_numbering() -> None:
    problem = problem_of([2, 3, 4, 5, 6], [(3, 0), (1, 4)])
    parts = components(problem)
    assert [nodes for nodes, _ in parts] == [(0, 3), (1, 4), (2,)]
    assert parts[0][1].edges == ((1, 0),)
    assert parts[1][1].edge_costs[0] is problem.edge_costs[1]
    assert components(ShardingProblem(name="t", node_costs=(), edges=(), edge_costs=())) == ()


def test_the_order_avoids_the_hub_of_a_wheel() -> None:
    rim = [(i, (i + 1) % 12) for i in range(12)]
    order = elimination_order([6] * 13, [*rim, *((12, i) for i in range(12))])
    assert 12 not in order.nodes[:9]
    assert order.largest_table == 6**3


def test_a_node_that_is_kept_stays_with_all_its_strategies() -> None:
    problem = problem_of([3, 3, 3], complete(3))
    kept = simplify(problem, keep=frozenset({0, 1}))
    assert kept.nodes == (0, 1)
    assert [len(c) for c in kept.core.node_costs] == [3, 3]
    assert simplify(problem).nodes == ()


def test_the_choices_of_the_components_are_put_together_to_an_optimal_choice() -> None:
    problem = problem_of([4] * 10, [*complete(5), *((a + 5, b + 5) for a, b in complete(5))])
    parts = decompose(problem)
    assert len(parts.components) == 2
    part_choices = [optimum(part, Limits()) for part in parts.components]
    least = parts.constant + sum(p.evaluate(c) for p, c in zip(parts.components, part_choices, strict=True))
    whole = optimum(problem, Limits())
    assert problem.evaluate(parts.restore(part_choices)) == pytest.approx(problem.evaluate(whole), rel=1e-12)
    assert least == pytest.approx(problem.evaluate(whole), rel=1e-12)
