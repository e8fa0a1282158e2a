"""When a kernel is worth its machine code."""

STEPS_BEFORE_IMPORTING = 300_000
"""Inner steps that Python runs, in all calls of a kernel together, before numba is imported: about 0.3 s. To import it
and to load the first kernel of a process takes 0.35 to 1 s."""
STEPS_BEFORE_LOADING = 20_000
"""The same where numba is imported already, and the machine code only has to be loaded."""
STEPS_BEFORE_COMPILING = 300_000
"""The same where it would have to be compiled, which takes 0.3 s and more."""
