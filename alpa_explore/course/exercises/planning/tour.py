"""Exercises of lesson 00: the tour."""

from __future__ import annotations

from random import Random
from typing import NamedTuple

from alpa_explore.course.definition import Exercise
from alpa_explore.course.kinds import Items, Number
from alpa_explore.figures.course.planning.ways import WAYS, Way
from alpa_explore.models.catalog import entry

STATE_BYTES = 18
"""Bytes of a parameter in mixed precision with Adam: weight, gradient, weight in float32, two moments."""
_MODELS = ("llama-2-13b", "llama-3-8b", "llama-3-70b", "qwen3-14b", "qwen3-32b")


class Degrees(NamedTuple):
    """A model on dp · tp · pp devices."""

    model: str
    dp: int
    tp: int
    pp: int

    @property
    def held(self) -> float:
        """Bytes of the model's state on a device."""
        return STATE_BYTES * entry(self.model).parameter_count / (self.tp * self.pp)


class Place(NamedTuple):
    """A device in one of the ways of the figure, and what is asked of it."""

    way: int
    device: int
    asked: str
    """'samples' or 'layers'."""

    @property
    def of(self) -> Way:
        """The way."""
        return WAYS[self.way]

    @property
    def found(self) -> list[int]:
        """The samples or the layers of the device."""
        return self.of.samples(self.device) if self.asked == "samples" else self.of.layers(self.device)

    @property
    def degree(self) -> int:
        """By how much what is asked is divided."""
        return self.of.dp if self.asked == "samples" else self.of.pp


def _degrees(random: Random) -> Degrees:
    return Degrees(
        model=random.choice(_MODELS), dp=random.choice((2, 4, 8)), tp=random.choice((2, 4, 8)), pp=random.choice((2, 4))
    )


def _place(random: Random) -> Place:
    """A device in a combination of two ways."""
    ways = [number for number, way in enumerate(WAYS) if 2 in (way.dp, way.tp, way.pp)]
    return Place(way=random.choice(ways), device=random.randrange(4), asked=random.choice(("samples", "layers")))


EXERCISES = (
    Exercise(
        id="00.1",
        draw=_degrees,
        kind=lambda _: Number(unit="B"),
        truth=lambda degrees: degrees.held,
        values={
            "parameters": lambda n, _: entry(n.model).parameter_count,
            "devices": lambda n, _: n.dp * n.tp * n.pp,
            "state_bytes": lambda *_: STATE_BYTES,
        },
        wrong=lambda degrees, truth: (
            truth / degrees.dp,
            truth * (6 + 12 / degrees.dp) / STATE_BYTES,
            truth * degrees.pp,
        ),
        holds=lambda degrees: (
            Way(name="", dp=1, tp=degrees.tp, pp=degrees.pp, sends="").weight_share == 1 / (degrees.tp * degrees.pp)
        ),
    ),
    Exercise(
        id="00.2",
        draw=_place,
        kind=lambda place: Items(of=place.asked),
        truth=lambda place: place.found,
        values={
            "asked": lambda n, _: "compute? Samples" if n.asked == "samples" else "hold, in whole or in part? Layers",
            "side": lambda n, _: "left" if n.asked == "samples" else "top",
            "by": lambda n, _: "dp" if n.asked == "samples" else "pp",
            "divided": lambda n, truth: (
                f"the {n.asked} are divided among {n.degree} groups of devices, and this one has {truth}."
                if n.degree > 1
                else f"the {n.asked} are not divided, so every device has {truth}."
            ),
            "rule": lambda n, _: (
                "Data parallelism divides the samples, and nothing else does."
                if n.asked == "samples"
                else "A pipeline divides the layers, and nothing else does: tensor parallelism cuts each matrix."
            ),
        },
        wrong=lambda place, truth: ([0, 1, 2, 3] if place.degree > 1 else [place.device],),
        holds=lambda place: sorted((place.of.dp, place.of.tp, place.of.pp)) == [1, 2, 2],
    ),
)
"""In the order of their ids."""
