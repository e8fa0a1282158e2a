"""Ignored and weighted targets count over all shards and microbatches, as in one large batch."""

import pytest
import torch

from alpa_explore.programs.execution.interpret import interpret
from alpa_explore.programs.program import Count
from alpa_explore.schedules.task import Action
from alpa_explore.tracing.evaluate import counted_losses
from tests.programs.cases import Case, at_random
from tests.programs.models import build_any
from tests.programs.transforms import divided

STAGES = [((0, 0), (2,)), ((1, 1), (2, 2))]


def case_of(name, microbatches=3):
    """Microbatches with all, few and no targets."""
    case = Case(name, num_microbatches=microbatches, num_layers=2)
    (labels,) = [t for t in case.graph.inputs if case.graph.tensors[t].name == "labels"]
    case.microbatches[-1][labels][:, 2:] = -100
    case.microbatches[1][labels][:] = -100
    return case, labels


@pytest.mark.parametrize("name", ["scores", "weighted-scores"])
@pytest.mark.parametrize("choose", [lambda p: divided(p, ("data",) * len(p.model.mesh.shape)), at_random(2)])
def test_gradients_are_those_of_all_microbatches_as_one_batch(name, choose) -> None:
    case, _ = case_of(name)
    program = case.program(STAGES, choose)
    made = case.assert_equal(program)
    torch.manual_seed(0)
    model = build_any(name, 4)[0].double()
    parts = [model.parts(*(one[t] for t in case.graph.inputs)) for one in case.microbatches]
    loss = sum(p[0] for p in parts) / sum(p[1] for p in parts) + sum(p[2] for p in parts) / len(parts)
    loss.backward()
    assert sum(made.losses) / 3 == pytest.approx(loss.item(), rel=1e-12)
    gradients = dict(model.named_parameters())
    for place, parameter in enumerate(case.graph.parameters):
        torch.testing.assert_close(made.gradients[place], gradients[parameter.name].grad, rtol=1e-9, atol=1e-12)
    means = sum((p[0] / p[1]).nan_to_num() for p in parts) / 3
    assert abs((means - sum(p[0] for p in parts) / sum(p[1] for p in parts)).item()) > 1e-3, "the test can fail"


def test_the_ranks_of_the_loss_count_instead_of_summing_counts() -> None:
    case, _ = case_of("scores")
    stage = case.layered.layer_of[next(iter(counted_losses(case.graph)))]
    program = case.program(STAGES, at_random(1))
    counting = [
        rank
        for s in program.stages
        for rank, own in s.tasks[Action.FORWARD].items()
        for i in own
        if isinstance(i, Count)
    ]
    assert counting == list(program.stages[stage].ranks)


def test_targets_that_weights_make_are_counted_in_each_microbatch() -> None:
    case, _ = case_of("own-targets")
    assert not counted_losses(case.graph)
    case.assert_equal(case.program(STAGES, at_random(0)))


def test_an_iteration_without_a_target_has_no_loss() -> None:
    case, labels = case_of("scores", microbatches=2)
    for one in case.microbatches:
        one[labels][:] = -100
    made = interpret(case.program(STAGES, at_random(0)), case.state, case.microbatches)
    assert all(loss != loss for loss in made.losses)
