"""Exercises of lesson 08: schedules."""

from __future__ import annotations

from random import Random
from typing import NamedTuple

from alpa_explore.figures.course.training.schedules import schedule_facts
from alpa_explore.schedules.closed_form import closed_form as closed_form


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
