"""What if an operator of a stage were sharded differently: pin or forbid specs, solve the stage again, compare.

The stage keeps its layers, its submesh and its number of microbatches; every other choice in it may change.

A *regret* is the least cost of a choice that contains a strategy minus the least cost of any. A contraction to one node
gives the least cost with each of its strategies (its min-marginals). Where the problem is too wide for it, each takes a
solve.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter

import numpy as np

from alpa_explore.arguments import checked
from alpa_explore.errors import OptionError, nearest_names
from alpa_explore.intra_op.composition.contraction.contract import contract_problem
from alpa_explore.intra_op.composition.contraction.tuning import LIMITS
from alpa_explore.intra_op.problem.sharding_problem import FORBIDDEN, ShardingProblem
from alpa_explore.intra_op.problem.solution import Status
from alpa_explore.intra_op.solve import solve
from alpa_explore.intra_op.stage.build_problem import build_stage_problem
from alpa_explore.intra_op.stage.stage_problem import NodeKind, StageProblem
from alpa_explore.numerics.arrays import Floats
from alpa_explore.plans.describe import describe_stage, node_name, node_operator, node_specs, node_tensor
from alpa_explore.plans.plan import Plan
from alpa_explore.plans.records import PlanOperator, PlanStage
from alpa_explore.plans.report.tables import stage_named
from alpa_explore.pricing.tuning import PROVEN
from alpa_explore.sharding.spec import Spec, local_share, render

SpecChoice = str | Mapping[str, object]
"""'S0R': the spec of the (first) output, or of a stored parameter. Or a mapping with any of: output, inputs (a list of
specs, None for any), strategy (its name), and for parameters spec and max_share (of the weight's memory)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    """An operator that is divided otherwise than in the plan."""

    name: str
    strategy: tuple[str, str]
    """(Before, after), like the other fields."""
    inputs: tuple[tuple[str, ...], tuple[str, ...]]
    output: tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """The best choice under the spec constraints, compared with the plan's choice."""

    seconds: float
    """Latency of the stage: microbatch + iteration / B."""
    seconds_before: float
    peak_bytes: float
    peak_bytes_before: float
    fits: bool
    """False when it overflows the memory of the device."""
    changed: tuple[Changed, ...]
    appeared: tuple[str, ...]
    """Collectives that the plan does not have, one line each."""
    disappeared: tuple[str, ...]
    """Collectives of the plan that are gone."""
    operators: tuple[PlanOperator, ...]
    """All operators of the stage under the new choice."""

    @property
    def extra_seconds(self) -> float:
        """What the spec constraints cost."""
        return self.seconds - self.seconds_before


@dataclass(frozen=True, slots=True, kw_only=True)
class Regret:
    """The cost of another strategy of an operator: the min-marginal of the stage's latency above its optimum."""

    strategy: str
    inputs: tuple[str, ...]
    output: str
    extra_seconds: float
    """Added to the stage's latency, over the best without a constraint on this operator; inf if infeasible."""
    chosen: bool
    """Whether the plan has this strategy."""


@checked("plan", "stage")
def what_if(
    plan: Plan,
    stage: int,
    *,
    pin: Mapping[str, SpecChoice] | None = None,
    forbid: Mapping[str, SpecChoice] | None = None,
) -> WhatIf:
    """Solve stage `stage` again with operators and parameters (by name) pinned to specs, or forbidden to have them.

    The memory limit is not enforced: `fits` says whether the result respects it. OptionError for a name, spec or plan
    that cannot be used, or when the spec constraints contradict each other.
    """
    solved = _SolvedStage(plan, stage)
    allowed: dict[int, list[int]] = {}
    for name, constraint in (pin or {}).items():
        node = solved.node(name)
        matching = solved.strategies(node, constraint)
        allowed[node] = [k for k in matching if k in allowed.get(node, range(solved.size(node)))]
    for name, constraint in (forbid or {}).items():
        node = solved.node(name)
        matching = solved.strategies(node, constraint)
        allowed[node] = [k for k in allowed.get(node, range(solved.size(node))) if k not in matching]
    problem = pinned(solved.sharding_problem, allowed)
    solution = solve(problem)
    if solution.status is Status.INFEASIBLE:
        raise OptionError(
            "These spec constraints contradict each other",
            found=", ".join([*(pin or {}), *(forbid or {})]),
            remedy="Pin fewer operators, or give them specs that every neighbour can reach.",
        )
    # Of choices that take as long, those of the plan: they are the leanest.
    stays = problem.evaluate(solved.choices) <= solution.objective * (1.0 + PROVEN)
    return solved.compare(solved.choices if stays else solution.choices)


@checked("plan", "stage", "name")
def regrets(plan: Plan, stage: int, name: str) -> tuple[Regret, ...]:
    """For every strategy of the operator `name`, how much slower stage `stage` becomes with it; the cheapest first.

    The rest of the stage is chosen anew for each strategy. Strategies that a spec constraint on this operator excludes
    are listed too; the stage's other spec constraints hold.
    """
    solved = _SolvedStage(plan, stage)
    node = solved.node(name)
    priced = solved.problem.nodes[node].priced
    if priced is None:
        raise OptionError("Only operators have strategies", found=name, remedy="Name an operator of the stage.")
    extra_seconds = strategy_regrets(solved.at(solved.without_constraints(node)), node)
    extra_seconds[extra_seconds <= PROVEN * solved.stage.latency_seconds] = 0.0
    regrets = [
        Regret(
            strategy=strategy.name,
            inputs=solved.input_specs(node, k),
            output=solved.output_spec(node, k),
            extra_seconds=float(extra_seconds[k]),
            chosen=k == solved.choices[node],
        )
        for k, strategy in enumerate(priced.strategies)
    ]
    return tuple(sorted(regrets, key=attrgetter("extra_seconds")))


def solved_stage(plan: Plan, stage: int) -> tuple[PlanStage, StageProblem, tuple[int, ...]]:
    """A stage of a plan, its sharding problem, and the choices that the plan made in it. OptionError for a stage that
    does not exist, and for a plan that was read from a file."""
    planned = stage_named(plan, stage)
    if plan.details is None:
        raise OptionError(
            "This plan was read from a file",
            found="a plan without the problems behind its stages",
            remedy="`alpa_explore.rebuild(plan)` captures its model again and returns a plan with them.",
        )
    return planned, *plan.details.solved(planned.layers, plan.candidate_of(planned))


class _SolvedStage:
    """A stage of a plan with its sharding problem and the choices that the plan made in it."""

    def __init__(self, plan: Plan, stage: int) -> None:
        self.plan, (self.stage, self.problem, self.choices) = plan, solved_stage(plan, stage)
        self.inverse_b = 1.0 / plan.options.num_microbatches
        self.sharding_problem = self.at(self.problem)
        named = (NodeKind.OPERATOR, NodeKind.WEIGHT, NodeKind.UPDATE)
        nodes = [(v, node) for v, node in enumerate(self.problem.nodes) if node.kind in named]
        self.names = {node_name(self.problem, node): v for v, node in nodes}

    def at(self, problem: StageProblem) -> ShardingProblem:
        """The sharding problem whose objective is the stage's latency at the plan's B."""
        return problem.at(inverse_b=self.inverse_b, memory_price=0.0, microbatches_held=self.stage.microbatches_held)

    def without_constraints(self, node: int) -> StageProblem:
        """The stage's problem without the plan's spec constraints on the operator of a node."""
        index = node_operator(self.problem, self.problem.nodes[node]).index
        if index not in self.problem.stage.layered.spec_constraints:
            return self.problem
        return build_stage_problem(self.problem.stage.without_constraints([index]), self.problem.model)

    def node(self, name: str) -> int:
        """The node of an operator or parameter."""
        if name not in self.names:
            raise OptionError(
                f"Stage {self.stage.index} has no operator or parameter of this name",
                found=repr(name),
                remedy=nearest_names(name, self.names),
            )
        return self.names[name]

    def size(self, node: int) -> int:
        """How many strategies a node has."""
        return len(self.problem.nodes[node].microbatch_seconds)

    def strategies(self, node: int, constraint: SpecChoice) -> list[int]:
        """The strategies that satisfy a spec constraint; OptionError, with the possible outputs, when none does."""
        parts = {"output": constraint} if isinstance(constraint, str) else dict(constraint)
        unknown = parts.keys() - {"output", "inputs", "strategy", "spec", "max_share"}
        if unknown:
            raise OptionError(
                "A spec constraint has parts output, inputs, strategy, spec and max_share",
                found=f"{sorted(unknown)}",
                remedy="Leave the others out.",
            )
        if isinstance(share := parts.get("max_share", 1.0), bool) or not isinstance(share, int | float):
            raise OptionError(
                "The largest share of a weight's memory is no number",
                found=f"max_share {share!r:.40}",
                remedy="Give 0 to 1, for example 0.25.",
            )
        satisfying = [k for k in range(self.size(node)) if self._satisfies(node, k, parts)]
        if not satisfying:
            outputs = dict.fromkeys(self.output_spec(node, k) for k in range(self.size(node)))
            raise OptionError(
                "No strategy satisfies this spec constraint",
                found=f"{constraint!r:.80}",
                remedy=f"Its output (or the stored parameter) can be {', '.join(outputs)}.",
            )
        return satisfying

    def _satisfies(self, node: int, k: int, parts: Mapping[str, object]) -> bool:
        priced = self.problem.nodes[node].priced
        for part, required in parts.items():
            if part in ("output", "spec") and self.output_spec(node, k) != required:
                return False
            if part == "strategy" and (priced is None or priced.strategies[k].name != required):
                return False
            if part == "inputs":
                specs = self.input_specs(node, k)
                given = required if isinstance(required, Sequence) and not isinstance(required, str) else [required]
                if len(given) != len(specs) or any(g is not None and g != s for g, s in zip(given, specs, strict=True)):
                    return False
            if part == "max_share":
                assert isinstance(required, int | float), "checked above"
                if self._share(node, k) > required * (1 + 1e-9):
                    return False
        return True

    def _share(self, node: int, k: int) -> float:
        """Share of a stored weight that a device keeps under strategy k; 1 for other nodes."""
        of = self.problem.nodes[node]
        stored = of.kind is NodeKind.WEIGHT
        return local_share(node_specs(self.problem, of)[k], self.problem.model.mesh.shape) if stored else 1.0

    def output_spec(self, node: int, k: int) -> str:
        """The spec of the first output, or of the stored weight, under strategy k."""
        of = self.problem.nodes[node]
        if of.priced is None:
            return self._rendered(node_specs(self.problem, of)[k], node_tensor(self.problem, of))
        outputs = node_operator(self.problem, of).outputs
        return self._rendered(of.priced.strategies[k].outputs[0], outputs[0]) if outputs else ""

    def input_specs(self, node: int, k: int) -> tuple[str, ...]:
        """The specs in which strategy k reads its inputs."""
        of = self.problem.nodes[node]
        if of.priced is None:
            return ()
        read = zip(of.priced.strategies[k].inputs, node_operator(self.problem, of).inputs, strict=True)
        return tuple(self._rendered(spec, tensor) for spec, tensor in read)

    def _rendered(self, spec: Spec, tensor: int) -> str:
        return render(spec, len(self.problem.stage.layered.graph.tensors[tensor].shape))

    def compare(self, choices: tuple[int, ...]) -> WhatIf:
        """`choices` compared with those of the plan."""
        old, new = self.problem.totals(self.choices), self.problem.totals(choices)
        before, after = describe_stage(self.problem, self.choices), describe_stage(self.problem, choices)
        held = self.stage.microbatches_held
        peaks = [totals.peak_bytes(held) for totals in (old, new)]
        lines = [[f"{o.name}: {line}" for o in side for line in o.communication] for side in (before, after)]
        return WhatIf(
            seconds=new.latency_at(self.inverse_b),
            seconds_before=old.latency_at(self.inverse_b),
            peak_bytes=peaks[1],
            peak_bytes_before=peaks[0],
            fits=bool(np.less_equal(peaks[1], self.plan.device_of(self.stage).memory_bytes)),
            changed=tuple(
                Changed(
                    name=b.name,
                    strategy=(b.strategy, a.strategy),
                    inputs=(b.inputs, a.inputs),
                    output=(b.output, a.output),
                )
                for b, a in zip(before, after, strict=True)
                if (b.strategy, b.inputs, b.outputs) != (a.strategy, a.inputs, a.outputs)
            ),
            appeared=tuple(line for line in lines[1] if line not in set(lines[0])),
            disappeared=tuple(line for line in lines[0] if line not in set(lines[1])),
            operators=after,
        )


def strategy_regrets(problem: ShardingProblem, v: int) -> Floats:
    """By how much each strategy of node v exceeds the optimum, shape [strategies]; inf where that is impossible."""
    contraction = contract_problem(problem, (v,), LIMITS)
    if contraction is None:
        return _by_solving(problem, v, solve(problem).objective)
    least = contraction.table[0]
    optimum = float(least.min())
    return np.asarray(least - optimum if optimum < np.inf else least)


def pinned(problem: ShardingProblem, allowed: Mapping[int, Sequence[int]]) -> ShardingProblem:
    """The problem in which each node in `allowed` may only hold the given strategies."""
    costs = list(problem.node_costs)
    for v, kept in allowed.items():
        only = np.full(len(costs[v]), FORBIDDEN)
        only[list(kept)] = costs[v][list(kept)]
        costs[v] = only
    return replace(problem, node_costs=tuple(costs))


def _by_solving(problem: ShardingProblem, v: int, optimum: float) -> Floats:
    """The regrets of node v by one solve per strategy."""
    node_regrets = np.full(len(problem.node_costs[v]), np.inf)
    for k in np.flatnonzero(problem.node_costs[v] < FORBIDDEN):
        solution = solve(pinned(problem, {v: [int(k)]}))
        if solution.status is not Status.INFEASIBLE:
            node_regrets[k] = max(0.0, solution.objective - optimum)
    return node_regrets
