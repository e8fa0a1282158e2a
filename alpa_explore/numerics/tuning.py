"""When a kernel is worth its machine code."""

STEPS_BEFORE_LOADING = 20_000
"""Inner steps that Python runs, in all calls of a kernel together, before its machine code is loaded: about 20 ms.
Loading the first kernel of a process takes 0.35 s, numba included."""
STEPS_BEFORE_COMPILING = 300_000
"""The same where it would have to be compiled, which takes 0.3 s and more."""
