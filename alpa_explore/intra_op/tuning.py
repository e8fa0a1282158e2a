"""Tuning constants of `solve` and `solve_limited`; those of the methods they call are in the rooms of these.

Here and in the rooms *not critical* says that half or twice of a constant changes the time of
benchmarks/tuning_constants.py by less than 7 %.
"""

EASY_ILP_VARIABLES = 25_000
"""Variables of an ILP that HiGHS solves in a second or so. Beyond it only a time limit makes `solve` try: on a scan of
12 steps in a Python loop, 320,000 variables, HiGHS reached a gap of 4.6 % in 20 s, and message passing 1.5 % in 2 s."""
ILP_VARIABLES_A_SECOND = 1.2e4
"""An ILP under a memory limit is not begun where a time limit leaves less than a second for so many of its variables.
Measured on stages of GPT-39B on V100 and Llama-3.1-405B: 76,000 variables in 8.5 s closed a gap of 0.08 % to 0.002 %;
165,000 in 8.4 s and 320,000 in 4.5 s (which took 10 to 15 s and 1 GB) gave neither a better choice nor a better bound
than prices of memory."""
WIDE_ILP_SECONDS = 5.0
"""Time of HiGHS for the components of a problem without a time limit that are too wide for elimination. Measured: where
it proves nothing by then (SimCLR on 2 × 4 devices: 174 nodes, 23,000 variables) it had not after 100 s either, and the
better of its choice and that of descent is the answer, with the better bound."""
RUN_GAP = 5e-3
"""Relative gap at which the bound of a run of layers is good enough (`range_bounds`), and by which that of a longer run
must be higher for a still longer one to be tried."""
PROVEN_GAP = 1e-9
"""Relative gap that is rounding."""
