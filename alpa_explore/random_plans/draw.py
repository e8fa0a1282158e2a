"""A random draft for a seed and a number: the same ones give the same draft on every machine."""

import random
from collections.abc import Sequence
from dataclasses import replace

from alpa_explore.baselines.roles import Role, strategies_for_roles
from alpa_explore.errors import NoChoiceError
from alpa_explore.inter_op.schedule_terms import SCHEDULES
from alpa_explore.intra_op.stage.recomputation import Recomputation
from alpa_explore.intra_op.stage.stage_problem import StageProblem
from alpa_explore.layering import cluster_operators
from alpa_explore.random_plans import tuning
from alpa_explore.random_plans.choose import (
    Prefer,
    cheap,
    choose_nodes,
    is_update,
    permitted_by,
    picks_of,
    sparse,
    uniform,
)
from alpa_explore.random_plans.draft import Draft, DraftStage, DraftSubmesh, MeshShape, Picks
from alpa_explore.random_plans.families import OPTIMIZER_OF
from alpa_explore.random_plans.plan_maker import PlanMaker
from alpa_explore.schedules.catalog import DUAL_PIPE, INTERLEAVED, V_SHAPES

MESHES: dict[int, tuple[MeshShape, ...]] = {
    1: ((),),
    2: ((2,),),
    3: ((3,),),
    4: ((4,), (2, 2), (2, 2)),
    6: ((6,), (2, 3), (3, 2)),
    8: ((8,), (2, 4), (4, 2), (2, 2, 2)),
}
"""Number of devices -> logical meshes."""
SMALL = ("mlp", "tied_mlp", "scores")
"""Families whose operators have few strategies, so that a mesh may have three axes."""
KINDS = ("uniform", "uniform", "sparse", "cheap", "roles", "zero")
"""How the strategies of a stage are drawn; some twice as often."""


def draw_draft(maker: PlanMaker, seed: int, number: int, families: Sequence[str] = ()) -> Draft:
    """Draft `number` of `seed`, of one of `families` (by default of all).

    NoChoiceError where none of several draws has a legal choice for every node.
    """
    draw = random.Random(f"{seed}/{number}")
    # A generator of its own: everything else stays what it was for this seed.
    unlike = random.Random(f"{seed}/{number}/unlike").random() < tuning.UNLIKE_SHARE
    for attempt in range(tuning.ATTEMPTS):
        draft = _outline(maker, draw, draw.choice(sorted(families or OPTIMIZER_OF)))
        if draft.turns == 1 and len(draft.submeshes) > 1:
            draft = replace(draft, unlike=unlike)
        try:
            return replace(draft, picks=tuple(_picks(maker, draw, draft, stage) for stage in draft.stages))
        except NoChoiceError:
            if attempt == tuning.ATTEMPTS - 1:
                raise
    raise AssertionError("a draft or an error")


def _outline(maker: PlanMaker, draw: random.Random, family: str) -> Draft:
    """Everything but the picks."""
    schedule = draw.choice([name for name in SCHEDULES if name != DUAL_PIPE])  # a draft has one copy of the model
    least = 2 if schedule in (INTERLEAVED, *V_SHAPES) else 1
    count = draw.randint(least, tuning.MOST_STAGES)
    turns = draw.choice((2, 2, 3)) if schedule == INTERLEAVED else least
    devices = _devices(draw, count)
    submeshes = tuple(
        DraftSubmesh(layers=turns + draw.choice((0, 0, 1)), meshes=tuple(_mesh(draw, n, family) for _ in range(turns)))
        for n in devices
    )
    layers = sum(submesh.layers for submesh in submeshes)
    graph = maker.family(family).graph
    operators = len(graph.forward_operators)
    while layers > operators:  # too short a model: no layers to spare
        layers, submeshes = count * turns, tuple(replace(s, layers=turns) for s in submeshes)
    if draw.random() < 0.5:
        cuts = tuple(sorted(draw.sample(range(1, operators), layers - 1)))
    else:
        cuts = cluster_operators(graph, layers, delta=float(layers)).cuts
    b = draw.randint(1, tuning.MOST_MICROBATCHES)
    if schedule == INTERLEAVED:
        b = count * draw.choice((1, 2))
    elif schedule in ("zb-h1", "dualpipe-v"):
        b = max(b, count * turns)
    again = Recomputation()
    if (kind := draw.random()) < tuning.RECOMPUTED_LAYERS:
        again = Recomputation.of_layers(k for k in range(layers) if draw.random() < 0.5)
    elif kind < tuning.RECOMPUTED_LAYERS + tuning.RECOMPUTED_BLOCKS:
        again = Recomputation.parse(draw.choice(maker.family(family).recomputations))
    return Draft(
        family=family, cuts=cuts, recomputation=again, schedule=schedule, num_microbatches=b, submeshes=submeshes
    )


def _devices(draw: random.Random, count: int) -> list[int]:
    """Devices of each of `count` submeshes, at most MOST_DEVICES together."""
    while True:
        devices = [draw.choice(tuple(MESHES)) for _ in range(count)]
        if sum(devices) <= tuning.MOST_DEVICES:
            return devices


def _mesh(draw: random.Random, devices: int, family: str) -> MeshShape:
    return draw.choice([mesh for mesh in MESHES[devices] if len(mesh) < 3 or family in SMALL])


def _picks(maker: PlanMaker, draw: random.Random, draft: Draft, stage: DraftStage) -> Picks:
    """Random picks for one stage."""
    problem = maker.problem(draft, stage)
    return picks_of(problem, choose_nodes(problem, _prefer(maker, draw, draft, problem)))


def _prefer(maker: PlanMaker, draw: random.Random, draft: Draft, problem: StageProblem) -> Prefer:
    match draw.choice(KINDS):
        case "sparse":
            return sparse(draw, problem)
        case "cheap":
            return cheap(draw)
        case "roles":
            roles = [draw.choice(tuple(Role)) for _ in problem.model.mesh.shape]
            return permitted_by(draw, _permitted(maker, draft, problem, roles))
        case "zero":  # data parallelism; what is stored and updated is sharded at random: ZeRO-1, 2, 3 and between
            permitted = _permitted(maker, draft, problem, [Role.DATA] * len(problem.model.mesh.shape))
            return permitted_by(draw, {v: k for v, k in permitted.items() if not is_update(problem.nodes[v])})
        case _:
            return uniform(draw)


def _permitted(
    maker: PlanMaker, draft: Draft, problem: StageProblem, roles: Sequence[Role]
) -> dict[int, tuple[int, ...]]:
    return strategies_for_roles(problem, roles, maker.family(draft.family).labels) if roles else {}
