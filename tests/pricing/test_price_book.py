"""What a price book says at another B and with another memory is never wrong, and it comes back from the cache."""

import itertools
import json
import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import alpa_explore as ax
from alpa_explore.cluster import logical_meshes, submeshes
from alpa_explore.intra_op.composition import cut_blocks
from alpa_explore.intra_op.stage.layered_graph import assign_layers
from alpa_explore.intra_op.stage.stage_totals import StageTotals
from alpa_explore.layering import cluster_operators
from alpa_explore.planner.microbatch_graph import microbatch_graph
from alpa_explore.pricing.price_book import PriceBook, Reading, Search, StageChoice, Tried, dump, load
from alpa_explore.pricing.stage_costs import Provenance
from alpa_explore.pricing.tasks import Task, run_task
from alpa_explore.pricing.tuning import SMALLEST_INVERSE_B, TIE_SECONDS, TOLERANCE

LAYERS, WHOLE = 4, (0, 3)
SHORT, AMPLE = 1_700_000, 2**34


def totals(microbatch, iteration, size=1.0):
    return StageTotals(
        microbatch_seconds=microbatch,
        iteration_seconds=iteration,
        weight_bytes=size,
        activation_bytes=0.0,
        workspace_bytes=0.0,
    )


def read(book, b, memory=AMPLE):
    return Reading(book=book, inverse_b=1 / b, memory_bytes=memory, least_held=1, most_held=LAYERS)


@pytest.fixture(scope="module")
def layered():
    return layered_anew()


def layered_anew():
    """A graph that shares nothing with another: what tasks share is kept by the identity of the graph."""
    graph = microbatch_graph("gpt-tiny", 8)
    return assign_layers(graph, cluster_operators(graph, LAYERS, delta=2.0).layer_of_forward)


def meshes(cluster):
    every = {m.squeezed() for s in submeshes(cluster, "power_of_two") for m in logical_meshes(cluster, s)}
    return sorted(every, key=lambda mesh: mesh.shape)


def task(mesh, b, search=Search.COMPOSED, memory=AMPLE, **more):
    ranges = tuple(((first, last), LAYERS) for first in range(LAYERS) for last in range(first, LAYERS))
    device = replace(ax.Cluster.parse("1x4:v100").device, memory_bytes=memory)
    more = {"ranges": ranges, **more}
    return Task(search=search, least_held=1, mesh=mesh, device=device, inverse_b=1 / b, **more)


def fastest(mesh, b, **more):
    """A task for the fastest choices at this B and the largest."""
    at = tuple(sorted({SMALLEST_INVERSE_B, 1 / b}))
    return task(mesh, b, Search.FASTEST_COMPOSED, inverse_bs=at, **more)


PARTS = st.floats(0.1, 5.0)


@given(lines=st.lists(st.tuples(PARTS, PARTS), min_size=1, max_size=5), at=st.sets(st.floats(0.0, 1.0), max_size=4))
def test_bounds_are_below_the_least_of_all_lines_at_every_b_and_books_together_know_what_each_knows(lines, at) -> None:
    def least(x):
        return min(a + b * x for a, b in lines)

    parts = [PriceBook(bounds=((x, least(x)),)) for x in at]
    book = PriceBook()
    for part in parts:
        book = book.merged(part)
    for x in (*at, 0.0, 0.31, 1.0, 2.0):
        assert max([part.bound(x) for part in parts], default=0.0) * (1 - 1e-9) - 1e-9 <= book.bound(x)
        assert book.bound(x) <= least(x) * (1 + 1e-12)
    assert all(book.bound(x) == least(x) for x in at)
    assert book.merged(PriceBook(bounds=((1.0, math.inf),))).bound(0.1) == math.inf


def test_a_choice_is_proven_where_it_attains_the_bound_and_keeps_no_proof_of_another_b() -> None:
    flat, steep = (StageChoice((n,), totals(*line), Provenance.NEAR) for n, line in enumerate([(2.0, 1.0), (1.0, 3.0)]))
    book = PriceBook(choices=(flat, steep), bounds=((0.25, 1.75), (1.0, 3.0)))
    for b, expected in ((4, [Provenance.NEAR, Provenance.FASTEST]), (1, [Provenance.FASTEST, Provenance.NEAR])):
        assert read(book, b).proven
        assert [p.provenance for p in read(book, b).choices()] == expected
    assert read(book, 1).bound_seconds == 3.0
    between = read(book, 2)
    assert not between.proven
    assert {p.provenance for p in between.choices()} == {Provenance.CONVEX}
    assert between.bound_seconds == pytest.approx(1.75 + 1.25 / 3)
    more = read(book.merged(PriceBook(bounds=((0.5, 2.5),))), 4 / 3)
    assert more.proven, "the line of a choice that is the fastest at both ends"
    assert read(PriceBook(bounds=((1.0, math.inf),)), 5).proven, "there is no choice"


def test_what_a_search_within_memory_bounds_holds_for_smaller_b_the_same_memory_and_as_many_held() -> None:
    tried = Tried(Search.BOUNDED_WITHIN_MEMORY, 1 / 16, 100, 2, 7.0)
    book = PriceBook(choices=(StageChoice((0,), totals(1.0, 1.0, 200.0)),), bounds=((1 / 16, 1.0),), tried=(tried,))
    for b, memory, held, expected in (
        (16, 100, 2, 7.0),
        (4, 100, 2, 7.0),
        (32, 100, 2, 0),
        (16, 99, 2, 0),
        (16, 100, 3, 0),
    ):
        reading = read(book, b, memory)
        assert reading.bound_within(held) == max(expected, reading.bound_seconds)


def test_books_come_back_from_an_entry_as_they_were_written() -> None:
    points = (
        StageChoice((), totals(1, 2), Provenance.NEAR, ((1, 2), (3,))),
        StageChoice((), totals(2, 2), Provenance.FITTING, ((3,), (3,))),
        StageChoice((4, 5), totals(3, 2), Provenance.EXACT),
    )
    books = {
        "a": PriceBook(
            choices=points,
            bounds=((0.0, 0.5), (1.0, 2.5)),
            tried=(Tried(Search.COMPOSED, 0.5, 10, 1), Tried(Search.BOUNDED_WITHIN_MEMORY, 0.5, 10, 2, 0.7)),
            least_peaks=((1, 6.5), (2, 7.5)),
            solves=2,
            variables=30,
            constraints=40,
        ),
        "b": PriceBook(bounds=((1.0, math.inf),)),
    }
    again = load(json.loads(json.dumps(dump(books))))
    assert again == books
    assert [p.provenance for p in again["a"].choices] == [p.provenance for p in points]
    assert dump(books)["blocks"] == [(1, 2), (3,)], "what several choices share is written once"


@pytest.mark.sweep(kept=1)
@pytest.mark.slow
@pytest.mark.parametrize(("memory", "b"), [(SHORT, 1), (SHORT, 2**20), (2_600_000, 8), (AMPLE, 1), (AMPLE, 2**20)])
def test_a_composition_that_takes_the_fastest_choices_finds_what_it_finds_at_once(layered, memory, b) -> None:
    for mesh in meshes(ax.Cluster.parse("1x4:v100")):
        known = run_task((layered,), fastest(mesh, b, memory=memory))
        taken = run_task((layered,), task(mesh, b, memory=memory, known=known))
        for layers, book in run_task((layered,), task(mesh, b, memory=memory)).items():
            both = known[layers].merged(taken[layers])
            assert {c.block_choices for c in both.choices} == {c.block_choices for c in book.choices}
            assert (both.bounds, both.least_peaks) == (book.bounds, book.least_peaks)
            assert known[layers].solves + taken[layers].solves == book.solves


@pytest.mark.sweep(kept=1)
@pytest.mark.slow
@pytest.mark.parametrize("memory", [SHORT, AMPLE])
def test_a_book_of_another_b_bounds_this_one_and_with_the_fastest_choices_here_is_proven(layered, memory) -> None:
    near = proven = total = 0
    for mesh in meshes(ax.Cluster.parse("1x4:v100")):
        of_b = {b: run_task((layered,), task(mesh, b, memory=memory)) for b in (2, 64, 1000)}
        for known, b in itertools.permutations(of_b, 2):
            here = task(mesh, b, Search.FASTEST_COMPOSED, memory, inverse_bs=(1 / b,))
            found_here = run_task((layered,), here)
            for layers, exact in of_b[b].items():
                reading, there = read(of_b[known][layers], b, memory), read(exact, b, memory)
                optimum = there.device_bound
                assert reading.device_bound <= optimum
                least = min(p.totals.device_latency_at(1 / b) for p in reading.book.choices)
                assert least >= optimum - TIE_SECONDS
                assert not reading.proven or least <= optimum * (1 + 1e-9) + 2 * TIE_SECONDS
                found = [p for p in reading.choices() if p.provenance in (Provenance.NEAR, Provenance.FASTEST)]
                assert all(p.totals.device_latency_at(1 / b) >= optimum - TIE_SECONDS for p in found)
                near, proven, total = near + bool(found), proven + reading.proven, total + 1
                both = read(reading.book.merged(found_here[layers]), b, memory)
                assert both.proven
                assert both.unfinished is None
                assert both.bound_seconds == pytest.approx(there.bound_seconds, rel=1e-9)
                for other in (1, b, known):
                    quickest = [min(p.totals.latency_at(1 / other) for p in x.choices) for x in (both.book, exact)]
                    assert quickest[0] <= quickest[1] * (1 + 3 * TOLERANCE) or other == 1
    assert near > 0.5 * total
    assert proven > 0.2 * total
    assert read(of_b[2][WHOLE], 2 / SMALLEST_INVERSE_B).device_bound >= 0.0


@pytest.mark.slow
def test_no_choice_that_fits_is_below_the_bound_of_a_search_within_memory_at_a_larger_b(layered) -> None:
    compared = 0
    for mesh in meshes(ax.Cluster.parse("1x4:v100")):
        where = {"memory": SHORT, "ranges": ((WHOLE, LAYERS),)}
        within = {**where, "counts": (1, 2, 3, 4)}
        points = [
            p
            for one in (task(mesh, 16, **where), task(mesh, 16, Search.BOUNDED_WITHIN_MEMORY, **within))
            for p in run_task((layered,), one)[WHOLE].choices
        ]
        for found in run_task((layered,), task(mesh, 64, Search.BOUNDED_WITHIN_MEMORY, **within))[WHOLE].tried:
            fitting = [p for p in points if p.totals.peak_bytes(found.held) <= SHORT]
            compared += len(fitting)
            assert all(found.bound_seconds <= p.totals.latency_at(1 / 16) * (1 + 1e-9) for p in fitting)
    assert compared > 20


@pytest.mark.slow
def test_tasks_on_a_mesh_share_its_blocks_and_find_together_what_they_find_alone(monkeypatch) -> None:
    from concurrent.futures import ThreadPoolExecutor

    layered, (*_, mesh) = layered_anew(), meshes(ax.Cluster.parse("2x2:v100"))
    bounding, composing = fastest(mesh, 8), task(mesh, 8)
    builds, build = [], cut_blocks.build_stage_problem
    monkeypatch.setattr(cut_blocks, "build_stage_problem", lambda *given: builds.append(given) or build(*given))
    alone = run_task((layered,), bounding)
    assert builds
    builds.clear()
    composed = run_task((layered,), composing)
    assert not builds, "the second task builds no block"
    assert run_task((layered,), bounding) == alone
    fresh = layered_anew()
    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(lambda _: run_task((fresh,), composing), range(3))) == [composed] * 3
