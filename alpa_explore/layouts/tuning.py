"""Weights of the fit of `layouts.fit`."""

SEVERAL_NODES_WEIGHT = 1.8
"""Weight of a measured run on several nodes. One run in fourteen is; without a weight the figures that only these runs
show would not be fitted."""
ROBUST_SCALE = 0.02
"""s of the robust loss ρ: relative errors above it count linearly, below it squared. Set by hand; not measured."""
PRIOR_WEIGHT = 0.2
"""τ, the weight that holds a figure near its start value. Set by hand; not measured."""
DIFFERENCE_STEP = 1e-5
"""Step of the finite differences of the Jacobian, in the logarithms of the figures."""
