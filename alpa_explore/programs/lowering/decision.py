"""What lowering reads: the decisions of a plan for one stage, a spec or a strategy for every node, and its schedule.

The decisions follow from the sharding problem of the stage and the choice for every node of it. The backward passes of
the schedule must be either all whole (B) or all in two halves (I and W), because a program stores the instructions of a
task once for all microbatches.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from alpa_explore.cost.model import CostModel
from alpa_explore.errors import ProgramError
from alpa_explore.intra_op.stage.stage_graph import StageGraph
from alpa_explore.intra_op.stage.stage_problem import NodeKind, StageProblem
from alpa_explore.plans.describe import node_specs
from alpa_explore.plans.plan import Plan
from alpa_explore.plans.rebuild import details_of
from alpa_explore.plans.schedule_stages import schedule_stages, schedule_table
from alpa_explore.schedules.simulator.simulate import check as check_schedule
from alpa_explore.schedules.task import Action, Schedule
from alpa_explore.sharding.reshard import Step
from alpa_explore.sharding.spec import PARTIAL, Spec
from alpa_explore.sharding.strategy import Strategy


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StageDecision:
    """One stage with its devices and its choices. Weights are identified by their index in `graph.parameters`."""

    stage: StageGraph
    model: CostModel
    """Has the mesh and the resharding steps between specs."""
    ranks: tuple[int, ...]
    """The devices of the mesh, row-major."""
    strategies: Mapping[int, Strategy] = field(repr=False)
    """Forward or backward operator -> its strategy."""
    sources: Mapping[int, Spec] = field(repr=False)
    """Tensor from outside the stage -> the spec in which the stage receives it."""
    weights: Mapping[int, Spec] = field(repr=False)
    """Weight -> the spec in which it is stored."""
    accumulators: Mapping[int, Spec] = field(repr=False)
    """Weight -> the spec in which its gradient is summed over microbatches."""
    updates: Mapping[int, Strategy] = field(repr=False)
    """Weight -> the strategy of its optimizer step."""

    @property
    def mesh_shape(self) -> tuple[int, ...]:
        """Without axes of size 1."""
        return self.model.mesh.shape

    def resharding_steps(self, tensor: int, source: Spec, target: Spec) -> tuple[Step, ...]:
        """The priced steps that reshard a tensor from one spec to another."""
        table = self.model.reshard(self.stage.layered.graph.tensors[tensor])
        return tuple(step for step, _ in table.path(source, target))

    def complete_spec(self, tensor: int, spec: Spec) -> Spec:
        """The spec in which a tensor leaves the stage: `spec`, or, where that has a pending sum, the spec without one
        that is cheapest to reach."""
        if PARTIAL not in spec:
            return spec
        table = self.model.reshard(self.stage.layered.graph.tensors[tensor])
        complete = [s for s in table.specs if PARTIAL not in s]
        return min(complete, key=lambda s: float(table.seconds[table.index[spec], table.index[s]]))


def stage_decision(problem: StageProblem, choices: Sequence[int], ranks: Sequence[int]) -> StageDecision:
    """The decisions of one stage, from the choice for every node of its problem."""
    specs: dict[NodeKind, dict[int, Spec]] = {kind: {} for kind in NodeKind}
    strategies: dict[int, Strategy] = {}
    updates: dict[int, Strategy] = {}
    for node, choice in zip(problem.nodes, choices, strict=True):
        if node.kind is NodeKind.OPERATOR:
            assert node.priced is not None, "operators are priced"
            strategies[node.subject] = node.priced.strategies[choice]
        elif node.kind is NodeKind.UPDATE:
            assert node.priced is not None, "updates are priced"
            updates[node.subject] = node.priced.strategies[choice]
        else:
            specs[node.kind][node.subject] = node_specs(problem, node)[choice]
    return StageDecision(
        stage=problem.stage,
        model=problem.model,
        ranks=tuple(ranks),
        strategies=strategies,
        sources=specs[NodeKind.SOURCE],
        weights=specs[NodeKind.WEIGHT],
        accumulators=specs[NodeKind.ACCUMULATOR],
        updates=updates,
    )


def plan_decisions(plan: Plan, schedule: Schedule) -> tuple[StageDecision, ...]:
    """The decisions for every stage that `schedule` runs; ranks are the plan's device numbers.

    A plan from a file is rebuilt.
    """
    details, decisions = details_of(plan), []
    for stage in schedule_stages(plan, schedule):
        problem, choices = details.solved(stage.layers, plan.candidate_of(stage))
        decisions.append(stage_decision(problem, choices, stage.devices))
    return tuple(decisions)


def program_schedule(plan: Plan, schedule: Schedule | str | None = None) -> Schedule:
    """The schedule of a run: `schedule` itself, the schedule of that name for the plan's B, or the plan's own.

    Raises as `plans.schedule_stages` and `check_table`.
    """
    table = schedule_table(plan, schedule)
    check_table(table, len(schedule_stages(plan, table)))
    return table


def check_table(schedule: Schedule, num_stages: int) -> None:
    """Check that a program with `num_stages` stages can follow a schedule.

    ProgramError for another number of stages, or when some backward passes are whole and some in two halves;
    ScheduleError where the schedule cannot run.
    """
    if schedule.num_stages != num_stages:
        raise ProgramError(
            "The schedule has other stages than the plan",
            found=f"{schedule.num_stages} in {schedule.name}, {num_stages} in the plan",
            remedy="Choose one with a stage on each submesh, such as '1f1b', or make one for this plan.",
        )
    if {Action.BACKWARD, Action.BACKWARD_INPUT} <= set(schedule.actions.tolist()):
        raise ProgramError(
            "A program runs all backward passes whole, or all in two halves",
            found=f"both in {schedule.name}",
            remedy="Write the whole ones as an I with a W behind it.",
        )
    check_schedule(schedule)
