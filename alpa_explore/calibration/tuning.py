"""Sizes and weights of the measurements and of the fits. Set by hand unless a reason is given."""

REPEATS = 5
"""Timed repetitions of a measurement, of which the median counts."""
LARGEST_SIDE = {"cpu": 2**10, "cuda": 2**13}
"""Side of the largest matrix product."""
LARGEST_BYTES = {"cpu": 2**26, "cuda": 2**30}
"""The largest operand of the memory-bound kernel and of a collective."""
SLOWEST_SECONDS = 2.0
"""A curve ends where one kernel would take longer."""

WARM_UPS = 2
"""Calls before a measurement: they compile, allocate, and choose algorithms."""
MOST_REPEATS = 10**6
"""Calls in one timed run on a CPU."""
MOST_QUEUED = 500
"""The same on a GPU, whose queue holds about 1,000 kernels."""
ISSUE_CYCLES = 10**5
"""Cycles of the device (50 µs) in which the host issues one call; the timed kernels wait for that."""
MOST_WAIT_CYCLES = 10**8
"""The longest such wait, 50 ms."""
ISSUED = 100
"""Calls that the host issues in one timing of `host_time`, fewer than a GPU's queue holds."""
PRODUCT_UNIT = {"cpu": 128, "cuda": 4096}
"""The width of the layers whose products are measured, and the tokens of a microbatch."""
ATTENTION_SHAPES = {
    "cpu": ((4, 64, 32), (8, 128, 64), (2, 256, 64)),
    "cuda": (
        *((heads, sequence, 128) for heads, sequence in ((32, 512), (32, 1024), (8, 2048), (32, 2048), (32, 4096))),
        *((heads, sequence, 128) for heads, sequence in ((4, 8192), (16, 8192), (8, 16384))),
        *((heads, sequence, 64) for heads, sequence in ((16, 512), (64, 1024), (16, 2048), (64, 2048), (32, 8192))),
    ),
}
"""(samples · heads, sequence, head dim)."""
CACHE_BYTES = {"cpu": 2**25, "cuda": 2**28}
"""Several times the last-level cache of a GPU (50 MB on an H100); of a CPU the part of it that a core has at most. With
0, 2**22 and 2**25 on a CPU, the errors of six models in one process are 14, 6 and 3 %."""
MOST_COPIES = 4096
"""The most tensors that take turns to overflow that cache."""

PROFILE_RUN_SECONDS = 0.005
"""Least duration of a timed run of a kernel of a model (`profiling`): a plan needs hundreds."""
MOST_COPIES_OF_INPUTS = 64
"""The most sets of inputs of such a kernel that take turns."""
MATTERING = 0.97
"""The share of a plan's kernel time that is timed before another plan is made with it."""
STEADY = 0.2
"""Spread of the runs of a kernel from which it is timed again."""

FIRST_STEP = 0.5
"""The first relative step of the pattern search of `kernel_fit`."""
LAST_STEP = 1e-4
"""The search ends with this step: figures are kept to four digits."""
LEAST_GAIN = 1e-3
"""A round that lowers the error by a smaller share ends its step."""

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
