"""Which problems may have a better choice than is known, and the search that would find it."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
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
    search: Search
    """The kind of task that would close the gap."""


def open_questions(
    readings: Mapping[str, Reading], counts: Collection[int], *, solve: bool = True
) -> dict[int, list[OpenQuestion]]:
    """Of the problems of one stage (one for each logical mesh and version), for each number of microbatches held: those
    whose lower bound is below the best candidate of all of them. Where composition is not finished for a problem its
    candidates close nothing. Without `solve` no solver is asked for choices that fit."""
    complete = {key: reading for key, reading in readings.items() if reading.complete}
    partial = [
        (reading, OpenQuestion(key, reading.partial_bound, Search.COMPOSED))
        for key, reading in readings.items()
        if key not in complete
    ]
    most = max(counts)
    unproven = {key: reading for key, reading in complete.items() if not reading.proven_up_to(most)}
    questions = {}
    for held in counts if partial or unproven else ():
        asked = [q for key, reading in unproven.items() if (q := _question(key, reading, held, solve=solve))]
        asked += [question for reading, question in partial if reading.may_fit(held)]
        if asked:
            best = min((reading.seconds_within(held) for reading in complete.values()), default=math.inf)
            if better := [question for question in asked if question.bound_seconds < best]:
                questions[held] = better
    return questions


def _question(key: str, reading: Reading, held: int, *, solve: bool) -> OpenQuestion | None:
    """None where the gap is closed or small enough, or no search is left that could close it."""
    book = reading.book
    if not reading.proven and not book.has_tried(Search.FASTEST, inverse_b=reading.inverse_b):
        return OpenQuestion(key, reading.bound_seconds, Search.FASTEST) if reading.may_fit(held) else None
    if not reading.short_of_memory(held):
        return None
    bound, easy = reading.bound_within(held), solve and book.variables <= EASY_ILP_VARIABLES
    if not easy and reading.seconds_within(held) <= bound * (1 + TOLERANCE):
        return None
    where = {"inverse_b": reading.inverse_b, "memory_bytes": reading.memory_bytes, "held": held}
    searches = WITHIN_MEMORY[0 if book.composed else 2 : 3 if solve else 2]
    # Label setting makes the bounds needless that it begins with.
    tried = {search for search in searches if book.has_tried(search, **where)}
    searches = searches[max((searches.index(search) + 1 for search in tried), default=0) :]
    return OpenQuestion(key, bound, searches[0]) if searches else None


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
