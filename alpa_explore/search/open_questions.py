"""Which problems may have a better choice than is known, and the search that would find it."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from alpa_explore.intra_op.tuning import EASY_ILP_VARIABLES
from alpa_explore.pricing.price_book import Reading, Search
from alpa_explore.pricing.tuning import TOLERANCE

WITHIN_MEMORY = (Search.BOUNDED_WITHIN_MEMORY, Search.COMPOSED_WITHIN_MEMORY, Search.SOLVED_WITHIN_MEMORY)
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
    complete = {key: reading for key, reading in readings.items() if reading.complete}
    uncomposed = [
        (reading, OpenQuestion(key, reading.partial_bound, Search.COMPOSED))
        for key, reading in readings.items()
        if key not in complete
    ]
    most, ask = max(counts), partial(_question, asked=asked, solve=solve)
    unproven = {key: reading for key, reading in complete.items() if not reading.proven_up_to(most)}
    questions = {}
    for held in counts if uncomposed or unproven else ():
        found = [q for key, reading in unproven.items() if (q := ask(key, reading, held))]
        found += [question for reading, question in uncomposed if reading.may_fit(held)]
        if found:
            best = min((reading.seconds_within(held) for reading in complete.values()), default=math.inf)
            if better := [question for question in found if question.bound_seconds < best]:
                questions[held] = better
    return questions


def _question(key: str, reading: Reading, held: int, *, asked: Collection[Asked], solve: bool) -> OpenQuestion | None:
    """None where the gap is closed or small enough."""
    book = reading.book
    if not reading.may_fit(held):
        return None
    if not reading.proven and (Search.FASTEST, key, 0) not in asked:
        return OpenQuestion(key, reading.bound_seconds, Search.FASTEST)
    if not reading.short_of_memory(held):
        return None if reading.proven else OpenQuestion(key, reading.bound_seconds, None)
    bound, easy = reading.bound_within(held), solve and book.variables <= EASY_ILP_VARIABLES
    near = reading.seconds_within(held) <= bound * (1 + TOLERANCE)
    if near and not easy:
        return None
    where = {"inverse_b": reading.inverse_b, "memory_bytes": reading.memory_bytes, "held": held}
    searches = WITHIN_MEMORY[0 if book.composed else 2 : 3 if solve else 2]
    # Label setting makes the bounds needless that it begins with.
    tried = {s for s in searches if book.has_tried(s, **where) or (s, key, held) in asked}
    searches = searches[max((searches.index(search) + 1 for search in tried), default=0) :]
    if not searches and (near or bound == math.inf):
        return None
    return OpenQuestion(key, bound, searches[0] if searches else None)


def next_searches(asked: Sequence[tuple[int, Sequence[OpenQuestion]]]) -> dict[Search, list[tuple[str, int]]]:
    """Which searches to run now, for which (problem, microbatches held). `asked` has for every open stage the
    microbatches held and its open questions, lowest bound first.

    Where memory is short these are the questions of the quickest search alone, whose bounds and choices often make the
    slower ones needless. Choices are composed for the logical mesh with the lowest bound first.
    """
    todo: dict[Search, list[tuple[str, int]]] = {}
    searches = {question.search for _, questions in asked for question in questions}
    within_memory = next((search for search in WITHIN_MEMORY if search in searches), None)
    later: list[tuple[str, int]] = []
    for held, questions in asked:
        for search in (Search.FASTEST, within_memory):
            of_search = [(question.key, held) for question in questions if question.search is search]
            now = 1 if search is Search.COMPOSED_WITHIN_MEMORY else len(of_search)
            later += of_search[now:]
            if search is not None and of_search:
                todo.setdefault(search, []).extend(of_search[:now])
    todo = {search: list(dict.fromkeys(keys)) for search, keys in todo.items()}
    # A second task runs beside the first.
    if later and len({key for key, _ in todo[Search.COMPOSED_WITHIN_MEMORY]}) == 1:
        todo[Search.COMPOSED_WITHIN_MEMORY].append(later[0])
    return todo
