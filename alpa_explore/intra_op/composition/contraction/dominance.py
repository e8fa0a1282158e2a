"""A problem without the strategies that are never better than another one of their node, at every price.

A strategy k of a node that is minimised out is dropped when for some k' that stays, at each price,

    costs[k'] − costs[k] + Σ_edges max_j (edge[k', j] − edge[k, j]) ≤ 0

(the rule of `intra_op.reduction.dominance`). The table over the kept nodes stays the same. Blocks of transformers keep
about half of their strategies, and a contraction then takes a third to a tenth of the steps.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from alpa_explore.intra_op.composition.contraction import dominance_kernels, tuning
from alpa_explore.intra_op.composition.contraction.priced_problem import (
    COMMON,
    PRICED,
    CostLocation,
    PricedProblem,
    ProblemForm,
)
from alpa_explore.numerics.arrays import Flags, Ints


def without_dominated(problem: PricedProblem, keep: Sequence[int]) -> tuple[PricedProblem, tuple[Ints, ...]]:
    """`problem` with fewer strategies of the nodes that are not in `keep`, and for every node those that are left."""
    form = problem.form
    alive = _undominated(problem, keep)
    left = tuple(np.flatnonzero(of_node[:size]) for of_node, size in zip(alive, form.sizes, strict=True))
    if all(len(strategies) == size for strategies, size in zip(left, form.sizes, strict=True)):
        return problem, left
    entries: dict[int, list[Ints]] = {COMMON: [], PRICED: []}
    begins = {COMMON: 0, PRICED: 0}

    def moved(location: CostLocation, places: Ints) -> CostLocation:
        entries[location.space].append(location.offset + places)
        begin = begins[location.space]
        begins[location.space] += len(places)
        return CostLocation(location.space, begin)

    node_locations = [
        None if location is None else moved(location, strategies)
        for location, strategies in zip(form.node_locations, left, strict=True)
    ]
    edge_locations = [
        moved(location, (left[a][:, None] * form.sizes[b] + left[b]).ravel())
        for (a, b), location in zip(form.edges, form.edge_locations, strict=True)
    ]
    reduced = ProblemForm(
        sizes=tuple(map(len, left)),
        edges=form.edges,
        node_locations=tuple(node_locations),
        edge_locations=tuple(edge_locations),
        common_entries=begins[COMMON],
        priced_entries=begins[PRICED],
    )
    common, priced = (np.concatenate([np.zeros(0, dtype=np.int64), *entries[space]]) for space in (COMMON, PRICED))
    return (
        PricedProblem(
            form=reduced,
            common_costs=problem.common_costs[common],
            priced_costs=np.ascontiguousarray(problem.priced_costs[:, priced]),
        ),
        left,
    )


def _undominated(problem: PricedProblem, keep: Sequence[int]) -> Flags:
    """[nodes, strategies]: whether a strategy stays; true beyond the last strategy of a node."""
    form = problem.form
    sizes = np.array(form.sizes, dtype=np.int64)
    alive = np.ones((len(sizes), int(sizes.max(initial=1))), dtype=np.bool_)
    reducible = sizes > 1
    reducible[list(keep)] = False
    ends = np.array(form.edges, dtype=np.int64).reshape(-1, 2)
    edges = np.arange(len(ends))
    of_node = np.concatenate([ends[:, 0], ends[:, 1]])
    order = np.argsort(of_node, kind="stable")
    begins = np.searchsorted(of_node[order], np.arange(len(sizes) + 1))
    dominance_kernels.keep_undominated(
        sizes,
        reducible,
        np.array([-1 if location is None else location.offset for location in form.node_locations], dtype=np.int64),
        np.array([loc is not None and loc.space == PRICED for loc in form.node_locations], dtype=np.bool_),
        ends,
        np.array([location.offset for location in form.edge_locations], dtype=np.int64),
        np.array([location.space == PRICED for location in form.edge_locations], dtype=np.bool_),
        np.concatenate([edges, edges])[order],
        begins.astype(np.int64),
        problem.common_costs,
        problem.priced_costs,
        float(tuning.DOMINANCE_STEPS),
        tuning.DOMINANCE_ROUNDS,
        alive,
    )
    return alive
