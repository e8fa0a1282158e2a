"""The fastest choices of one stage at every B: the lower envelope of lines over 1/B.

It is found with two solves for each of its corners (Eisner and Severance, "Mathematical techniques for efficient record
segmentation in large shared databases", JACM 1976).
"""

from __future__ import annotations

from alpa_explore.intra_op.stage.stage_problem import StageProblem
from alpa_explore.numerics.lower_envelope import crossing_price
from alpa_explore.pricing import tuning
from alpa_explore.pricing.explorer import Explorer, Sample, Solve
from alpa_explore.pricing.price_book import PriceBook


def fastest(
    problem: StageProblem, solve: Solve, device_memory_bytes: int, held: tuple[int, int], inverse_b: float
) -> PriceBook:
    """The fastest choice at one B; where the problem is too large for a proof, the best that was found, above the
    bound. Where it overflows with the most microbatches `held`, also bounds on the bytes of every choice with the
    fewest and with the most."""
    explorer = Explorer(problem, solve, device_memory_bytes, held[1])
    sample = explorer.fastest(inverse_b, 0.0)
    if sample is None:
        return explorer.no_choice()
    overflows = sample.point.totals.peak_bytes(held[1]) > device_memory_bytes
    return explorer.book([(inverse_b, sample.bound)], held if overflows else ())


def envelope(problem: StageProblem, solve: Solve, device_memory_bytes: int, held: int, inverse_b: float) -> PriceBook:
    """Choices within TOLERANCE of the fastest at `inverse_b`, and within 2 × TOLERANCE for every B up to a million."""
    explorer = Explorer(problem, solve, device_memory_bytes, held)
    samples: list[Sample] = []

    def at(inverse_b: float) -> Sample | None:
        sample = explorer.fastest(inverse_b, tuning.TOLERANCE)
        samples.extend([] if sample is None else [sample])
        return sample

    def between(low: Sample, high: Sample) -> None:
        if (corner := corner_between(low, high)) is None:
            return
        middle = at(corner)
        lowest = low.point.totals.device_latency_at(corner) * (1 - tuning.TOLERANCE)
        if middle is None or middle.point.totals.device_latency_at(corner) >= lowest:
            return
        between(low, middle)
        between(middle, high)

    requested = at(inverse_b)
    if requested is None:
        return explorer.no_choice()
    few = at(1.0) if inverse_b < 1.0 else requested
    many = at(tuning.SMALLEST_INVERSE_B)
    if few is None or many is None:
        raise AssertionError("a choice is legal at every B or at none")
    between(many, requested)
    between(requested, few)
    return explorer.book([(sample.inverse_b, sample.bound) for sample in samples])


def corner_between(low: Sample, high: Sample) -> float | None:
    """The 1/B at which the lines of two neighbouring samples cross, if another choice may be clearly lower there.

    `low` was solved at a smaller 1/B than `high`. The least seconds are concave in 1/B, so between the samples they lie
    above the line that joins the bounds of the samples: a corner near that line needs no solve.
    """
    a, b = low.point.totals, high.point.totals
    corner = crossing_price((a.microbatch_seconds, a.iteration_seconds), (b.microbatch_seconds, b.iteration_seconds))
    if corner is None or not low.inverse_b < corner < high.inverse_b:
        return None
    share = (corner - low.inverse_b) / (high.inverse_b - low.inverse_b)
    least = low.bound + share * (high.bound - low.bound)
    return None if a.device_latency_at(corner) * (1 - 2 * tuning.TOLERANCE) <= least else corner
