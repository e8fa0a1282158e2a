"""Exercises of lesson 17: which layout?"""

from __future__ import annotations

from random import Random
from textwrap import dedent
from typing import NamedTuple

from alpa_explore import units
from alpa_explore.course.definition import Exercise, Mistake
from alpa_explore.course.kinds import Number
from alpa_explore.figures.course.training.memory import zero_bytes
from alpa_explore.figures.course.training.schedules import schedule_facts
from alpa_explore.models.catalog import entry


class Fit(NamedTuple):
    """A model on some devices with ZeRO-1, and the room for weights, gradients and optimizer state."""

    model: str
    devices: int
    gibibytes: int

    @property
    def parameters(self) -> int:
        """Of the model."""
        return entry(self.model).parameter_count

    def held(self, divided: int) -> float:
        """Bytes on a device, where tensor parallelism and the pipeline divide the weights by `divided`."""
        return sum(zero_bytes(self.parameters / divided, self.devices // divided, 1).values())

    @property
    def least(self) -> int:
        """The least power of two that fits."""
        return next(1 << k for k in range(self.devices.bit_length()) if self.held(1 << k) <= self.gibibytes * 2**30)


class Bubble(NamedTuple):
    """A layout with 1F1B."""

    devices: int
    tensor: int
    pipeline: int
    microbatch: int
    batch: int

    @property
    def data(self) -> int:
        """Replicas."""
        return self.devices // (self.tensor * self.pipeline)

    @property
    def microbatches(self) -> int:
        """Of a replica."""
        return self.batch // (self.data * self.microbatch)

    @property
    def share(self) -> float:
        """Idle time of a device, by the simulator."""
        return schedule_facts("1f1b", self.pipeline, self.microbatches).bubble_fraction


class Training(NamedTuple):
    """A training run."""

    billions: int
    trillions: int
    devices: int
    percent: int
    """MFU."""
    teraflops: int

    @property
    def days(self) -> float:
        """By products alone."""
        flops = 6e21 * self.billions * self.trillions
        return flops / (1e12 * self.teraflops * self.devices * self.percent / 100) / 86400


def _fit(random: Random) -> Fit:
    while True:
        fit = Fit(
            random.choice(("llama-3-8b", "llama-3-70b", "llama-3.1-405b", "qwen3-32b")),
            2 ** random.randint(5, 10),
            5 * random.randint(3, 12),
        )
        room = fit.gibibytes * 2**30
        if fit.held(fit.devices) <= room < fit.held(1) and fit.held(fit.least) < 0.97 * room:
            return fit


def _bubble(random: Random) -> Bubble:
    while True:
        devices, tensor, pipeline = 2 ** random.randint(6, 9), random.choice((2, 4, 8)), random.choice((4, 8))
        bubble = Bubble(devices, tensor, pipeline, random.choice((1, 2)), random.choice((256, 512, 1024)))
        if bubble.data > 1 and bubble.pipeline <= bubble.microbatches <= 128:
            return bubble


EXERCISES = (
    Exercise(
        id="17.1",
        title="First: does it fit?",
        draw=_fit,
        question=lambda f: (
            f"{f.model} has {f.parameters:,} parameters and trains on {f.devices} devices, with ZeRO-1: 6 bytes of a "
            "parameter are divided by tensor parallelism and the pipeline, TP · PP, and 12 more by the replicas as "
            "well. "
            f"{f.gibibytes} GiB (2³⁰ bytes) of a device are left for them.\n\nWhich is the least TP · PP, a power of "
            "two, "
            "that fits?"
        ),
        kind=lambda _: Number(tolerance=0.0),
        truth=lambda f: f.least,
        why=lambda f, truth: (
            f"All devices together divide the 12 bytes, whatever TP · PP is: 12 · P / {f.devices} = "
            f"{units.bytes_(12 * f.parameters / f.devices)}. The 6 bytes take {units.bytes_(6 * f.parameters / truth)} "
            f"with TP · PP = {truth}, together {units.bytes_(f.held(truth))}; with {truth // 2} they would take "
            f"{units.bytes_(6 * f.parameters / (truth // 2))}."
        ),
        mistakes=lambda f, truth: [
            Mistake(answer=truth // 2, reason=f"That needs {units.bytes_(f.held(truth // 2))}: too much."),
            Mistake(answer=2 * truth, reason="That fits, and so does half of it, which sends less."),
        ],
        hints=lambda _: (
            "Which bytes do TP · PP divide, and which do all devices divide?",
            "6 · P / (TP · PP) + 12 · P / devices; try 1, 2, 4, …",
        ),
        code=lambda f: dedent(f"""\
            parameters, devices, room = {f.parameters}, {f.devices}, {f.gibibytes} * 2**30
            answer = 1
            while 6 * parameters / answer + 12 * parameters / devices > room:
                answer *= 2
            """),
        premise="it does not fit undivided",
        holds=lambda f: f.least > 1,
    ),
    Exercise(
        id="17.2",
        title="Then: the batch",
        draw=_bubble,
        question=lambda b: (
            f"{b.devices} devices train with TP = {b.tensor}, PP = {b.pipeline} and 1F1B; the others are replicas. An "
            f"iteration has {b.batch} samples, and a microbatch {b.microbatch}.\n\nFor which share of the time is a "
            "device "
            "idle?"
        ),
        kind=lambda _: Number(unit="share"),
        truth=lambda b: b.share,
        why=lambda b, truth: (
            f"DP = {b.devices} / ({b.tensor} · {b.pipeline}) = {b.data}, so a replica has B = {b.batch} / ({b.data} · "
            f"{b.microbatch}) = {b.microbatches} microbatches, and (PP − 1) / (B + PP − 1) = {units.percent(truth)} "
            "are "
            "idle. More devices at the same batch are more replicas, fewer microbatches and more idle time."
        ),
        mistakes=lambda b, truth: [
            Mistake(
                answer=(b.pipeline - 1) / (b.batch // b.microbatch + b.pipeline - 1),
                reason="The replicas share the batch: each has only its part of the microbatches.",
            ),
            *(
                [
                    Mistake(
                        answer=(b.pipeline - 1) / (b.microbatches * b.microbatch + b.pipeline - 1),
                        reason="That counts samples. A microbatch has several.",
                    )
                ]
                if b.microbatch not in (1, b.data)
                else []
            ),
        ],
        hints=lambda _: (
            "How many replicas are there? How many samples has each, and how many microbatches?",
            "The bubble of 1F1B is (S − 1) / (B + S − 1).",
        ),
        code=lambda b: dedent(f"""\
            replicas = {b.devices} // ({b.tensor} * {b.pipeline})
            B = {b.batch} // (replicas * {b.microbatch})
            answer = ({b.pipeline} - 1) / (B + {b.pipeline} - 1)
            """),
        premise="there are several replicas, and at least as many microbatches as stages",
        holds=lambda b: b.data > 1 and b.microbatches >= b.pipeline,
    ),
    Exercise(
        id="17.3",
        title="And how long will it take?",
        draw=lambda random: Training(
            random.choice((8, 32, 70, 405)),
            random.choice((1, 2, 15)),
            2 ** random.randint(9, 13),
            random.choice((35, 40, 45, 50)),
            random.choice((312, 989)),
        ),
        question=lambda t: (
            f"{t.billions} billion parameters, {t.trillions} trillion tokens, {t.devices:,} devices with a peak of "
            f"{t.teraflops} TFLOP/s each, an MFU of {t.percent} %. Count 6 FLOPs for a parameter and token.\n\nHow "
            "many "
            "days does the training take?"
        ),
        kind=lambda _: Number(),
        truth=lambda t: t.days,
        why=lambda t, truth: (
            f"6 · {t.billions} · 10⁹ · {t.trillions} · 10¹² FLOPs over {t.devices:,} · {t.teraflops} · 10¹² · "
            f"{t.percent / 100:g} FLOP/s are {units.seconds(truth * 86400)}: {truth:.4g} days. A tenth less time for "
            "a step "
            "is a tenth less of these, which is why a layout is worth an hour of thought."
        ),
        mistakes=lambda t, truth: [
            Mistake(answer=truth * t.percent / 100, reason="That is at the peak. Only the MFU of it is reached."),
            Mistake(answer=truth / 3, reason="That is the forward pass: 2 FLOPs. The backward pass has 4 more."),
        ],
        hints=lambda _: (
            "How many FLOPs in all, and how many in a second?",
            "6 · parameters · tokens / (devices · peak · MFU), in seconds; a day has 86,400.",
        ),
        code=lambda t: dedent(f"""\
            flops = 6 * {t.billions}e9 * {t.trillions}e12
            answer = flops / ({t.devices} * {t.teraflops}e12 * {t.percent} / 100) / 86400
            """),
        premise="it takes longer than an hour",
        holds=lambda t: t.days > 1 / 24,
    ),
)
"""In the order of their ids."""
