"""Open questions: computed a second time from the words of the definition, on random books."""

import math
import random
from dataclasses import fields

from alpa_explore.intra_op.stage.stage_totals import StageTotals
from alpa_explore.pricing.price_book import PriceBook, Reading, Search, StageChoice, Tried
from alpa_explore.pricing.tuning import PROVEN, TIE_SECONDS
from alpa_explore.search.open_questions import OpenQuestion, next_searches, open_questions

MEMORY, INVERSE_B, COUNTS = 10, 0.25, range(1, 7)
NAMES = [field.name for field in fields(StageTotals)]


def reading(book):
    return Reading(book=book, inverse_b=INVERSE_B, memory_bytes=MEMORY, least_held=1, most_held=6)


def overflowing(**more):
    """A book whose only choice takes 2 s and 4 bytes, and 4 more for each microbatch held."""
    totals = StageTotals(
        microbatch_seconds=2.0, iteration_seconds=0.0, weight_bytes=4.0, activation_bytes=4.0, workspace_bytes=0.0
    )
    book = {"choices": (StageChoice((0,), totals),), "least_peaks": ((1, 1.0),), "variables": 10, **more}
    return PriceBook(**book)


def random_book(rng):
    choices = tuple(
        StageChoice((n,), StageTotals(**{name: rng.uniform(0, 4) for name in NAMES}))
        for n in range(rng.choice((0, 1, 2, 4)))
    )
    least = min((c.totals.device_latency_at(INVERSE_B) for c in choices), default=math.inf)
    bound = least if rng.random() < 0.7 else rng.uniform(0, min(least, 4.0)) * 0.99
    peaks = tuple((held, rng.uniform(0, 6) + held) for held in COUNTS) if rng.random() < 0.7 else ()
    partial = (Tried(Search.FASTEST_COMPOSED, INVERSE_B, MEMORY, 1),) if rng.random() < 0.3 else ()
    return PriceBook(choices=choices, bounds=((INVERSE_B, bound),), least_peaks=peaks, tried=partial)


def seconds(choice):
    return choice.totals.latency_at(INVERSE_B)


def size(choice, held):
    return choice.totals.weight_bytes + held * choice.totals.activation_bytes + choice.totals.workspace_bytes


def expected(books, held):
    """Of books by key: what composition has not finished and may fit, what is not proven and may fit, and where the
    fastest overflows but another may fit; of these what could be better than the best that fits and is finished."""
    asked, best = {}, math.inf
    for key, book in books.items():
        bound, fastest = book.bounds[0][1], min(book.choices, key=seconds, default=None)
        least = min((c.totals.device_latency_at(INVERSE_B) for c in book.choices), default=math.inf)
        may_fit = max((peak for n, peak in book.least_peaks if n <= held), default=0.0) <= MEMORY
        if book.tried:
            if may_fit:
                asked[key] = bound * (1 - PROVEN) - TIE_SECONDS, Search.COMPOSED
            continue
        best = min([best, *(seconds(c) for c in book.choices if size(c, held) <= MEMORY)])
        if may_fit and bound < least:
            asked[key] = bound, Search.FASTEST
        elif may_fit and fastest is not None and size(fastest, held) > MEMORY:
            asked[key] = seconds(fastest), Search.SOLVED_WITHIN_MEMORY
    return {key: question for key, question in asked.items() if question[0] < best}


def test_a_question_is_open_where_a_choice_could_beat_the_best_that_fits() -> None:
    rng, some, none = random.Random(0), 0, 0
    for _ in range(300):
        books = {key: random_book(rng) for key in "abc"[: rng.randrange(1, 4)]}
        questions = open_questions({key: reading(book) for key, book in books.items()}, COUNTS)
        for held in COUNTS:
            wanted = expected(books, held)
            assert {q.key: (q.bound_seconds, q.search) for q in questions.get(held, ())} == wanted
            some, none = some + bool(wanted), none + (not wanted)
    assert min(some, none) > 100, "both cases occur often"


def asked(book, held, **how):
    ((question,),) = open_questions({"a": reading(book)}, [held], **how).values()
    return question.search, question.bound_seconds


def test_a_problem_that_a_limit_left_unproven_is_searched_within_memory_and_then_has_a_gap() -> None:
    """Fault of 0.1.0: after the search for its fastest choice it was never asked again, and a stage whose only point
    overflows had no candidate."""
    book = overflowing(bounds=((INVERSE_B, 1.5),))
    fastest, within = (Search.FASTEST, "a", 0), (Search.SOLVED_WITHIN_MEMORY, "a", 3)
    assert asked(book, 3) == (Search.FASTEST, 1.5)
    by_then = asked(book, 3, asked={fastest})
    assert by_then == (Search.SOLVED_WITHIN_MEMORY, 1.5), "the bound is the proven one, not the unproven choice"
    assert asked(book, 1, asked={fastest}) == (None, 1.5), "beside one microbatch the choice fits"
    assert asked(book, 3, asked={fastest}, solve=False) == (None, 1.5)
    assert asked(book, 3, asked={fastest, within}) == (None, 1.5)
    nothing = book.merged(PriceBook(tried=(Tried(Search.SOLVED_WITHIN_MEMORY, INVERSE_B, MEMORY, 3, math.inf),)))
    assert open_questions({"a": reading(nothing)}, [3], asked={fastest}) == {}, "nothing fits"


def test_a_composed_problem_that_is_short_of_memory_is_bounded_then_solved() -> None:
    book, seen = overflowing(bounds=((INVERSE_B, 2.0),), tried=(Tried(Search.COMPOSED, INVERSE_B, MEMORY, 1),)), []
    for bound in (3.0, 3.5):
        seen.append(asked(book, 3))
        book = book.merged(PriceBook(tried=(Tried(seen[-1][0], INVERSE_B, MEMORY, 3, bound),)))
    assert seen == [(Search.BOUNDED_WITHIN_MEMORY, 2.0), (Search.SOLVED_WITHIN_MEMORY, 3.0)]
    assert asked(book, 3) == (None, 3.5), "no search is left, and no choice that fits was found"


def test_the_quickest_search_is_run_alone() -> None:
    bounded, solved = Search.BOUNDED_WITHIN_MEMORY, Search.SOLVED_WITHIN_MEMORY

    def questions(*searches):
        return [OpenQuestion(key, 1.0 + i, search) for i, (key, search) in enumerate(searches)]

    first = questions(("a", solved), ("b", solved))
    second = questions(("d", bounded), ("e", bounded), ("f", Search.FASTEST))
    assert next_searches([(2, first), (1, second)]) == {bounded: [("d", 1), ("e", 1)], Search.FASTEST: [("f", 0)]}
    assert next_searches([(2, first), (1, questions(("d", solved)))]) == {solved: [("a", 2), ("b", 2), ("d", 1)]}
    assert next_searches([(2, [])]) == {}


def test_composition_is_finished_before_what_takes_longer_and_for_the_lowest_bounds() -> None:
    fastest, composed = Search.FASTEST_COMPOSED, Search.COMPOSED
    unfinished = [OpenQuestion(key, 1.0, composed) for key in "abc"]
    others = [OpenQuestion(key, 1.0, fastest) for key in "def"]
    proof = [OpenQuestion("g", 1.0, Search.FASTEST)]
    assert next_searches([(1, unfinished + proof)]) == {composed: [("a", 0), ("b", 0)]}, "a second mesh beside it"
    assert next_searches([(1, others + unfinished)]) == {fastest: [("d", 0)]}
    assert next_searches([(1, others + unfinished)], 2) == {fastest: [("d", 0), ("e", 0)]}
    assert next_searches([(1, proof + others), (2, others)]) == {Search.FASTEST: [("g", 0)], fastest: [("d", 0)]}
