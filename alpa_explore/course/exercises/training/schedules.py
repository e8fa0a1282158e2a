"""Exercises of lesson 08: schedules."""

from __future__ import annotations

from random import Random
from textwrap import dedent
from typing import NamedTuple

from alpa_explore import units
from alpa_explore.course.definition import Exercise, Mistake
from alpa_explore.course.kinds import Choice, Number
from alpa_explore.figures.course.training.schedules import schedule_facts
from alpa_explore.schedules.closed_form import closed_form


class Pipeline(NamedTuple):
    """Equal stages, one on each device."""

    devices: int
    microbatches: int


class Target(NamedTuple):
    """A pipeline that may be idle for so much of the time at most."""

    devices: int
    percent: int

    @property
    def share(self) -> float:
        """The largest bubble."""
        return self.percent / 100


class Room(NamedTuple):
    """Memory of a device for the activations of so many microbatches."""

    devices: int
    microbatches: int
    held: float


def _least_microbatches(target: Target) -> int:
    """The least B, by simulating 1F1B: doubled until it is enough, then bisected."""

    def enough(microbatches: int) -> bool:
        return schedule_facts("1f1b", target.devices, microbatches).bubble_fraction <= target.share + 1e-12

    high = 1
    while not enough(high):
        high *= 2
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


_OFFERED = ("gpipe", "1f1b", "zb-h1", "zb-v", "v-half", "v-min")


def _fastest_within(room: Room) -> str:
    """The schedule with the least makespan among those that hold no more than there is room for."""
    facts = {name: schedule_facts(name, room.devices, room.microbatches) for name in _OFFERED}
    return min((name for name, fact in facts.items() if fact.held <= room.held + 1e-9), key=lambda n: facts[n].makespan)


def _why_not(name: str, room: Room) -> str:
    """Why a schedule is not the fastest that fits."""
    held = schedule_facts(name, room.devices, room.microbatches).held
    if held > room.held + 1e-9:
        return f"It does not fit: it holds {held:.3g} microbatches, and there is room for {room.held:g}."
    return "It fits, but another one that fits is faster."


def _times_within(room: Room) -> list[float]:
    """Makespans of the schedules that fit, the shortest first."""
    facts = [schedule_facts(name, room.devices, room.microbatches) for name in _OFFERED]
    return sorted(fact.makespan for fact in facts if fact.held <= room.held + 1e-9)


def _room(random: Random) -> Room:
    """Room for some schedules and not for all, of which one is the fastest."""
    while True:
        devices = random.choice((4, 6, 8))
        held = random.choice((devices, 0.9 * devices, 0.75 * devices, 0.7 * devices))
        room = Room(devices, random.choice((8, 12, 16, 24)), round(held, 1))
        times = _times_within(room)
        if room.microbatches > devices and 2 <= len(times) < len(_OFFERED) and times[1] - times[0] > 1e-9:
            return room


EXERCISES = (
    Exercise(
        id="08.1",
        title="The bubble of 1F1B",
        draw=lambda random: Pipeline(random.choice((2, 3, 4, 6, 8, 16)), random.choice((4, 8, 12, 16, 24, 32))),
        question=lambda p: (
            f"{p.devices} devices hold equal stages. They train with 1F1B and B = {p.microbatches} microbatches; sends "
            "take no time.\n\nFor which share of the time is a device idle?"
        ),
        kind=lambda _: Number(unit="share"),
        truth=lambda p: schedule_facts("1f1b", p.devices, p.microbatches).bubble_fraction,
        why=lambda p, truth: (
            f"The last stage waits S − 1 = {p.devices - 1} forward passes before its first, and the first stage S − 1 "
            f"backward passes before its last. Of B + S − 1 = {p.microbatches + p.devices - 1} slots S − 1 are idle: "
            f"`(S − 1) / (B + S − 1) = {units.percent(truth)}`."
        ),
        mistakes=lambda p, _: [
            Mistake(
                answer=(p.devices - 1) / p.microbatches,
                reason="That is idle time over *busy* time. The share of all time has the idle slots below the line, "
                "too.",
            )
        ],
        hints=lambda _: (
            "Choose 1f1b in the figure, with few devices, and count the empty slots of one of them.",
            "There are B + S − 1 slots of one forward and one backward pass. How many of them are empty?",
        ),
        code=lambda p: dedent(f"""\
            from alpa_explore.figures.course.training.schedules import schedule_facts
            answer = schedule_facts("1f1b", {p.devices}, {p.microbatches}).bubble_fraction
            """),
        premise="the formula of equal stages holds",
        holds=lambda p: (
            abs(
                schedule_facts("1f1b", p.devices, p.microbatches).bubble_fraction
                - (p.devices - 1) / (p.microbatches + p.devices - 1)
            )
            < 1e-9
        ),
    ),
    Exercise(
        id="08.2",
        title="How many microbatches?",
        draw=lambda random: Target(random.choice((4, 6, 8, 12, 16)), random.choice((5, 8, 10, 15, 20))),
        question=lambda t: (
            f"{t.devices} equal stages, 1F1B. A device may be idle for {t.percent} % of the time at most.\n\nWhich is "
            "the least number of microbatches?"
        ),
        kind=lambda _: Number(tolerance=0),
        truth=_least_microbatches,
        why=lambda t, truth: (
            f"(S − 1) / (B + S − 1) ≤ {t.share:g} means B ≥ (S − 1)(1 / {t.share:g} − 1) = "
            f"{(t.devices - 1) * (1 / t.share - 1):.4g}, so B = {truth}. To halve the bubble takes about twice the "
            "microbatches, each half as large where the batch stays the same."
        ),
        mistakes=lambda t, truth: [
            Mistake(answer=truth - 1, reason="One fewer is not quite enough: round up."),
            *(
                [Mistake(answer=round((t.devices - 1) / t.share), reason="That is B + S − 1. Take S − 1 away.")]
                if round((t.devices - 1) / t.share) != truth
                else []
            ),
        ],
        hints=lambda _: ("Begin with the formula of 08.1.", "Solve (S − 1) / (B + S − 1) ≤ share for B, and round up."),
        code=lambda t: dedent(f"""\
            from fractions import Fraction
            from math import ceil
            answer = ceil(({t.devices} - 1) * (1 / Fraction({t.percent}, 100) - 1))
            """),
        premise="with one microbatch less the bubble is larger than allowed",
        holds=lambda t: schedule_facts("1f1b", t.devices, _least_microbatches(t) - 1).bubble_fraction > t.share,
    ),
    Exercise(
        id="08.3",
        title="The fastest schedule that fits",
        draw=_room,
        question=lambda r: (
            f"{r.devices} devices hold equal stages, B = {r.microbatches}, and the passes forward, to the input and to "
            f"the weights take equally long. Each device has memory for the activations of {r.held:g} microbatches (of "
            "all layers that it holds).\n\nWhich schedule is the fastest of those that fit?"
        ),
        kind=lambda _: Choice(options=_OFFERED),
        truth=_fastest_within,
        why=lambda r, truth: (
            "Of each schedule the most that a device holds, and its bubble:\n\n"
            + "\n".join(
                f"- {name}: {fact.held:.3g} microbatches, {units.percent(fact.bubble_fraction)} idle"
                for name in _OFFERED
                for fact in (schedule_facts(name, r.devices, r.microbatches),)
            )
            + f"\n\n{truth} has the least idle time of those with at most {r.held:g}. (A real last stage holds the "
            "output layer as well, and counts more: see the plan of the lesson.)"
        ),
        mistakes=lambda r, truth: [
            Mistake(answer=name, reason=_why_not(name, r)) for name in _OFFERED if name != truth
        ],
        hints=lambda r: (
            f"Set the figure to {r.devices} devices and B = {min(r.microbatches, 16)}; its title says what is held.",
            "Cross out the schedules that hold too much, then compare the times of the others.",
        ),
        code=lambda r: dedent(f"""\
            from alpa_explore.figures.course.training.schedules import schedule_facts
            facts = {{n: schedule_facts(n, {r.devices}, {r.microbatches}) for n in {_OFFERED}}}
            answer = min((n for n in facts if facts[n].held <= {r.held} + 1e-9), key=lambda n: facts[n].makespan)
            """),
        premise="some schedules fit and some do not, and one of those that fit is the fastest",
        holds=lambda r: 2 <= len(_times_within(r)) < len(_OFFERED) and _times_within(r)[1] - _times_within(r)[0] > 1e-9,
    ),
    Exercise(
        id="08.4",
        title="What splitting the backward pass brings",
        draw=lambda random: Pipeline(random.randint(3, 8), random.choice((8, 12, 16, 24, 32))),
        question=lambda p: (
            f"{p.devices} devices, B = {p.microbatches}; forward, backward to the input and backward to the weights of "
            "a stage take one second each.\n\nBy how many seconds is an iteration of ZB-H1 shorter than one of 1F1B?"
        ),
        kind=lambda _: Number(unit="s"),
        truth=lambda p: (
            schedule_facts("1f1b", p.devices, p.microbatches).makespan
            - schedule_facts("zb-h1", p.devices, p.microbatches).makespan
        ),
        why=lambda p, truth: (
            f"1F1B is idle for (S − 1)(f + i + w) = {3 * (p.devices - 1)} s, ZB-H1 for (S − 1)(f + i − w) = "
            f"{p.devices - 1} s: a stage waits for i alone, and fills w of each gap with gradients of weights. The "
            f"difference is (S − 1) · 2w = {units.seconds(truth)}, whatever B is."
        ),
        mistakes=lambda p, _: [
            Mistake(
                answer=float(p.devices - 1),
                reason="That is what w alone saves once. It is no longer waited for, *and* it fills the gap: twice.",
            ),
            Mistake(answer=3.0 * (p.devices - 1), reason="That is the whole bubble of 1F1B; ZB-H1 has one, too."),
        ],
        hints=lambda _: (
            "The figure shows both times in its title.",
            "The bubbles are (S − 1)(f + i + w) and (S − 1)(f + i − w).",
        ),
        code=lambda p: dedent(f"""\
            from alpa_explore.figures.course.training.schedules import schedule_facts
            answer = schedule_facts("1f1b", {p.devices}, {p.microbatches}).makespan
            answer -= schedule_facts("zb-h1", {p.devices}, {p.microbatches}).makespan
            """),
        premise="the closed forms of both schedules are exact here",
        holds=lambda p: all(
            form is not None and form.exact and abs(form.seconds - fact.makespan) < 1e-9
            for name in ("1f1b", "zb-h1")
            for fact in (schedule_facts(name, p.devices, p.microbatches),)
            for form in (closed_form(fact.timeline.schedule, fact.timeline.times),)
        ),
    ),
)
"""In the order of their ids."""
