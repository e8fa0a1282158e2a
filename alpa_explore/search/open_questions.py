"""Which problems may have a better choice than is known, and the search that would find it."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from alpa_explore.intra_op.tuning import EASY_ILP_VARIABLES
from alpa_explore.pricing.price_book import COMPOSING, Reading, Search
from alpa_explore.pricing.tuning import TOLERANCE

WITHIN_MEMORY = (Search.BOUNDED_WITHIN_MEMORY, Search.SOLVED_WITHIN_MEMORY)
"""The searches for choices that fit, quickest first."""


class OpenQuestion(NamedTuple):
    """A problem whose optimum is not proven."""

    key: str
    bound_seconds: float
    """Lower bound on the seconds of every choice."""
    search: Search | None
    """The kind of task that would close the gap; None where none is left."""


Asked = tuple[Search, str, int]
"""A search, the problem, and the microbatches held (0 where they do not matter) for which it was asked for."""


def open_questions(
    readings: Mapping[str, Reading], counts: Collection[int], *, solve: bool = True, asked: Collection[Asked] = ()
) -> dict[int, list[OpenQuestion]]:
    """Of the problems of one stage (one for each logical mesh and version), for each number of microbatches held: those
    whose lower bound is below the best candidate of all of them. Where composition is not finished for a problem its
    candidates close nothing. Without `solve` no solver is asked for choices that fit; what was `asked` of a solver in
    this search is not asked again."""
    complete = {key: reading for key, reading in readings.items() if reading.unfinished is None}
    unfinished = [
        (reading, OpenQuestion(key, reading.partial_bound, reading.unfinished))
        for key, reading in readings.items()
        if key not in complete
    ]
    most, ask = max(counts), partial(_question, asked=asked, solve=solve)
    unproven = {key: reading for key, reading in complete.items() if not reading.proven_up_to(most)}
    questions = {}
    for held in counts if unfinished or unproven else ():
        best = min((reading.seconds_within(held) for reading in complete.values()), default=math.inf)
        found = [q for key, reading in unproven.items() if (q := ask(key, reading, held, best))]
        found += [question for reading, question in unfinished if reading.may_fit(held)]
        if better := [question for question in found if question.bound_seconds < best]:
            questions[held] = better
    return questions


def _question(
    key: str, reading: Reading, held: int, best: float, *, asked: Collection[Asked], solve: bool
) -> OpenQuestion | None:
    """None where there is nothing to find; no search where the gap to the `best` candidate of the stage is small."""
    book = reading.book
    if not reading.may_fit(held):
        return None
    if not reading.proven and (Search.FASTEST, key, 0) not in asked:
        return OpenQuestion(key, reading.bound_seconds, Search.FASTEST)
    if not reading.short_of_memory(held):
        return None if reading.proven else OpenQuestion(key, reading.bound_seconds, None)
    bound, easy = reading.bound_within(held), solve and book.variables <= EASY_ILP_VARIABLES
    near = best <= bound * (1 + TOLERANCE)
    if near and not easy:
        return OpenQuestion(key, bound, None)
    where = {"inverse_b": reading.inverse_b, "memory_bytes": reading.memory_bytes, "held": held}
    possible = WITHIN_MEMORY[0 if book.composed else 1 : 2 if solve else 1]
    searches = [s for s in possible if not book.has_tried(s, **where) and (s, key, held) not in asked]
    if not searches and bound == math.inf:
        return None
    return OpenQuestion(key, bound, searches[0] if searches else None)


def next_searches(
    asked: Sequence[tuple[int, Sequence[OpenQuestion]]], fastest: int = 1
) -> dict[Search, list[tuple[str, int]]]:
    """Which searches to run now, for which (problem, microbatches held). `asked` has for every open stage the
    microbatches held and its open questions, lowest bound first.

    Where composition is not finished for the first of them, that comes first, in its quickest search (`fastest`) for so
    many of a stage. Where memory is short these are the questions of the quickest search alone, whose bounds and
    choices often make the solver needless.
    """
    todo: dict[Search, list[tuple[str, int]]] = defaultdict(list)
    finished = []
    for held, questions in asked:
        first = questions[0].search if questions else None
        if first in COMPOSING:
            # By bounds without regard to memory the first rarely closes the question: the next one beside it.
            keys = [question.key for question in questions if question.search is first]
            todo[first] += [(key, 0) for key in keys[: 2 if first is Search.COMPOSED else fastest]]
        else:
            finished.append((held, questions))
    searches = {question.search for _, questions in finished for question in questions}
    within_memory = next((search for search in WITHIN_MEMORY if search in searches), None)
    for held, questions in finished:
        todo[Search.FASTEST] += [(q.key, 0) for q in questions if q.search is Search.FASTEST][:1]
        if within_memory is not None:
            todo[within_memory] += [(q.key, held) for q in questions if q.search is within_memory]
    return {search: list(dict.fromkeys(keys)) for search, keys in todo.items() if keys}
