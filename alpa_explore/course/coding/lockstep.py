"""Devices that run a function together, and the collectives that they ask for.

A device is a generator. It yields the name of a collective and an array, and gets the result: "all-reduce" (the sum of
all), "all-max", "all-gather" (all parts, one after the other), "reduce-scatter" (its own part of the sum). What it
returns is its answer.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any

import numpy as np

Device = Generator[tuple[str, Any], Any, Any]
KINDS = ("all-reduce", "all-max", "all-gather", "reduce-scatter")


class Wrong(Exception):
    """What is wrong with a solution, for its author."""


def run_devices(
    function: Callable[..., Device], inputs: Sequence[tuple[Any, ...]], calls: list[tuple[str, int]] | None = None
) -> list[Any]:
    """What each device returns: `function(rank, ranks, *inputs[rank])`. `calls` gets the name of every collective and
    the elements of its input."""
    count = len(inputs)
    devices = [function(rank, count, *own) for rank, own in enumerate(inputs)]
    if not all(isinstance(device, Generator) for device in devices):
        raise Wrong('The function has no yield. It asks for a collective so: total = yield "all-reduce", part')
    given: list[Any] = [None] * count
    while True:
        asked, returned = [], []
        for device, result in zip(devices, given, strict=True):
            try:
                asked.append(device.send(result))
            except StopIteration as end:
                returned.append(end.value)
        if len(returned) == count:
            return returned
        if returned:
            raise Wrong("Some devices have ended while others wait for them in a collective.")
        given = _collective(asked, count, calls)


def _collective(asked: Sequence[Any], count: int, calls: list[tuple[str, int]] | None) -> list[Any]:
    if not all(isinstance(one, tuple) and len(one) == 2 and one[0] in KINDS for one in asked):
        raise Wrong(
            f"A device yields the name of a collective ({', '.join(KINDS)}) and an array; here: {asked[0]!r:.80}."
        )
    kinds = {kind for kind, _ in asked}
    if len(kinds) > 1:
        raise Wrong(f"Devices wait for different collectives at once: {', '.join(sorted(kinds))}.")
    (kind,) = kinds
    parts = [np.asarray(part, dtype=float) for _, part in asked]
    if len({part.shape for part in parts}) > 1:
        raise Wrong(f"Devices give arrays of different shapes to {kind}: {', '.join(str(p.shape) for p in parts)}.")
    if calls is not None:
        calls.append((kind, parts[0].size))
    if kind == "all-gather":
        return [np.concatenate(parts)] * count
    whole = np.max(parts, axis=0) if kind == "all-max" else np.sum(parts, axis=0)
    if kind != "reduce-scatter":
        return [whole.copy() for _ in parts]
    if len(whole) % count:
        raise Wrong(f"reduce-scatter divides the first dim, {len(whole)}, by {count} devices.")
    return np.split(whole, count)
