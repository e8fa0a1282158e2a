"""Limits of the search. None changes what is proven, only how long the search goes on."""

from __future__ import annotations

MOST_SOLVED_WITHIN_MEMORY = 40
"""Problems that are solved under the memory limit for one plan, in 10 s at most each; after that the choices found so
far are used. Not critical: half or twice of it changes the time of benchmarks/tuning_constants.py by less than 7 %."""
OPERATORS_SOLVED_AT_ONCE = 20_000
"""Operators of all problems together up to which those that cannot be composed are all solved at once. Set by hand:
some seconds, in which a plan gets candidates for other B too."""
SECONDS_ALONE = 30.0
"""Time for problems that cannot be composed, once a pipeline is known: after it the plan says how far it may be from
the best one. T5-3B on 1x8:a100 has about a thousand, of which a pipeline wants some tens, in 2 to 5 s each."""
SECONDS_WITHIN_TOLERANCE = 5.0
"""The same where that is proven to be within pricing.tuning.TOLERANCE: small models are still proven to the end."""
SECONDS_BETWEEN_WRITES = 10.0
"""What a search has found is written to the cache at least so often while tasks finish."""
DEVICES_WORTH_BOUNDS = 32
"""On clusters of so many devices all meshes are bounded before any is composed: about a third of the work of composing
them all, and of 21 meshes of Llama-3-70B on 8x8:h100 the plan needs 5."""
WELL_DIVIDED = 0.8
"""Submeshes on which a smaller share of the FLOPs can be divided, relative to the best submesh, have bounds alone until
a pipeline may want them. On 3 nodes of 8 devices it is a third where sizes are powers of two. Set by hand."""
SLOWER_SCHEDULE = 0.01
"""A schedule is left when the lower bound of its pipelines exceeds what is minimised of the best pipeline of another
schedule by this share: T differs from what is minimised by less, upwards, where sends are few."""
BELOW_THE_OBJECTIVE = 0.05
"""By what share T may be below what is minimised: where a submesh runs several stages in turn, each with a choice of
its own, and where stages are unlike. Measured: 3.8 % at most, for Llama-3-8B on 1x8 and 4x8:h100 with 13 values of B;
2.4 % for unlike stages, of MoE-tiny with B = 16."""
