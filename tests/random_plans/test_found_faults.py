"""Plans in which random plans found a fault, as small as they were shrunk."""

import pytest

from alpa_explore.intra_op.stage.recomputation import Recomputation
from alpa_explore.intra_op.stage.stage_problem import NodeKind
from alpa_explore.programs.check import check
from alpa_explore.programs.lowering.lower import lower
from alpa_explore.random_plans.draft import Draft, DraftSubmesh
from alpa_explore.random_plans.plan_maker import shared_maker
from alpa_explore.random_plans.shrink import try_draft
from alpa_explore.schedules.task import Action


def plain(family, cuts, layers, schedule="1f1b", turns=1, num_microbatches=2, meshes=()):
    """A draft without sharded choices: `layers` of each submesh, single devices unless `meshes` are given."""
    submeshes = tuple(
        DraftSubmesh(layers=n, meshes=(mesh,) * turns)
        for n, mesh in zip(layers, meshes or [()] * len(layers), strict=True)
    )
    return Draft(
        family=family,
        cuts=cuts,
        recomputation=Recomputation(),
        schedule=schedule,
        num_microbatches=num_microbatches,
        submeshes=submeshes,
        picks=({},) * (len(layers) * turns),
    )


@pytest.mark.parametrize("meshes", [((), ()), ((2,), (3,)), ((3,), (2, 2))])
@pytest.mark.parametrize("schedule", ["1f1b", "zb-h1"])
def test_a_weight_is_trained_where_a_cut_parts_its_transpose_from_the_product(schedule, meshes) -> None:
    """It was not: the stage that computes the gradient does not read the weight, and had no update for it."""
    maker, draft = shared_maker(), plain("mlp", (1,), (1, 1), schedule, meshes=meshes)
    graph = maker.family("mlp").graph
    assert [o.kind for o in graph.forward_operators[:2]] == ["aten.permute.default", "aten.addmm.default"]
    first, second = (maker.problem(draft, stage) for stage in draft.stages)
    weight = next(i for i, p in enumerate(graph.parameters) if p.name == "hidden.0.weight")
    updates = [{n.subject for n in problem.nodes if n.kind is NodeKind.UPDATE} for problem in (first, second)]
    assert weight in updates[1] - updates[0]
    assert weight in first.stage.parameters
    verdict = try_draft(maker, draft)
    assert verdict.passed, verdict


@pytest.mark.slow
def test_every_use_of_a_shared_weight_adds_to_its_gradient_wherever_the_cuts_are() -> None:
    maker = shared_maker()
    operators = len(maker.family("tied_mlp").graph.forward_operators)
    for cut in range(1, operators):
        verdict = try_draft(maker, plain("tied_mlp", (cut,), (1, 1)))
        assert verdict.passed, (cut, verdict)


def test_updates_of_interleaved_stages_that_share_weights_with_other_ranks_do_not_wait_for_each_other() -> None:
    """Rank 0 waited in the update of its first stage for rank 2, and that one in its first for rank 0's second."""
    cuts = (3, 5, 7, 10, 14, 17, 19)
    draft = plain("tied_mlp", cuts, (2, 2, 4), "interleaved-1f1b", turns=2, num_microbatches=3)
    program = lower(shared_maker().plan(draft))
    check(program)
    assert Action.SEND_GRADIENTS in {task.action for task in program.order(0)}
    verdict = try_draft(shared_maker(), draft)
    assert verdict.passed, verdict


def test_the_update_of_interleaved_stages_without_shared_weights_is_one_task() -> None:
    draft = plain("mlp", (3, 6, 9), (2, 2), "interleaved-1f1b", turns=2)
    program = lower(shared_maker().plan(draft))
    assert {task.action for rank in program.ranks for task in program.updates(rank)} == {Action.UPDATE}
    assert try_draft(shared_maker(), draft).passed
