"""Data, ZeRO-like, tensor and pipeline parallelism and their products are plans, and each equals the whole."""

import pytest

from alpa_explore.errors import OptionError
from alpa_explore.graph import Phase
from alpa_explore.programs.lowering.decision import stage_decision
from alpa_explore.programs.lowering.lower import lower
from alpa_explore.programs.program import Collective
from alpa_explore.schedules.task import Action
from alpa_explore.sharding.spec import REPLICATE
from tests.programs.cases import Case
from tests.programs.transforms import divided


def decided(model, kinds):
    """The case, its decision for one stage, and the program of that."""
    case, mesh = Case(model), (2,) * len(kinds)
    problem = case.problem(0, 3, mesh)
    decision = stage_decision(problem, divided(problem, kinds), range(2 ** len(kinds)))
    return case, decision, lower([decision])


def collectives(program, action):
    return [i for i in program.stages[0].tasks[action][0] if isinstance(i, Collective)]


def test_data_parallel_sums_only_gradients_and_each_device_sees_its_own_samples() -> None:
    case, decision, program = decided("mlp-tiny", ("data",))
    assert {decision.sources[t] for t in case.graph.inputs} == {(0,)}
    assert set(decision.weights.values()) == {(REPLICATE,)}
    summed = collectives(program, Action.BACKWARD) + collectives(program, Action.UPDATE)
    assert len(summed) >= len(case.graph.parameters)
    assert len(collectives(program, Action.FORWARD)) <= 2, "forward nothing is exchanged but the loss and its divisor"


def test_zero_keeps_a_piece_of_the_state_on_each_device() -> None:
    _, decision, _ = decided("mlp-tiny", ("zero",))
    cut = [decision.updates[p].outputs[0] != (REPLICATE,) for p in decision.updates]
    assert all(cut)


def test_tensor_parallel_gives_every_device_all_samples_and_a_piece_of_the_large_weights() -> None:
    case, decision, _ = decided("gpt-tiny", ("tensor",))
    assert {decision.sources[t] for t in case.graph.inputs} == {(REPLICATE,)}
    heavy = [o for o in case.graph.operators if o.kind == "aten.mm.default" and o.phase is Phase.FORWARD]
    assert heavy
    assert all(decision.strategies[o.index].work_share == 0.5 for o in heavy)


def test_a_kind_that_is_none_is_refused() -> None:
    case = Case("mlp-tiny")
    problem = case.problem(0, 3, (2, 2))
    with pytest.raises(OptionError, match="data for 2 axes"):
        divided(problem, ("data",))
    with pytest.raises(OptionError, match="rows"):
        divided(problem, ("data", "rows"))
