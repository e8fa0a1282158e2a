"""The factor-based formulation in PuLP: each mesh axis of each node takes one option, with linear resharding costs.

The enumerated ILP has a variable for each pair of strategies of each edge, of which there are O((d + 1)^2k) on k axes.
Here an operator chooses a split (a *factor*) or none on each axis, a source, a weight or an accumulator a placement:
O((d + 1) k). An edge compares its two ends axis by axis. Below, a[p, m] and b[p, m] are the sums of the y of producer
and reader whose option places the tensor of the edge as p on axis m: p is a dim, "shard" (any dim) or "sum" (P).

    y[v, f, m]   binary, node v does option f on axis m                                   `_options`
    w[v, c]      continuous, the *kinds* of option on the axes of v are c = (c_1 … c_k): options are of one kind where
                 exchanging them never changes the cost of v. They carry what is not linear: computation on the
                 local shape, bytes held in memory                                                    `_kinds`
    move[d], gather, scatter, reduce    continuous, for an edge and an axis m: the axis stops cutting dim d; it stops
                 cutting at all; a pending sum ends; it ends and the axis cuts nothing instead
                                                                                          `_disagreement`
    full[m, A]   continuous, for each of these four: the part of it on a tensor which no axis of A cuts
                                                                                          `_thickness`
    nested       continuous, for an edge and two axes: the inner one must step aside       `_nesting`

    minimise     Σ_v Σ_c cost_v(c) · w[v, c]                                              `_kinds`
                 + Σ_edges Σ_m (n_m − 1) · α_m · (move + scatter + reduce)
                              + Σ_A (n_m − 1) / n_m · bytes · β_m · load · share(A) · full[m, A]      `_traffic`
    subject to   Σ_f y[v, f, m] = 1                                                                     `_one_option`
                 y[v, f, m] ≤ Σ_g y[v, g, m']      for g that occur with f in a strategy: a dim that does not
                                                   divide by both axes or that another factor cuts, a heavy operator
                                                   left undivided have none                             `_legality`
                 Σ_m y[v, f_m, m] ≤ k − 1          for triples, … that are no strategy while all pairs are   `_legality`
                 Σ_{c: c_m = i} w[v, c] = Σ_{f of kind i} y[v, f, m]                                    `_kinds`
                 b[sum, m] ≤ a[sum, m]             a pending sum is passed on, never made by resharding `_propagation`
                 move[d] ≥ a[d] − b[d]             gather ≥ a[shard] − b[shard]
                 scatter ≥ a[sum] − b[sum]         reduce ≥ a[sum] − b[sum] − b[shard]                  `_disagreement`
                 full[m, A] ≥ amount − Σ_{n in A} cut[n]                                                `_thickness`
                 nested ≥ a[d, n] + b[d, n] ± (a[d, m] − b[d, m]) − 2        for m outside n            `_nesting`

So S(i) → R is move + gather (an all-gather), S(i) → S(j) move alone (an all-to-all), P → R scatter + reduce (an
all-reduce), P → S scatter alone (a reduce-scatter), R → S nothing (a slice). `load` is the share of a device's bytes
that each moves: 1 / n_m, 1 − 1 / n_m, 1, 1. share(A) = Π_{n not in A} 1 / n_n · Π_{n in A} (1 − 1 / n_n) over the
other axes, so that the terms of all A add up to the local bytes (A = ∅ has the whole amount). Axis n cuts the tensor
during the collective (cut[n] ≥ 1) when it does so at either end, because of two steps the one that makes the tensor
smaller comes first; where two axes gather, the slower one comes first. An axis that cuts nothing may slice the tensor
before the collective and gather it afterwards, so full[m, A] never costs more than that. Blocks nest: while an axis
moves from one dim to another, an inner axis can cut neither of them (a matrix has no third dim for it, a larger tensor
may have one). An axis cannot leave or join a dim that an inner axis keeps cutting: the inner one first moves to another
dim, and back afterwards.

The memory of a stage enters through w (cost_v(c) includes the memory price × bytes); a hard limit is not part of this
program. The answer has one strategy per node, priced by the exact costs (`ShardingProblem.evaluate`): a resharding
there is a shortest path of collectives, here a sum over axes, and this is the only difference.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pulp

from alpa_explore.formulations import tuning
from alpa_explore.intra_op.ilp.enumerated_ilp import PulpHighs
from alpa_explore.intra_op.ilp.ilp_answer import cost_scale
from alpa_explore.intra_op.problem.sharding_problem import Choices, ShardingProblem
from alpa_explore.intra_op.stage.axis_options import NodeOptions, nearest_strategies, node_options, placements
from alpa_explore.intra_op.stage.edge import Edge
from alpa_explore.intra_op.stage.stage_problem import StageProblem
from alpa_explore.numerics.arrays import Floats
from alpa_explore.sharding.spec import PARTIAL

Expression: TypeAlias = pulp.LpAffineExpression


class AxisProgram:
    """A PuLP model under construction; `cost` and `constant` collect the objective in seconds."""

    def __init__(self, scale: float) -> None:
        self.model = pulp.LpProblem("factors", pulp.LpMinimize)
        self.scale = scale
        self.cost: list[tuple[pulp.LpVariable, float]] = []
        self.constant = 0.0

    def indicator(self, name: str) -> pulp.LpVariable:
        """A continuous variable between 0 and 1."""
        return self.model.add_variable(name, 0, 1, pulp.LpContinuous)

    def at_least(self, name: str, *terms: tuple[Expression, float], constant: float = 0.0) -> Expression:
        """max(0, Σ terms + constant) where it is minimised; the sum itself where that cannot be negative."""
        return self.largest(name, [linear_sum(*terms)], constant)

    def largest(self, name: str, parts: Sequence[Expression], constant: float = 0.0) -> Expression:
        """max(0, each of `parts` + constant) where it is minimised."""
        rows = [part for part in parts if any(value > 0 for value in part.values())]
        if not rows:
            return linear_sum()
        if len(rows) == 1 and constant == 0 and all(value >= 0 for value in rows[0].values()):
            return rows[0]
        variable = self.indicator(name)
        for row in rows:
            self.model += variable - row >= constant
        return Expression([(variable, 1.0)])

    def add_cost(self, expression: Expression, seconds: float) -> None:
        """Add `expression` × `seconds` to the objective."""
        self.cost += [(x, value * seconds) for x, value in expression.items()]

    def value(self) -> float:
        """The objective in seconds, after `solve`."""
        return self.constant + sum((x.varValue or 0.0) * seconds for x, seconds in self.cost)

    def solve(self, time_limit_seconds: float | None) -> bool:
        """Minimise the cost; False when the time limit ended the search."""
        self.model += Expression([(x, value * self.scale) for x, value in _sum_terms(self.cost).items()])
        self.model.solve(PulpHighs(msg=False, gapRel=tuning.FACTOR_GAP, gapAbs=0.0, timeLimit=time_limit_seconds))
        return bool(self.model.sol_status == pulp.LpSolutionOptimal)


@dataclass(frozen=True, slots=True)
class EdgeEnd:
    """One end of an edge: the y of its node, and the placement that each option gives to the tensor of the edge."""

    y: list[dict[int, pulp.LpVariable]]
    placement_of: Mapping[int, int]
    """Option -> the dim that it splits, or another placement (negative)."""

    def at(self, axis: int, placement: int) -> Expression:
        """The sum of the y whose option has this placement on an axis."""
        return Expression([(x, 1.0) for f, x in self.y[axis].items() if self.placement_of[f] == placement])

    def cut(self, axis: int) -> Expression:
        """The sum of the y whose option splits the tensor on an axis."""
        return Expression([(x, 1.0) for f, x in self.y[axis].items() if self.placement_of[f] >= 0])

    def dims(self, axis: int) -> list[int]:
        """The dims that some option splits on an axis, ascending."""
        return sorted({self.placement_of[f] for f in self.y[axis] if self.placement_of[f] >= 0})


def linear_sum(*terms: tuple[Expression, float]) -> Expression:
    """The sum of expressions, each times a factor."""
    return Expression(_sum_terms((x, value * factor) for part, factor in terms for x, value in part.items()))


def _sum_terms(pairs: Iterable[tuple[pulp.LpVariable, float]]) -> dict[pulp.LpVariable, float]:
    """Coefficients of equal variables added up, without zeros."""
    total: dict[pulp.LpVariable, float] = {}
    for x, value in pairs:
        total[x] = total.get(x, 0.0) + value
    return {x: value for x, value in total.items() if value}


@dataclass(frozen=True, slots=True, kw_only=True)
class AxisAnswer:
    """The answer of an ILP over axes, with a strategy for each node."""

    choices: Choices
    impossible: int
    """Nodes at which the options chosen for the axes are no strategy; these take the nearest one."""
    linear_seconds: float
    """Cost by the linear costs; `ShardingProblem.evaluate` gives the exact cost, which is equal on one axis."""
    finished: bool
    """False when the time limit ended the search."""
    variables: int
    constraints: int
    build_seconds: float
    solve_seconds: float


def solve_factors(
    stage: StageProblem, problem: ShardingProblem, inverse_b: float, time_limit_seconds: float | None = None
) -> AxisAnswer:
    """Solve the factor ILP of `problem`, which is `stage.at(inverse_b=inverse_b, …)`."""
    started = time.perf_counter()
    nodes = node_options(stage)
    program = AxisProgram(cost_scale(problem))
    y = [_options(program, v, node) for v, node in enumerate(nodes)]
    for v, node in enumerate(nodes):
        _one_option(program, y[v])
        _legality(program, node, y[v])
        _kinds(program, v, problem.node_costs[v], node, y[v])
    for number, edge in enumerate(stage.edges):
        a = EdgeEnd(y[edge.a], placements(stage, edge, nodes[edge.a], reads=False))
        b = EdgeEnd(y[edge.b], placements(stage, edge, nodes[edge.b], reads=True))
        _propagation(program, a, b)
        _traffic(program, number, stage, edge, a, b, inverse_b if edge.each_iteration else float(edge.times))
    build_end = time.perf_counter()
    finished = program.solve(time_limit_seconds)
    labels = [tuple(_chosen(axis) for axis in axes) for axes in y]
    choices, impossible = nearest_strategies(problem, nodes, labels)
    return AxisAnswer(
        choices=choices,
        impossible=impossible,
        linear_seconds=program.value(),
        finished=finished,
        variables=program.model.numVariables(),
        constraints=program.model.numConstraints(),
        build_seconds=build_end - started,
        solve_seconds=time.perf_counter() - build_end,
    )


def _chosen(axis: Mapping[int, pulp.LpVariable]) -> int:
    """The option with the largest y on an axis."""
    return max(axis, key=lambda f: axis[f].varValue or 0.0)


def _options(program: AxisProgram, v: int, node: NodeOptions) -> list[dict[int, pulp.LpVariable]]:
    return [
        {f: program.model.add_variable(f"y_{v}_{f}_{axis}", cat=pulp.LpBinary) for f in present.tolist()}
        for axis, present in enumerate(node.at_axis)
    ]


def _one_option(program: AxisProgram, y: list[dict[int, pulp.LpVariable]]) -> None:
    for axis in y:
        program.model += pulp.lpSum(axis.values()) == 1


def _legality(program: AxisProgram, node: NodeOptions, y: list[dict[int, pulp.LpVariable]]) -> None:
    axes = range(len(y))
    compatible = {
        (m, n): {(int(f), int(g)) for f, g in node.labels[:, (m, n)]} for m, n in itertools.permutations(axes, 2)
    }
    for (m, n), pairs in compatible.items():
        for f, x in y[m].items():
            partners = [z for g, z in y[n].items() if (f, g) in pairs]
            if len(partners) < len(y[n]):
                program.model += x - pulp.lpSum(partners) <= 0
    if len(y) < 3:
        return
    for labels in itertools.product(*y):
        if labels not in node.strategy_of and all(
            (labels[m], labels[n]) in compatible[m, n] for m, n in itertools.combinations(axes, 2)
        ):
            program.model += pulp.lpSum(y[m][f] for m, f in zip(axes, labels, strict=True)) <= len(y) - 1


def _kinds(program: AxisProgram, v: int, costs: Floats, node: NodeOptions, y: list[dict[int, pulp.LpVariable]]) -> None:
    base = float(costs.min())
    program.constant += base
    if np.ptp(costs) <= tuning.EQUAL_COSTS * abs(float(costs.max())):
        return
    kind = _kind_of(costs, node)
    cheapest: dict[tuple[int, ...], float] = {}
    for labels, cost in zip(node.labels.tolist(), costs.tolist(), strict=True):
        key = tuple(kind[m][f] for m, f in enumerate(labels))
        cheapest[key] = min(cost, cheapest.get(key, math.inf))
    w = {key: program.indicator(f"w_{v}_{'_'.join(map(str, key))}") for key in cheapest}
    program.cost += [(x, cheapest[key] - base) for key, x in w.items()]
    for m, axis in enumerate(y):
        for number in set(kind[m].values()):
            members = [(x, -1.0) for f, x in axis.items() if kind[m][f] == number]
            program.model += Expression([(x, 1.0) for key, x in w.items() if key[m] == number] + members) == 0


def _kind_of(costs: Floats, node: NodeOptions) -> list[dict[int, int]]:
    """For each axis a number for each option, equal where no strategy's cost changes when one replaces the other."""
    kinds = []
    for m, present in enumerate(node.at_axis):
        costs_of_kind: list[dict[tuple[int, ...], float]] = []
        kind: dict[int, int] = {}
        for f in present.tolist():
            rows = np.flatnonzero(node.labels[:, m] == f)
            by_others = {
                (*labels[:m], *labels[m + 1 :]): float(costs[k])
                for k, labels in zip(rows.tolist(), node.labels[rows].tolist(), strict=True)
            }
            for number, other in enumerate(costs_of_kind):
                if all(math.isclose(c, other.get(key, c), rel_tol=tuning.EQUAL_COSTS) for key, c in by_others.items()):
                    kind[f] = number
                    other.update(by_others)
                    break
            else:
                kind[f] = len(costs_of_kind)
                costs_of_kind.append(by_others)
        kinds.append(kind)
    return kinds


def _propagation(program: AxisProgram, a: EdgeEnd, b: EdgeEnd) -> None:
    for m in range(len(a.y)):
        summed = b.at(m, PARTIAL)
        if summed:
            program.model += linear_sum((summed, 1.0), (a.at(m, PARTIAL), -1.0)) <= 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Collective:
    """A collective along one axis: it happens to the extent `amount` (0 … 1) and moves `load` × all bytes of a
    device."""

    name: str
    amount: Expression
    load: float
    messages: int
    """1, or 0 where another collective counts the latency."""
    gathers: bool = False
    """Afterwards the axis cuts nothing: where several axes gather, the slower one goes first."""
    blocked: Expression | None = None
    """The part of `amount` that acts on a tensor which no inner axis can cut meanwhile."""


def _traffic(
    program: AxisProgram, number: int, stage: StageProblem, edge: Edge, a: EdgeEnd, b: EdgeEnd, times: float
) -> None:
    mesh = stage.model.mesh
    tensor = stage.stage.layered.graph.tensors[edge.tensor]
    per_byte = [(n - 1) / n / bandwidth for n, bandwidth in zip(mesh.shape, mesh.bandwidth, strict=True)]
    gather_seconds = [
        (n - 1) * alpha + tensor.bytes * beta
        for n, alpha, beta in zip(mesh.shape, mesh.latency_seconds, per_byte, strict=True)
    ]
    axes = range(len(mesh.shape))
    for m in axes:
        for c in _disagreement(program, f"{number}_{m}", m, mesh.shape, tensor.shape, a, b):
            program.add_cost(c.amount, times * c.messages * (mesh.shape[m] - 1) * mesh.latency_seconds[m])
            cut = {
                n: linear_sum((b.cut(n), 1.0), (a.cut(n), 0.0 if c.gathers and per_byte[n] > per_byte[m] else 1.0))
                for n in axes
                if n != m
            }
            seconds = tensor.bytes * per_byte[m] * c.load
            for uncut, full in _thickness(program, f"{number}_{m}_{c.name}", m, c, cut):
                share = math.prod(1 - 1 / mesh.shape[n] if n in uncut else 1 / mesh.shape[n] for n in cut)
                # An axis that cuts nothing can slice the tensor meanwhile and gather it afterwards.
                slice_and_gather = sum(gather_seconds[n] for n in uncut) if uncut and c.blocked is None else math.inf
                program.add_cost(full, times * min(seconds * share, slice_and_gather))
    _nesting(program, number, stage, a, b, tensor.bytes, times)


def _disagreement(
    program: AxisProgram, name: str, m: int, mesh_shape: Sequence[int], shape: Sequence[int], a: EdgeEnd, b: EdgeEnd
) -> Iterator[_Collective]:
    size = mesh_shape[m]
    moved = [program.at_least(f"move_{name}_{d}", (a.at(m, d), 1.0), (b.at(m, d), -1.0)) for d in a.dims(m)]
    move = linear_sum(*((part, 1.0) for part in moved))
    if move:
        gather = program.at_least(f"gather_{name}", (a.cut(m), 1.0), (b.cut(m), -1.0))
        # From dim to dim: inner axes can cut neither while the blocks move; a third dim may be left for them.
        others = math.prod(mesh_shape) // size
        inner = m + 1 < len(mesh_shape) and sum(extent % others == 0 for extent in shape) < 3
        blocked = linear_sum((move, 1.0), (gather, -1.0)) if inner else None
        yield _Collective(name="move", amount=move, load=1 / size, messages=1, gathers=True, blocked=blocked)
        yield _Collective(name="gather", amount=gather, load=1 - 1 / size, messages=0, gathers=True)
    summed, passed_on = a.at(m, PARTIAL), b.at(m, PARTIAL)
    if summed:
        scatter = program.at_least(f"scatter_{name}", (summed, 1.0), (passed_on, -1.0))
        reduce = program.at_least(f"reduce_{name}", (summed, 1.0), (passed_on, -1.0), (b.cut(m), -1.0))
        yield _Collective(name="scatter", amount=scatter, load=1.0, messages=1)
        yield _Collective(name="reduce", amount=reduce, load=1.0, messages=1)


def _thickness(
    program: AxisProgram, name: str, m: int, collective: _Collective, cut: Mapping[int, Expression]
) -> Iterator[tuple[tuple[int, ...], Expression]]:
    """(A, the part of the collective that acts on a tensor which no axis of A cuts) for every set A of other axes."""
    for count in range(len(cut) + 1):
        for uncut in itertools.combinations(cut, count):
            parts = [linear_sum((collective.amount, 1.0), *((cut[n], -1.0) for n in uncut))]
            if collective.blocked is not None and any(n > m for n in uncut):
                parts.append(linear_sum((collective.blocked, 1.0), *((cut[n], -1.0) for n in uncut if n < m)))
            yield uncut, program.largest(f"full_{name}_{'_'.join(map(str, uncut))}", parts)


def _nesting(
    program: AxisProgram, number: int, stage: StageProblem, a: EdgeEnd, b: EdgeEnd, total: int, times: float
) -> None:
    mesh = stage.model.mesh
    for outer, inner in itertools.combinations(range(len(mesh.shape)), 2):
        for d in sorted(set(a.dims(inner)) & set(b.dims(inner)) & (set(a.dims(outer)) | set(b.dims(outer)))):
            for sign in (1.0, -1.0):
                nested = program.at_least(
                    f"nested_{number}_{outer}_{inner}_{d}_{'leave' if sign > 0 else 'join'}",
                    (a.at(inner, d), 1.0),
                    (b.at(inner, d), 1.0),
                    (a.at(outer, d), sign),
                    (b.at(outer, d), -sign),
                    constant=-2.0,
                )
                size = mesh.shape[inner]
                # Two all-to-alls of the inner axis, to another dim and back.
                seconds = 2 * (size - 1) * (mesh.latency_seconds[inner] + total / size**2 / mesh.bandwidth[inner])
                program.add_cost(nested, times * seconds)
