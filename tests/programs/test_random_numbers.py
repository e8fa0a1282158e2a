"""Operators that draw: copies agree, pieces differ, and the same seed gives the same iteration."""

import pytest
import torch

from alpa_explore.programs.execution.interpret import interpret
from alpa_explore.programs.program import Compute
from alpa_explore.schedules.task import Action
from tests.programs.cases import Case, at_random
from tests.programs.transforms import divided

STAGES = [((0, 0), (2,)), ((1, 1), (2, 2))]


def run(case, program, seed=0):
    # Copies of a gradient on several ranks must be equal: the interpreter refuses what they drew differently.
    return interpret(program, case.state, case.microbatches, seed=seed)


@pytest.mark.parametrize("choose", [lambda p: divided(p, ("data",) * len(p.model.mesh.shape)), at_random(1)])
def test_the_same_seed_gives_the_same_iteration_on_every_copy(choose) -> None:
    case = Case("drawing", num_microbatches=2, num_layers=2)
    program = case.program(STAGES, choose)
    first, again, other = (run(case, program, seed) for seed in (0, 0, 1))
    assert first.losses == again.losses != other.losses
    assert all(torch.equal(first.gradients[p], again.gradients[p]) for p in first.gradients)
    assert len(set(first.losses)) == 2, "microbatches draw for themselves"


def test_what_is_computed_again_draws_the_same() -> None:
    held, again = (Case("drawing", num_microbatches=2, num_layers=2, rematerialization=r) for r in (False, True))
    assert any(again.graph.operators[o].kind == "aten.native_dropout.default" for o in again.layered.recomputed)
    made = [run(case, case.program(STAGES, at_random(3))) for case in (held, again)]
    assert made[0].losses == made[1].losses
    for place, gradient in made[0].gradients.items():
        torch.testing.assert_close(made[1].gradients[place], gradient)


def test_pieces_of_a_batch_draw_different_numbers_and_copies_the_same() -> None:
    case = Case("drawing", num_layers=2)
    tasks = case.program([((0, 1), (2,))], lambda p: divided(p, ("data",))).stages[0].tasks[Action.FORWARD]
    seeds = [[i.seed for i in tasks[rank] if isinstance(i, Compute) and i.seed] for rank in (0, 1)]
    assert [a == b for a, b in zip(*seeds, strict=True)] == [False, True, False], "dropout, permutation, dropout"
