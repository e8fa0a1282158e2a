"""A zero-bubble schedule runs each half of the backward pass apart: what the timeline counts in it, nothing else."""

import pytest

import alpa_explore as ax
from alpa_explore.graph import Phase
from alpa_explore.programs.check import check
from alpa_explore.programs.lowering.lower import lower
from alpa_explore.programs.program import Compute, Send
from alpa_explore.schedules.task import Action
from tests.programs.cases import Case


def computed(program, stage, action):
    """(backward, repeated forward) operators that the first rank of a stage runs in such a task."""
    rank = program.stages[stage].ranks[0]
    operators = [i.operator for i in program.stages[stage].tasks[action][rank] if isinstance(i, Compute)]
    named = [program.graph.operators[o.index] for o in operators]
    return tuple({o.name for o in named if o.phase is phase} for phase in (Phase.BACKWARD, Phase.FORWARD))


@pytest.mark.slow
@pytest.mark.parametrize("rematerialization", [False, True])
def test_the_weight_half_is_that_of_the_timeline_and_sends_nothing(rematerialization) -> None:
    case = Case("gpt-tiny", num_microbatches=4, rematerialization=rematerialization)
    # The first stage has one layer: of more, the timeline counts what passes between them as the half of inputs.
    options = ax.PipelineOptions(schedule="zb-h1", num_stages=3, cuts=(1, 2))
    plan = ax.plan(case.graph, "1x4:v100", num_microbatches=4, num_layers=4, delta=1.0, pipeline=options)
    program = lower(plan)
    check(program)
    case.assert_equal(program)
    for stage, times in zip(plan.stages, plan.timeline().times, strict=True):
        first, repeated_first = computed(program, stage.index, Action.BACKWARD_INPUT)
        second, repeated_second = computed(program, stage.index, Action.BACKWARD_WEIGHT)
        backward = [o for o in stage.operators if o.phase == "backward" and o.compute_seconds]
        assert {o.name for o in backward if o.weight_half} <= second
        assert {o.name for o in backward if not o.weight_half} <= first
        assert not first & second
        assert bool(first) == (stage.index > 0), "nobody waits for the first stage"
        assert bool(repeated_first) == (rematerialization and stage.index > 0)
        assert bool(repeated_second) == (rematerialization and stage.index == 0)
        assert (times.backward_input_seconds > 0) == bool(first)
        for rank, instructions in program.stages[stage.index].tasks[Action.BACKWARD_WEIGHT].items():
            assert not any(isinstance(i, Send) for i in instructions), rank
