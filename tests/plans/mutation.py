"""JSON documents that are changed at random, as by a damaged disk, a careless editor, a stranger or a later version."""

import copy
import json
import random
from typing import Any

HUGE = 10**309
VALUES: tuple[Any, ...] = (
    *(
        None,
        True,
        False,
        0,
        1,
        -1,
        2,
        7,
        255,
        10**6,
        10**9,
        2**31,
        2**53,
        2**63,
        2**64,
        10**29,
        10**30,
        10**31,
        HUGE,
        -HUGE,
    ),
    *(0.0, -0.0, 0.5, 1.5, -1.5, 1e-300, 5e-324, 1e29, 1e300, float("inf"), float("-inf"), float("nan")),
    *("", "x", "R", "S0R", "S9R", "float32", "1f1b", "0", "a" * 20_000, "\ud800", "\x00", "</script>"),
    *([], {}, [[]], [0], [1, 1], [0, -1], {"a": 1}, [None], [[1, 2], [3, 4]], [1e308] * 5),
)
NEW_KEYS = ("a_later_figure", "", "x" * 300, "__class__", "0")


def places(value: Any) -> list[tuple[Any, Any]]:
    """(list or object, index or key) of everything in a document."""
    found, waiting = [], [value]
    while waiting:
        part = waiting.pop()
        entries = part.items() if isinstance(part, dict) else enumerate(part) if isinstance(part, list) else ()
        for key, inner in entries:
            found.append((part, key))
            waiting.append(inner)
    return found


def mutated(document: Any, seed: int) -> tuple[Any, str]:
    """A changed copy, and what was changed. Keys are as likely as their depth, not as their number: a plan has
    thousands of operators and one cluster."""
    rng = random.Random(seed)
    body, told = copy.deepcopy(document), []
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        part: Any = body
        path = "$"
        while True:
            keys = list(part) if isinstance(part, dict) else list(range(len(part)))
            if not keys:
                break
            key = rng.choice(keys)
            path += f"[{key!r:.40}]"
            inner = part[key]
            if not isinstance(inner, dict | list) or not inner or rng.random() < 0.15:
                told.append(f"{path}: {_change(rng, part, key)}")
                break
            part = inner
    return body, "; ".join(told)


def _change(rng: random.Random, part: Any, key: Any) -> str:
    value = part[key]
    kind = rng.choice(("value", "value", "value", "near", "remove", "add", "twice", "swap"))
    if kind == "near" and isinstance(value, int | float) and not isinstance(value, bool):
        as_float = float(max(min(value, 1e300), -1e300))  # an integer may be too large for a float
        part[key] = rng.choice((value + 1, value - 1, -value, value * 2, as_float, value * 10**6, value // 2))
    elif kind == "remove":
        del part[key]
        return "removed"
    elif kind == "add":
        target = value if isinstance(value, dict | list) else part
        if isinstance(target, dict):
            target[rng.choice(NEW_KEYS)] = copy.deepcopy(rng.choice(VALUES))
        else:
            target.insert(rng.randint(0, len(target)), copy.deepcopy(rng.choice(VALUES)))
        return "something added"
    elif kind == "twice" and isinstance(part, list):
        part.insert(key, copy.deepcopy(value))
        return "twice"
    elif kind == "swap" and len(part) > 1:
        other = rng.choice(list(part) if isinstance(part, dict) else list(range(len(part))))
        part[key], part[other] = part[other], part[key]
        return f"swapped with {other!r:.40}"
    else:
        part[key] = copy.deepcopy(rng.choice(VALUES))
    return f"{value!r:.60} became {part[key]!r:.60}"


def text_of(document: Any) -> str:
    """Its text, with NaN and infinities as Python writes them."""
    return json.dumps(document)
