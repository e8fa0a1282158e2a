"""Seconds and peak memory of operator clustering (Alpa, §5.2, Eq. 6) by `layering.dp`, and its speed-up over
`tests/layering/reference.py`, which must give the same layers.

    PYTHONPATH=. python benchmarks/layering.py [--operators 2000] [--layers 16] [--reference-operators 300] [--repeat 5]

The instance resembles a GPT: blocks of 40 operators, 8 of them with FLOPs, residual connections, views without cost.
"""

from __future__ import annotations

import argparse
import random
import time
import tracemalloc
from collections.abc import Callable

import numpy as np

from alpa_explore.layering import Crossing
from alpa_explore.layering.dp import solve
from tests.layering.reference import solve_reference


def instance(operators: int, seed: int = 0) -> tuple[list[int], list[Crossing]]:
    """FLOPs up to 1e13 and crossing tensors of up to 64 MiB; the cheapest cuts are at the ends of blocks."""
    rng = random.Random(seed)
    flops = [rng.randrange(10**12, 10**13) if place % 5 == 2 else 0 for place in range(operators)]
    crossings = []
    for place in range(operators - 1):
        inner = place % 40 != 39
        readers = {place + 1} if inner else {place + 1, min(place + 20, operators - 1)}
        crossings.append(
            Crossing(producer=place, readers=tuple(sorted(readers)), bytes=(1 + 3 * inner) * rng.choice((8, 16)) << 20)
        )
    return flops, crossings


def best_seconds(repeat: int, solver: Callable[..., object], *arguments: object, received: bool) -> float:
    seconds = []
    for _ in range(repeat):
        started = time.perf_counter()
        solver(*arguments, received=received)
        seconds.append(time.perf_counter() - started)
    return min(seconds)


def compare(operators: int, layers: int, delta: float, repeat: int, *, received: bool) -> None:
    """Run both solvers on one instance, check that they agree, and print the ratio of their times."""
    flops, crossings = instance(operators)
    array = np.array(flops, dtype=np.int64)
    solution = solve(array, crossings, layers, delta, received=received)
    expected = solve_reference(flops, crossings, layers, delta, received=received)
    assert expected == (solution.objective_bytes, solution.cuts), "the two solvers disagree"
    quick = best_seconds(repeat, solve, array, crossings, layers, delta, received=received)
    slow = best_seconds(1, solve_reference, flops, crossings, layers, delta, received=received)
    print(f"  {operators} operators: dp {quick:.4f} s, reference {slow:.2f} s, ratio {slow / quick:.0f}")


def measure(operators: int, layers: int, delta: float, repeat: int, *, received: bool) -> None:
    """Print the seconds and the peak memory of the fast solver alone."""
    flops, crossings = instance(operators)
    array = np.array(flops, dtype=np.int64)
    quick = best_seconds(repeat, solve, array, crossings, layers, delta, received=received)
    tracemalloc.start()
    solve(array, crossings, layers, delta, received=received)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    print(f"  {operators} operators: dp {quick:.4f} s, peak {peak / 1e6:.1f} MB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--operators", type=int, default=2000)
    parser.add_argument("--layers", type=int, default=16)
    parser.add_argument("--delta", type=float, default=0.5)
    parser.add_argument("--reference-operators", type=int, default=300)
    parser.add_argument("--repeat", type=int, default=5)
    options = parser.parse_args()
    for received in (False, True):
        print(f"{options.layers} layers, delta {options.delta}, bytes {'received' if received else 'produced'}:")
        compare(options.reference_operators, options.layers, options.delta, options.repeat, received=received)
        measure(options.operators, options.layers, options.delta, options.repeat, received=received)


if __name__ == "__main__":
    main()
