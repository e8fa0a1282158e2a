"""Eq. 6: the vectorised clustering against the reference, and both against an enumeration of all clusterings."""

import random
import re
import time
from itertools import combinations

import numpy as np
import pytest

from alpa_explore.errors import LayeringError, OptionError
from alpa_explore.layering import Crossing, cluster_operators
from alpa_explore.layering.balance import smallest_delta
from alpa_explore.layering.crossing import crossings_of
from alpa_explore.layering.dp import solve
from tests.layering.reference import cost, solve_reference


def fast(flops, crossings, num_layers, delta, received, least=0.0, whole=()):
    """The result of dp.py in the form of the reference: (G*, cuts), or None when delta is too tight."""
    try:
        clustering = solve(
            np.array(flops, dtype=np.int64), crossings, num_layers, delta, received=received, least=least, whole=whole
        )
    except LayeringError:
        return None
    return clustering.objective_bytes, clustering.cuts


def brute_force(flops, crossings, num_layers, delta, received, least=0.0, whole=()):
    """The best (G, sum of squares, cuts) of all clusterings within the FLOP bounds."""
    best = None
    for cuts in combinations(range(1, len(flops)), num_layers - 1):
        if any(first < cut <= last for first, last in whole for cut in cuts):
            continue
        layers = list(zip((0, *cuts), (*cuts, len(flops)), strict=True))
        weights = [sum(flops[a:b]) for a, b in layers]
        # delta in the tests below has two decimals: whole numbers compare exactly.
        if max(weights) * num_layers * 100 > round(100 + 100 * delta) * sum(flops):
            continue
        if min(weights) * num_layers * 100 < round(100 * least) * sum(flops):
            continue
        objective = max(cost(crossings, a, b - 1, received=received) for a, b in layers)
        key = objective, sum(w * w for w in weights), cuts
        best = key if best is None else min(best, key)
    return None if best is None else (best[0], best[2])


@pytest.mark.parametrize("received", [False, True])
def test_both_solvers_equal_brute_force_on_small_instances(random_instance, received):
    rng, feasible, bound = random.Random(3), 0, 0
    for number in range(300):
        operators = rng.randrange(1, 9)
        flops, crossings = random_instance(rng, operators, rng.choice((1, 3, 10)))
        num_layers, delta = rng.randint(1, operators), rng.choice((0, 0.1, 0.33, 1, 4))
        least = (0, 0.5, 0.75, 0.9)[number % 4]
        expected = brute_force(flops, crossings, num_layers, delta, received, least)
        assert solve_reference(flops, crossings, num_layers, delta, received=received, least=least) == expected
        assert fast(flops, crossings, num_layers, delta, received, least) == expected
        feasible += expected is not None
        bound += expected is not None and expected != brute_force(flops, crossings, num_layers, delta, received)
    assert 120 < feasible < 300, "the instances should try both outcomes"
    assert bound > 5, "the least share should change some"


def test_no_layer_begins_within_a_run_that_belongs_in_one_stage(random_instance):
    rng, feasible, moved = random.Random(5), 0, 0
    for _ in range(200):
        operators = rng.randrange(2, 9)
        flops, crossings = random_instance(rng, operators, 3)
        num_layers, delta = rng.randint(1, min(operators, 4)), rng.choice((0.33, 1, 4))
        whole = [tuple(sorted(rng.sample(range(operators), 2))) for _ in range(rng.randint(1, 2))]
        expected = brute_force(flops, crossings, num_layers, delta, False, whole=whole)
        assert fast(flops, crossings, num_layers, delta, False, whole=whole) == expected
        feasible += expected is not None
        moved += expected is not None and expected != brute_force(flops, crossings, num_layers, delta, False)
    assert (40 < feasible < 200, moved > 5) == (True, True), "the instances should try both outcomes"


@pytest.mark.parametrize("received", [False, True])
@pytest.mark.parametrize("scale", [1, 2, 10, 10**16])
def test_the_fast_solver_equals_the_reference_cut_for_cut(random_instance, scale, received):
    rng = random.Random(scale)
    for _ in range(50):
        operators = rng.randrange(1, 26)
        flops, crossings = random_instance(rng, operators, scale)
        num_layers, delta = rng.randint(1, min(operators, 8)), rng.choice((0, 0.1, 0.5, 1, 5))
        expected = solve_reference(flops, crossings, num_layers, delta, received=received)
        assert fast(flops, crossings, num_layers, delta, received) == expected


def test_a_layer_that_does_next_to_nothing_is_kept_out_by_the_least_share():
    """An embedding and a table that all blocks read: apart they cost less than with the first block."""
    flops = [0, 0, 10, 10, 10, 10]
    read = [Crossing(producer=p, readers=(r,), bytes=8) for p, r in ((0, 2), (2, 3), (3, 4), (4, 5))]
    crossings = [*read, Crossing(producer=1, readers=(2, 3, 4, 5), bytes=4)]
    assert fast(flops, crossings, 4, 1, False) == (8, (1, 2, 4))
    assert fast(flops, crossings, 4, 1, False, least=0.25) == (12, (3, 4, 5))
    with pytest.raises(LayeringError, match=r"at least 0\.9 of the mean.*smaller least share"):
        solve(np.array([1, 2, 1]), [], 2, 0.5, least=0.9)
    with pytest.raises(OptionError, match="0 to 1"):
        solve(np.array([1, 1]), [], 2, 0.5, least=1.5)


def test_operators_without_flops_or_bytes_are_cut_as_early_as_possible():
    assert fast([0] * 6, [], 3, 0, False) == (0, (1, 2))


def test_squares_of_1e17_that_are_equal_as_floats_are_distinguished():
    a, b, c = 10**17, 1, 10**17 + 1
    assert float(a) ** 2 + float(b + c) ** 2 == float(a + b) ** 2 + float(c) ** 2
    assert fast([a, b, c], [], 2, 0.5, False) == (0, (2,))
    assert fast([c, b, a], [], 2, 0.5, False) == (0, (1,))


def test_small_cuts_take_precedence_over_even_balance_and_balance_over_early_cuts():
    flops = [1, 1, 1, 1]
    wide, narrow = 100, 10
    narrow_late = [Crossing(producer=p, readers=(p + 1,), bytes=b) for p, b in enumerate((wide, wide, narrow))]
    assert fast(flops, narrow_late, 2, 0.5, False) == (narrow, (3,))
    assert fast(flops, narrow_late, 2, 0.2, False) == (wide, (2,))
    alike = [Crossing(producer=p, readers=(p + 1,), bytes=narrow) for p in range(3)]
    assert fast(flops, alike, 2, 1, False) == (narrow, (2,))


def test_a_prefix_with_a_larger_objective_may_belong_to_the_more_even_clustering():
    # A chain with these bytes after each operator. G(4, 2) of Eq. 6 alone prefers a first cut at 1 (cost 2) to one at
    # 2 (cost 9), but the last cut costs 9 in any case, and the first cut at 2 gives four equal layers.
    behind = (1, 9, 100, 2, 100, 9, 100)
    crossings = [Crossing(producer=p, readers=(p + 1,), bytes=b) for p, b in enumerate(behind)]
    assert fast([2] * 8, crossings, 4, 1, False) == (9, (2, 4, 6))


def test_received_bytes_differ_from_produced_bytes():
    crossings = [Crossing(producer=0, readers=(2,), bytes=6), Crossing(producer=1, readers=(2,), bytes=5)]
    flops = [1, 1, 1]
    assert fast(flops, crossings, 3, 0, False) == (6, (1, 2))
    assert fast(flops, crossings, 3, 0, True) == (11, (1, 2))


def test_delta_zero_accepts_equal_layers_for_any_number_of_layers():
    for num_layers in range(1, 50):
        assert fast([7] * 2 * num_layers, [], num_layers, 0, False) == (0, tuple(range(2, 2 * num_layers, 2)))


def test_delta_is_the_decimal_fraction_that_is_written():
    # The largest of these two layers is exactly 1.1 times the mean; 1 + 0.1 in binary is a little more or less.
    assert fast([11, 9], [], 2, 0.1, False) == (0, (1,))
    assert fast([110000001, 89999999], [], 2, 0.1, False) is None


def test_the_smallest_delta_in_the_message_works_and_a_smaller_one_does_not(random_instance):
    rng = random.Random(4)
    met = 0
    for _ in range(80):
        operators = rng.randrange(2, 15)
        flops, crossings = random_instance(rng, operators, rng.choice((3, 1000, 10**16)))
        num_layers = rng.randint(2, operators)
        try:
            solve(np.array(flops, dtype=np.int64), crossings, num_layers, 0)
        except LayeringError as error:
            number = re.search(r"smallest delta that works is ([0-9.]+);", str(error))
            assert number is not None
            delta = float(number[1].rstrip("."))
            assert fast(flops, crossings, num_layers, delta, False) is not None
            if delta > 2e-6:
                assert fast(flops, crossings, num_layers, round(delta - 2e-6, 6), False) is None
            met += 1
    assert met > 20


def test_the_smallest_delta_of_operators_without_flops_is_zero():
    assert smallest_delta([0, 0, 0], 2) == 0


@pytest.mark.parametrize(
    ("num_layers", "delta", "kind", "words"),
    [
        (0, 0.5, OptionError, "at least one layer"),
        (-3, 0.5, OptionError, "-3"),
        (4, 0.5, LayeringError, "at most 3 layers"),
        (2, -0.1, OptionError, "delta = -0.1"),
        (2, float("nan"), OptionError, "nan"),
        (2, float("inf"), OptionError, "inf"),
    ],
)
def test_bad_options_are_errors_with_a_remedy(num_layers, delta, kind, words):
    with pytest.raises(kind, match=words) as caught:
        solve(np.array([1, 1, 1]), [], num_layers, delta)
    assert caught.value.remedy


def test_more_flops_than_the_exact_arithmetic_holds_are_an_error():
    with pytest.raises(LayeringError, match="smaller microbatch"):
        solve(np.array([2**62, 2**62]), [], 2, 0.5)


def test_a_graph_is_clustered_into_layers_with_their_flops_and_bytes(make_graph):
    graph = make_graph(
        [("a", 4, 10, (-1,)), ("a", 0, 100, (0,)), ("b", 4, 10, (1,)), ("b", 0, 5, (2,)), ("c", 4, 1, (3, 0))]
    )
    layering = cluster_operators(graph, 3, delta=0.5)
    assert layering.cuts == (1, 3)  # (1, 4) costs as much and is as even
    assert layering.layer_of_forward == (0, 1, 1, 2, 2)
    assert [(x.index, x.first, x.last, x.flops, x.cut_bytes) for x in layering.layers] == [
        (0, 0, 0, 4, 40),
        (1, 1, 2, 4, 40),
        (2, 3, 4, 4, 0),
    ]
    flops, crossings = np.array([o.flops for o in graph.forward_operators]), crossings_of(graph)
    produced = solve(flops, crossings, 3, 0.5)
    assert (produced.cuts, produced.objective_bytes, produced.flops_limit) == (layering.cuts, 40, 6)
    received = solve(flops, crossings, 3, 0.5, received=True)
    assert cluster_operators(graph, 3, delta=0.5, received=True).cuts == received.cuts == (1, 4)
    assert received.objective_bytes == 60  # layer 2 receives the 20 bytes of op3 and the 40 of op0


def test_two_thousand_operators_take_well_under_a_second(random_instance):
    rng = random.Random(5)
    flops, crossings = random_instance(rng, 2000, 10**13)
    started = time.thread_time()
    assert len(fast(flops, crossings, 16, 0.5, False)[1]) == 15
    assert time.thread_time() - started < 1.0  # of the processor; 0.1 s or less
