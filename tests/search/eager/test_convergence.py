"""Open questions: computed a second time from the words of the definition, on random frontiers."""

import math
import random
from dataclasses import fields
from types import SimpleNamespace

from alpa_explore.intra_op.stage.stage_totals import StageTotals
from alpa_explore.pricing.frontier import Frontier, StageChoice
from alpa_explore.pricing.stage_tasks import Search
from alpa_explore.search.eager.convergence import Convergence, OpenQuestion, next_searches

MEMORY, INVERSE_B, COUNTS = 10.0, 0.25, range(1, 7)


def _frontier(rng):
    names = [field.name for field in fields(StageTotals)]
    points = tuple(
        StageChoice((n,), StageTotals(**{name: rng.uniform(0, 4) for name in names}))
        for n in range(rng.choice((0, 1, 2, 4)))
    )
    least = tuple(rng.uniform(0, 14) + held for held in COUNTS) if rng.random() < 0.7 else ()
    return Frontier(points, 1, 10, 10, True, rng.uniform(0, 2), proven=rng.random() < 0.7, least_peaks=least)


def _seconds(point):
    return point.totals.latency_at(INVERSE_B)


def _bytes(point, held):
    return point.totals.weight_bytes + held * point.totals.activation_bytes + point.totals.workspace_bytes


def _expected(frontiers, held):
    """Of frontiers by key: what is not proven and may fit, and where the fastest overflows but another may fit; of
    these what could be better than the best that fits."""
    candidates, best = {}, math.inf
    for key, f in frontiers.items():
        least = f.least_peaks[held - 1] if f.least_peaks else 0.0
        fastest = min(f.points, key=_seconds, default=None)
        best = min([best, *(_seconds(p) for p in f.points if _bytes(p, held) <= MEMORY)])
        if least > MEMORY:
            continue
        if not f.proven:
            candidates[key] = f.bound_seconds, Search.FASTEST
        elif fastest is not None and _bytes(fastest, held) > MEMORY:
            candidates[key] = _seconds(fastest), Search.SOLVED_WITHIN_MEMORY
    return {key: question for key, question in candidates.items() if question[0] < best}


def _convergence(frontiers):
    task = SimpleNamespace(device=SimpleNamespace(memory_bytes=MEMORY), inverse_b=INVERSE_B, least_held=1, held=6)
    return Convergence(
        dict.fromkeys(frontiers, task), {key: [f] for key, f in frontiers.items()}, inverse_b=task.inverse_b
    )


def test_a_question_is_open_where_a_choice_could_beat_the_best_that_fits():
    rng, some, none = random.Random(0), 0, 0
    for _ in range(300):
        frontiers = {key: _frontier(rng) for key in "abc"[: rng.randrange(1, 4)]}
        questions = _convergence(frontiers).open_questions(frontiers, COUNTS)
        for held in COUNTS:
            expected = _expected(frontiers, held)
            assert {q.key: (q.bound_seconds, q.search) for q in questions.get(held, ())} == expected
            some, none = some + bool(expected), none + (not expected)
    assert min(some, none) > 100, "both cases occur often"


def test_a_problem_that_a_time_limit_left_unproven_is_still_searched_within_memory():
    """Fault of 0.1.0: after the search for its fastest choice it was never asked again, and a stage whose only point
    overflows had no candidate."""
    totals = StageTotals(
        microbatch_seconds=2.0, iteration_seconds=0.0, weight_bytes=4.0, activation_bytes=4.0, workspace_bytes=0.0
    )
    unproven = Frontier((StageChoice((0,), totals),), 1, 10, 10, False, 1.5, proven=False, least_peaks=(1.0,) * 6)
    convergence = _convergence({"a": unproven})
    ((question,),) = convergence.open_questions(["a"], [3]).values()
    assert question.search is Search.FASTEST
    convergence.close(Search.FASTEST, [("a", 6)])
    ((question,),) = convergence.open_questions(["a"], [3]).values()
    assert question == ("a", 1.5, Search.SOLVED_WITHIN_MEMORY), "the bound is the proven one, not the unproven choice"
    assert convergence.open_questions(["a"], [1]) == {}, "beside one microbatch the choice fits"
    convergence.close(Search.SOLVED_WITHIN_MEMORY, [("a", 3)])
    assert convergence.open_questions(["a"], [3]) == {}


def test_a_composed_problem_that_is_short_of_memory_is_bounded_then_composed_then_solved():
    totals = StageTotals(
        microbatch_seconds=2.0, iteration_seconds=0.0, weight_bytes=4.0, activation_bytes=4.0, workspace_bytes=0.0
    )
    frontiers = {"a": [Frontier((StageChoice((0,), totals),), 1, 10, 10, True, 2.0, proven=True, least_peaks=(1.0,))]}
    task = SimpleNamespace(device=SimpleNamespace(memory_bytes=MEMORY), least_held=1, held=6)
    convergence = Convergence({"a": task}, frontiers, inverse_b=INVERSE_B, composed={"a"})
    seen = []
    for bound in (3.0, 3.5):
        ((question,),) = convergence.open_questions(["a"], [3]).values()
        seen.append((question.search, question.bound_seconds))
        convergence.add("a", Frontier((), 1, 10, 10, True, 0.0, proven=False, bounds_within=((3, bound),)))
        convergence.close(question.search, [("a", 6)])
    ((question,),) = convergence.open_questions(["a"], [3]).values()
    assert [*seen, (question.search, question.bound_seconds)] == [
        (Search.BOUNDED_WITHIN_MEMORY, 2.0),
        (Search.COMPOSED_WITHIN_MEMORY, 3.0),
        (Search.SOLVED_WITHIN_MEMORY, 3.5),
    ]
    empty = Convergence({"a": task}, {"a": frontiers["a"][:1]}, inverse_b=INVERSE_B, composed={"a"})
    empty.close(Search.BOUNDED_WITHIN_MEMORY, [("a", 6)])
    ((question,),) = empty.open_questions(["a"], [3]).values()
    assert question.search is Search.COMPOSED_WITHIN_MEMORY, "a search that found no bound is not run again"


def test_the_quickest_search_is_run_alone_and_choices_are_composed_for_the_lowest_bound_first():
    bounded, composed, solved = (
        Search.BOUNDED_WITHIN_MEMORY,
        Search.COMPOSED_WITHIN_MEMORY,
        Search.SOLVED_WITHIN_MEMORY,
    )
    tasks = dict.fromkeys("abcdef", SimpleNamespace(held=6))

    def questions(*searches):
        return [OpenQuestion(key, 1.0 + i, search) for i, (key, search) in enumerate(searches)]

    first = questions(("a", composed), ("b", composed), ("c", solved))
    second = questions(("d", bounded), ("e", bounded), ("f", Search.FASTEST))
    assert next_searches([(2, first), (1, second)], tasks) == {
        bounded: [("d", 6), ("e", 6)],
        Search.FASTEST: [("f", 6)],
    }
    assert next_searches([(2, first), (1, questions(("d", composed)))], tasks) == {composed: [("a", 6), ("d", 6)]}
    assert next_searches([(2, first)], tasks) == {composed: [("a", 6), ("b", 6)]}, "a second one beside it"
    assert next_searches([(2, questions(("c", solved), ("a", solved)))], tasks) == {solved: [("c", 2), ("a", 2)]}
    assert next_searches([(2, [])], tasks) == {}
