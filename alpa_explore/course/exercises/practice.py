"""Exercises of lessons 12 to 14: resharding and running, how good the numbers are, a model and a rule of one's own."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import product
from random import Random
from types import SimpleNamespace
from typing import TYPE_CHECKING, NamedTuple

from alpa_explore.accuracy.choices import Choice as MeasuredChoice
from alpa_explore.accuracy.choices import choices
from alpa_explore.accuracy.measured_run import MeasuredRun
from alpa_explore.accuracy.record import stored_record
from alpa_explore.cluster import Cluster, Submesh, logical_mesh
from alpa_explore.cost.resharding import ReshardTable, reshard_table
from alpa_explore.graph.tensor import Tensor, TensorKind
from alpa_explore.sharding.rules.factors import from_factors
from alpa_explore.sharding.spec import PARTIAL, REPLICATE, Spec, local_shape, render
from alpa_explore.sharding.strategy import enumerate_strategies


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


if TYPE_CHECKING:
    import torch


_COLLECTIVES: dict[str, tuple[Spec, Spec]] = {
    "all-gather": ((0,), (REPLICATE,)),
    "all-reduce": ((PARTIAL,), (REPLICATE,)),
    "reduce-scatter": ((PARTIAL,), (0,)),
    "all-to-all": ((0,), (1,)),
    "slice": ((REPLICATE,), (0,)),
}
"""What changes the first spec into the second, on one axis."""
_LEAVES = {
    "all-gather": "An all-gather puts parts side by side: it adds nothing, and leaves all of them on every device.",
    "all-reduce": "An all-reduce sums what is pending (`+P0`), and leaves the sum on every device.",
    "reduce-scatter": "A reduce-scatter sums what is pending (`+P0`), and leaves each device a part of the sum.",
    "all-to-all": "An all-to-all makes one share into another: it adds nothing, and no device has more than before.",
    "slice": "A slice cuts a part out of what a device has: nothing is sent, and nothing added.",
}
"""What each of them does."""


def _change(random: Random) -> Change:
    source, target = _COLLECTIVES[random.choice(tuple(_COLLECTIVES))]
    return Change(random.choice((512, 1024, 2048, 4096, 8192)), source, target)


def _collective(change: Change) -> str:
    ((step, _),) = change.table.path(change.source, change.target)
    return str(step.kind.value)


def _elements(boxes: SimpleNamespace) -> int:
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


class Errors(NamedTuple):
    """(predicted, measured) seconds of some runs that somebody measured."""

    runs: tuple[tuple[float, float], ...]
    source: str

    @property
    def each(self) -> list[float]:
        """predicted / measured − 1."""
        return [predicted / measured - 1 for predicted, measured in self.runs]

    @property
    def mean_error(self) -> float:
        """Mean of the absolute errors."""
        return sum(map(abs, self.each)) / len(self.runs)

    @property
    def seconds(self) -> float:
        """Mean of the absolute differences in seconds."""
        return sum(abs(predicted - measured) for predicted, measured in self.runs) / len(self.runs)

    @property
    def bias(self) -> float:
        """Mean of the errors."""
        return sum(self.each) / len(self.runs)


class Layouts(NamedTuple):
    """Seconds of layouts of one model on the same GPUs: (predicted, measured) of each."""

    names: tuple[str, ...]
    seconds: tuple[tuple[float, float], ...]
    model: str

    @property
    def regret(self) -> float:
        """How much longer the predicted best takes than the best."""
        picked = min(self.seconds, key=lambda pair: pair[0])
        return picked[1] / self.fastest - 1

    @property
    def fastest(self) -> float:
        """The least measured time."""
        return min(measured for _, measured in self.seconds)

    @property
    def worst(self) -> float:
        """How much longer the slowest takes than the fastest."""
        return max(measured for _, measured in self.seconds) / self.fastest - 1


def _usable(run: MeasuredRun) -> bool:
    return run.seconds_error is not None and bool(run.predicted_seconds and run.measured_seconds)


def _errors(random: Random) -> Errors:
    """Some runs of one source, with errors of both signs."""
    record = stored_record()
    while True:
        source = random.choice(record.sources)
        runs = [run for run in record.of(source.name) if _usable(run)]
        if len(runs) < 8:
            continue
        pairs = tuple(
            (round(run.predicted_seconds or 0.0, 3), round(run.measured_seconds or 0.0, 3))
            for run in random.sample(runs, 4)
        )
        errors = Errors(pairs, source.label)
        if min(errors.each) < -0.005 and max(errors.each) > 0.005 and errors.mean_error > 1.2 * abs(errors.bias):
            return errors


def _groups() -> list[MeasuredChoice]:
    """Groups of layouts that ran once each, of the same batch."""
    return [
        choice
        for choice in choices(stored_record().runs)
        if len(choice.runs) == choice.layouts >= 4
        and len({run.global_batch for run in choice.runs}) == 1
        and len({run.layout for run in choice.runs}) == len(choice.runs)
    ]


def _layouts(random: Random) -> Layouts:
    """Four layouts of a group."""
    group = random.choice(_groups())
    runs = random.sample(group.runs, 4)
    seconds = tuple((round(r.predicted_seconds or 0.0, 3), round(r.measured_seconds or 0.0, 3)) for r in runs)
    model = f"{group.best.model} on {group.best.gpus} {group.best.device.upper()}"
    return Layouts(tuple(run.layout for run in runs), seconds, model)


def _lines(rows: tuple[tuple[float, float], ...], names: tuple[str, ...] = ()) -> str:
    labels = names or tuple(f"run {place}" for place in range(1, len(rows) + 1))
    return "\n".join(
        f"- {label}: predicted {predicted:g} s, measured {measured:g} s"
        for label, (predicted, measured) in zip(labels, rows, strict=True)
    )


_FITTED = ("the fitted runs", "the runs that were held out", "all runs together")


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


class Repeated(NamedTuple):
    """A step of which a part is repeated on all devices, and the rest divided, in milliseconds on one device."""

    repeated: int
    divided: int
    gathers: int
    """What brings the part's input to every device, on any number of devices."""
    devices: int

    @property
    def speedup(self) -> float:
        """Over one device, which gathers nothing."""
        return (self.repeated + self.divided) / (self.repeated + self.divided / self.devices + self.gathers)


class Held(NamedTuple):
    """A product in the notation of einsum on a mesh of two axes, each of which divides a factor."""

    rule: str
    sizes: Mapping[str, int]
    factors: str
    """Of axis 0 and of axis 1."""
    axes: tuple[int, int]

    def numbers(self, letters: str) -> int:
        """That a device holds of a tensor with these dims."""
        spec = tuple(letters.index(factor) if factor in letters else REPLICATE for factor in self.factors)
        shape = tuple(self.sizes[letter] for letter in letters)
        held: tuple[int, ...] = local_shape(spec, shape, self.axes)
        return math.prod(held)

    @property
    def tensors(self) -> list[str]:
        """Dims of the inputs and of the output."""
        return self.rule.replace("->", ",").split(",")

    @property
    def held(self) -> int:
        """Numbers of all three tensors on a device."""
        return sum(map(self.numbers, self.tensors))

    @property
    def whole(self) -> int:
        """Without any division."""
        return sum(math.prod(self.sizes[letter] for letter in letters) for letters in self.tensors)


def _held(random: Random) -> Held:
    sizes = {"m": 64 * random.randint(2, 9), "k": 64 * random.randint(2, 9), "n": 64 * random.randint(2, 9)}
    return Held("mk,kn->mn", sizes, random.choice(("mk", "nk", "km", "kn")), random.choice(((2, 4), (4, 2), (2, 8))))


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
