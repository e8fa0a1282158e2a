"""Exercises of lesson 14: your own model, your own rule."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from alpa_explore.course.definition import Exercise
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
        draw=lambda random: Unary(random.choice(tuple(_OPERATORS)), random.choice((0, 1, 2))),
        kind=lambda _: Items(of="dims"),
        truth=divisible_dims,
        values={"shape": lambda *_: _SHAPE},
        wrong=lambda u, truth: ([u.dim], [0, 1, 2]),
        holds=lambda u: divisible_dims(u) == [dim for dim in range(3) if dim != u.dim],
    ),
    Exercise(
        id="14.2",
        draw=lambda random: Product(random.choice(_RULES), 64, random.choice((1, 2, 3))),
        kind=lambda _: Number(tolerance=0),
        truth=_strategies,
        values={
            "axes": lambda n, _: "axis" if n.axes == 1 else "axes",
            "count": lambda n, _: len(n.factors),
            "factors": lambda n, _: ", ".join(n.factors),
        },
        wrong=lambda p, truth: (
            (len(p.factors) + 1) ** p.axes,
            len(p.factors) * p.axes if len(p.factors) * p.axes != truth else None,
        ),
        holds=lambda p: p.size % 2**p.axes == 0,
    ),
)
"""In the order of their ids."""
