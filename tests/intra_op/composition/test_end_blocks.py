"""The first and the last block of a stage from the same block inside one: its costs are those of a contraction."""

from dataclasses import replace

import numpy as np
import pytest

from alpa_explore.cluster import Cluster, Submesh, logical_mesh
from alpa_explore.cost.model import CostModel
from alpa_explore.intra_op.composition.block_subproblem import BlockSubproblem, Price
from alpa_explore.intra_op.composition.block_tables import BlockTable, EndContraction
from alpa_explore.intra_op.composition.chain import Chain, chain_of
from alpa_explore.intra_op.composition.compose import Composer
from alpa_explore.intra_op.composition.contraction.contract import contract
from alpa_explore.intra_op.composition.end_blocks import end_block
from alpa_explore.intra_op.stage.layered_graph import assign_layers
from alpa_explore.intra_op.stage.recomputation import Recomputation
from alpa_explore.intra_op.stage.stage_graph import slice_stages
from alpa_explore.layering import cluster_operators
from alpa_explore.planner.microbatch_graph import microbatch_graph
from alpa_explore.sharding.spec_constraint import constraints_of

PRICES = (Price(1.0, 0.0, 1), Price(1 / 8, 1e-12, 3), Price(1e-6, 1e-9, 2))
"""At several B, without a price of memory and with two."""


def chain(name: str, layers: int, *, recomputed: str | None = None, forbidding: bool = False) -> Chain:
    graph = microbatch_graph(name, 4)
    layer_of = cluster_operators(graph, layers, delta=2.0).layer_of_forward
    named = {o.name: ["S0R", "S01R"] for o in graph.forward_operators if "mm" in o.kind} if forbidding else {}
    recomputation = Recomputation.parse(recomputed, layers) if recomputed else None
    return chain_of(assign_layers(graph, layer_of, recomputation, constraints_of(None, named)))


def composer(of: Chain, mesh: tuple[int, int], cluster: str) -> Composer:
    parsed = Cluster.parse(cluster)
    on = logical_mesh(parsed, Submesh(1, mesh[0] * mesh[1]), mesh).squeezed()
    return Composer(of, slice_stages(of.layered), CostModel(parsed.device, on))


def end_tables(composed: Composer) -> list[tuple[BlockSubproblem, BlockTable]]:
    """The blocks at the ends of all ranges, with their tables, after those of the blocks inside."""
    tables = composed.tables(PRICES)
    layers = composed.chain.layered.num_layers
    ranges = [(first, last) for first in range(layers) for last in range(first, layers)]
    parts_of = [composed.chain.parts(*r) for r in ranges if composed.chain.is_chain(*r)]
    for parts in parts_of:
        for triple in zip(parts, parts[1:], parts[2:], strict=False):
            assert tables.table(*triple) is not None
    ends = {}
    for parts in parts_of:
        if len(parts) > 1:
            for triple in ((None, *parts[:2]), (*parts[-2:], None)):
                table = tables.table(*triple)
                ends[table.block] = table
    return list(ends.items())


@pytest.mark.parametrize("mesh", [(1, 2), (2, 2)], ids=str)
@pytest.mark.parametrize(
    ("of", "cluster", "expected_sides"),
    [
        (lambda: chain("gpt-tiny", 4), "1x4:v100", {"first", "last"}),
        (lambda: chain("llama-tiny", 4, recomputed="norms"), "1x4:h100", {"first", "last"}),
        (lambda: chain("mlp-tiny", 3, forbidding=True), "1x4:v100", {"last"}),
    ],
    ids=["gpt-tiny", "llama-tiny, norms computed again", "mlp-tiny, specs forbidden"],
)
def test_a_table_from_the_block_inside_is_that_of_a_contraction(of, cluster, expected_sides, mesh) -> None:
    derived = [
        (block, t)
        for block, t in end_tables(composer(of(), mesh, cluster))
        if isinstance(t.contraction, EndContraction)
    ]
    assert {"first" if not block.left else "last" for block, _ in derived} == expected_sides
    for block, table in derived:
        problem = block.at(PRICES)
        expected = contract(problem, table.contraction.keep)
        np.testing.assert_allclose(table.contraction.table, expected.table, rtol=1e-12)
        prices, states = np.nonzero(np.isfinite(expected.table))
        sides = (np.zeros_like(states), states) if not block.left else (states, np.zeros_like(states))
        choices = table.complete(prices, np.column_stack([np.zeros_like(states), *sides]))
        np.testing.assert_allclose(costs(block, prices, choices), expected.table[prices, states], rtol=1e-12)


def costs(block: BlockSubproblem, prices: np.ndarray, choices: np.ndarray) -> np.ndarray:
    """What these choices cost, term by term."""
    rows = np.arange(len(choices))
    total = np.zeros(len(choices))
    inverse_b, memory_price, held = np.array(PRICES)[prices].T
    for v, node in enumerate(block.problem.nodes):
        at = choices[:, v]
        total += node.microbatch_seconds[at] + inverse_b * node.iteration_seconds[at]
        total += memory_price * (node.weight_bytes[at] + held * node.activation_bytes[at])
    for edge in block.problem.edges:
        seconds = edge.seconds[choices[rows, edge.a], choices[rows, edge.b]] * edge.times
        total += seconds * (inverse_b if edge.each_iteration else 1.0)
    return total


@pytest.mark.parametrize("changed", ["a node inside", "an edge", "a node of the separator"])
def test_what_costs_something_else_is_contracted(changed: str) -> None:
    composed = composer(chain("gpt-tiny", 4), (2, 2), "1x4:v100")
    block, table = next(
        (block, t) for block, t in end_tables(composed) if isinstance(t.contraction, EndContraction) and not block.left
    )
    inner = table.contraction.inner.block
    known = end_block(block, inner)
    assert known is not None
    problem = block.problem
    nodes, edges = list(problem.nodes), list(problem.edges)
    if changed == "an edge":
        place = next(i for i, e in enumerate(edges) if e.a not in known.received)
        edges[place] = replace(edges[place], times=edges[place].times + 1)
    else:
        ends = [v for v, w in enumerate(known.inner_node.tolist()) if w in inner.left and v not in known.received]
        inside = [v for v in block.owned if v not in (*ends, *known.received, *block.right)]
        v = ends[0] if changed == "a node of the separator" else inside[0]
        nodes[v] = replace(nodes[v], microbatch_seconds=nodes[v].microbatch_seconds + 1e-3)
    other = replace(block, problem=replace(problem, nodes=tuple(nodes), edges=tuple(edges)))
    found = end_block(other, inner)
    if changed == "a node of the separator":  # a cost of sending there: in every state so much more
        np.testing.assert_allclose(found.costs(PRICES), known.costs(PRICES) + 1e-3)
    else:
        assert found is None


def test_a_block_with_two_neighbours_or_none_follows_from_no_other() -> None:
    composed = composer(chain("gpt-tiny", 4), (1, 2), "1x4:v100")
    parts = composed.chain.parts(0, 3)
    inner = [composed.cutter.block(*triple) for triple in zip(parts, parts[1:], parts[2:], strict=False)]
    alone = composed.cutter.block(None, parts[2], None)
    assert all(end_block(block, other) is None for block in (*inner, alone) for other in inner)
