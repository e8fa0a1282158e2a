"""Exercises of lesson 08: schedules."""

from __future__ import annotations

from random import Random
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
        draw=lambda random: Pipeline(random.choice((2, 3, 4, 6, 8, 16)), random.choice((4, 8, 12, 16, 24, 32))),
        kind=lambda _: Number(unit="share"),
        truth=lambda p: schedule_facts("1f1b", p.devices, p.microbatches).bubble_fraction,
        values={"others": lambda n, _: n.devices - 1, "slots": lambda n, _: n.microbatches + n.devices - 1},
        wrong=lambda p, _: ((p.devices - 1) / p.microbatches,),
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
        draw=lambda random: Target(random.choice((4, 6, 8, 12, 16)), random.choice((5, 8, 10, 15, 20))),
        kind=lambda _: Number(tolerance=0),
        truth=_least_microbatches,
        values={"exact": lambda n, _: (n.devices - 1) * (1 / n.share - 1)},
        wrong=lambda t, truth: (
            truth - 1,
            round((t.devices - 1) / t.share) if round((t.devices - 1) / t.share) != truth else None,
        ),
        holds=lambda t: schedule_facts("1f1b", t.devices, _least_microbatches(t) - 1).bubble_fraction > t.share,
    ),
    Exercise(
        id="08.3",
        draw=_room,
        kind=lambda _: Choice(options=_OFFERED),
        truth=_fastest_within,
        values={
            "facts": lambda n, _: "\n".join(
                f"- {name}: {fact.held:.3g} microbatches, {units.percent(fact.bubble_fraction)} idle"
                for name in _OFFERED
                for fact in (schedule_facts(name, n.devices, n.microbatches),)
            ),
            "window": lambda n, _: min(n.microbatches, 16),
            "offered": lambda *_: _OFFERED,
        },
        wrong=lambda r, truth: [Mistake(answer=name, reason=_why_not(name, r)) for name in _OFFERED if name != truth],
        holds=lambda r: 2 <= len(_times_within(r)) < len(_OFFERED) and _times_within(r)[1] - _times_within(r)[0] > 1e-9,
    ),
    Exercise(
        id="08.4",
        draw=lambda random: Pipeline(random.randint(3, 8), random.choice((8, 12, 16, 24, 32))),
        kind=lambda _: Number(unit="s"),
        truth=lambda p: (
            schedule_facts("1f1b", p.devices, p.microbatches).makespan
            - schedule_facts("zb-h1", p.devices, p.microbatches).makespan
        ),
        values={"idle": lambda n, _: 3 * (n.devices - 1), "others": lambda n, _: n.devices - 1},
        wrong=lambda p, _: (float(p.devices - 1), 3.0 * (p.devices - 1)),
        holds=lambda p: all(
            form is not None and form.exact and abs(form.seconds - fact.makespan) < 1e-9
            for name in ("1f1b", "zb-h1")
            for fact in (schedule_facts(name, p.devices, p.microbatches),)
            for form in (closed_form(fact.timeline.schedule, fact.timeline.times),)
        ),
    ),
)
"""In the order of their ids."""
