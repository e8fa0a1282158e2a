"""Sizes and weights of the measurements and of the fits. Set by hand unless a reason is given."""

REPEATS = 5
"""Timed repetitions of a measurement, of which the median counts."""
LARGEST_SIDE = {"cpu": 2**10, "cuda": 2**13}
"""Side of the largest matrix product."""
LARGEST_BYTES = {"cpu": 2**26, "cuda": 2**30}
"""The largest operand of the memory-bound kernel and of a collective."""
SLOWEST_SECONDS = 2.0
"""A curve ends where one kernel would take longer."""

PRIOR = 0.1
"""Weight of the row that holds a figure near its previous value; a task of average weight counts 1."""
LEAST_PRIOR = 1e-4
"""Least weight of that row, relative to `PRIOR`, for a figure that no task depends on."""
ROUNDS = 60
"""Rounds in which the kernels of a refit are divided into those bound by arithmetic and those bound by memory."""
LEAST_FACTOR = 0.2
"""No figure becomes better than five times its previous value: then the runs show something else."""
ZERO_LAUNCH_SECONDS = 1e-6
"""The unit in which a launch time that was 0 is fitted."""
ZERO_LATENCY_SECONDS = 1e-6
"""The unit in which a link latency that was 0 is fitted."""
