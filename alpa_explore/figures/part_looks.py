"""The parts of an iteration's time: their order, colours and hatching, the same in every figure. Imports no plotly.

The parts are those of `explain.time_parts`: compute, collectives by mesh axis, sends, gradient sync, overhead, idle
time.
"""

from __future__ import annotations

from collections.abc import Iterable

from alpa_explore.figures.style import OKABE_ITO, empty
from alpa_explore.questions.explain import COMPUTE, OVERHEAD, SEND, SYNC, UNKNOWN, WAIT

_LOOKS = {
    COMPUTE: (OKABE_ITO[0], ""),
    UNKNOWN: (OKABE_ITO[0], "."),
    SEND: (OKABE_ITO[3], "\\"),
    SYNC: (OKABE_ITO[2], "-"),
    OVERHEAD: (OKABE_ITO[6], "."),
}
"""Part -> colour, hatching; collectives take those of `_COLLECTIVE_LOOKS` in turn."""
_COLLECTIVE_LOOKS = ((OKABE_ITO[1], "/"), (OKABE_ITO[5], "x"), (OKABE_ITO[4], "+"), (OKABE_ITO[6], "|"))


def part_looks(parts: Iterable[str], theme: str) -> dict[str, tuple[str, str]]:
    """Part -> (colour, hatching), in the order in which they are drawn."""
    names = list(dict.fromkeys(parts))
    order = [n for n in (COMPUTE, UNKNOWN) if n in names]
    order += sorted(n for n in names if n not in (*_LOOKS, WAIT)) + [
        n for n in (SEND, SYNC, OVERHEAD, WAIT) if n in names
    ]
    of_collectives = iter(_COLLECTIVE_LOOKS * len(order))
    return {
        name: _LOOKS[name] if name in _LOOKS else (empty(theme), "") if name == WAIT else next(of_collectives)
        for name in order
    }
