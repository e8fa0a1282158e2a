"""Spec constraints: the constrained optimum equals brute force, in a stage and composed; structure keys differ."""

from collections.abc import Mapping, Sequence
from functools import cache
from itertools import combinations_with_replacement

import numpy as np
import pytest
import torch
from torch import nn

from alpa_explore.cluster import Cluster, Submesh, logical_mesh
from alpa_explore.cost.model import CostModel
from alpa_explore.formulations.compare import compare_solvers
from alpa_explore.formulations.comparison import StageInstance
from alpa_explore.graph import TrainingGraph
from alpa_explore.intra_op.composition.block_subproblem import Price
from alpa_explore.intra_op.composition.chain import chain_of
from alpa_explore.intra_op.composition.compose import Composer, whole_choice
from alpa_explore.intra_op.problem.sharding_problem import ShardingProblem
from alpa_explore.intra_op.problem.solution import Status
from alpa_explore.intra_op.solve import solve
from alpa_explore.intra_op.stage.build_problem import build_stage_problem
from alpa_explore.intra_op.stage.layered_graph import LayeredGraph, assign_layers
from alpa_explore.intra_op.stage.stage_graph import slice_stages
from alpa_explore.intra_op.stage.stage_problem import NodeKind, StageProblem
from alpa_explore.layering import cluster_operators, manual_layers
from alpa_explore.planner.microbatch_graph import microbatch_graph
from alpa_explore.plans.describe import node_specs
from alpa_explore.sharding.spec import render
from alpa_explore.sharding.spec_constraint import ConstraintKind, SpecConstraint, constraints_of
from alpa_explore.tracing.capture import capture

B = 0.25
PRICE = Price(B, 0.0, 1)


class Same(nn.Module):
    """`count` equal blocks."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.Linear(64, 64, bias=False) for _ in range(count))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = torch.relu(block(x))
        return x.square().sum()


@cache
def graph_of(count: int) -> TrainingGraph:
    with torch.device("meta"):
        return capture(Same(count), (torch.empty(4096, 64),))


def layered(count: int, spec_constraints: Sequence[SpecConstraint] = ()) -> LayeredGraph:
    graph = graph_of(count)
    places = manual_layers(graph, [f"blocks.{i}" for i in range(1, count)]).layer_of_forward
    return assign_layers(graph, places, None, spec_constraints)


def model_on(shape: tuple[int, int]) -> CostModel:
    cluster = Cluster.parse("1x4:v100")
    return CostModel(cluster.device, logical_mesh(cluster, Submesh(1, shape[0] * shape[1]), shape).squeezed())


def products(graph: TrainingGraph) -> list[str]:
    return [o.name for o in graph.operators if "mm" in o.kind]


def least(problem: ShardingProblem, left: Mapping[int, Sequence[bool]]) -> float:
    """The optimum by brute force; nodes in `left` have only those strategies."""
    total = np.zeros([len(costs) for costs in problem.node_costs])

    def along(array: np.ndarray, *nodes: int) -> np.ndarray:
        array = array if nodes == tuple(sorted(nodes)) else array.T
        return array.reshape([size if v in nodes else 1 for v, size in enumerate(total.shape)])

    for v, costs in enumerate(problem.node_costs):
        total = total + along(np.where(left.get(v, np.ones(len(costs), bool)), costs, np.inf), v)
    for (a, b), costs in zip(problem.edges, problem.edge_costs, strict=True):
        total = total + along(costs, a, b)
    return float(total.min())


def output_specs(problem: StageProblem, name: str) -> tuple[int, list[str]]:
    """The node of an operator, and in plain letters what its strategies make of a matrix on one axis."""
    operators = problem.stage.layered.graph.operators
    (v,) = [i for i, n in enumerate(problem.nodes) if n.kind is NodeKind.OPERATOR and operators[n.subject].name == name]
    priced = problem.nodes[v].priced
    assert priced is not None
    letters = {(0,): "S0R", (1,): "RS0", (-1,): "RR", (-2,): "RR+P0"}
    return v, [letters[s.outputs[0]] for s in priced.strategies]


@pytest.mark.parametrize("kind", list(ConstraintKind))
@pytest.mark.parametrize("name", ["mm", "relu", "mm_4"])
def test_the_optimum_is_that_of_the_strategies_that_are_left(kind: ConstraintKind, name: str) -> None:
    model = model_on((1, 2))
    free = build_stage_problem(slice_stages(layered(2))(0, 0), model)
    v, specs = output_specs(free, name)
    assert len(set(specs)) == 3
    unconstrained = solve(free.at(inverse_b=B, memory_price=0.0, microbatches_held=1)).objective
    objectives = {}
    for spec in set(specs):
        constraint = SpecConstraint(operator=name, kind=kind, spec=spec)
        stage = slice_stages(layered(2, [constraint]))(0, 0)
        constrained = build_stage_problem(stage, model).at(inverse_b=B, memory_price=0.0, microbatches_held=1)
        left = [(s == spec) is (kind is ConstraintKind.PIN) for s in specs]
        expected = least(free.at(inverse_b=B, memory_price=0.0, microbatches_held=1), {v: left})
        answer = solve(constrained)
        objectives[spec] = answer.objective
        assert answer.objective == pytest.approx(expected, rel=1e-9)
        assert left[answer.choices[v]]
        assert answer.objective >= unconstrained * (1 - 1e-9), "a spec constraint makes nothing faster"
    if kind is ConstraintKind.PIN:
        assert min(objectives.values()) == pytest.approx(unconstrained), "to pin what is best changes nothing"
        assert max(objectives.values()) > unconstrained * (1 + 1e-6)


def test_an_update_can_be_pinned_as_other_operators_can() -> None:
    graph, model = graph_of(2), model_on((1, 2))
    update = graph.operators[graph.parameters[0].update]
    for letter, placement in (("S0R", 0), ("RS0", 1), ("RR", -1)):
        constraint = SpecConstraint(operator=update.name, kind=ConstraintKind.PIN, spec=letter)
        problem = build_stage_problem(slice_stages(layered(2, [constraint]))(0, 1), model)
        choices = solve(problem.at(**PRICE._asdict())).choices
        node, choice = next(
            (n, c)
            for n, c in zip(problem.nodes, choices, strict=True)
            if n.kind is NodeKind.UPDATE and graph.parameters[n.subject].update == update.index
        )
        assert node.priced.strategies[choice].outputs[0] == (placement,)


@pytest.mark.parametrize("kind", list(ConstraintKind))
def test_the_optimum_is_that_of_the_specs_of_a_weight_that_are_left(kind: ConstraintKind) -> None:
    model, weight = model_on((1, 2)), "blocks.0.weight"
    free = build_stage_problem(slice_stages(layered(2))(0, 0), model)
    (v,) = [i for i, n in enumerate(free.nodes) if n.kind is NodeKind.WEIGHT]
    specs = [render(spec, 2) for spec in node_specs(free, free.nodes[v])]
    assert set(specs) == {"RR", "S0R", "RS0"}
    unconstrained = solve(free.at(inverse_b=B, memory_price=0.0, microbatches_held=1)).objective
    objectives = []
    for spec in specs:
        constraint = SpecConstraint(operator=weight, kind=kind, spec=spec)
        stage = slice_stages(layered(2, [constraint]))(0, 0)
        answer = solve(build_stage_problem(stage, model).at(inverse_b=B, memory_price=0.0, microbatches_held=1))
        left = [(s == spec) is (kind is ConstraintKind.PIN) for s in specs]
        expected = least(free.at(inverse_b=B, memory_price=0.0, microbatches_held=1), {v: left})
        assert answer.objective == pytest.approx(expected, rel=1e-9)
        assert left[answer.choices[v]]
        objectives.append(answer.objective)
    assert min(objectives) == pytest.approx(unconstrained), (
        "to pin what is best, or to forbid what is not, changes nothing"
    )
    assert max(objectives) > unconstrained * (1 + 1e-6)


@pytest.mark.parametrize("mesh", [(1, 2), (2, 2)])
@pytest.mark.parametrize("constrained", ["pin", "forbid", "out of reach", "stored"])
def test_composed_ranges_satisfy_spec_constraints_of_one_of_several_equal_blocks(
    mesh: tuple[int, int], constrained: str
) -> None:
    count, name = 5, products(graph_of(5))[2]
    spec_constraints = {
        "pin": constraints_of({name: "RS0" if mesh == (1, 2) else "RS01"}),
        "forbid": constraints_of(None, {name: ["S0R", "S01R"]}),
        "out of reach": constraints_of({name: "RS7"}),
        "stored": constraints_of({"blocks.2.weight": "RS0"}),
    }[constrained]
    model = model_on(mesh)
    ranges = list(combinations_with_replacement(range(count), 2))
    graphs = layered(count), layered(count, spec_constraints)
    costs = []
    for graph in graphs:
        chain, stage_of = chain_of(graph), slice_stages(graph)
        (composed,) = Composer(chain, stage_of, model).solve(ranges, [PRICE])
        assert set(composed) == set(ranges)
        costs.append({})
        for r, best in composed.items():
            problem = build_stage_problem(stage_of(*r), model)
            priced = problem.at(**PRICE._asdict())
            separate = solve(priced)
            if best is None:
                assert separate.status is Status.INFEASIBLE
                continue
            assert best.cost == pytest.approx(separate.objective, rel=1e-9)
            assert priced.evaluate(whole_choice(chain, problem, best.block_choices)) == pytest.approx(
                best.cost, rel=1e-9
            )
            costs[-1][r] = best.cost
    free, held = costs
    with_it = [r for r in ranges if r[0] <= 2 <= r[1]]
    for r in ranges:
        if r not in with_it:
            assert held[r] == free[r], "there is no spec constraint on these layers"
        elif constrained == "out of reach":
            assert r not in held
        else:
            assert held[r] >= free[r] * (1 - 1e-9)
    assert constrained == "out of reach" or any(held[r] > free[r] * (1 + 1e-6) for r in with_it)


@pytest.mark.slow
def test_a_weight_that_is_tied_over_a_composed_range_is_stored_as_is_constrained() -> None:
    graph, model = microbatch_graph("gpt-tiny", 8), model_on((1, 2))
    places = cluster_operators(graph, 3, delta=1.0).layer_of_forward
    costs = []
    for spec in ("RR", "RS0"):
        constrained = assign_layers(graph, places, None, constraints_of({"embedding.tokens.weight": spec}))
        stage_of = slice_stages(constrained)
        (composed,) = Composer(chain_of(constrained), stage_of, model).solve([(0, 2)], [PRICE])
        best, problem = composed[0, 2], build_stage_problem(stage_of(0, 2), model)
        assert best.cost == pytest.approx(solve(problem.at(**PRICE._asdict())).objective, rel=1e-9)
        costs.append(best.cost)
    assert costs[1] > costs[0] * (1 + 1e-6)


def test_a_spec_constraint_changes_the_keys_of_the_stages_that_hold_it_and_no_others() -> None:
    name = products(graph_of(4))[1]
    plain = slice_stages(layered(4))
    keys = set()
    of_weight = constraints_of({"blocks.1.weight": "S0R"})
    for spec_constraints in (
        constraints_of({name: "S0R"}),
        constraints_of({name: "RS0"}),
        constraints_of(None, {name: "S0R"}),
        of_weight,
    ):
        constrained = slice_stages(layered(4, spec_constraints))
        for r in combinations_with_replacement(range(4), 2):
            same = plain(*r).structure_key == constrained(*r).structure_key
            assert same is not (r[0] <= 1 <= r[1])
        keys.add(constrained(1, 1).structure_key)
        assert constrained(1, 2).structure_key != constrained(2, 3).structure_key
    assert len(keys) == 4


@pytest.mark.slow
def test_formulations_are_compared_without_spec_constraints() -> None:
    name, model = products(graph_of(2))[0], model_on((2, 2))
    rows = []
    for spec_constraints in ((), constraints_of({name: "RR+P01", "blocks.0.weight": "RS7"})):
        stage = slice_stages(layered(2, spec_constraints))(0, 0)
        instance = StageInstance(stage=stage, device=model.device, mesh=model.mesh, inverse_b=B)
        rows.append([(r.solver, r.objective_seconds) for r in compare_solvers(instance, ["auto", "independent"]).rows])
    assert rows[0] == rows[1]
