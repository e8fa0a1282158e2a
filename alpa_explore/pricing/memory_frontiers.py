"""Leaner, slower choices of one stage at one B, for devices that the fastest choice overflows.

Where Pareto sets stay small, the frontier of (seconds, weight + held × activation bytes) is exact
(`intra_op.memory.pareto`). Elsewhere a search over prices of memory (Lagrange multipliers), from the fastest choice to
the leanest, gives its convex part. Where a pipeline needs a choice that fits, workspace included, `fastest_fitting`
searches for the fastest of them.
"""

from __future__ import annotations

from dataclasses import replace

from alpa_explore.errors import SolverError
from alpa_explore.intra_op.memory.pareto import Caps, ParetoPoint, pareto_frontier
from alpa_explore.intra_op.solve_limited import solve_limited
from alpa_explore.intra_op.stage.stage_problem import StageProblem
from alpa_explore.pricing import tuning
from alpa_explore.pricing.explorer import Explorer, Solve
from alpa_explore.pricing.price_book import PriceBook, Search, StageChoice, Tried
from alpa_explore.pricing.stage_costs import Provenance

_TRIES = 2
"""Of the fastest choice that fits: the second leaves room for what the first needs beside what its limit counts."""


def fastest_fitting(
    problem: StageProblem, solve: Solve, device_memory_bytes: int, held: float, inverse_b: float, bound_seconds: float
) -> PriceBook:
    """At one B, the fastest choice that fits with `held` microbatches held; where it is not proven in FITTING_SECONDS,
    the best that was found; where that would gather more weights than fit beside it, the fastest with room for as many.
    Without a memory limit the fastest choice takes `bound_seconds`; it does not fit.

    No points when nothing fits, or nothing was found in time. The search is `Tried` in any case, with the bound that
    was proven: another one would take as long, and end as this one did.
    """
    explorer = Explorer(problem, solve, device_memory_bytes, held)
    memory_price = tuning.TIE_SECONDS / device_memory_bytes
    priced = problem.at(inverse_b=inverse_b, memory_price=memory_price, microbatches_held=held)
    room = float(device_memory_bytes)
    bound = 0.0

    def book() -> PriceBook:
        tried = Tried(Search.SOLVED_WITHIN_MEMORY, inverse_b, device_memory_bytes, int(held), bound)
        return replace(explorer.book(), tried=(tried,))

    for _ in range(_TRIES):
        limit = problem.memory_limit(held, room)
        try:
            solution = solve_limited(priced, limit, time_limit_seconds=tuning.FITTING_SECONDS, bound=bound_seconds)
        except SolverError:
            return book()
        explorer.solves += 1
        if not solution.choices:
            bound = bound or solution.bound
            return book()
        if not bound:
            share = solution.bound / solution.objective
            bound = share * problem.totals(solution.choices).latency_at(inverse_b)
        beside = problem.beside_bytes(solution.choices)
        if not beside or problem.totals(solution.choices).peak_bytes(held) <= device_memory_bytes:
            break
        room = device_memory_bytes - beside
    explorer.keep(solution.choices, Provenance.FITTING)
    return book()


def memory_frontier(
    problem: StageProblem,
    solve: Solve,
    device_memory_bytes: int,
    held: tuple[int, int],
    inverse_b: float,
    most: int = 8,
) -> PriceBook:
    """Leaner, slower choices at one B, down to the leanest.

    If the frontier is exact: the fastest choice that fits at each place in the pipeline, and `most` more that are
    spread over the frontier. Otherwise its convex part, with at most `most` solves, each between a choice that fits at
    some place and one that does not. `held` are the fewest and the most microbatches that a place may hold; the
    frontier is for the most.
    """
    fewest, held_most = held
    counts = range(fewest, held_most + 1)
    explorer = Explorer(problem, solve, device_memory_bytes, held_most)

    def straddles(fast: StageChoice, lean: StageChoice) -> bool:
        """Whether at some place the lean choice fits and the fast one does not."""
        return any(lean.totals.peak_bytes(h) <= device_memory_bytes < fast.totals.peak_bytes(h) for h in counts)

    ends = explorer.ends(inverse_b)
    if ends is None:
        return explorer.no_choice()
    fast, lean = ends
    if straddles(fast, lean):
        most_seconds = lean.totals.latency_at(inverse_b)
        exact = exact_frontier(problem, held_most, inverse_b, most_seconds, tuning.EXACT_WHERE)
        if exact:
            points = [explorer.keep(p.choices, Provenance.EXACT) for p in exact]
            selected = {round(i * (len(points) - 1) / max(most - 1, 1)) for i in range(most)}
            for h in counts:
                fits = (i for i, p in enumerate(points) if p.totals.peak_bytes(h) <= device_memory_bytes)
                selected |= {i for i in [next(fits, None)] if i is not None}
            explorer.points = {points[i].choices: points[i] for i in sorted(selected)}
            return explorer.book([(inverse_b, exact[0].seconds)], counts)
    explorer.convex_part(ends, inverse_b, most, straddles)
    return explorer.book(counts=counts)


def whole_frontier(
    problem: StageProblem, solve: Solve, device_memory_bytes: int, held: float, inverse_b: float, most: int, caps: Caps
) -> tuple[tuple[StageChoice, ...], bool]:
    """The whole frontier at one B: all points if the Pareto sets stay within `caps`, and True; otherwise the convex
    part, with `most` solves, and False."""
    explorer = Explorer(problem, solve, device_memory_bytes, held)
    ends = explorer.ends(inverse_b)
    if ends is None:
        return (), True
    exact = exact_frontier(problem, held, inverse_b, ends[1].totals.latency_at(inverse_b), caps)
    if exact:
        points = [explorer.keep(p.choices, Provenance.EXACT) for p in exact]
        return tuple({p.choices: p for p in points}.values()), True
    explorer.convex_part(ends, inverse_b, most, lambda _fast, _lean: True)
    return tuple(explorer.points.values()), False


def exact_frontier(
    problem: StageProblem, held: float, inverse_b: float, most_seconds: float, caps: Caps
) -> tuple[ParetoPoint, ...] | None:
    """All non-dominated pairs of (seconds, weight + held × activation bytes) up to `most_seconds`; None where the
    Pareto sets exceed `caps`."""
    unpriced = problem.at(inverse_b=inverse_b, memory_price=0.0, microbatches_held=held)
    sizes = [n.weight_bytes + held * n.activation_bytes for n in problem.nodes]
    return pareto_frontier(unpriced, sizes, most_seconds=most_seconds * (1 + 1e3 * tuning.PROVEN), caps=caps)
