"""Exercises of lesson 14: your own model, your own rule."""

from __future__ import annotations

from textwrap import dedent
from typing import TYPE_CHECKING, NamedTuple

from alpa_explore.course.definition import Exercise, Mistake
from alpa_explore.course.kinds import Items, Number
from alpa_explore.graph.tensor import Tensor, TensorKind
from alpa_explore.sharding.rules.factors import from_factors
from alpa_explore.sharding.strategy import enumerate_strategies

if TYPE_CHECKING:
    import torch

_SHAPE = (4, 6, 8)
_OPERATORS = {
    "softmax": "torch.softmax(x, dim={dim})",
    "cumsum": "torch.cumsum(x, dim={dim})",
    "sort": "torch.sort(x, dim={dim}).values",
    "logcumsumexp": "torch.logcumsumexp(x, dim={dim})",
    "flip": "torch.flip(x, dims=[{dim}])",
    "cumprod": "torch.cumprod(x, dim={dim})",
    "log_softmax": "torch.log_softmax(x, dim={dim})",
    "roll": "torch.roll(x, 1, dims={dim})",
}

_RULES = ("mk,kn->mn", "mk,nk->mn", "km,kn->mn", "bmk,bkn->bmn", "bmk,kn->bmn", "bnk,bmk->bmn", "bhsd,bhtd->bhst")


class Unary(NamedTuple):
    """An operator along one dim of a tensor of three dims."""

    name: str
    dim: int

    @property
    def code(self) -> str:
        """As one types it."""
        return _OPERATORS[self.name].format(dim=self.dim)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Run it."""
        import torch

        result: torch.Tensor = eval(self.code, {"torch": torch, "x": x})
        return result


class Product(NamedTuple):
    """A product in the notation of einsum."""

    rule: str
    size: int
    axes: int

    @property
    def factors(self) -> str:
        """The loop dims."""
        return "".join(sorted(set(self.rule) - set(",->")))


def divisible_dims(operator: Unary) -> list[int]:
    """The dims along which the operator can run in two parts: found by running it."""
    import torch

    x = torch.randn(_SHAPE, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    whole = operator(x)
    return [
        dim
        for dim in range(x.dim())
        if torch.allclose(torch.cat([operator(part) for part in x.chunk(2, dim)], dim), whole)
    ]


def _strategies(product: Product) -> int:
    """On a mesh of `axes` axes of two devices, by the library's own enumeration."""
    inputs, output = product.rule.split("->")
    operands = [
        Tensor(
            index=place,
            name=text,
            shape=(product.size,) * len(text),
            dtype="float32",
            kind=TensorKind.VALUE,
            producer=None,
        )
        for place, text in enumerate((*inputs.split(","), output))
    ]
    splits = from_factors(product.rule, operands[:-1], operands[-1:])
    shapes = [tensor.shape for tensor in operands]
    return len(enumerate_strategies(splits, shapes[:-1], shapes[-1:], (2,) * product.axes, replicable=False))


EXERCISES = (
    Exercise(
        id="14.1",
        title="Which dims can be divided?",
        draw=lambda random: Unary(random.choice(tuple(_OPERATORS)), random.choice((0, 1, 2))),
        question=lambda u: (
            f"Suppose that the planner had no rule for `{u.code}`, on a tensor x of shape {list(_SHAPE)}. It runs the "
            "operator whole, and on the two halves of x along each dim, put together again.\n\nAlong which dims are "
            "both equal?"
        ),
        kind=lambda _: Items(of="dims"),
        truth=divisible_dims,
        why=lambda u, truth: (
            f"{u.name} works along dim {u.dim} and treats every other position alike: {truth} can be divided. Half of "
            f"dim {u.dim} is not enough to compute half of the result. The planner finds this by running it, as you "
            "can."
        ),
        mistakes=lambda u, truth: [
            Mistake(answer=[u.dim], reason="Along this dim the elements depend on each other; along the others not."),
            Mistake(answer=[0, 1, 2], reason=f"Run it on the halves along dim {u.dim} and compare."),
        ],
        hints=lambda u: (
            "Which elements of x does one element of the result depend on?",
            f"Try it: `torch.cat([f(part) for part in x.chunk(2, dim)], dim)` with f(x) = {u.code}.",
        ),
        code=lambda u: dedent(f"""\
            import torch
            x = torch.randn({_SHAPE}, dtype=torch.float64)
            f = lambda x: {u.code}
            parts = lambda dim: torch.cat([f(part) for part in x.chunk(2, dim)], dim)
            answer = [dim for dim in range(3) if torch.allclose(parts(dim), f(x))]
            """),
        premise="its own dim cannot be divided, the others can",
        holds=lambda u: divisible_dims(u) == [dim for dim in range(3) if dim != u.dim],
    ),
    Exercise(
        id="14.2",
        title="Strategies from factors",
        draw=lambda random: Product(random.choice(_RULES), 64, random.choice((1, 2, 3))),
        question=lambda p: (
            f"A rule says `{p.rule}`: all sizes are {p.size}. On a mesh of {p.axes} "
            f"{'axis' if p.axes == 1 else 'axes'} of two devices each axis divides one factor, and a product is never "
            "replicated. Several axes may divide the same factor.\n\nHow many strategies are there?"
        ),
        kind=lambda _: Number(tolerance=0),
        truth=_strategies,
        why=lambda p, truth: (
            f"{len(p.factors)} factors ({', '.join(p.factors)}), one for each axis: {len(p.factors)}^{p.axes} = "
            f"{truth}. A factor that is summed leaves a pending sum. This is why the integer program grows with the "
            "axes, and not with the devices."
        ),
        mistakes=lambda p, truth: [
            Mistake(answer=(len(p.factors) + 1) ** p.axes, reason="That counts replicated axes, too."),
            *(
                [Mistake(answer=len(p.factors) * p.axes, reason="The axes choose independently: multiply.")]
                if len(p.factors) * p.axes != truth
                else []
            ),
        ],
        hints=lambda _: (
            "Which letters does the rule have? Each is a loop that an axis can divide.",
            "Every axis chooses one of the letters, whatever the others choose.",
        ),
        code=lambda p: f"answer = len(set({p.rule!r}) - set(',->')) ** {p.axes}",
        premise="every factor can be divided by all axes together",
        holds=lambda p: p.size % 2**p.axes == 0,
    ),
)
"""In the order of their ids."""
