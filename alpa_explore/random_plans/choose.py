"""A strategy for every node of a stage's sharding problem, without a solver.

The nodes choose one after the other, each among the strategies that resharding connects with what its neighbours have
chosen. Nearly always some strategy is left for every node; where none is, NoChoiceError.
"""

import random
from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from alpa_explore.cost.resharding import UNREACHABLE
from alpa_explore.errors import NoChoiceError
from alpa_explore.intra_op.stage.stage_problem import Node, NodeKind, StageProblem
from alpa_explore.numerics.arrays import Floats, Ints
from alpa_explore.plans.describe import TENSOR_NODES, node_operator, node_specs, node_tensor
from alpa_explore.random_plans import tuning
from alpa_explore.random_plans.draft import Pick, Picks, Subject
from alpa_explore.sharding.spec import REPLICATE

Prefer: TypeAlias = Callable[[int, Ints, Floats], int]
"""(node, its strategies that are left, seconds of each with the neighbours' choices) -> one of those left."""


def choose_nodes(problem: StageProblem, prefer: Prefer) -> tuple[int, ...]:
    """A choice for every node, as `prefer` has it among those that are legal. NoChoiceError where none is left."""
    chosen: dict[int, int] = {}
    neighbours: list[list[tuple[int, Floats]]] = [[] for _ in problem.nodes]
    for edge in problem.edges:
        neighbours[edge.a].append((edge.b, edge.seconds))
        neighbours[edge.b].append((edge.a, edge.seconds.T))
    for v, node in enumerate(problem.nodes):
        seconds = node.microbatch_seconds + node.iteration_seconds
        for other, matrix in neighbours[v]:
            if other in chosen:
                seconds = seconds + matrix[:, chosen[other]]
        left = np.flatnonzero(seconds < UNREACHABLE)
        if not len(left):
            raise NoChoiceError(
                "The stage has no legal choice that begins like this",
                found=f"node {v} of {len(problem.nodes)}",
                remedy="Draw again.",
            )
        chosen[v] = prefer(v, left, seconds[left])
    return tuple(chosen[v] for v in range(len(problem.nodes)))


def uniform(draw: random.Random) -> Prefer:
    """Any legal strategy."""
    return lambda v, left, seconds: int(draw.choice(left.tolist()))


def permitted_by(draw: random.Random, permitted: dict[int, tuple[int, ...]]) -> Prefer:
    """Any legal strategy among the `permitted` ones of a node, where one of them is legal."""

    def prefer(v: int, left: Ints, seconds: Floats) -> int:
        legal = left.tolist()
        within = sorted(set(legal) & set(permitted[v])) if v in permitted else legal
        return int(draw.choice(within or legal))

    return prefer


def cheap(draw: random.Random) -> Prefer:
    """One of the cheapest, given what the neighbours chose before."""

    def prefer(v: int, left: Ints, seconds: Floats) -> int:
        near = left[np.argsort(seconds, kind="stable")[: tuning.NEAR]]
        return int(draw.choice(near.tolist()))

    return prefer


def sparse(draw: random.Random, problem: StageProblem) -> Prefer:
    """Mostly the plainest, some at random: so that few operators are sharded among many that are not."""

    def prefer(v: int, left: Ints, seconds: Floats) -> int:
        if draw.random() < tuning.SHARE_OF_RANDOM_NODES:
            return int(draw.choice(left.tolist()))
        plain = plainness(problem, problem.nodes[v])
        return int(min(left.tolist(), key=plain.__getitem__))

    return prefer


def after(problem: StageProblem, picks: Picks) -> Prefer:
    """The picks where they are legal, the plainest elsewhere."""

    def prefer(v: int, left: Ints, seconds: Floats) -> int:
        node = problem.nodes[v]
        pick = picks.get(subject_of(node))
        legal = left.tolist()
        if pick is not None:
            options = choices_of(problem, node)
            matching = [k for k in legal if options[k] == pick]
            if matching:
                return int(matching[0])
        return int(min(legal, key=plainness(problem, node).__getitem__))

    return prefer


def picks_of(problem: StageProblem, choices: Sequence[int]) -> Picks:
    """The choices of a stage as picks; those that `after` takes by itself are left out.

    A node whose plainest strategy is not legal beside its neighbours is kept, so that `after` gives the same again.
    """
    picks: dict[Subject, Pick] = {}
    for node, choice in zip(problem.nodes, choices, strict=True):
        plain = plainness(problem, node)
        if plain[choice] != min(plain):
            picks[subject_of(node)] = choices_of(problem, node)[choice]
    return picks


def subject_of(node: Node) -> Subject:
    """The node, whatever stage it falls to."""
    return node.kind, node.subject


def choices_of(problem: StageProblem, node: Node) -> list[Pick]:
    """Each choice for a node."""
    if node.kind in TENSOR_NODES:
        return [Pick((spec,)) for spec in node_specs(problem, node)]
    assert node.priced is not None, "operators and updates are priced"
    return [Pick((*s.inputs, *s.outputs), s.factors) for s in node.priced.strategies]


def tensors_of(problem: StageProblem, node: Node) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The tensors whose specs a pick names: those that a node reads, those that it writes."""
    if node.kind in TENSOR_NODES:
        return (), (node_tensor(problem, node),)
    operator = node_operator(problem, node)
    return operator.inputs, operator.outputs


def plainness(problem: StageProblem, node: Node) -> list[tuple[int, int]]:
    """For each choice of a node (placements other than replicated, its place): the least is the plainest."""
    return [
        (sum(placement != REPLICATE for spec in pick.specs for placement in spec), place)
        for place, pick in enumerate(choices_of(problem, node))
    ]


def is_update(node: Node) -> bool:
    """Whether a node is of the optimizer: what ZeRO shards."""
    return node.kind in (NodeKind.UPDATE, NodeKind.ACCUMULATOR, NodeKind.WEIGHT)
