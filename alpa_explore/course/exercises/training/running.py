"""Exercises of lesson 12: resharding and running."""

from __future__ import annotations

from itertools import product
from random import Random
from typing import NamedTuple

from alpa_explore.cluster import Cluster, Submesh, logical_mesh
from alpa_explore.cost.resharding import ReshardTable, reshard_table
from alpa_explore.course.definition import Exercise
from alpa_explore.course.kinds import Choice, Number
from alpa_explore.sharding.spec import PARTIAL, REPLICATE, Spec, render


class Change(NamedTuple):
    """A matrix on four devices in a row, from one spec to another."""

    size: int
    source: Spec
    target: Spec

    @property
    def table(self) -> ReshardTable:
        """All reshardings of the matrix on 4 V100 of one node, in two bytes an element."""
        mesh = logical_mesh(Cluster.parse("1x4:v100"), Submesh(1, 4), (1, 4)).squeezed()
        return reshard_table((self.size, self.size), 2 * self.size * self.size, mesh)

    @property
    def words(self) -> str:
        """'S0R → RR'."""
        return f"{render(self.source, 2)} → {render(self.target, 2)}"


class Boxes(NamedTuple):
    """A matrix whose rows the senders divide and whose columns the receivers divide."""

    size: int
    senders: int
    receivers: int


class Scaled(NamedTuple):
    """A fault: every gradient is so many times as large as it should be."""

    factor: int
    offered: tuple[str, ...]
    """The comparisons, in the order of the options."""


_COLLECTIVES: dict[str, tuple[Spec, Spec]] = {
    "all-gather": ((0,), (REPLICATE,)),
    "all-reduce": ((PARTIAL,), (REPLICATE,)),
    "reduce-scatter": ((PARTIAL,), (0,)),
    "all-to-all": ((0,), (1,)),
    "slice": ((REPLICATE,), (0,)),
}
"""What changes the first spec into the second, on one axis."""


def _change(random: Random) -> Change:
    source, target = _COLLECTIVES[random.choice(tuple(_COLLECTIVES))]
    return Change(random.choice((512, 1024, 2048, 4096, 8192)), source, target)


def _collective(change: Change) -> str:
    ((step, _),) = change.table.path(change.source, change.target)
    return str(step.kind.value)


def _elements(boxes: Boxes) -> int:
    """That one sender has for one receiver: the overlap of its rows with the receiver's columns."""
    rows = [range(s * boxes.size // boxes.senders, (s + 1) * boxes.size // boxes.senders) for s in range(boxes.senders)]
    columns = [
        range(r * boxes.size // boxes.receivers, (r + 1) * boxes.size // boxes.receivers)
        for r in range(boxes.receivers)
    ]
    overlaps = {len(a) * len(b) for a, b in product(rows, columns)}
    assert len(overlaps) == 1, "all boxes are equal"
    return overlaps.pop()


_PROOFS = (
    "the loss of the first step",
    "the weights after the first step of Adam",
    "every gradient of the first step",
    "the shapes of the weights",
)


def weights_after_adam(factor: float) -> float:
    """The largest relative change of a weight after one step of Adam when all gradients are `factor` times too "
    "large."""
    import torch  # late: only this exercise needs it

    ends = []
    for scale in (1.0, factor):
        weight = torch.nn.Parameter(torch.linspace(-1.0, 1.0, 64, dtype=torch.float64))
        optimizer = torch.optim.Adam([weight], lr=1e-3)
        weight.grad = scale * torch.cos(torch.arange(64, dtype=torch.float64))
        optimizer.step()
        ends.append(weight.detach().clone())
    return float(((ends[0] - ends[1]).abs() / ends[0].abs()).max())


EXERCISES = (
    Exercise(
        id="12.1",
        draw=_change,
        kind=lambda _: Choice(options=tuple(_COLLECTIVES)),
        truth=_collective,
        values={
            "wanted": lambda _, truth: {
                "all-gather": "every device has a part, and wants all parts.",
                "all-reduce": "every device has a summand of all elements, and wants their sum.",
                "reduce-scatter": "every device has a summand, and wants the sum of its part.",
                "all-to-all": "every device has rows, and wants columns: a block goes from each to each.",
                "slice": "every device has all, and keeps a part. Nothing is sent.",
            }[truth],
            "seconds": lambda n, _: float(sum((s for _, s in n.table.path(n.source, n.target)))),
            "overlooked": lambda _, truth: (
                "An all-reduce sums what is pending (`+P0`), and leaves the sum on all devices."
                if truth != "all-reduce"
                else "An all-gather puts parts side by side. Here are summands of the same elements."
            ),
        },
        wrong=lambda c, truth: ("all-reduce" if truth != "all-reduce" else "all-gather",),
        holds=lambda c: len(c.table.path(c.source, c.target)) == 1,
    ),
    Exercise(
        id="12.2",
        draw=lambda random: Boxes(
            random.choice((256, 512, 1024, 2048)), random.choice((2, 4)), random.choice((2, 4, 8))
        ),
        kind=lambda _: Number(tolerance=0),
        truth=_elements,
        values={"rows": lambda n, _: n.size // n.senders, "columns": lambda n, _: n.size // n.receivers},
        wrong=lambda b, truth: (
            b.size * b.size // b.senders,
            b.size * b.size // b.receivers if b.receivers != b.senders else None,
        ),
        holds=lambda b: 0 < _elements(b) < b.size * b.size // max(b.senders, b.receivers),
    ),
    Exercise(
        id="12.3",
        draw=lambda random: Scaled(random.choice((2, 4, 8)), tuple(random.sample(_PROOFS, len(_PROOFS)))),
        kind=lambda s: Choice(options=s.offered),
        truth=lambda _: _PROOFS[2],
        values={"difference": lambda n, _: weights_after_adam(n.factor), "proof": lambda *_: _PROOFS[2]},
        wrong=lambda *_: (_PROOFS[0], _PROOFS[1]),
        holds=lambda s: weights_after_adam(s.factor) < 1e-6,
    ),
)
"""In the order of their ids."""
