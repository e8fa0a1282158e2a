"""Exercises of lesson 00: the tour."""

from __future__ import annotations

from random import Random
from textwrap import dedent
from typing import NamedTuple

from alpa_explore import units
from alpa_explore.course.definition import Exercise, Mistake
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
        title="What a device holds",
        draw=_degrees,
        question=lambda degrees: (
            f"{degrees.model} has {entry(degrees.model).parameter_count:,} parameters. It is trained on "
            f"{degrees.dp * degrees.tp * degrees.pp} devices with dp = {degrees.dp}, tp = {degrees.tp}, pp = "
            f"{degrees.pp}, all layers being equal, and {STATE_BYTES} bytes a parameter, without ZeRO. How many bytes "
            "for weights, gradients and the optimizer are on each device?"
        ),
        kind=lambda _: Number(unit="B"),
        truth=lambda degrees: degrees.held,
        why=lambda degrees, truth: (
            f"{STATE_BYTES} · P / (tp · pp) = {units.bytes_(truth)}. The {degrees.dp} replicas of data parallelism "
            "hold the same."
        ),
        mistakes=lambda degrees, truth: [
            Mistake(
                answer=truth / degrees.dp,
                reason="Data parallelism does not divide the weights: each replica has all of them. (ZeRO-3 would.)",
            ),
            Mistake(
                answer=truth * (6 + 12 / degrees.dp) / STATE_BYTES,
                reason="That is ZeRO-1, which divides the 12 bytes of the optimizer over the replicas. Here it is off.",
            ),
            Mistake(answer=truth * degrees.pp, reason="Stages of a pipeline hold different layers."),
        ],
        hints=lambda _: (
            "Which of the three degrees divide the weights?",
            "Tensor parallelism divides every matrix, a pipeline the layers.",
            "18 · P / (tp · pp)",
        ),
        code=lambda degrees: (
            f"answer = {STATE_BYTES} * {entry(degrees.model).parameter_count} / ({degrees.tp} * {degrees.pp})\n"
        ),
        premise="the figure gives the same share",
        holds=lambda degrees: (
            Way(name="", dp=1, tp=degrees.tp, pp=degrees.pp, sends="").weight_share == 1 / (degrees.tp * degrees.pp)
        ),
    ),
    Exercise(
        id="00.2",
        title="Find the device",
        draw=_place,
        question=lambda place: (
            f"Press *{place.of.name}* in the figure. Which {place.asked} does device {place.device} "
            + ("compute? Samples" if place.asked == "samples" else "hold, in whole or in part? Layers")
            + f" are numbered 0 to 3 from the {'left' if place.asked == 'samples' else 'top'}."
        ),
        kind=lambda place: Items(of=place.asked),
        truth=lambda place: place.found,
        why=lambda place, truth: (
            f"{'dp' if place.asked == 'samples' else 'pp'} = {place.degree}: "
            + (
                f"the {place.asked} are divided among {place.degree} groups of devices, and this one has {truth}."
                if place.degree > 1
                else f"the {place.asked} are not divided, so every device has {truth}."
            )
        ),
        mistakes=lambda place, truth: [
            Mistake(
                answer=[0, 1, 2, 3] if place.degree > 1 else [place.device],
                reason="Data parallelism divides the samples, and nothing else does."
                if place.asked == "samples"
                else "A pipeline divides the layers, and nothing else does: tensor parallelism cuts each matrix.",
            )
        ],
        hints=lambda _: (
            "Samples are circles; a layer is a row of squares, which are slices of its matrix.",
            "Which degree divides what is asked for?",
            "Rest the mouse on a mark.",
        ),
        code=lambda place: dedent(f"""\
            from alpa_explore.figures.course.planning.ways import WAYS

            way = next(way for way in WAYS if way.name == {place.of.name!r})
            answer = way.{place.asked}({place.device})
            """),
        premise="two of the three ways are combined",
        holds=lambda place: sorted((place.of.dp, place.of.tp, place.of.pp)) == [1, 2, 2],
    ),
)
"""In the order of their ids."""
