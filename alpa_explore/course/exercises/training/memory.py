"""Exercises of lesson 09: memory and ZeRO."""

from __future__ import annotations

from random import Random
from textwrap import dedent
from typing import NamedTuple

from alpa_explore import units
from alpa_explore.course.definition import Exercise, Mistake
from alpa_explore.course.kinds import Choice, Number
from alpa_explore.figures.course.training.memory import zero_bytes
from alpa_explore.figures.course.training.schedules import schedule_facts
from alpa_explore.models.catalog import entry


class Replicas(NamedTuple):
    """A model on data-parallel devices."""

    model: str
    replicas: int
    stage: int

    @property
    def parameters(self) -> int:
        """Of the model."""
        return entry(self.model).parameter_count

    @property
    def bytes(self) -> float:
        """Of weights, gradients and optimizer state on a device."""
        return sum(zero_bytes(self.parameters, self.replicas, self.stage).values())


class Budget(NamedTuple):
    """A model whose parameters and their state may fill so much of a device."""

    model: str
    gibibytes: int

    def enough(self, replicas: int) -> bool:
        """Whether ZeRO-3 on so many replicas stays within it."""
        return Replicas(self.model, replicas, 3).bytes <= self.gibibytes * 2**30


class Held(NamedTuple):
    """A pipeline of equal stages, whose activations of one microbatch have so many GiB a stage."""

    devices: int
    microbatches: int
    gibibytes: float


class Full(NamedTuple):
    """A model that does not fit by little."""

    model: str
    replicas: int
    stage: int
    gibibytes: float
    """Of activations."""

    @property
    def parameters(self) -> int:
        """Of the model."""
        return entry(self.model).parameter_count

    @property
    def activations(self) -> float:
        """Bytes."""
        return self.gibibytes * 2**30

    @property
    def parts(self) -> dict[str, float]:
        """What belongs to parameters, in bytes on a device."""
        return zero_bytes(self.parameters, self.replicas, self.stage)

    def bytes(self, change: str = "") -> float:
        """All together after one of the changes, or before."""
        replicas = self.replicas * (2 if change == "twice as many replicas" else 1)
        stage = self.stage + (change == "the next stage of ZeRO")
        gradient_bytes = 2 if change == "gradients in bf16" else 4
        kept = 0.25 if change == "full recomputation" else 1.0
        parts = zero_bytes(self.parameters, replicas, stage, gradient_bytes=gradient_bytes)
        return sum(parts.values()) + kept * self.activations

    @property
    def remedies(self) -> list[str]:
        """The changes with which it fits."""
        return [change for change in _CHANGES if self.bytes(change) <= _ROOM_GIB * 2**30]


def _least_replicas(budget: Budget) -> int:
    replicas = 1
    while not budget.enough(replicas):
        replicas += 1
    return replicas


def _replicas(random: Random) -> Replicas:
    return Replicas(
        random.choice(("llama-3.2-1b", "llama-3.2-3b", "llama-3-8b")),
        random.choice((4, 8, 16, 32)),
        random.choice((1, 2, 3)),
    )


def _full(random: Random) -> Full:
    while True:
        full = Full(
            random.choice(("llama-3-8b", "qwen3-14b", "llama-2-7b", "llama-2-13b")),
            random.choice((4, 8, 16)),
            random.choice((1, 2)),
            random.choice((5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0)),
        )
        if full.bytes() > _ROOM_GIB * 2**30 and len(full.remedies) == 1:
            return full


_ROOM_GIB = 70
"""Of exercise 09.4."""
_CHANGES = ("twice as many replicas", "the next stage of ZeRO", "full recomputation", "gradients in bf16")
_EFFECTS = {
    _CHANGES[
        0
    ]: "More replicas divide only what this stage of ZeRO divides; each still has the activations of its sample.",
    _CHANGES[1]: "The next stage divides gradients or weights, and no activations.",
    _CHANGES[2]: "Recomputation leaves weights, gradients and optimizer state as they are.",
    _CHANGES[3]: "That halves the gradients and nothing else.",
}
_DIVIDED = ("nothing", "optimizer state", "optimizer state and gradients", "optimizer state, gradients and weights")

EXERCISES = (
    Exercise(
        id="09.1",
        title="Bytes on a device",
        draw=_replicas,
        question=lambda r: (
            f"{r.model} has {units.count(r.parameters)} parameters ({r.parameters:,}). It trains on {r.replicas} "
            f"replicas with ZeRO-{r.stage}: weights in bf16, gradients in fp32, Adam with an fp32 copy of the "
            "weights.\n\nHow many bytes of weights, gradients and optimizer state does a device hold?"
        ),
        kind=lambda _: Number(unit="B"),
        truth=lambda r: r.bytes,
        why=lambda r, truth: (
            f"ZeRO-{r.stage} divides {_DIVIDED[r.stage]}. For each parameter a device has "
            + " + ".join(
                f"{value / r.parameters:.3g} B of {part}"
                for part, value in zip(
                    ("weights", "gradients", "optimizer state"),
                    zero_bytes(r.parameters, r.replicas, r.stage).values(),
                    strict=True,
                )
            )
            + f": {units.bytes_(truth)} in all."
        ),
        mistakes=lambda r, _: [
            Mistake(answer=r.parameters * 18, reason="That is one device without ZeRO: 2 + 4 + 12 bytes a parameter."),
            Mistake(
                answer=sum(zero_bytes(r.parameters, r.replicas, r.stage - 1).values()),
                reason=f"That is ZeRO-{r.stage - 1}. Stage {r.stage} divides {_DIVIDED[r.stage]}.",
            )
            if r.stage > 1
            else Mistake(answer=r.parameters * 18 / r.replicas, reason="ZeRO-1 divides the optimizer state alone."),
        ],
        hints=lambda r: (
            "A weight has 2 bytes, its gradient 4, its optimizer state 12. Which of them are divided?",
            f"ZeRO-{r.stage} divides {_DIVIDED[r.stage]} among {r.replicas} devices.",
        ),
        code=lambda r: dedent(f"""\
            from alpa_explore.figures.course.training.memory import zero_bytes
            answer = sum(zero_bytes({r.parameters}, {r.replicas}, {r.stage}).values())
            """),
        premise="each stage of ZeRO saves bytes here",
        holds=lambda r: r.bytes < Replicas(r.model, r.replicas, r.stage - 1).bytes,
    ),
    Exercise(
        id="09.2",
        title="How many replicas?",
        draw=lambda random: Budget(
            random.choice(("llama-3-8b", "llama-3-70b", "qwen3-14b", "qwen3-32b")), 5 * random.randint(4, 10)
        ),
        question=lambda b: (
            f"Of every device {b.gibibytes} GiB (2³⁰ bytes) are free for the weights, gradients (fp32) and optimizer "
            f"state of {b.model}, which has {entry(b.model).parameter_count:,} parameters. ZeRO-3 divides all of "
            "them.\n\nOn how many devices does it fit, at least?"
        ),
        kind=lambda _: Number(tolerance=0),
        truth=_least_replicas,
        why=lambda b, truth: (
            f"18 bytes a parameter are {units.bytes_(18 * entry(b.model).parameter_count)}; over {b.gibibytes} GiB "
            f"that is {18 * entry(b.model).parameter_count / (b.gibibytes * 2**30):.3f}, so {truth} devices. "
            "Activations and two gathered blocks come on top."
        ),
        mistakes=lambda b, truth: [
            Mistake(answer=truth - 1, reason="That is a little too few: round up."),
            Mistake(
                answer=-(-2 * entry(b.model).parameter_count // (b.gibibytes * 2**30)),
                reason="That counts the weights alone; gradients and optimizer state are eight times as much.",
            ),
        ],
        hints=lambda _: ("How many bytes does a parameter have in all?", "2 + 4 + 12 = 18. Divide and round up."),
        code=lambda b: dedent(f"""\
            from math import ceil
            from alpa_explore.models.catalog import entry
            answer = ceil(18 * entry("{b.model}").parameter_count / ({b.gibibytes} * 2**30))
            """),
        premise="one device is not enough",
        holds=lambda b: _least_replicas(b) > 1,
    ),
    Exercise(
        id="09.3",
        title="Activations of the first stage",
        draw=lambda random: Held(
            random.choice((4, 6, 8)), random.choice((2, 3, 16, 64)), random.choice((0.5, 1.5, 2.5, 3.0))
        ),
        question=lambda h: (
            f"{h.devices} equal stages train with 1F1B and B = {h.microbatches}. The activations of one microbatch "
            f"take {h.gibibytes:g} GiB (2³⁰ bytes) on a stage.\n\nHow many bytes of activations does the **first** "
            "stage hold at most?"
        ),
        kind=lambda _: Number(unit="B"),
        truth=lambda h: schedule_facts("1f1b", h.devices, h.microbatches).held * h.gibibytes * 2**30,
        why=lambda h, truth: (
            f"Stage s of S begins min(S − s, B) microbatches before its first backward pass: the first one "
            f"min({h.devices}, {h.microbatches}) = {min(h.devices, h.microbatches)}. That is {units.bytes_(truth)}."
        ),
        mistakes=lambda h, _: [
            Mistake(
                answer=h.microbatches * h.gibibytes * 2**30,
                reason="That is GPipe, which runs all forward passes first.",
            )
            if h.microbatches > h.devices
            else Mistake(
                answer=h.devices * h.gibibytes * 2**30, reason="There are fewer microbatches than stages: B of them."
            ),
            Mistake(answer=h.gibibytes * 2**30, reason="That is the last stage, which holds one."),
        ],
        hints=lambda _: (
            "How many forward passes does the first stage run before its first backward pass?",
            "As many as stages follow it, and one more; but never more than B.",
        ),
        code=lambda h: f"answer = min({h.devices}, {h.microbatches}) * {h.gibibytes} * 2**30",
        premise="the simulator holds min(S, B) microbatches on the first stage",
        holds=lambda h: schedule_facts("1f1b", h.devices, h.microbatches).held == min(h.devices, h.microbatches),
    ),
    Exercise(
        id="09.4",
        title="One change that makes it fit",
        draw=_full,
        question=lambda f: (
            f"{f.model} trains on {f.replicas} replicas with ZeRO-{f.stage} and one sample on each. A device holds "
            + ", ".join(f"{units.bytes_(value)} of {part}" for part, value in f.parts.items())
            + f" and {units.bytes_(f.activations)} of activations: {units.bytes_(f.bytes())}, and {_ROOM_GIB} GiB are "
            "free for them. Full recomputation would leave a quarter of the activations.\n\nWhich one change makes it "
            "fit?"
        ),
        kind=lambda _: Choice(options=tuple(_CHANGES)),
        truth=lambda f: f.remedies[0],
        why=lambda f, truth: (
            "ZeRO divides what belongs to parameters, recomputation what belongs to samples:\n\n"
            + "\n".join(f"- {change}: {units.bytes_(f.bytes(change))}" for change in _CHANGES)
            + f"\n\nOnly with {truth} the sum is {_ROOM_GIB} GiB or less."
        ),
        mistakes=lambda f, truth: [
            Mistake(answer=change, reason=f"{_EFFECTS[change]} {units.bytes_(f.bytes(change))} are still too many.")
            for change in _CHANGES
            if change != truth
        ],
        hints=lambda _: (
            "Which of the bars of the figure belong to parameters, and which to samples?",
            "Work out for each change which terms of the sum it divides, and add them again.",
        ),
        code=lambda f: dedent(f"""\
            from alpa_explore.figures.course.training.memory import zero_bytes

            n, d, stage, activations = {f.parameters}, {f.replicas}, {f.stage}, {f.activations}
            sums = {{
                "twice as many replicas": sum(zero_bytes(n, 2 * d, stage).values()) + activations,
                "the next stage of ZeRO": sum(zero_bytes(n, d, stage + 1).values()) + activations,
                "full recomputation": sum(zero_bytes(n, d, stage).values()) + activations / 4,
                "gradients in bf16": sum(zero_bytes(n, d, stage, gradient_bytes=2).values()) + activations,
            }}
            (answer,) = [change for change in sums if sums[change] <= {_ROOM_GIB} * 2**30]
            """),
        premise="it does not fit, and one change alone makes it fit",
        holds=lambda f: f.bytes() > _ROOM_GIB * 2**30 and len(f.remedies) == 1,
    ),
)
"""In the order of their ids."""
