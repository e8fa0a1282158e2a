"""Exercises of lesson 12: resharding and running."""

from __future__ import annotations

from itertools import product
from random import Random
from textwrap import dedent
from typing import NamedTuple

from alpa_explore import units
from alpa_explore.cluster import Cluster, Submesh, logical_mesh
from alpa_explore.cost.resharding import ReshardTable, reshard_table
from alpa_explore.course.definition import Exercise, Mistake
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
        title="Which collective?",
        draw=_change,
        question=lambda c: (
            f"Four devices hold a matrix of {c.size:,} × {c.size:,}. It is made in one spec and read in another: "
            f"`{c.words}`.\n\nWhich operation changes it?"
        ),
        kind=lambda _: Choice(options=tuple(_COLLECTIVES)),
        truth=_collective,
        why=lambda c, truth: (
            f"`{c.words}` is one {truth}: "
            + {
                "all-gather": "every device has a part, and wants all parts.",
                "all-reduce": "every device has a summand of all elements, and wants their sum.",
                "reduce-scatter": "every device has a summand, and wants the sum of its part.",
                "all-to-all": "every device has rows, and wants columns: a block goes from each to each.",
                "slice": "every device has all, and keeps a part. Nothing is sent.",
            }[truth]
            + f" It takes {units.seconds(float(sum(s for _, s in c.table.path(c.source, c.target))))}."
        ),
        mistakes=lambda c, truth: [
            Mistake(
                answer="all-reduce" if truth != "all-reduce" else "all-gather",
                reason="An all-reduce sums what is pending (`+P0`), and leaves the sum on all devices."
                if truth != "all-reduce"
                else "An all-gather puts parts side by side. Here are summands of the same elements.",
            )
        ],
        hints=lambda c: (
            "R: every device has all of it; S0: a device has a run of rows or columns; +P0: a summand.",
            f"What has a device before, what after? `{c.words}`",
        ),
        code=lambda c: dedent(f"""\
            from alpa_explore.cluster import Cluster, Submesh, logical_mesh
            from alpa_explore.cost.resharding import reshard_table
            mesh = logical_mesh(Cluster.parse("1x4:v100"), Submesh(1, 4), (1, 4)).squeezed()
            table = reshard_table(({c.size}, {c.size}), 2 * {c.size}**2, mesh)
            ((step, _),) = table.path({c.source}, {c.target})
            answer = step.kind.value
            """),
        premise="one collective is the cheapest way",
        holds=lambda c: len(c.table.path(c.source, c.target)) == 1,
    ),
    Exercise(
        id="12.2",
        title="Boxes between stages",
        draw=lambda random: Boxes(
            random.choice((256, 512, 1024, 2048)), random.choice((2, 4)), random.choice((2, 4, 8))
        ),
        question=lambda b: (
            f"A stage on {b.senders} devices has made a matrix of {b.size} × {b.size} in `S0R` (rows divided). The "
            f"next, on {b.receivers} devices, reads it in `RS0` (columns divided).\n\nHow many elements does one "
            "device of the first stage send to one of the second?"
        ),
        kind=lambda _: Number(tolerance=0),
        truth=_elements,
        why=lambda b, truth: (
            f"The sender has {b.size // b.senders} whole rows, the receiver needs {b.size // b.receivers} whole "
            f"columns. They share {b.size // b.senders} × {b.size // b.receivers} = {truth:,} elements; every receiver "
            "gets as many from every sender, each element once."
        ),
        mistakes=lambda b, truth: [
            Mistake(
                answer=b.size * b.size // b.senders,
                reason="That is all that the sender has; the receiver needs only its columns of it.",
            ),
            *(
                [Mistake(answer=b.size * b.size // b.receivers, reason="That is all that the receiver gets.")]
                if b.receivers != b.senders
                else []
            ),
        ],
        hints=lambda _: (
            "Draw both boxes over the matrix. What do they have in common?",
            "Rows of the sender × columns of the receiver.",
        ),
        code=lambda b: f"answer = ({b.size} // {b.senders}) * ({b.size} // {b.receivers})",
        premise="the boxes overlap in part only",
        holds=lambda b: 0 < _elements(b) < b.size * b.size // max(b.senders, b.receivers),
    ),
    Exercise(
        id="12.3",
        title="What proves a plan?",
        draw=lambda random: Scaled(random.choice((2, 4, 8)), tuple(random.sample(_PROOFS, len(_PROOFS)))),
        question=lambda s: (
            f"A plan forgets to divide by the number of replicas: every gradient is {s.factor} times as large as it "
            "should be. The model trains with Adam.\n\nWhich comparison with a single process shows the fault?"
        ),
        kind=lambda s: Choice(options=s.offered),
        truth=lambda _: _PROOFS[2],
        why=lambda s, truth: (
            f"It is {truth}. The loss of the first step is computed before any gradient is. Adam divides the first "
            f"moment by the root of the second, so a factor of {s.factor} cancels: the weights differ by "
            f"{weights_after_adam(s.factor):.0e} after the step. The gradients themselves differ at once. So `verify` "
            "compares every gradient."
        ),
        mistakes=lambda *_: [
            Mistake(answer=_PROOFS[0], reason="It is computed in the forward pass, before there is a gradient."),
            Mistake(answer=_PROOFS[1], reason="Adam's step hardly depends on the scale of the gradients."),
        ],
        hints=lambda _: (
            "In which order are loss, gradients and weights computed?",
            "Adam's step is m / (√v + ε). What does it do with c · gradient, for a number c?",
        ),
        code=lambda _: f"answer = {_PROOFS[2]!r}",
        premise="one step of Adam hides the factor",
        holds=lambda s: weights_after_adam(s.factor) < 1e-6,
    ),
)
"""In the order of their ids."""
