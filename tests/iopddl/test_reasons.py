import numpy as np

from alpa_explore.intra_op.problem.sharding_problem import FORBIDDEN, ShardingProblem
from alpa_explore.iopddl.reasons import conflicting_nodes

SAME = np.array([[0.0, FORBIDDEN], [FORBIDDEN, 0.0]])
OTHER = np.array([[FORBIDDEN, 0.0], [0.0, FORBIDDEN]])


def chain(count: int, *last: tuple[int, int]) -> ShardingProblem:
    edges = [*((i, i + 1) for i in range(count - 1)), *last]
    return ShardingProblem(
        name="chain",
        node_costs=tuple(np.ones(2) for _ in range(count)),
        edges=tuple(edges),
        edge_costs=tuple([SAME] * (count - 1) + [OTHER] * len(last)),
    )


def test_a_feasible_problem_has_no_conflict() -> None:
    assert conflicting_nodes(chain(9)) == ()


def test_the_nodes_of_an_impossible_cycle_are_named_and_no_others() -> None:
    assert conflicting_nodes(chain(40, (12, 17))) == (12, 13, 14, 15, 16, 17)


def test_a_node_with_only_forbidden_strategies_is_named_alone() -> None:
    problem = chain(5)
    costs = (*problem.node_costs[:3], np.full(2, FORBIDDEN), problem.node_costs[4])
    broken = ShardingProblem(name="t", node_costs=costs, edges=problem.edges, edge_costs=problem.edge_costs)
    assert conflicting_nodes(broken) == (3,)
