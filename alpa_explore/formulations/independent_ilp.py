"""The independent formulation: one small ILP per mesh axis, each solved as if the other axes did not exist.

For axis m the stage is placed on a mesh that has this axis alone, (n_m,), with its bandwidth and latency, and Eq. 1 is
solved there:

    s_v[m, f]       binary: node v takes option f (a split, a placement, none) on axis m
    minimise        Σ_v Σ_f c_v[m, f] · s_v[m, f] + Σ_(v,u) R_vu[m, f, g] · e_vu[m, f, g]         for each m on its own
    subject to      Σ_f s_v[m, f] = 1 and the links of e to s             `enumerated_ilp.solve_enumerated`, `one_axis`

Costs on one axis are exact, but for whole tensors: the splits of the other axes are not known. There are O(d + 1)
strategies per node and O((d + 1)^2) variables per edge, k times. Two things are lost, and both show in the answer:

- **A dim is split twice.** Several axes may split the same dim, and the combination need not exist (a batch of 8 on
  (8, 8), a heavy operator that no axis divides). `nearest_strategies` counts such nodes.
- **The all-data-parallel bias.** For an axis alone, splitting the batch is cheapest: no activation moves, gradients
  alone are summed, once per iteration. No axis takes into account that another one has split the batch already, so that
  activations are small and the gradients are what remains to be saved: all axes split the batch. `batch_share` measures
  it.

Therefore the answers are combined by a joint repair (`methods.repair`) under the exact costs of the whole mesh:
one axis keeps its answer while the others are chosen again, then descent over nodes and axes. Reported choices are
those after the repair.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from alpa_explore.cluster import LogicalMesh
from alpa_explore.formulations.comparison import StageInstance
from alpa_explore.intra_op.ilp.enumerated_ilp import solve_enumerated
from alpa_explore.intra_op.problem.solution import ShardingSolution, Status
from alpa_explore.intra_op.stage.axis_options import NodeOptions, Option, node_options


@dataclass(frozen=True, slots=True, kw_only=True)
class IndependentAnswer:
    """The answer of each axis alone."""

    options: tuple[tuple[Option, ...], ...]
    """For each node an option for each axis; together they need not be a strategy."""
    solutions: tuple[ShardingSolution, ...]
    """For each axis; objectives are those of a mesh that has that axis alone."""
    build_seconds: float
    solve_seconds: float

    @property
    def finished(self) -> bool:
        """True when every axis was solved to its optimum."""
        return all(solution.status is Status.OPTIMAL for solution in self.solutions)


def solve_independent(instance: StageInstance, time_limit_seconds: float | None = None) -> IndependentAnswer:
    """Solve each axis of the mesh alone."""
    started = time.perf_counter()
    chosen: list[list[Option]] = []
    solutions = []
    for axis in range(len(instance.mesh.shape)):
        axis_problem, problem = replace(instance, mesh=one_axis(instance.mesh, axis)).build()
        solution = solve_enumerated(problem, time_limit_seconds=time_limit_seconds)
        solutions.append(solution)
        nodes = zip(node_options(axis_problem), solution.choices, strict=True)
        chosen.append([node.options[node.labels[choice, 0]] for node, choice in nodes])
    solving = sum(s.seconds - s.build_seconds for s in solutions)
    return IndependentAnswer(
        options=tuple(zip(*chosen, strict=True)),
        solutions=tuple(solutions),
        build_seconds=time.perf_counter() - started - solving,
        solve_seconds=solving,
    )


def labels_of(nodes: Sequence[NodeOptions], options: Sequence[tuple[Option, ...]]) -> list[tuple[int, ...]]:
    """`options` as positions in the options of the joint problem; -1 for an option that no strategy of the node has."""
    return [
        tuple(node.options.index(o) if o in node.options else -1 for o in axes)
        for node, axes in zip(nodes, options, strict=True)
    ]


def one_axis(mesh: LogicalMesh, axis: int) -> LogicalMesh:
    """The mesh that has only this axis of `mesh`."""
    return LogicalMesh(
        (mesh.shape[axis],), (mesh.bandwidth[axis],), (mesh.latency_seconds[axis],), mesh.groups[axis : axis + 1]
    )
