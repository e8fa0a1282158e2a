"""The factor-based formulation in PuLP: each mesh axis of each node takes one option, and what they cost is linear.

The enumerated ILP has a variable for each pair of strategies of each edge, of which there are O((d + 1)^2k) on k axes.
Here an operator chooses a split (a *factor*) or none on each axis, a source, a weight or an accumulator a placement:
O((d + 1) k). An edge compares the two ends axis by axis. In what follows a[p, m] and b[p, m] are the sums of the y of
maker and reader whose option places the tensor of the edge as p on axis m: p is a dim, "shard" (any dim) or "sum" (P).

    y[v, f, m]   binary, node v does option f on axis m                                   `_options`
    w[v, c]      continuous, the *kinds* of option on the axes of v are c = (c_1 … c_k): options are of one kind where
                 the costs of v cannot tell them apart. They indicate what is not linear: compute on the local shape,
                 bytes held in memory                                                     `_kinds`
    move[d], gather, scatter, reduce    continuous, for an edge and an axis m: dim d is cut there no more; nothing is
                 cut there any more; a sum ends there; it ends and nothing is cut there instead
                                                                                          `_disagreement`
    full[m, A]   continuous, for each of these four: that part of it meets a tensor which no axis of A cuts
                                                                                          `_thickness`
    nested       continuous, for an edge and two axes: the inner one is in the way        `_nesting`

    minimise     Σ_v Σ_c cost_v(c) · w[v, c]                                              `_kinds`
                 + Σ_edges Σ_m (n_m − 1) · α_m · (move + scatter + reduce)
                              + Σ_A (n_m − 1) / n_m · bytes · β_m · load · share(A) · full[m, A]      `_traffic`
    subject to   Σ_f y[v, f, m] = 1                                                                     `_one_option`
                 y[v, f, m] ≤ Σ_g y[v, g, m']      for g that occur beside f in a strategy: a dim that does not
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
other axes, so that the sum over A (A = ∅: all of it) is what is local. Axis n cuts the tensor meanwhile (cut[n] ≥ 1)
when it does so at either end, for of two steps the one that makes the tensor smaller goes first; where two axes gather,
the slower one does. An axis that cuts nothing may slice the tensor meanwhile and gather it afterwards, so full[m, A]
never costs more than that. Blocks nest: while an axis moves from one dim to another, an inner axis can cut neither (a
matrix has no third dim for it, a larger tensor may have one); and an axis cannot leave or join a dim under an inner one
that stays, which then steps aside and comes back.

The memory of a stage enters through w (cost_v(c) holds the memory price × bytes); a hard limit has no row here.
The answer is one strategy a node, priced by the exact costs (`ShardingProblem.evaluate`): a resharding there is a
shortest path of collectives, here a sum over axes, and this is the only difference.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pulp

from alpa_explore.intra_op.formulations.axis_options import NodeOptions, nearest_strategies, node_options, placements
from alpa_explore.intra_op.ilp.ilp_answer import cost_scale
from alpa_explore.intra_op.problem.sharding_problem import ShardingProblem
from alpa_explore.intra_op.stage.stage_problem import Edge, StageProblem
from alpa_explore.numerics.arrays import Floats
from alpa_explore.sharding.spec import PARTIAL

Expression: TypeAlias = pulp.LpAffineExpression
AGREE = 1e-9
"""Relative difference below which two costs are one."""
GAP = 1e-3
"""Relative gap at which the search stops: the linear costs are not exact to more than a few of these."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AxisAnswer:
    """What an ILP over axes chose, made a legal strategy for each node."""

    choices: tuple[int, ...]
    impossible: int
    """Nodes for which the options chosen for the axes are no strategy; they got the nearest one."""
    linear_seconds: float
    """What the linear costs say of it; `ShardingProblem.evaluate` gives the exact costs, equal on one axis."""
    finished: bool
    """False when the time limit ended the search."""
    variables: int
    constraints: int
    build_seconds: float
    solve_seconds: float


def solve_factors(
    stage: StageProblem, problem: ShardingProblem, inverse_b: float, time_limit_seconds: float | None = None
) -> AxisAnswer:
    """Choose options for `problem`, which is `stage.at(inverse_b=inverse_b, …)`."""
    started = time.perf_counter()
    nodes = node_options(stage)
    program = _Program(cost_scale(problem))
    y = [_options(program, v, node) for v, node in enumerate(nodes)]
    for v, node in enumerate(nodes):
        _one_option(program, y[v])
        _legality(program, node, y[v])
        _kinds(program, v, problem.node_costs[v], node, y[v])
    for number, edge in enumerate(stage.edges):
        a = _End(y[edge.a], placements(stage, edge, nodes[edge.a], reads=False))
        b = _End(y[edge.b], placements(stage, edge, nodes[edge.b], reads=True))
        _propagation(program, a, b)
        _traffic(program, number, stage, edge, a, b, inverse_b if edge.each_iteration else float(edge.times))
    built = time.perf_counter()
    finished = program.solve(time_limit_seconds)
    labels = [
        tuple(max(axis, key=lambda f, axis=axis: axis[f].varValue or 0.0) for axis in axes)  # type: ignore[misc]
        for axes in y
    ]
    choices, impossible = nearest_strategies(problem, nodes, labels)
    return AxisAnswer(
        choices=choices,
        impossible=impossible,
        linear_seconds=program.value(),
        finished=finished,
        variables=program.model.numVariables(),
        constraints=program.model.numConstraints(),
        build_seconds=built - started,
        solve_seconds=time.perf_counter() - built,
    )


class _Program:
    """The PuLP model while it is written; `cost` collects the objective in seconds."""

    def __init__(self, scale: float) -> None:
        self.model = pulp.LpProblem("factors", pulp.LpMinimize)
        self.scale = scale
        self.cost: list[tuple[pulp.LpVariable, float]] = []
        self.constant = 0.0

    def positive(self, name: str) -> pulp.LpVariable:
        return self.model.add_variable(name, 0, 1, pulp.LpContinuous)

    def at_least(self, name: str, *terms: tuple[Expression, float], constant: float = 0.0) -> Expression:
        """max(0, Σ terms + constant) where it is minimised; the sum itself where that cannot be negative."""
        return self.largest(name, [_sum(*terms)], constant)

    def largest(self, name: str, parts: Sequence[Expression], constant: float = 0.0) -> Expression:
        """max(0, each of `parts` + constant) where it is minimised."""
        rows = [part for part in parts if any(value > 0 for value in part.values())]
        if not rows:
            return _sum()
        if len(rows) == 1 and constant == 0 and all(value >= 0 for value in rows[0].values()):
            return rows[0]
        variable = self.positive(name)
        for row in rows:
            self.model += variable - row >= constant
        return Expression([(variable, 1.0)])

    def pay(self, expression: Expression, seconds: float) -> None:
        self.cost += [(x, value * seconds) for x, value in expression.items()]

    def value(self) -> float:
        """The objective in seconds, after `solve`."""
        return self.constant + sum((x.varValue or 0.0) * seconds for x, seconds in self.cost)

    def solve(self, seconds: float | None) -> bool:
        self.model += Expression([(x, value * self.scale) for x, value in _sum_terms(self.cost).items()])
        self.model.solve(pulp.HiGHS(msg=False, gapRel=GAP, gapAbs=0.0, timeLimit=seconds))
        return bool(self.model.sol_status == pulp.LpSolutionOptimal)


@dataclass(frozen=True, slots=True)
class _End:
    """One end of an edge: the y of its node, and what each option does to the edge's tensor."""

    y: list[dict[int, pulp.LpVariable]]
    placed: Mapping[int, int]

    def at(self, axis: int, placement: int) -> Expression:
        return Expression([(x, 1.0) for f, x in self.y[axis].items() if self.placed[f] == placement])

    def cut(self, axis: int) -> Expression:
        return Expression([(x, 1.0) for f, x in self.y[axis].items() if self.placed[f] >= 0])

    def dims(self, axis: int) -> list[int]:
        return sorted({self.placed[f] for f in self.y[axis] if self.placed[f] >= 0})


def _sum(*terms: tuple[Expression, float]) -> Expression:
    return Expression(_sum_terms((x, value * factor) for part, factor in terms for x, value in part.items()))


def _sum_terms(pairs: Sequence[tuple[pulp.LpVariable, float]] | Iterator[tuple[pulp.LpVariable, float]]) -> dict:  # type: ignore[type-arg]
    total: dict[pulp.LpVariable, float] = {}
    for x, value in pairs:
        total[x] = total.get(x, 0.0) + value
    return {x: value for x, value in total.items() if value}


def _options(program: _Program, v: int, node: NodeOptions) -> list[dict[int, pulp.LpVariable]]:
    return [
        {f: program.model.add_variable(f"y_{v}_{f}_{axis}", cat=pulp.LpBinary) for f in present.tolist()}
        for axis, present in enumerate(node.at_axis)
    ]


def _one_option(program: _Program, y: list[dict[int, pulp.LpVariable]]) -> None:
    for axis in y:
        program.model += pulp.lpSum(axis.values()) == 1


def _legality(program: _Program, node: NodeOptions, y: list[dict[int, pulp.LpVariable]]) -> None:
    axes = range(len(y))
    beside = {(m, n): {(int(f), int(g)) for f, g in node.labels[:, (m, n)]} for m, n in itertools.permutations(axes, 2)}
    for (m, n), pairs in beside.items():
        for f, x in y[m].items():
            partners = [z for g, z in y[n].items() if (f, g) in pairs]
            if len(partners) < len(y[n]):
                program.model += x - pulp.lpSum(partners) <= 0
    if len(y) < 3:
        return
    for labels in itertools.product(*y):
        if labels not in node.strategy_of and all(
            (labels[m], labels[n]) in beside[m, n] for m, n in itertools.combinations(axes, 2)
        ):
            program.model += pulp.lpSum(y[m][f] for m, f in zip(axes, labels, strict=True)) <= len(y) - 1


def _kinds(program: _Program, v: int, costs: Floats, node: NodeOptions, y: list[dict[int, pulp.LpVariable]]) -> None:
    base = float(costs.min())
    program.constant += base
    if np.ptp(costs) <= AGREE * abs(float(costs.max())):
        return
    kind = _kind_of(costs, node)
    cheapest: dict[tuple[int, ...], float] = {}
    for labels, cost in zip(node.labels.tolist(), costs.tolist(), strict=True):
        key = tuple(kind[m][f] for m, f in enumerate(labels))
        cheapest[key] = min(cost, cheapest.get(key, math.inf))
    w = {key: program.positive(f"w_{v}_{'_'.join(map(str, key))}") for key in cheapest}
    program.cost += [(x, cheapest[key] - base) for key, x in w.items()]
    for m, axis in enumerate(y):
        for number in set(kind[m].values()):
            members = [(x, -1.0) for f, x in axis.items() if kind[m][f] == number]
            program.model += Expression([(x, 1.0) for key, x in w.items() if key[m] == number] + members) == 0


def _kind_of(costs: Floats, node: NodeOptions) -> list[dict[int, int]]:
    """For each axis a number for each option, equal where no strategy's cost changes when one replaces the other."""
    found = []
    for m, present in enumerate(node.at_axis):
        seen: list[dict[tuple[int, ...], float]] = []
        kind: dict[int, int] = {}
        for f in present.tolist():
            rows = np.flatnonzero(node.labels[:, m] == f)
            around = {
                (*labels[:m], *labels[m + 1 :]): float(costs[k])
                for k, labels in zip(rows.tolist(), node.labels[rows].tolist(), strict=True)
            }
            for number, other in enumerate(seen):
                if all(math.isclose(c, other.get(key, c), rel_tol=AGREE) for key, c in around.items()):
                    kind[f] = number
                    other.update(around)
                    break
            else:
                kind[f] = len(seen)
                seen.append(around)
        found.append(kind)
    return found


def _propagation(program: _Program, a: _End, b: _End) -> None:
    for m in range(len(a.y)):
        summed = b.at(m, PARTIAL)
        if summed:
            program.model += _sum((summed, 1.0), (a.at(m, PARTIAL), -1.0)) <= 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Collective:
    """Along one axis: `amount` in 0 … 1 of a collective that moves `load` × all bytes of one device."""

    name: str
    amount: Expression
    load: float
    messages: int
    """1, or 0 where another collective counts them."""
    gathers: bool = False
    """After it the axis cuts nothing: where several axes gather, the slower one goes first."""
    blocked: Expression | None = None
    """The part of `amount` that meets a tensor no inner axis can cut meanwhile."""


def _traffic(program: _Program, number: int, stage: StageProblem, edge: Edge, a: _End, b: _End, times: float) -> None:
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
            program.pay(c.amount, times * c.messages * (mesh.shape[m] - 1) * mesh.latency_seconds[m])
            cut = {
                n: _sum((b.cut(n), 1.0), (a.cut(n), 0.0 if c.gathers and per_byte[n] > per_byte[m] else 1.0))
                for n in axes
                if n != m
            }
            seconds = tensor.bytes * per_byte[m] * c.load
            for uncut, full in _thickness(program, f"{number}_{m}_{c.name}", m, c, cut):
                share = math.prod(1 - 1 / mesh.shape[n] if n in uncut else 1 / mesh.shape[n] for n in cut)
                # An axis that cuts nothing can slice the tensor meanwhile and gather it afterwards.
                aside = sum(gather_seconds[n] for n in uncut) if uncut and c.blocked is None else math.inf
                program.pay(full, times * min(seconds * share, aside))
    _nesting(program, number, stage, a, b, tensor.bytes, times)


def _disagreement(
    program: _Program, name: str, m: int, mesh_shape: Sequence[int], shape: Sequence[int], a: _End, b: _End
) -> Iterator[_Collective]:
    size = mesh_shape[m]
    moved = [program.at_least(f"move_{name}_{d}", (a.at(m, d), 1.0), (b.at(m, d), -1.0)) for d in a.dims(m)]
    move = _sum(*((part, 1.0) for part in moved))
    if move:
        gather = program.at_least(f"gather_{name}", (a.cut(m), 1.0), (b.cut(m), -1.0))
        # From dim to dim: inner axes can cut neither while the blocks move; a third dim may be left for them.
        others = math.prod(mesh_shape) // size
        inner = m + 1 < len(mesh_shape) and sum(extent % others == 0 for extent in shape) < 3
        blocked = _sum((move, 1.0), (gather, -1.0)) if inner else None
        yield _Collective(name="move", amount=move, load=1 / size, messages=1, gathers=True, blocked=blocked)
        yield _Collective(name="gather", amount=gather, load=1 - 1 / size, messages=0, gathers=True)
    summed, still = a.at(m, PARTIAL), b.at(m, PARTIAL)
    if summed:
        scatter = program.at_least(f"scatter_{name}", (summed, 1.0), (still, -1.0))
        reduce = program.at_least(f"reduce_{name}", (summed, 1.0), (still, -1.0), (b.cut(m), -1.0))
        yield _Collective(name="scatter", amount=scatter, load=1.0, messages=1)
        yield _Collective(name="reduce", amount=reduce, load=1.0, messages=1)


def _thickness(
    program: _Program, name: str, m: int, collective: _Collective, cut: Mapping[int, Expression]
) -> Iterator[tuple[tuple[int, ...], Expression]]:
    """(A, the part of the collective that meets a tensor which no axis of A cuts) for every set A of other axes."""
    for count in range(len(cut) + 1):
        for uncut in itertools.combinations(cut, count):
            parts = [_sum((collective.amount, 1.0), *((cut[n], -1.0) for n in uncut))]
            if collective.blocked is not None and any(n > m for n in uncut):
                parts.append(_sum((collective.blocked, 1.0), *((cut[n], -1.0) for n in uncut if n < m)))
            yield uncut, program.largest(f"full_{name}_{'_'.join(map(str, uncut))}", parts)


def _nesting(program: _Program, number: int, stage: StageProblem, a: _End, b: _End, total: int, times: float) -> None:
    mesh = stage.model.mesh
    for outer, inner in itertools.combinations(range(len(mesh.shape)), 2):
        for d in sorted(set(a.dims(inner)) & set(b.dims(inner)) & (set(a.dims(outer)) | set(b.dims(outer)))):
            for sign in (1.0, -1.0):
                stuck = program.at_least(
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
                program.pay(stuck, times * seconds)
