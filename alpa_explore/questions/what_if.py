"""What if an operator of a stage were divided otherwise: pin or forbid its specs, solve again, see the difference.

The layers, the submesh and the number of microbatches of the stage stay; everything else may change.
"""

from __future__ import annotations

import operator as compare
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from alpa_explore.errors import OptionError, nearest_names
from alpa_explore.graph import Operator
from alpa_explore.intra_op.problem.sharding_problem import ShardingProblem
from alpa_explore.intra_op.problem.solution import Status
from alpa_explore.intra_op.regrets import pinned
from alpa_explore.intra_op.regrets import regrets as regrets_of
from alpa_explore.intra_op.solve import solve
from alpa_explore.intra_op.stage.stage_problem import NodeKind, StageProblem, build_stage_problem
from alpa_explore.plans.describe import describe_stage
from alpa_explore.plans.plan import Plan
from alpa_explore.plans.records import PlanOperator
from alpa_explore.sharding.spec import PARTIAL, Spec, local_share, render

SpecChoice = str | Mapping[str, object]
"""'S0R': the spec of the (first) output, or of a stored parameter. Or a mapping with any of: output, inputs (a list of
specs, None for any), strategy (its name), and for parameters spec and max_share (of the weight's memory)."""

ROUNDING = 1e-12
"""Share of a stage's latency that is no cost but the order of additions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    """An operator that is divided otherwise than before."""

    name: str
    strategy: tuple[str, str]
    """Before, after; so are the others."""
    inputs: tuple[tuple[str, ...], tuple[str, ...]]
    output: tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """The best choice that heeds the spec constraints, beside the best one."""

    seconds: float
    """Latency of the stage: microbatch + iteration / B."""
    seconds_before: float
    peak_bytes: float
    peak_bytes_before: float
    fits: bool
    """False when it overflows the memory of the device."""
    changed: tuple[Changed, ...]
    appeared: tuple[str, ...]
    """Collectives that were not there before, a line each."""
    disappeared: tuple[str, ...]
    operators: tuple[PlanOperator, ...]
    """All operators of the stage, as they would be."""

    @property
    def extra_seconds(self) -> float:
        """What the spec constraints cost."""
        return self.seconds - self.seconds_before


@dataclass(frozen=True, slots=True, kw_only=True)
class Regret:
    """What another strategy of an operator would cost."""

    strategy: str
    inputs: tuple[str, ...]
    output: str
    extra_seconds: float
    """Of the stage's latency, above the best with no spec constraint on this operator; inf when it cannot be had."""
    chosen: bool


def what_if(
    plan: Plan,
    stage: int,
    *,
    pin: Mapping[str, SpecChoice] | None = None,
    forbid: Mapping[str, SpecChoice] | None = None,
) -> WhatIf:
    """Solve stage `stage` of `plan` again with operators and parameters (by name) held to `pin` and kept from `forbid`.

    The memory limit is not enforced: `fits` says whether the answer stays within it.
    OptionError for a name, spec or plan that cannot be used, or when the spec constraints contradict each other.
    """
    here = _Opened(plan, stage)
    allowed: dict[int, list[int]] = {}
    for spec_constraints, wanted in ((pin or {}, True), (forbid or {}, False)):
        for name, constraint in spec_constraints.items():
            node = here.node(name)
            kept = [k for k in here.strategies(node, constraint) if k in allowed.get(node, range(here.size(node)))]
            if not wanted:
                kept = [
                    k for k in allowed.get(node, range(here.size(node))) if k not in here.strategies(node, constraint)
                ]
            allowed[node] = kept
    solution = solve(pinned(here.sharding_problem, allowed))
    if solution.status is Status.INFEASIBLE:
        raise OptionError(
            "These spec constraints cannot be had together",
            found=", ".join([*(pin or {}), *(forbid or {})]),
            remedy="Pin fewer operators, or give them specs that every neighbour can reach.",
        )
    return here.compare(solution.choices)


def regrets(plan: Plan, stage: int, name: str) -> tuple[Regret, ...]:
    """What every strategy of the operator `name` would cost in stage `stage` of `plan`, the cheapest first.

    Strategies that the plan's spec constraints rule out are listed too; the other spec constraints of the stage hold.
    """
    here = _Opened(plan, stage)
    node = here.node(name)
    priced = here.problem.nodes[node].priced
    if priced is None:
        raise OptionError("Only operators have strategies", found=name, remedy="Name an operator of the stage.")
    found = regrets_of(here.at(here.without_constraints(node)), [node])[0]
    found[found <= ROUNDING * here.stage.latency_seconds] = 0.0
    listed = [
        Regret(
            strategy=strategy.name,
            inputs=here.input_specs(node, k),
            output=here.output_spec(node, k),
            extra_seconds=float(found[k]),
            chosen=k == here.choices[node],
        )
        for k, strategy in enumerate(priced.strategies)
    ]
    return tuple(sorted(listed, key=compare.attrgetter("extra_seconds")))


class _Opened:
    """A stage of a plan with the problem behind it."""

    def __init__(self, plan: Plan, stage: int) -> None:
        if not 0 <= stage < len(plan.stages):
            raise OptionError(
                "No such stage", found=f"stage {stage}", remedy=f"The plan has stages 0 to {len(plan.stages) - 1}."
            )
        if plan.details is None:
            raise OptionError(
                "This plan was read from a file",
                found="a plan without the problems behind its stages",
                remedy="`alpa_explore.rebuild(plan)` captures its model again and returns a plan with them.",
            )
        self.plan, self.stage = plan, plan.stages[stage]
        candidate = plan.candidate_of(self.stage)
        self.problem: StageProblem = plan.details.problem(self.stage.layers, candidate.logical_mesh, candidate.version)
        self.choices = plan.details.choices[candidate.solution_key]
        self.inverse_b = 1.0 / plan.options.num_microbatches
        self.sharding_problem = self.at(self.problem)
        self.graph = self.problem.stage.layered.graph
        self.names: dict[str, int] = {}
        for v, node in enumerate(self.problem.nodes):
            if node.kind is NodeKind.OPERATOR:
                self.names[self.graph.operators[node.subject].name] = v
            elif node.kind is NodeKind.WEIGHT:
                self.names[self.graph.parameters[node.subject].name] = v
            elif node.kind is NodeKind.UPDATE:
                self.names[self.graph.operators[self.graph.parameters[node.subject].update].name] = v

    def at(self, problem: StageProblem) -> ShardingProblem:
        """The seconds of the stage at the plan's B."""
        return problem.at(inverse_b=self.inverse_b, memory_price=0.0, microbatches_held=self.stage.microbatches_held)

    def without_constraints(self, node: int) -> StageProblem:
        """The problem with no spec constraint on an operator."""
        index = self._operator(node).index
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
        """How many strategies it has."""
        return len(self.problem.nodes[node].microbatch_seconds)

    def strategies(self, node: int, constraint: SpecChoice) -> list[int]:
        """Those that satisfy a spec constraint; OptionError, with what there is, when none does."""
        spec_constraints = {"output": constraint} if isinstance(constraint, str) else dict(constraint)
        unknown = spec_constraints.keys() - {"output", "inputs", "strategy", "spec", "max_share"}
        if unknown:
            raise OptionError(
                "A spec constraint has parts output, inputs, strategy, spec and max_share",
                found=f"{sorted(unknown)}",
                remedy="Leave the others out.",
            )
        found = [k for k in range(self.size(node)) if self._satisfies(node, k, spec_constraints)]
        if not found:
            there = dict.fromkeys(self.output_spec(node, k) for k in range(self.size(node)))
            raise OptionError(
                "No strategy satisfies this spec constraint",
                found=f"{constraint!r:.80}",
                remedy=f"Its output (or the stored parameter) can be {', '.join(there)}.",
            )
        return found

    def _satisfies(self, node: int, k: int, spec_constraints: Mapping[str, object]) -> bool:
        priced = self.problem.nodes[node].priced
        for part, wanted in spec_constraints.items():
            if part in ("output", "spec") and self.output_spec(node, k) != wanted:
                return False
            if part == "strategy" and (priced is None or priced.strategies[k].name != wanted):
                return False
            if part == "inputs":
                specs = self.input_specs(node, k)
                given = wanted if isinstance(wanted, Sequence) and not isinstance(wanted, str) else [wanted]
                if len(given) != len(specs) or any(w is not None and w != s for w, s in zip(given, specs, strict=True)):
                    return False
            if part == "max_share" and self._share(node, k) > float(wanted) * (1 + 1e-9):  # type: ignore[arg-type]
                return False
        return True

    def _stored(self, node: int) -> int | None:
        """The tensor of a weight."""
        here = self.problem.nodes[node]
        return self.graph.parameters[here.subject].tensor if here.kind is NodeKind.WEIGHT else None

    def _share(self, node: int, k: int) -> float:
        tensor = self._stored(node)
        if tensor is None:
            return 1.0
        return local_share(self._stored_specs(tensor)[k], self.problem.model.mesh.shape)

    def _stored_specs(self, tensor: int) -> list[Spec]:
        """Those that a weight may have, in the order of its node's strategies."""
        return [s for s in self.problem.model.reshard(self.graph.tensors[tensor]).specs if PARTIAL not in s]

    def output_spec(self, node: int, k: int) -> str:
        """The spec of the first output, or of the stored weight, under strategy k."""
        here = self.problem.nodes[node]
        if here.priced is None:
            tensor = self._stored(node)
            assert tensor is not None, "only operators, updates and weights have names"
            return render(self._stored_specs(tensor)[k], len(self.graph.tensors[tensor].shape))
        strategy, made = here.priced.strategies[k], self._operator(node).outputs
        return render(strategy.outputs[0], len(self.graph.tensors[made[0]].shape)) if made else ""

    def input_specs(self, node: int, k: int) -> tuple[str, ...]:
        """The specs in which strategy k reads its inputs."""
        priced = self.problem.nodes[node].priced
        if priced is None:
            return ()
        read = self._operator(node).inputs
        specs = priced.strategies[k].inputs
        return tuple(render(s, len(self.graph.tensors[t].shape)) for s, t in zip(specs, read, strict=True))

    def _operator(self, node: int) -> Operator:
        here = self.problem.nodes[node]
        if here.kind is NodeKind.UPDATE:
            return self.graph.operators[self.graph.parameters[here.subject].update]
        return self.graph.operators[here.subject]

    def compare(self, choices: tuple[int, ...]) -> WhatIf:
        """`choices` beside those of the plan."""
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
            fits=bool(np.less_equal(peaks[1], self.plan.cluster.device.memory_bytes)),
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
